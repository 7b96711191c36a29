//! Windows of well-known models, for pools that declare none.
//!
//! Context = the total window in tokens, output = the most that one answer may hold, both as the
//! vendor's model card or API reference gave them in 2025/26; where a card gives no output limit,
//! a cautious 8 192. A served model may have less (`--max-model-len`): then the configuration must
//! say so.

/// What is known of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownModel {
    /// Prefix of the model's name, lower-case, without the vendor's folder.
    pub prefix: &'static str,
    /// Context window in tokens.
    pub context_tokens: u64,
    /// Output limit in tokens.
    pub output_tokens: u64,
}

const fn m(prefix: &'static str, context_tokens: u64, output_tokens: u64) -> KnownModel {
    KnownModel { prefix, context_tokens, output_tokens }
}

const MODELS: &[KnownModel] = &[
    // OpenAI: platform.openai.com/docs/models
    m("gpt-3.5-turbo", 16_385, 4_096),
    m("gpt-4-turbo", 128_000, 4_096),
    m("gpt-4.1", 1_047_576, 32_768),
    m("gpt-4o", 128_000, 16_384),
    m("gpt-5", 400_000, 128_000),
    m("gpt-5-chat", 128_000, 16_384),
    m("gpt-oss", 131_072, 32_768),
    m("o3", 200_000, 100_000),
    m("o4-mini", 200_000, 100_000),
    m("codex-mini", 200_000, 100_000),
    // Anthropic: docs.anthropic.com, models overview
    m("claude-3-haiku", 200_000, 4_096),
    m("claude-3-5", 200_000, 8_192),
    m("claude-3-7-sonnet", 200_000, 64_000),
    m("claude-haiku-4", 200_000, 64_000),
    m("claude-sonnet-4", 200_000, 64_000),
    m("claude-opus-4", 200_000, 32_000),
    m("claude-opus-4-5", 200_000, 64_000),
    // Google: ai.google.dev/gemini-api/docs/models
    m("gemini-2.0-flash", 1_048_576, 8_192),
    m("gemini-2.5", 1_048_576, 65_536),
    m("gemini-3", 1_048_576, 65_536),
    m("gemma-3", 131_072, 8_192),
    // Meta, NVIDIA: model cards on huggingface.co and build.nvidia.com
    m("llama-3.1", 131_072, 8_192),
    m("llama3.1", 131_072, 8_192),
    m("llama-3.2", 131_072, 8_192),
    m("llama-3.3", 131_072, 8_192),
    m("llama-3.1-nemotron", 131_072, 8_192),
    m("llama-3.3-nemotron", 131_072, 8_192),
    // Qwen: model cards on huggingface.co/Qwen (native window, without YaRN)
    m("qwen2.5-coder", 32_768, 8_192),
    m("qwen3", 40_960, 8_192),
    m("qwen3-coder", 262_144, 65_536),
    m("qwen3-next", 262_144, 16_384),
    m("qwq-32b", 40_960, 8_192),
    // DeepSeek: api-docs.deepseek.com
    m("deepseek-chat", 128_000, 8_192),
    m("deepseek-reasoner", 128_000, 64_000),
    m("deepseek-r1", 128_000, 32_768),
    m("deepseek-v3", 128_000, 8_192),
    // Mistral: docs.mistral.ai, models overview
    m("codestral", 256_000, 8_192),
    m("devstral", 131_072, 8_192),
    m("mistral-large", 131_072, 8_192),
    m("mistral-small", 131_072, 8_192),
    m("mixtral-8x7b", 32_768, 8_192),
    m("mixtral-8x22b", 65_536, 8_192),
    // Others: model cards
    m("glm-4.5", 131_072, 65_536),
    m("glm-4.6", 200_000, 65_536),
    m("grok-code-fast", 256_000, 10_000),
    m("kimi-k2", 131_072, 16_384),
    m("phi-4", 16_384, 4_096),
    m("starcoder2", 16_384, 4_096),
];

/// The entry with the longest prefix of the model's last name part, case ignored.
#[must_use]
pub fn known_model(model: &str) -> Option<&'static KnownModel> {
    let name = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    MODELS.iter().filter(|k| name.starts_with(k.prefix)).max_by_key(|k| k.prefix.len())
}

/// Context window in tokens where neither the configuration nor the table says one.
const UNKNOWN_CONTEXT_TOKENS: u64 = 32_000;
/// Output limit in tokens where neither the configuration nor the table says one.
const UNKNOWN_OUTPUT_TOKENS: u64 = 4_096;

/// Who says how large a window is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowSource {
    /// The configuration.
    Declared,
    /// The table of known models, by the model's entry there.
    Known(&'static str),
    /// Nobody: a cautious value for a model that is not known.
    Unknown,
    /// The window: an answer gets a quarter of it.
    Quarter,
}

impl std::fmt::Display for WindowSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Declared => f.write_str("declared"),
            Self::Known(model) => write!(f, "known of {model}"),
            Self::Unknown => f.write_str("taken for a model that is not known"),
            Self::Quarter => f.write_str("a quarter of the window"),
        }
    }
}

/// What a model takes and gives at once, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Context window, the answer included.
    pub context_tokens: u64,
    /// Who says so.
    pub context_from: WindowSource,
    /// The most that one answer may hold.
    pub output_tokens: u64,
    /// Who says so.
    pub output_from: WindowSource,
}

/// The windows of a pool: declared, else the known model's, else 32 000 / 4 096. A known or fallback
/// output limit never exceeds a quarter of a smaller declared window.
#[must_use]
pub fn windows(model: &str, context: Option<u64>, output: Option<u64>) -> Windows {
    use WindowSource::{Declared, Known, Quarter, Unknown};
    let known = known_model(model);
    let from = known.map_or(Unknown, |k| Known(k.prefix));
    let (context_tokens, context_from) = match (context, known) {
        (Some(tokens), _) => (tokens, Declared),
        (None, Some(known)) => (known.context_tokens, from),
        (None, None) => (UNKNOWN_CONTEXT_TOKENS, from),
    };
    let usual = known.map_or(UNKNOWN_OUTPUT_TOKENS, |k| k.output_tokens);
    let (output_tokens, output_from) = match output {
        Some(tokens) => (tokens, Declared),
        None if usual < context_tokens => (usual, from),
        None => ((context_tokens / 4).max(1), Quarter),
    };
    Windows { context_tokens, context_from, output_tokens, output_from }
}

#[cfg(test)]
mod tests {
    use super::{MODELS, known_model};

    #[test]
    fn the_longest_prefix_of_the_last_part_counts() {
        let prefix = |model| known_model(model).map(|k| k.prefix);
        assert_eq!(prefix("qwen/Qwen3-Coder-480B-A35B-Instruct"), Some("qwen3-coder"));
        assert_eq!(prefix("qwen3:8b"), Some("qwen3"));
        assert_eq!(prefix("claude-opus-4-5-20251101"), Some("claude-opus-4-5"));
        assert_eq!(prefix("unheard-of"), None);
    }

    #[test]
    fn every_output_fits_its_window() {
        for known in MODELS {
            assert!(known.output_tokens < known.context_tokens, "{}", known.prefix);
            assert_eq!(known.prefix, known.prefix.to_ascii_lowercase());
        }
    }
}
