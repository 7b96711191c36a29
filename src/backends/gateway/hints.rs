//! What an answer says of the limits behind it.

use jiff::Timestamp;

use super::Seen;
use crate::backends::classify::stated_seconds;
use crate::model::Outcome;
use crate::scheduling::outcome::RESET_MAX;
use crate::scheduling::{Dimension, LimitHint, Millis};

/// The hints of an answer that came at `now`, by the caller's clock. Resets are lengths: the other
/// side's clock may differ.
#[must_use]
pub fn limit_hints(seen: &Seen, now: Millis) -> Vec<LimitHint> {
    let observed = Timestamp::now();
    let hint = |dimension, remaining: u64, seconds: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "saturates, and is cut")]
        let length = ((seconds * 1_000.0) as Millis).clamp(0, RESET_MAX);
        LimitHint { dimension, remaining, reset_at: now.saturating_add(length) }
    };
    let read = |text: &str| stated_seconds(text, &seen.headers, observed);
    let mut hints = Vec::new();
    for (name, left) in &seen.headers {
        if name == "ratelimit" {
            hints.extend(joined(left).map(|(left, t)| hint(Dimension::Requests, left, t)));
        }
        if !(name.contains("ratelimit") && name.contains("remaining")) {
            continue;
        }
        let reset = seen.headers.get(&name.replace("remaining", "reset"));
        let Some(left) = left.trim().parse::<f64>().ok().filter(|l| l.is_finite() && *l >= 0.0)
        else {
            continue;
        };
        if let Some(seconds) = reset.and_then(|text| read(text)) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
            hints.push(hint(dimension(name), left as u64, seconds));
        }
    }
    // A limit that was hit with a stated end: whoever asks before it only hits it again.
    if let Some(failure) = &seen.failure
        && failure.outcome == Outcome::RateLimited
        && let Some(seconds) = failure.reset_seconds.filter(|s| s.is_finite() && *s > 0.0)
    {
        hints.push(hint(Dimension::Requests, 0, seconds));
    }
    hints
}

/// `x-ratelimit-remaining-tokens`, `anthropic-ratelimit-input-tokens-remaining` and their like.
fn dimension(name: &str) -> Dimension {
    match (name.contains("token"), name.contains("input"), name.contains("output")) {
        (true, true, false) => Dimension::InputTokens,
        (true, false, true) => Dimension::OutputTokens,
        (true, ..) => Dimension::Tokens,
        _ => Dimension::Requests,
    }
}

/// The one header of the IETF drafts: `limit=100, remaining=50, reset=30` and `"default";r=50;t=30`.
fn joined(text: &str) -> Option<(u64, f64)> {
    let field = |names: [&str; 2]| {
        let parts = text.split([',', ';']).filter_map(|part| part.trim().split_once('='));
        parts.filter(|(name, _)| names.contains(name)).find_map(|(_, v)| v.trim().parse().ok())
    };
    Some((field(["remaining", "r"])?, field(["reset", "t"]).map(|t: u64| t as f64)?))
}

#[cfg(test)]
mod tests {
    use super::limit_hints;
    use crate::backends::gateway::Seen;
    use crate::model::{Classification, Outcome};
    use crate::scheduling::{Dimension, LimitHint};

    fn hints(headers: &[(&str, &str)]) -> Vec<(Dimension, u64, i64)> {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let seen = Seen { headers, ..Seen::default() };
        let of = |h: LimitHint| (h.dimension, h.remaining, h.reset_at - 1_000);
        limit_hints(&seen, 1_000).into_iter().map(of).collect()
    }

    #[test]
    fn the_forms_of_the_vendors() {
        assert_eq!(
            hints(&[
                ("x-ratelimit-remaining-requests", "59"),
                ("x-ratelimit-reset-requests", "1s"),
                ("x-ratelimit-remaining-tokens", "149984"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ]),
            [(Dimension::Requests, 59, 1_000), (Dimension::Tokens, 149_984, 360_000)]
        );
        assert_eq!(
            hints(&[
                ("date", "Tue, 01 Jan 2030 00:00:00 GMT"),
                ("anthropic-ratelimit-input-tokens-remaining", "10"),
                ("anthropic-ratelimit-input-tokens-reset", "2030-01-01T00:00:30Z"),
                ("anthropic-ratelimit-output-tokens-remaining", "0"),
                ("anthropic-ratelimit-output-tokens-reset", "2030-01-01T00:01:00Z"),
            ]),
            [(Dimension::InputTokens, 10, 30_000), (Dimension::OutputTokens, 0, 60_000)]
        );
        for text in ["limit=100, remaining=5, reset=30", "\"default\";r=5;t=30"] {
            assert_eq!(hints(&[("ratelimit", text)]), [(Dimension::Requests, 5, 30_000)]);
        }
    }

    #[test]
    fn what_cannot_be_believed_says_nothing() {
        for (left, reset) in [("-1", "5"), ("NaN", "5"), ("x", "5"), ("3", "-5"), ("3", "never")] {
            let seen = hints(&[("x-ratelimit-remaining", left), ("x-ratelimit-reset", reset)]);
            assert_eq!(seen, [], "{left} {reset}");
        }
        assert_eq!(hints(&[("x-ratelimit-remaining", "3")]), []);
    }

    #[test]
    fn a_limit_with_an_end_closes_the_window() {
        let failure = |outcome, reset_seconds| Classification {
            temporary: false,
            outcome,
            reset_seconds,
            reset_at: None,
            rule: String::new(),
            evidence: String::new(),
        };
        let of = |failure| limit_hints(&Seen { failure: Some(failure), ..Seen::default() }, 0);
        let closed = of(failure(Outcome::RateLimited, Some(30.0)));
        assert_eq!((closed[0].remaining, closed[0].reset_at), (0, 30_000));
        assert!(of(failure(Outcome::RateLimited, None)).is_empty());
        assert!(of(failure(Outcome::CreditExhausted, Some(30.0))).is_empty());
    }
}
