//! The eligible set of one cycle: declared, reached, not excluded, not settled, booked once.

use super::Settled;
use crate::model::{Pool, PoolId, Provider};

/// Did this process prove that it reaches the pool (key variable non-empty, launcher on PATH,
/// endpoint answers)?
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Yes.
    Reached,
    /// No, for this reason.
    Unreached(String),
}

/// One declared pool with what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared {
    /// The declaration.
    pub pool: Pool,
    /// Its endpoint as `host` or `host:port`, where it has one.
    pub endpoint: Option<String>,
    /// The account is known (declared, or for a host: proven), not derived.
    pub account_known: bool,
    /// The proof.
    pub reach: Reach,
    /// What the ledger says.
    pub settled: Option<Settled>,
}

/// Why a pool is not in the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dropped {
    /// Not proven reachable.
    Unreached(String),
    /// Excluded by this pattern.
    Excluded(String),
    /// Settled, without an end.
    Settled(Settled),
    /// The same account is already booked by this pool.
    SameAccount(PoolId),
    /// Plain commands need the command-workers policy.
    CommandWorkersOff,
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreached(why) => write!(f, "not reached: {why}"),
            Self::Excluded(pattern) => write!(f, "excluded by '{pattern}'"),
            Self::Settled(settled) => write!(f, "settled: {:?}", settled.outcome),
            Self::SameAccount(pool) => write!(f, "the same account is used by '{pool}'"),
            Self::CommandWorkersOff => f.write_str("command workers are off by policy"),
        }
    }
}

/// The set, with what is not in it and why.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EligibleSet {
    /// In, by id.
    pub pools: Vec<Pool>,
    /// Out, each with its reason.
    pub dropped: Vec<(PoolId, Dropped)>,
    /// Exclusions that match no declared pool.
    pub idle_exclusions: Vec<String>,
}

impl EligibleSet {
    /// Attended iff a host is in the set.
    #[must_use]
    pub fn attended(&self) -> bool {
        self.pools.iter().any(|p| p.provider == Provider::Host)
    }

    /// Pools that this process drives itself.
    pub fn in_process(&self, command_workers: bool) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(move |p| p.provider.is_in_process(command_workers))
    }

    /// Pools that a job of their own drives.
    pub fn host(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(|p| p.provider == Provider::Host)
    }
}

/// An exclusion that cannot be read; nothing runs before it is repaired.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no exclusion: use a provider, provider:model, or an endpoint host[:port]")]
pub struct ExclusionError(pub String);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Provider(Provider),
    Model(Provider, String),
    Endpoint { host: String, port: Option<u16> },
}

fn provider(name: &str) -> Option<Provider> {
    use serde::Deserialize as _;
    use serde::de::IntoDeserializer as _;
    let name = name.to_ascii_lowercase();
    let de: serde::de::value::StrDeserializer<'_, serde::de::value::Error> =
        name.as_str().into_deserializer();
    Provider::deserialize(de).ok()
}

/// Host (lower case, no trailing dot, no brackets) and port of an endpoint, with or without scheme
/// and path.
fn host_port(text: &str) -> Option<(String, Option<u16>)> {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, text),
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, Some(port.parse::<u16>().ok()?))
        }
        _ => (authority, None),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    let bad = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':'));
    if host.is_empty() || host.contains(bad) {
        return None;
    }
    let implied = match scheme {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    };
    Some((host.to_ascii_lowercase(), port.or(implied)))
}

fn parse(text: &str) -> Result<Pattern, ExclusionError> {
    let trimmed = text.trim();
    if let Some(provider) = provider(trimmed) {
        return Ok(Pattern::Provider(provider));
    }
    if let Some((name, model)) = trimmed.split_once(':')
        && let Some(provider) = provider(name)
        && !model.is_empty()
    {
        return Ok(Pattern::Model(provider, model.to_owned()));
    }
    let (host, port) = host_port(trimmed).ok_or_else(|| ExclusionError(text.to_owned()))?;
    Ok(Pattern::Endpoint { host, port })
}

fn matches(pattern: &Pattern, declared: &Declared) -> bool {
    let pool = &declared.pool;
    match pattern {
        Pattern::Provider(p) => pool.provider == *p,
        Pattern::Model(p, model) => pool.provider == *p && pool.model.eq_ignore_ascii_case(model),
        Pattern::Endpoint { host, port } => {
            let at = |text: &str| {
                host_port(text).is_some_and(|(h, p)| {
                    // An unknown port on either side counts as the same: exclusions fail closed.
                    h == *host && (port.is_none() || p.is_none() || p == *port)
                })
            };
            match &declared.endpoint {
                Some(endpoint) => at(endpoint) || at(&pool.meter.backend),
                None => pool.provider == Provider::OpenaiCompatible || at(&pool.meter.backend),
            }
        }
    }
}

/// Builds the set once per cycle.
///
/// # Errors
/// When an exclusion cannot be read.
pub fn eligible(
    declared: &[Declared],
    exclusions: &[String],
    command_workers: bool,
) -> Result<EligibleSet, ExclusionError> {
    let patterns: Vec<Pattern> = exclusions.iter().map(|e| parse(e)).collect::<Result<_, _>>()?;
    let mut set = EligibleSet::default();
    for (text, pattern) in exclusions.iter().zip(&patterns) {
        if !declared.iter().any(|d| matches(pattern, d)) {
            set.idle_exclusions.push(text.clone());
        }
    }
    let mut kept: Vec<&Declared> = Vec::new();
    for d in declared {
        let excluded = patterns.iter().position(|p| matches(p, d));
        let drop = if let Some(at) = excluded {
            Some(Dropped::Excluded(exclusions[at].clone()))
        } else if !d.pool.provider.is_in_process(command_workers)
            && d.pool.provider != Provider::Host
        {
            Some(Dropped::CommandWorkersOff)
        } else if let Reach::Unreached(why) = &d.reach {
            Some(Dropped::Unreached(why.clone()))
        } else {
            // A settle with an end stays in the set: its gate opens for one probe.
            d.settled.filter(|s| s.until.is_none()).map(Dropped::Settled)
        };
        match drop {
            Some(reason) => set.dropped.push((d.pool.id.clone(), reason)),
            None => kept.push(d),
        }
    }
    let collides = |host: &Declared, other: &Declared| {
        host.account_known
            && host.pool.meter.backend == other.pool.meter.backend
            && (!other.account_known || host.pool.meter.account == other.pool.meter.account)
    };
    for d in &kept {
        let rival = if d.pool.provider == Provider::Host {
            kept.iter().find(|o| o.pool.provider.is_in_process(command_workers) && collides(d, o))
        } else {
            None
        };
        match rival {
            Some(rival) => {
                let reason = Dropped::SameAccount(rival.pool.id.clone());
                set.dropped.push((d.pool.id.clone(), reason));
            }
            None => set.pools.push(d.pool.clone()),
        }
    }
    set.pools.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(set)
}
