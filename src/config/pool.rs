//! One entry of `pools`: what scheduling needs of it, and how to reach it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize, Serializer};
use url::Url;

use super::{HumanDuration, PoolNetwork, known_model};
use crate::model::{Limits, MeterKey, Pool, PoolId, Provider, Tier};

/// Context window in tokens where neither the configuration nor the table says one.
const UNKNOWN_CONTEXT_TOKENS: u64 = 32_000;
/// Output limit in tokens where neither the configuration nor the table says one.
const UNKNOWN_OUTPUT_TOKENS: u64 = 4_096;

/// The endpoint that codex speaks to with a key of its vendor.
const OPENAI: &str = "https://api.openai.com/v1";
/// The endpoint that claude speaks to with a key of its vendor.
const ANTHROPIC: &str = "https://api.anthropic.com/v1";

/// One pool: a (backend, account, model) with its own quota.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PoolConfig {
    /// Explicit id; `provider[#account]/model` where absent.
    #[serde(default)]
    pub id: Option<String>,
    /// Who does the work.
    pub provider: Provider,
    /// Model name as the backend knows it; may be absent for plain commands and hosts.
    #[serde(default)]
    pub model: String,
    /// The real service behind the transport; the endpoint's host, else the provider, where absent.
    #[serde(default)]
    pub backend: Option<String>,
    /// Whose meter it is; the name of the key's variable, else `default`, where absent.
    #[serde(default)]
    pub account: Option<String>,
    /// Endpoint, for example `https://integrate.api.nvidia.com/v1`.
    #[serde(default)]
    pub base_url: Option<String>,
    /// Name of the environment variable that holds the key. Never the key itself.
    #[serde(default)]
    #[schemars(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]*$"))]
    pub key_env: Option<String>,
    /// Capability; unknown where absent, and then it passes every floor.
    #[serde(default)]
    pub tier: Option<Tier>,
    /// Context window in tokens.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub context_tokens: Option<u64>,
    /// Output limit in tokens.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub output_tokens: Option<u64>,
    /// Declared limits; undeclared ones are learned.
    #[serde(default)]
    pub limits: Limits,
    /// US dollars per million tokens; 0 = free, unknown where absent.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub cost_per_mtok: Option<f64>,
    /// Program and arguments of a command pool; `{prompt-file}`, `{result-file}`, `{paths}`, `{node}`,
    /// `{workdir}`, `{base-url}`. Of an agent: how its program is started, where that is not its name
    /// alone.
    #[serde(default)]
    pub command: Vec<String>,
    /// Further arguments of an agent.
    #[serde(default)]
    pub args: Vec<String>,
    /// The version of an agent that must be installed; any where absent.
    #[serde(default)]
    pub version: Option<String>,
    /// Names of further environment variables that the worker may see.
    #[serde(default)]
    pub env: Vec<String>,
    /// Where the worker's program may connect to.
    #[serde(default)]
    pub network: PoolNetwork,
    /// How long one attempt may take; `dispatch.attempt-timeout` where absent.
    #[serde(default)]
    pub timeout: Option<HumanDuration>,
    /// How the model is asked for edits.
    #[serde(default)]
    pub tools: ToolMode,
    /// Further request headers.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderValue>,
}

/// How the model is asked for edits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ToolMode {
    /// Tool calls, stepping down when the endpoint has none.
    #[default]
    Auto,
    /// JSON answers.
    Json,
    /// A fenced text format.
    Plain,
}

/// The value of a request header: a text, or `{env: NAME}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderValue {
    /// This text.
    Text(String),
    /// The content of this environment variable.
    Env(String),
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct FromEnv {
    /// Name of the environment variable.
    env: String,
}

impl Serialize for HeaderValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Env(env) => FromEnv { env: env.clone() }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for HeaderValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = HeaderValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or `{env: NAME}`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<HeaderValue, E> {
                Ok(HeaderValue::Text(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HeaderValue, A::Error> {
                let FromEnv { env } = FromEnv::deserialize(MapAccessDeserializer::new(map))?;
                Ok(HeaderValue::Env(env))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for HeaderValue {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "HeaderValue".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let from_env = generator.subschema_for::<FromEnv>();
        json_schema!({ "anyOf": [{ "type": "string" }, from_env] })
    }
}

/// The provider's name as the configuration spells it.
pub(super) const fn provider_name(provider: Provider) -> &'static str {
    match provider {
        Provider::OpenaiCompatible => "openai-compatible",
        Provider::Codex => "codex",
        Provider::Opencode => "opencode",
        Provider::ClaudeWorker => "claude-worker",
        Provider::Agy => "agy",
        Provider::SubprocessTemplate => "subprocess-template",
        Provider::WorkerCommand => "worker-command",
        Provider::Host => "host",
    }
}

impl PoolConfig {
    /// A pool of this provider and model with nothing else declared.
    #[must_use]
    pub fn new(provider: Provider, model: impl Into<String>) -> Self {
        Self {
            id: None,
            provider,
            model: model.into(),
            backend: None,
            account: None,
            base_url: None,
            key_env: None,
            tier: None,
            context_tokens: None,
            output_tokens: None,
            limits: Limits::default(),
            cost_per_mtok: None,
            command: Vec::new(),
            args: Vec::new(),
            version: None,
            env: Vec::new(),
            network: PoolNetwork::Any,
            timeout: None,
            tools: ToolMode::Auto,
            headers: BTreeMap::new(),
        }
    }

    /// The explicit id, else `provider[#account]/model` (without `/model` where there is none).
    #[must_use]
    pub fn pool_id(&self) -> PoolId {
        if let Some(id) = &self.id {
            return PoolId::new(id);
        }
        let mut id = provider_name(self.provider).to_owned();
        if let Some(account) = &self.account {
            id.push('#');
            id.push_str(account);
        }
        if !self.model.is_empty() {
            id.push('/');
            id.push_str(&self.model);
        }
        PoolId::new(id)
    }

    /// Where requests go: declared, else the vendor's own endpoint for an agent with a key. `None` for
    /// an agent that signs in by itself, and for programs.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        let own = match self.provider {
            Provider::Codex => Some(OPENAI),
            Provider::ClaudeWorker => Some(ANTHROPIC),
            _ => None,
        };
        self.base_url.as_deref().or(self.key_env.as_ref().and(own))
    }

