//! The two input files of `simulate`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::world::{Outage, ServiceModel};
use super::{configured, explain};
use crate::config::windows;
use crate::model::{
    Limits, MeterKey, NodeId, Outcome, Pool, PoolId, Provider, Severity, Tier, nearest,
};
use crate::scheduling::spec::whole_millis;
use crate::scheduling::{Millis, NodeSpec, PoolState, ServiceEstimate};

/// Largest accepted file, bytes.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Most tokens of one request: far beyond any model, and small enough to be added up.
const TOKENS_MAX: u64 = 1_000_000_000_000;
/// Highest cost, US dollars per million tokens: far beyond any price, and small enough to be
/// added up.
const COST_MAX: f64 = 1.0e9;
/// Longest time that is accepted, seconds: a year.
const SECONDS_MAX: f64 = 31_536_000.0;
/// Longest name of a pool, model, backend or account, characters.
const NAME_MAX: usize = 200;

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

/// A plan: any JSON object with `nodes`, further keys beside it are ignored; or a bare list of nodes.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[schemars(
    title = "overhaul simulate --plan",
    extend("type" = ["object", "array"], "items" = {"$ref": "#/$defs/NodeInput"})
)]
struct PlanFile {
    /// The nodes, as `overhaul plan --json` prints them; only `id` is required.
    nodes: Vec<NodeInput>,
}

/// One node; only `id` is required.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct NodeInput {
    /// Unique.
    id: NodeId,
    /// Hard dependencies.
    #[serde(default)]
    depends_on: Vec<NodeId>,
    /// Order only; a plan has it wherever two nodes may write the same file.
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
    #[schemars(range(max = TOKENS_MAX))]
    input_tokens: u64,
    /// Output envelope, tokens; a pool writes at most its own output limit.
    #[serde(default = "output_tokens")]
    #[schemars(range(max = TOKENS_MAX))]
    output_tokens: u64,
    /// Work in seconds on a pool of speed 1; replaces the pool's own formula.
    #[serde(default)]
    #[schemars(range(min = 0, max = SECONDS_MAX))]
    service_seconds: Option<f64>,
    /// Of the plan; not needed here.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted, not used")]
    title: Option<serde_json::Value>,
    /// Of the plan; not needed here.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted, not used")]
    findings: Option<serde_json::Value>,
    /// Of the plan; orders nothing here: where two nodes may write the same file, the plan says
    /// `after`.
    #[serde(default)]
    #[expect(dead_code, reason = "accepted, not used")]
    writes: Option<serde_json::Value>,
    /// Of the plan; orders nothing here, as `writes`.
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

/// The pools: an object with `pools`, or a bare list of pools.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(
    title = "overhaul simulate --pools",
    extend("type" = ["object", "array"], "items" = {"$ref": "#/$defs/PoolInput"})
)]
struct PoolsFile {
    /// The pools.
    pools: Vec<PoolInput>,
}

/// One pool; only an `id`, a `model` or a `provider` is needed.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schemars(extend("anyOf" = [
    {"required": ["id"]}, {"required": ["model"]}, {"required": ["provider"]}
]))]
struct PoolInput {
    /// Unique; `provider[#account]/model` where absent.
    #[serde(default)]
    id: Option<String>,
    /// Who does the work; `openai-compatible` where absent.
    #[serde(default)]
    provider: Option<Provider>,
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
    /// US dollars per million tokens; 0 = free, unknown where absent.
    #[serde(default)]
    #[schemars(range(min = 0, max = COST_MAX))]
    cost_per_mtok: Option<f64>,
    /// How it behaves.
    #[serde(default)]
    service: Option<ServiceInput>,
}

