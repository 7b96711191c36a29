//! The two input files of `simulate`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::world::{Outage, ServiceModel};
use crate::config::known_model;
use crate::model::{Limits, MeterKey, NodeId, Outcome, Pool, PoolId, Provider, Severity, Tier};
use crate::scheduling::{Millis, NodeSpec, PoolState, ServiceEstimate};

/// Largest accepted file, bytes.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Most tokens of one request: far beyond any model, and small enough to be added up.
const TOKENS_MAX: u64 = 1_000_000_000_000;
/// Highest cost, US dollars per million tokens: far beyond any price, and small enough to be
/// added up.
const COST_MAX: f64 = 1.0e9;
/// Longest name of a pool, model, backend or account, characters.
const NAME_MAX: usize = 200;
/// Context window where nothing is known, tokens.
const CONTEXT_TOKENS: u64 = 32_000;
/// Output limit where nothing is known, tokens.
const OUTPUT_TOKENS: u64 = 4_096;

/// Why an input file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// Not the format; where and what, and what was perhaps meant.
    #[error("{message}")]
    Format {
        /// The parser's words with the position.
        message: String,
        /// The nearest known key.
        nearest: Option<String>,
    },
    /// A value out of range.
    #[error("{0}")]
    Value(String),
    /// Too large.
    #[error("the file is larger than {MAX_BYTES} bytes")]
    Size,
}

/// A plan: any JSON object with `nodes`; further keys beside it are ignored.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[schemars(title = "overhaul simulate --plan")]
struct PlanFile {
    /// The nodes, as `overhaul plan --json` prints them; only `id` is required.
    nodes: Vec<NodeInput>,
}

/// One node; only `id` is required.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct NodeInput {
    /// Unique.
    id: NodeId,
    /// Hard dependencies.
    #[serde(default)]
    depends_on: Vec<NodeId>,
    /// Order only.
    #[serde(default)]
    after: Vec<NodeId>,
    /// Capability floor.
    #[serde(default = "standard")]
    tier: Tier,
    /// Highest severity.
    #[serde(default = "medium")]
    severity: Severity,
    /// Estimated input tokens.
    #[serde(default = "input_tokens")]
    input_tokens: u64,
    /// Output envelope, tokens.
    #[serde(default = "output_tokens")]
    output_tokens: u64,
    /// Work in seconds on a pool of speed 1; replaces the pool's own formula.
    #[serde(default)]
    service_seconds: Option<f64>,
    /// Of the plan; not needed here.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted, not used")]
    title: Option<serde_json::Value>,
    /// Of the plan; not needed here.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted, not used")]
    findings: Option<serde_json::Value>,
    /// Of the plan; not needed here.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted, not used")]
    writes: Option<serde_json::Value>,
    /// Of the plan; not needed here.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted, not used")]
    creates: Option<serde_json::Value>,
    /// Of the plan; not needed here.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted, not used")]
    verify: Option<serde_json::Value>,
    /// Of the plan; not needed here.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted, not used")]
    verify_waived: Option<serde_json::Value>,
}

fn standard() -> Tier {
    Tier::Standard
}
fn medium() -> Severity {
    Severity::Medium
}
fn input_tokens() -> u64 {
    8_000
}
fn output_tokens() -> u64 {
    2_000
}

/// The pools: an object with `pools`, or a bare list.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(title = "overhaul simulate --pools")]
struct PoolsFile {
    /// The pools.
    pools: Vec<PoolInput>,
}

/// One pool; only `id`, or `provider` and `model`, are needed.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct PoolInput {
    /// Unique; `provider[#account]/model` where absent.
    #[serde(default)]
    id: Option<String>,
    /// Who does the work.
    #[serde(default = "openai_compatible")]
    provider: Provider,
    /// Model name.
    #[serde(default)]
    model: String,
    /// Account: pools with the same `backend` and `account` share one meter. A pool of its own where
    /// absent.
    #[serde(default)]
    account: Option<String>,
    /// The service behind it; the provider where absent.
    #[serde(default)]
    backend: Option<String>,
    /// Capability; unknown passes every floor.
    #[serde(default)]
    tier: Option<Tier>,
    /// Context window; the known table for the model, else 32 000.
    #[serde(default)]
    context_tokens: Option<u64>,
    /// Output limit; the known table for the model, else 4 096.
    #[serde(default)]
    output_tokens: Option<u64>,
    /// Declared limits.
    #[serde(default)]
    limits: Limits,
    /// US dollars per million tokens; 0 = free.
    #[serde(default)]
    cost_per_mtok: Option<f64>,
    /// How it behaves.
    #[serde(default)]
    service: Option<ServiceInput>,
}