    /// The program of an agent or a command, with the arguments that come first.
    #[must_use]
    pub fn launcher(&self) -> Vec<String> {
        if !self.command.is_empty() {
            return self.command.clone();
        }
        let name = match self.provider {
            Provider::Codex => "codex",
            Provider::Opencode => "opencode",
            Provider::ClaudeWorker => "claude",
            Provider::Agy => "agy",
            _ => return Vec::new(),
        };
        vec![name.to_owned()]
    }

    /// `host` or `host:port` (where the port is not the scheme's own) of the endpoint.
    #[must_use]
    pub fn endpoint(&self) -> Option<String> {
        let url = Url::parse(self.address()?).ok()?;
        let host = url.host_str()?.to_ascii_lowercase();
        Some(match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host,
        })
    }

    /// Whose quota it draws on. The account of a bare key is its variable's name, never its value.
    #[must_use]
    pub fn meter(&self) -> MeterKey {
        MeterKey {
            backend: self
                .backend
                .clone()
                .or_else(|| self.endpoint())
                .unwrap_or_else(|| provider_name(self.provider).to_owned()),
            account: self
                .account
                .clone()
                .or_else(|| self.key_env.clone())
                .unwrap_or_else(|| "default".to_owned()),
        }
    }

    /// (context, output) in tokens: declared, else the known model's, else 32 000 / 4 096. A known
    /// or fallback output limit never exceeds a quarter of a smaller declared window.
    #[must_use]
    pub fn windows(&self) -> (u64, u64) {
        let known = known_model(&self.model);
        let context = self
            .context_tokens
            .or(known.map(|k| k.context_tokens))
            .unwrap_or(UNKNOWN_CONTEXT_TOKENS);
        let output = self.output_tokens.unwrap_or_else(|| {
            let usual = known.map_or(UNKNOWN_OUTPUT_TOKENS, |k| k.output_tokens);
            if usual < context { usual } else { (context / 4).max(1) }
        });
        (context, output)
    }

    /// What scheduling needs to know.
    #[must_use]
    pub fn to_pool(&self) -> Pool {
        let (context_tokens, output_tokens) = self.windows();
        Pool {
            id: self.pool_id(),
            provider: self.provider,
            model: self.model.clone(),
            meter: self.meter(),
            tier: self.tier,
            context_tokens,
            output_tokens,
            limits: self.limits,
            cost_per_mtok: self.cost_per_mtok,
            input_scale: 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PoolConfig, Provider};

    #[test]
    fn ids_meters_and_windows_are_derived() {
        let mut pool = PoolConfig::new(Provider::OpenaiCompatible, "vendor/tiny");
        assert_eq!(pool.pool_id().0, "openai-compatible/vendor/tiny");
        assert_eq!(pool.windows(), (32_000, 4_096));
        pool.base_url = Some("http://Localhost:8000/v1".to_owned());
        pool.key_env = Some("NIM_KEY".to_owned());
        assert_eq!(pool.meter().backend, "localhost:8000");
        assert_eq!(pool.meter().account, "NIM_KEY");
        pool.account = Some("team".to_owned());
        assert_eq!(pool.pool_id().0, "openai-compatible#team/vendor/tiny");
        assert_eq!(pool.meter().account, "team");
        pool.context_tokens = Some(2_000);
        assert_eq!(pool.windows(), (2_000, 500));
        let mut agent = PoolConfig::new(Provider::Codex, "m");
        assert_eq!((agent.address(), agent.meter().backend.as_str()), (None, "codex"));
        assert_eq!(agent.launcher(), ["codex"]);
        agent.key_env = Some("OPENAI_API_KEY".to_owned());
        // One meter with every other transport of that key.
        assert_eq!(agent.meter().backend, "api.openai.com");
        agent.base_url = Some("http://localhost:1/v1".to_owned());
        assert_eq!(agent.meter().backend, "localhost:1");
        assert_eq!(PoolConfig::new(Provider::Host, "").pool_id().0, "host");
        assert_eq!(PoolConfig::new(Provider::Codex, "gpt-5-codex").windows(), (400_000, 128_000));
    }
}
