//! Which key a pool was refused with, told so that a new key is noticed and nothing else is: a
//! salted, slow and very short digest. One in 65 536 keys has the same one, so it neither gives a
//! key away nor confirms one.

use std::fmt::Write as _;
use std::num::NonZeroU32;

use super::Env;
use crate::config::{Config, HeaderValue, PoolConfig};
use crate::ledger::{EventKind, Run};
use crate::model::Outcome;

/// Rounds of PBKDF2; some milliseconds, once per refused key and cycle.
const ROUNDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(19_999);

/// Everything that the pool shows to prove who it is; `None` when that is nothing.
fn secrets(pool: &PoolConfig, env: &Env) -> Option<String> {
    let of_header = |value: &HeaderValue| match value {
        HeaderValue::Env(name) => Some(name.clone()),
        HeaderValue::Text(_) => None,
    };
    let names = pool.key_env.iter().cloned().chain(pool.headers.values().filter_map(of_header));
    let values: Vec<String> = names.filter_map(|name| env(&name)).collect();
    let all: Vec<&str> = values.iter().map(|value| value.trim()).collect();
    let all = all.join("\0");
    (!all.is_empty()).then_some(all)
}

/// `salt:digest` of the pool's key now.
pub(super) fn tag(pool: &PoolConfig, env: &Env) -> Option<String> {
    let salt = format!("{:016x}", fastrand::u64(..));
    Some(format!("{salt}:{}", digest(&salt, &secrets(pool, env)?)))
}

/// Whether a text from elsewhere has the form of a tag.
pub(super) fn is_tag(text: &str) -> bool {
    let hex = |part: &str, length| {
        part.len() == length && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    text.split_once(':').is_some_and(|(salt, digest)| hex(salt, 16) && hex(digest, 4))
}

fn digest(salt: &str, secret: &str) -> String {
    let mut out = [0_u8; 2];
    let algorithm = ring::pbkdf2::PBKDF2_HMAC_SHA256;
    ring::pbkdf2::derive(algorithm, ROUNDS, salt.as_bytes(), secret.as_bytes(), &mut out);
    out.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn same(tag: &str, pool: &PoolConfig, env: &Env) -> bool {
    let Some((salt, old)) = tag.split_once(':') else { return true };
    // A job without the key can't tell.
    secrets(pool, env).is_none_or(|secret| digest(salt, &secret) == old)
}

/// Pools that were settled for a refused key and have another one now are asked again.
pub(super) fn lift(config: &Config, run: &Run, env: &Env) -> Vec<EventKind> {
    let changed = config.pools().iter().filter(|pool| {
        let settled = run.pools.get(&pool.pool_id()).and_then(|record| record.settled.as_ref());
        settled.is_some_and(|settled| {
            settled.outcome == Outcome::Auth
                && settled.key.as_ref().is_some_and(|tag| !same(tag, pool, env))
        })
    });
    changed
        .map(|pool| EventKind::PoolRestored { pool: pool.pool_id(), by: "another key".to_owned() })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{is_tag, same, tag};
    use crate::config::PoolConfig;
    use crate::model::Provider;

    #[test]
    fn another_key_is_noticed_and_the_tag_says_next_to_nothing() {
        let mut pool = PoolConfig::new(Provider::OpenaiCompatible, "m");
        assert_eq!(tag(&pool, &|_: &str| Some("k".to_owned())), None);
        pool.key_env = Some("KEY".to_owned());
        let with = |key: &'static str| move |_: &str| Some(key.to_owned());
        let told = tag(&pool, &with("first-key")).unwrap();
        assert!(is_tag(&told));
        assert!(
            !["", ":", "first-key", &told[1..], &told.to_uppercase()].map(is_tag).contains(&true)
        );
        assert!(same(&told, &pool, &with("first-key\n")));
        assert!(!same(&told, &pool, &with("second-key")));
        assert!(same(&told, &pool, &|_: &str| None));
        assert_eq!(told.split_once(':').unwrap().1.len(), 4);
        assert_ne!(told, tag(&pool, &with("first-key")).unwrap(), "salted");
    }
}