fn openai_compatible() -> Provider {
    Provider::OpenaiCompatible
}

/// How a pool behaves. Where the whole block is absent: 20 s + 0.5 s per 1 000 tokens in + 20 s per
/// 1 000 tokens out.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ServiceInput {
    /// Fixed seconds per attempt.
    #[serde(default)]
    base_seconds: f64,
    /// Seconds per 1 000 input tokens.
    #[serde(default)]
    seconds_per_input_ktok: f64,
    /// Seconds per 1 000 output tokens.
    #[serde(default)]
    seconds_per_output_ktok: f64,
    /// Divides every duration, also a node's own `service-seconds`.
    #[serde(default = "one")]
    speed: f64,
    /// Durations vary by this fraction around the expected one, 0 to 1.
    #[serde(default)]
    jitter: f64,
    /// Probability of each outcome; the rest is success.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, f64>")]
    outcomes: BTreeMap<Outcome, f64>,
    /// The reset that it states with a limit.
    #[serde(default)]
    reset_seconds: Option<f64>,
    /// When it does not answer.
    #[serde(default)]
    outages: Vec<OutageInput>,
}

fn one() -> f64 {
    1.0
}

/// Seconds from the start.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct OutageInput {
    /// First second.
    from_s: f64,
    /// First second after.
    to_s: f64,
}

/// JSON Schema of the plan file.
#[must_use]
pub fn plan_schema() -> schemars::Schema {
    schemars::generate::SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<PlanFile>()
}

/// JSON Schema of the pools file.
#[must_use]
pub fn pools_schema() -> schemars::Schema {
    schemars::generate::SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<PoolsFile>()
}

/// Reads a plan file (JSON).
///
/// # Errors
/// When it is not the format, or a value is out of range.
pub fn read_plan(text: &str) -> Result<Vec<NodeSpec>, InputError> {
    if text.len() > MAX_BYTES {
        return Err(InputError::Size);
    }
    let nodes = if text.trim_start().starts_with('[') {
        serde_json::from_str::<Vec<NodeInput>>(text)
    } else {
        serde_json::from_str::<PlanFile>(text).map(|file| file.nodes)
    };
    let nodes = nodes.map_err(|error| explain(&error.to_string()))?;
    nodes
        .into_iter()
        .map(|n| {
            for (key, tokens) in
                [("input-tokens", n.input_tokens), ("output-tokens", n.output_tokens)]
            {
                if tokens > TOKENS_MAX {
                    let place = format!("node '{}': {key}", n.id);
                    return Err(InputError::Value(format!("{place} must be at most {TOKENS_MAX}")));
                }
            }
            let place = format!("node '{}': service-seconds", n.id);
            let service = n.service_seconds.map(|s| millis(s, &place)).transpose()?;
            Ok(NodeSpec {
                depends_on: n.depends_on,
                after: n.after,
                tier: n.tier,
                severity: n.severity,
                input_tokens: n.input_tokens,
                output_tokens: n.output_tokens,
                service,
                ..NodeSpec::new(n.id)
            })
        })
        .collect()
}

/// Reads a pools file (YAML, which JSON is part of).
///
/// # Errors
/// When it is not the format, or a value is out of range.
pub fn read_pools(text: &str) -> Result<Vec<(PoolState, ServiceModel)>, InputError> {
    if text.len() > MAX_BYTES {
        return Err(InputError::Size);
    }
    let first =
        text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with('#') && *l != "---");
    let bare = first.is_some_and(|l| l == "-" || l.starts_with("- ") || l.starts_with('['));
    let pools = if bare {
        serde_yaml::from_str::<Vec<PoolInput>>(text)
    } else {
        serde_yaml::from_str::<PoolsFile>(text).map(|file| file.pools)
    };
    let pools = pools.map_err(|error| explain(&error.to_string()))?;
    if pools.is_empty() {
        return Err(InputError::Value("`pools` is empty: name at least one pool".to_owned()));
    }
    pools.into_iter().enumerate().map(|(place, input)| pool(place, input)).collect()
}