/// How a pool behaves. Where none of `base-seconds`, `seconds-per-input-ktok` and
/// `seconds-per-output-ktok` is given: 20 s + 0.5 s per 1 000 tokens in + 20 s per 1 000 tokens out.
/// Where one of them is, the others are 0.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct ServiceInput {
    /// Fixed seconds per attempt.
    #[serde(default)]
    #[schemars(range(min = 0, max = SECONDS_MAX))]
    base_seconds: Option<f64>,
    /// Seconds per 1 000 input tokens.
    #[serde(default)]
    #[schemars(range(min = 0, max = SECONDS_MAX))]
    seconds_per_input_ktok: Option<f64>,
    /// Seconds per 1 000 output tokens.
    #[serde(default)]
    #[schemars(range(min = 0, max = SECONDS_MAX))]
    seconds_per_output_ktok: Option<f64>,
    /// Divides every duration, also a node's own `service-seconds`; above 0.
    #[serde(default = "one")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    speed: f64,
    /// Durations vary by this fraction around the expected one, 0 to 1.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1))]
    jitter: f64,
    /// Probability of each outcome, 0 to 1, by its name; the rest is success. Hyphens in a name are
    /// as good as underscores.
    #[serde(default)]
    #[schemars(schema_with = "probabilities")]
    outcomes: BTreeMap<String, f64>,
    /// The reset that it states with a limit, seconds after the answer.
    #[serde(default)]
    #[schemars(range(min = 0, max = SECONDS_MAX))]
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
    #[schemars(range(min = 0, max = SECONDS_MAX))]
    from_s: f64,
    /// First second after.
    #[schemars(range(min = 0, max = SECONDS_MAX))]
    to_s: f64,
}

/// Every outcome.
const OUTCOMES: [Outcome; 13] = [
    Outcome::Success,
    Outcome::RateLimited,
    Outcome::CreditExhausted,
    Outcome::ModelUnavailable,
    Outcome::PacketTooLarge,
    Outcome::QuotaUnclassified,
    Outcome::Auth,
    Outcome::Transient,
    Outcome::Timeout,
    Outcome::BadRequest,
    Outcome::ContentFiltered,
    Outcome::InvalidResult,
    Outcome::Error,
];

fn outcome_names() -> Vec<String> {
    let name = |outcome| serde_json::to_value(outcome).ok()?.as_str().map(str::to_owned);
    OUTCOMES.into_iter().filter_map(name).collect()
}

fn probabilities(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut names = outcome_names();
    let kebab: Vec<String> =
        names.iter().filter(|n| n.contains('_')).map(|n| n.replace('_', "-")).collect();
    names.extend(kebab);
    schemars::json_schema!({
        "type": "object",
        "propertyNames": { "enum": names },
        "additionalProperties": { "type": "number", "minimum": 0, "maximum": 1 }
    })
}

/// The outcomes by their names; what one is called twice adds up.
fn outcomes(
    named: &BTreeMap<String, f64>,
    place: &str,
) -> Result<BTreeMap<Outcome, f64>, InputError> {
    let mut out = BTreeMap::new();
    for (name, probability) in named {
        let plain = serde_json::Value::from(name.replace('-', "_"));
        let Ok(outcome) = serde_json::from_value::<Outcome>(plain) else {
            let known = outcome_names();
            let words: Vec<&str> = known.iter().map(String::as_str).collect();
            let shown: String = name.chars().take(60).flat_map(char::escape_debug).collect();
            return Err(InputError::Format {
                message: format!("{place}: '{shown}' is no outcome; {} are", words.join(", ")),
                nearest: nearest(name, &words).map(str::to_owned),
            });
        };
        *out.entry(outcome).or_insert(0.0) += probability;
    }
    Ok(out)
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

/// Without the mark of its byte order, which some editors write.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Reads a plan file (JSON).
///
/// # Errors
/// When it is not the format, or a value is out of range.
pub fn read_plan(text: &str) -> Result<Vec<NodeSpec>, InputError> {
    if text.len() > MAX_BYTES {
        return Err(InputError::Size);
    }
    let text = without_mark(text);
    let nodes = if text.trim_start().starts_with('[') {
        serde_json::from_str::<Vec<NodeInput>>(text)
    } else {
        serde_json::from_str::<PlanFile>(text).map(|file| file.nodes)
    };
    let nodes = nodes.map_err(|error| explain::plan(text, &error))?;
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

/// Reads a pools file, or the pools of a configuration (YAML, which JSON is part of).
///
/// # Errors
/// When it is not the format, or a value is out of range.
pub fn read_pools(text: &str) -> Result<Vec<(PoolState, ServiceModel)>, InputError> {
    if text.len() > MAX_BYTES {
        return Err(InputError::Size);
    }
    let text = without_mark(text);
    let first =
        text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with('#') && *l != "---");
    let bare = first.is_some_and(|l| l == "-" || l.starts_with("- ") || l.starts_with('['));
    if !bare && configured::is_configuration(text) {
        return configured::read(text);
    }
    let pools = if bare {
        serde_yaml::from_str::<Vec<PoolInput>>(text)
    } else {
        serde_yaml::from_str::<PoolsFile>(text).map(|file| file.pools)
    };
    let pools = pools.map_err(|error| explain::explain(&error.to_string()))?;
    if pools.is_empty() {
        return Err(InputError::Value("`pools` is empty: name at least one pool".to_owned()));
    }
    pools.into_iter().enumerate().map(|(place, input)| pool(place, input)).collect()
}

fn pool(place: usize, input: PoolInput) -> Result<(PoolState, ServiceModel), InputError> {
    if input.id.is_none() && input.model.is_empty() && input.provider.is_none() {
        return Err(InputError::Value(format!("pool {}: give it an `id` or a `model`", place + 1)));
    }
    let provider_kind = input.provider.unwrap_or(Provider::OpenaiCompatible);
    let provider = serde_json::to_value(provider_kind)
        .ok()
        .and_then(|v| v.as_str().map(str::to_owned))
        .unwrap_or_default();
    let id = input.id.unwrap_or_else(|| {
        let account = input.account.as_ref().map(|a| format!("#{a}")).unwrap_or_default();
        let model = if input.model.is_empty() { "" } else { "/" };
        format!("{provider}{account}{model}{}", input.model)
    });
    let windows = windows(&input.model, input.context_tokens, input.output_tokens);
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
        provider: provider_kind,
        meter,
        tier: input.tier,
        context_tokens: windows.context_tokens,
        output_tokens: windows.output_tokens,
        model: input.model,
        limits: input.limits,
        cost_per_mtok: input.cost_per_mtok,
        input_scale: 1.0,
    };
    Ok((PoolState { service, ..PoolState::from(pool) }, model))
}

