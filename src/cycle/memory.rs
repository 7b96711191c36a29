//! What a new run takes over from the one before: quota has no runs. A pool is the same one while it
//! has its id, backend and account; what it used counts for every pool of its meter.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::config::Config;
use crate::ledger::{EventKind, PoolRecord, Run, Used};
use crate::model::{MeterKey, Outcome, PoolId, Usage};

/// Older uses that are no further apart are told as one, at the time of the last: a day's windows
/// then wait a little longer than they must, never shorter.
const GRAIN: SignedDuration = SignedDuration::from_mins(5);

/// The events that tell a new run what is known of its pools.
pub(super) fn carry(config: &Config, last: Option<&Run>, now: Timestamp) -> Vec<EventKind> {
    let meters: BTreeMap<PoolId, MeterKey> =
        config.pools().iter().map(|pool| (pool.pool_id(), pool.meter())).collect();
    let mut used = Vec::new();
    let mut facts = Vec::new();
    if let Some(last) = last {
        for (pool, record) in &last.pools {
            let Some(meter) = last.meters.get(pool) else { continue };
            // Any pool of the meter can carry what was used of it.
            let heir = meters.get_key_value(pool).filter(|(_, own)| *own == meter);
            let Some((heir, _)) = heir.or_else(|| meters.iter().find(|(_, own)| *own == meter))
            else {
                continue;
            };
            used.extend(recent(heir, &record.recent, now));
            if heir == pool {
                facts.extend(still_true(pool, record, now));
            }
        }
    }
    used.sort_by_key(|used| used.at);
    facts.insert(0, EventKind::Metered { meters, used });
    facts
}

/// What of a pool's state does not end with the run. A settle without an end is asked for once in
/// each run, unless it is a refused key: that ends with another key.
fn still_true(pool: &PoolId, record: &PoolRecord, now: Timestamp) -> Vec<EventKind> {
    let mut facts = Vec::new();
    let pool = || pool.clone();
    if let Some(limits) = record.learned {
        facts.push(EventKind::LimitLearned { pool: pool(), limits });
    }
    if let Some(usd_per_mtok) = record.usd_per_mtok {
        facts.push(EventKind::CostObserved { pool: pool(), usd_per_mtok });
    }
    if let Some(per_estimate) = record.input_scale {
        facts.push(EventKind::TokensObserved { pool: pool(), per_estimate });
    }
    if let Some(pause) = record.paused.as_ref().filter(|pause| pause.until > now) {
        facts.push(EventKind::PoolPaused {
            pool: pool(),
            until: pause.until,
            outcome: pause.outcome,
            evidence: pause.evidence.clone(),
            step: pause.step,
        });
    }
    let holds = |until: Option<Timestamp>, outcome, key: &Option<String>| match until {
        Some(until) => until > now,
        None => outcome == Outcome::Auth && key.is_some(),
    };
    let settled = record.settled.as_ref();
    if let Some(settled) = settled.filter(|s| holds(s.until, s.outcome, &s.key)) {
        facts.push(EventKind::PoolSettled {
            pool: pool(),
            outcome: settled.outcome,
            until: settled.until,
            evidence: settled.evidence.clone(),
            key: settled.key.clone(),
        });
    }
    facts
}

/// What was used in the last day, older uses in grains.
fn recent(pool: &PoolId, uses: &[(Timestamp, Usage)], now: Timestamp) -> Vec<Used> {
    let since = |length| now.checked_sub(length).unwrap_or(now);
    let (old, day) = (since(GRAIN), since(SignedDuration::from_hours(24)));
    let mut out: Vec<Used> = Vec::new();
    let mut grain = Timestamp::MIN;
    for (at, usage) in uses.iter().filter(|(at, _)| *at > day) {
        match out.last_mut() {
            Some(used) if *at <= old && at.duration_since(grain) < GRAIN => {
                used.at = used.at.max(*at);
                used.usage += *usage;
            }
            _ => {
                grain = *at;
                out.push(Used { pool: pool.clone(), at: *at, usage: *usage });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{carry, recent};
    use crate::config::{Config, PoolConfig};
    use crate::ledger::{EventKind, PoolPause, PoolRecord, PoolSettle, Run};
    use crate::model::{Outcome, PoolId, Provider, Usage};
    use jiff::{SignedDuration, Timestamp};

    fn at(minutes: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minutes)
    }

    fn requests(requests: u32) -> Usage {
        Usage { requests, ..Usage::default() }
    }

    #[test]
    fn a_day_is_kept_in_grains_and_the_last_minutes_as_they_were() {
        let uses: Vec<_> = [0, 1_000, 1_001, 1_004, 1_006, 1_438, 1_439]
            .into_iter()
            .map(|minute| (at(minute), requests(1)))
            .collect();
        let kept = recent(&PoolId::new("p"), &uses, at(1_440));
        let kept: Vec<_> = kept.iter().map(|used| (used.at, used.usage.requests)).collect();
        let want = [(1_004, 3), (1_006, 1), (1_438, 1), (1_439, 1)];
        assert_eq!(kept, want.map(|(minute, n)| (at(minute), n)));
    }

    fn pool(id: &str, account: &str) -> PoolConfig {
        let mut pool = PoolConfig::new(Provider::OpenaiCompatible, "m");
        pool.id = Some(id.to_owned());
        pool.backend = Some("b".to_owned());
        pool.account = Some(account.to_owned());
        pool
    }

    fn config(pools: Vec<PoolConfig>) -> Config {
        Config { pools, ..Config::default() }
    }

    /// A run whose pools `one` and `two` drew on `mine`, with this record each.
    fn run(record: &PoolRecord) -> Run {
        let mut run = Run::default();
        for id in ["one", "two"] {
            let pool = pool(id, "mine");
            run.meters.insert(pool.pool_id(), pool.meter());
            run.pools.insert(pool.pool_id(), record.clone());
        }
        run
    }

    #[test]
    fn uses_stay_with_the_meter_and_states_with_the_pool() {
        let settle = |outcome, until, key: Option<&str>| PoolSettle {
            outcome,
            until,
            evidence: String::new(),
            key: key.map(str::to_owned),
        };
        let mut record = PoolRecord {
            recent: vec![(at(9), requests(2))],
            settled: Some(settle(Outcome::Auth, None, Some("salt:tag"))),
            paused: Some(PoolPause {
                until: at(20),
                outcome: Outcome::RateLimited,
                evidence: String::new(),
                step: 1,
            }),
            ..PoolRecord::default()
        };
        let told = |record: &PoolRecord, account| {
            let last = run(record);
            let told = carry(&config(vec![pool("one", account)]), Some(&last), at(10));
            let Some(EventKind::Metered { used, .. }) = told.first() else { panic!("{told:?}") };
            (used.iter().map(|used| used.usage.requests).sum::<u32>(), told.len() - 1)
        };
        assert_eq!(told(&record, "mine"), (4, 2));
        assert_eq!(told(&record, "other"), (0, 0));
        for (outcome, until) in [
            (Outcome::CreditExhausted, None),
            (Outcome::Auth, None),
            (Outcome::ModelUnavailable, Some(at(10))),
        ] {
            record.settled = Some(settle(outcome, until, None));
            assert_eq!(told(&record, "mine"), (4, 1), "{outcome:?}");
        }
        record.settled = Some(settle(Outcome::ModelUnavailable, Some(at(11)), None));
        assert_eq!(told(&record, "mine"), (4, 2));
    }
}