fn pool(place: usize, input: PoolInput) -> Result<(PoolState, ServiceModel), InputError> {
    let provider = serde_json::to_value(input.provider)
        .ok()
        .and_then(|v| v.as_str().map(str::to_owned))
        .unwrap_or_default();
    let id = input.id.unwrap_or_else(|| match &input.account {
        Some(account) => format!("{provider}#{account}/{}", input.model),
        None => format!("{provider}/{}", input.model),
    });
    let known = known_model(&input.model);
    let texts = [
        ("id", id.as_str()),
        ("model", &input.model),
        ("account", input.account.as_deref().unwrap_or("-")),
        ("backend", input.backend.as_deref().unwrap_or("-")),
    ];
    for (key, text) in texts {
        let long = text.chars().count() > NAME_MAX;
        if long || text.chars().any(char::is_control) || (text.is_empty() && key != "model") {
            let shown: String = text.chars().take(60).flat_map(char::escape_debug).collect();
            return Err(InputError::Value(format!(
                "pool {}: the {key} '{shown}' must have 1 to {NAME_MAX} characters, none of them \
                 control characters",
                place + 1
            )));
        }
    }
    if input.cost_per_mtok.is_some_and(|c| !(0.0..=COST_MAX).contains(&c)) {
        return Err(InputError::Value(format!(
            "pool '{id}': cost-per-mtok must lie in 0 to {COST_MAX}"
        )));
    }
    let meter = match input.account {
        Some(account) => MeterKey { backend: input.backend.unwrap_or(provider), account },
        None => MeterKey { backend: format!("pool {id}"), account: String::new() },
    };
    let (service, model) = match input.service {
        Some(service) => behaviour(&id, service)?,
        None => (ServiceEstimate::default(), ServiceModel::default()),
    };
    let pool = Pool {
        id: PoolId::new(id),
        provider: input.provider,
        meter,
        tier: input.tier,
        context_tokens: input
            .context_tokens
            .or(known.map(|k| k.context_tokens))
            .unwrap_or(CONTEXT_TOKENS),
        output_tokens: input
            .output_tokens
            .or(known.map(|k| k.output_tokens))
            .unwrap_or(OUTPUT_TOKENS),
        model: input.model,
        limits: input.limits,
        cost_per_mtok: input.cost_per_mtok,
        input_scale: 1.0,
    };
    Ok((PoolState { service, ..PoolState::from(pool) }, model))
}

fn behaviour(id: &str, s: ServiceInput) -> Result<(ServiceEstimate, ServiceModel), InputError> {
    let place = |key: &str| format!("pool '{id}': service.{key}");
    let base = millis(s.base_seconds, &place("base-seconds"))?;
    let input = millis(s.seconds_per_input_ktok, &place("seconds-per-input-ktok"))?;
    let output = millis(s.seconds_per_output_ktok, &place("seconds-per-output-ktok"))?;
    if !s.speed.is_finite() || s.speed <= 0.0 {
        return Err(InputError::Value(format!("{} must be above 0", place("speed"))));
    }
    if !(0.0..=1.0).contains(&s.jitter) {
        return Err(InputError::Value(format!("{} must lie in 0 to 1", place("jitter"))));
    }
    let sum: f64 = s.outcomes.values().sum();
    if s.outcomes.values().any(|p| !(0.0..=1.0).contains(p)) || sum > 1.0 + 1e-9 {
        return Err(InputError::Value(format!(
            "{}: probabilities must lie in 0 to 1 and add up to at most 1",
            place("outcomes")
        )));
    }
    let mut outages = Vec::new();
    for o in s.outages {
        let (from, to) = (millis(o.from_s, &place("outages"))?, millis(o.to_s, &place("outages"))?);
        if to < from {
            return Err(InputError::Value(format!("{} end before they begin", place("outages"))));
        }
        outages.push(Outage { from, to });
    }
    outages.sort_by_key(|o| o.from);
    #[expect(clippy::cast_precision_loss, reason = "bounded by millis()")]
    let service = ServiceEstimate {
        base: base as f64,
        per_input_ktok: input as f64,
        per_output_ktok: output as f64,
        speed: s.speed,
    };
    let reset = s.reset_seconds.map(|r| millis(r, &place("reset-seconds"))).transpose()?;
    let model = ServiceModel { jitter: s.jitter, outcomes: s.outcomes, reset, outages };
    Ok((service, model))
}

/// Seconds to milliseconds; at most a year.
fn millis(seconds: f64, place: &str) -> Result<Millis, InputError> {
    if !(0.0..=31_536_000.0).contains(&seconds) {
        return Err(InputError::Value(format!("{place} must lie in 0 to 31536000 seconds")));
    }
    #[expect(clippy::cast_possible_truncation, reason = "bounded above")]
    let ms = (seconds * 1_000.0).round() as Millis;
    Ok(ms)
}

/// The parser's message with the nearest known key or word.
fn explain(message: &str) -> InputError {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.contains("unknown field") || message.contains("unknown variant");
    let nearest = quoted.next().filter(|_| unknown).and_then(|word| {
        quoted
            .map(|known| (strsim::damerau_levenshtein(word, known), known))
            .min()
            .map(|(_, known)| known.to_owned())
    });
    InputError::Format { message: message.chars().take(600).collect(), nearest }
}