fn behaviour(id: &str, s: ServiceInput) -> Result<(ServiceEstimate, ServiceModel), InputError> {
    let place = |key: &str| format!("pool '{id}': service.{key}");
    let expected = expected(&s, place)?;
    if !s.speed.is_finite() || s.speed <= 0.0 {
        return Err(InputError::Value(format!(
            "{} must be a finite number above 0",
            place("speed")
        )));
    }
    if !(0.0..=1.0).contains(&s.jitter) {
        return Err(InputError::Value(format!("{} must lie in 0 to 1", place("jitter"))));
    }
    let outcomes = outcomes(&s.outcomes, &place("outcomes"))?;
    let sum: f64 = outcomes.values().sum();
    if outcomes.values().any(|p| !(0.0..=1.0).contains(p)) || sum > 1.0 + 1e-9 {
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
    let service = ServiceEstimate { speed: s.speed, ..expected };
    let reset = s.reset_seconds.map(|r| millis(r, &place("reset-seconds"))).transpose()?;
    let model = ServiceModel { jitter: s.jitter, outcomes, reset, outages };
    Ok((service, model))
}

/// The formula that is given, or the one that holds where nothing of it is.
fn expected(
    s: &ServiceInput,
    place: impl Fn(&str) -> String,
) -> Result<ServiceEstimate, InputError> {
    let terms = [
        (s.base_seconds, "base-seconds"),
        (s.seconds_per_input_ktok, "seconds-per-input-ktok"),
        (s.seconds_per_output_ktok, "seconds-per-output-ktok"),
    ];
    if terms.iter().all(|(term, _)| term.is_none()) {
        return Ok(ServiceEstimate::default());
    }
    let [base, per_input_ktok, per_output_ktok] =
        terms.map(|(term, key)| exact_millis(term.unwrap_or(0.0), &place(key)));
    let (base, per_input_ktok) = (base?, per_input_ktok?);
    let per_output_ktok = per_output_ktok?;
    Ok(ServiceEstimate { base, per_input_ktok, per_output_ktok, speed: 1.0 })
}

/// Seconds to whole milliseconds, rounded up: nothing ends earlier than was said.
fn millis(seconds: f64, place: &str) -> Result<Millis, InputError> {
    Ok(whole_millis(exact_millis(seconds, place)?))
}

/// Seconds to milliseconds.
fn exact_millis(seconds: f64, place: &str) -> Result<f64, InputError> {
    if !(0.0..=SECONDS_MAX).contains(&seconds) {
        return Err(InputError::Value(format!("{place} must lie in 0 to {SECONDS_MAX} seconds")));
    }
    Ok(seconds * 1_000.0)
}
