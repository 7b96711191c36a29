//! The eligible set of one cycle: declared, reached, not excluded, not settled, booked once.

use super::Settled;
use super::wall::outcome_word;
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
    /// The operator's exclusion that it falls under.
    pub excluded: Option<String>,
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
            Self::Settled(settled) => write!(f, "settled: {}", outcome_word(settled.outcome)),
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
}

/// Builds the set once per cycle.
#[must_use]
pub fn eligible(declared: &[Declared], command_workers: bool) -> EligibleSet {
    let mut set = EligibleSet::default();
    let mut kept: Vec<&Declared> = Vec::new();
    for d in declared {
        let drop = if let Some(pattern) = &d.excluded {
            Some(Dropped::Excluded(pattern.clone()))
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
    set
}
