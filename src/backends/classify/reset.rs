//! When a refused service says it will work again. Every stated reset is a claim: it is read from
//! headers, body fields and prose, in that order of trust, and checked before it is believed.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use regex::Regex;

use super::clock;

/// Longest believed reset, in seconds: one leap year. The longest real windows are monthly; an
/// absolute time that was read as a delay lies decades ahead.
pub const LONGEST: f64 = 366.0 * 86_400.0;

/// A number at or above this is an absolute time in milliseconds since 1970, not a delay.
const EPOCH_MILLIS: f64 = 1e12;
/// A number at or above this is an absolute time in seconds since 1970 (it is 2001), not a delay.
const EPOCH_SECONDS: f64 = 1e9;

/// A stated reset, not yet checked.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Claim {
    In(f64),
    At(Timestamp),
}

impl Claim {
    fn seconds(self, now: Timestamp) -> f64 {
        match self {
            Self::In(seconds) => seconds,
            Self::At(moment) => moment.duration_since(now).as_secs_f64(),
        }
    }

    /// The claim as (seconds, moment) where it can be believed.
    fn check(self, now: Timestamp) -> Option<Reset> {
        let seconds = self.seconds(now);
        if !seconds.is_finite() || !(0.0..=LONGEST).contains(&seconds) {
            return None;
        }
        let at = match self {
            Self::At(moment) => moment,
            Self::In(_) => {
                now.checked_add(jiff::SignedDuration::try_from_secs_f64(seconds).ok()?).ok()?
            }
        };
        Some(Reset { seconds, at })
    }
}

/// A checked reset.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reset {
    /// Seconds from the observation; finite, 0 to [`LONGEST`]. Zero is what some services really
    /// send; a caller that waits must put its own floor under it.
    pub seconds: f64,
    /// The same as a time.
    pub at: Timestamp,
}

/// A window's reset as one header states it, in seconds from the answer by its own `date`, else
/// from `now`.
pub(in crate::backends) fn stated_seconds(
    text: &str,
    headers: &BTreeMap<String, String>,
    now: Timestamp,
) -> Option<f64> {
    let now = observed_at(headers, now);
    value(text, 1.0, now)?.check(now).map(|reset| reset.seconds)
}

/// Finds the first credible reset in headers (lower-case names) and text (lower case, one line).
pub(super) fn find(
    headers: &BTreeMap<String, String>,
    text: &str,
    now: Timestamp,
) -> Option<Reset> {
    let claims = claims(headers, text, now);
    let checked = || claims.iter().filter_map(|claim| claim.check(now));
    // Zero is believed only where nothing better is said.
    checked().find(|reset| reset.seconds > 0.0).or_else(|| {
        let zero = retry_after(headers, now);
        zero.into_iter().filter_map(|claim| claim.check(now)).next()
    })
}

/// The absolute time that the text states although it has passed at `now`; for observations
/// whose own time is not known.
pub(super) fn find_past(
    headers: &BTreeMap<String, String>,
    text: &str,
    now: Timestamp,
) -> Option<Timestamp> {
    claims(headers, text, now).into_iter().find_map(|claim| match claim {
        Claim::At(at) if at <= now && claim.seconds(now) > -2.0 * LONGEST => Some(at),
        _ => None,
    })
}

fn claims(headers: &BTreeMap<String, String>, text: &str, now: Timestamp) -> Vec<Claim> {
    let mut all = rejected_window(headers, now);
    all.extend(retry_after(headers, now));
    all.extend(window_headers(headers, text, now));
    all.extend(fields(text, now));
    all.extend(prose(text, now));
    all
}

/// The time of the observation by the server's own clock, else `now`.
pub(super) fn observed_at(headers: &BTreeMap<String, String>, now: Timestamp) -> Timestamp {
    headers.get("date").and_then(|date| http_date(date)).unwrap_or(now)
}

/// RFC 9110 §5.6.7: the preferred form leniently, and the two obsolete ones that must be accepted.
fn http_date(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    jiff::fmt::rfc2822::parse(text)
        .ok()
        .map(|zoned| zoned.timestamp())
        .or_else(|| httpdate::parse_http_date(text).ok()?.try_into().ok())
}

/// One header or field value: a number (delay or epoch), a duration, or a date. `unit` is what a
/// bare small number counts, in seconds.
fn value(text: &str, unit: f64, now: Timestamp) -> Option<Claim> {
    let text = text.trim().trim_matches(['"', '\'']).trim();
    if let Ok(number) = text.parse::<f64>() {
        return number_claim(number, unit);
    }
    let lower = text.to_ascii_lowercase();
    duration(&lower)
        .filter(|(_, length)| *length == lower.len())
        .map(|(seconds, _)| Claim::In(seconds))
        .or_else(|| http_date(text).map(Claim::At))
        .or_else(|| clock::read(&lower, now).map(Claim::At))
}

#[expect(clippy::cast_possible_truncation, reason = "epochs are range-checked by jiff")]
fn number_claim(number: f64, unit: f64) -> Option<Claim> {
    if !number.is_finite() || number < 0.0 {
        return None;
    }
    if number >= EPOCH_MILLIS {
        return Timestamp::from_millisecond(number as i64).ok().map(Claim::At);
    }
    if number >= EPOCH_SECONDS {
        return Timestamp::from_second(number as i64).ok().map(Claim::At);
    }
    Some(Claim::In(number * unit))
}

/// `retry-after-ms` (OpenAI, Azure), `retry-after` (RFC 9110: seconds or a date).
fn retry_after(headers: &BTreeMap<String, String>, now: Timestamp) -> Vec<Claim> {
    let named = [
        ("retry-after-ms", 0.001),
        ("x-ms-retry-after-ms", 0.001),
        ("retry-after", 1.0),
        ("x-retry-after", 1.0),
        ("x-ratelimit-retry-after", 1.0),
    ];
    let stated = named.into_iter().filter_map(|(name, unit)| Some((headers.get(name)?, unit)));
    stated
        .filter_map(|(text, unit)| value(text, unit, now).or_else(|| listed(text, unit)))
        .collect()
}

/// A header that was sent twice arrives as a list (RFC 9110 §5.3): `120, 120`; the longest holds.
fn listed(text: &str, unit: f64) -> Option<Claim> {
    let numbers: Option<Vec<f64>> = text.split(',').map(|one| one.trim().parse().ok()).collect();
    numbers?.into_iter().max_by(f64::total_cmp).and_then(|longest| number_claim(longest, unit))
}

/// The window that the service itself calls exhausted: Anthropic's unified limit when rejected,
/// else each of its windows by its own status, and the Codex backend's windows at 100 percent.
fn rejected_window(headers: &BTreeMap<String, String>, now: Timestamp) -> Vec<Claim> {
    let mut found = Vec::new();
    if headers.get("anthropic-ratelimit-unified-status").is_some_and(|status| status == "rejected")
    {
        found.extend(
            headers.get("anthropic-ratelimit-unified-reset").and_then(|text| value(text, 1.0, now)),
        );
    }
    let mut windows: Vec<Claim> = headers
        .iter()
        .filter(|(_, status)| *status == "rejected")
        .filter_map(|(name, _)| {
            name.strip_prefix("anthropic-ratelimit-unified-")?.strip_suffix("-status")
        })
        // `overage` is the paid use beyond the plan, and mostly rejected because it is switched off.
        .filter(|window| !window.starts_with("overage"))
        .filter_map(|window| headers.get(&format!("anthropic-ratelimit-unified-{window}-reset")))
        .filter_map(|text| value(text, 1.0, now))
        .collect();
    windows.sort_by(|a, b| b.seconds(now).total_cmp(&a.seconds(now)));
    found.extend(windows);
    let mut codex: Vec<Claim> = ["primary", "secondary"]
        .into_iter()
        .filter(|window| {
            headers
                .get(&format!("x-codex-{window}-used-percent"))
                .and_then(|used| used.trim().parse::<f64>().ok())
                .is_some_and(|used| used >= 100.0)
        })
        .filter_map(|window| {
            let after = headers.get(&format!("x-codex-{window}-reset-after-seconds"));
            let at = headers.get(&format!("x-codex-{window}-reset-at"));
            after
                .and_then(|text| value(text, 1.0, now))
                .filter(|claim| claim.seconds(now) > 0.0)
                .or_else(|| value(at?, 1.0, now))
        })
        .collect();
    // Both windows full: the later one holds.
    codex.sort_by(|a, b| b.seconds(now).total_cmp(&a.seconds(now)));
    found.extend(codex);
    found
}

/// `x-ratelimit-reset-*` (OpenAI style), `anthropic-ratelimit-*-reset`, `x-ratelimit-reset`,
/// `ratelimit-reset`. Of several windows the one with nothing remaining counts; where none says
/// so, the one that the error names; else the longest.
fn window_headers(headers: &BTreeMap<String, String>, text: &str, now: Timestamp) -> Vec<Claim> {
    let mut found: Vec<(u8, f64, Claim)> = headers
        .iter()
        .filter(|(name, _)| {
            (name.contains("ratelimit") || name.contains("rate-limit")) && name.contains("reset")
        })
        .filter(|(name, _)| {
            // Anthropic's unified windows say themselves whether they refuse.
            let status = headers.get(&name.replace("-reset", "-status"));
            !status.is_some_and(|status| status.starts_with("allowed"))
        })
        .filter_map(|(name, stated)| {
            let claim = value(stated, 1.0, now)?;
            let remaining = headers
                .get(&name.replace("reset", "remaining"))
                .and_then(|left| left.trim().parse::<f64>().ok());
            let window = if name.contains("token") { "tokens" } else { "requests" };
            let rank = match remaining {
                Some(0.0) => 0,
                Some(left) if left < 0.0 => return None,
                _ if text.contains(window) => 1,
                _ => 2,
            };
            Some((rank, claim.seconds(now), claim))
        })
        .chain(combined(headers).map(|claim| (1, claim.seconds(now), claim)))
        .filter(|(_, seconds, _)| *seconds > 0.0)
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
    found.into_iter().map(|(_, _, claim)| claim).collect()
}

static COMBINED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?:\breset=|;\s*t=)(\d{1,9})\b").ok());

/// The one header `RateLimit` of the IETF's drafts: `limit=100, remaining=0, reset=30`, later
/// `"default";r=0;t=30`.
fn combined(headers: &BTreeMap<String, String>) -> impl Iterator<Item = Claim> {
    let stated = ["ratelimit", "x-ratelimit"].into_iter().filter_map(|name| headers.get(name));
    stated.filter_map(|text| {
        let seconds = COMBINED.as_ref()?.captures(text)?[1].parse().ok()?;
        Some(Claim::In(seconds))
    })
}

static FIELD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"["']?\b(retry[-_]?after[-_]?ms|retry[-_]?after(?:[-_]?seconds)?|retry_?delay|quotaresetdelay|quotaresettimestamp|"#,
        r#"resets?_?in(?:_?seconds)?|reset_?after(?:_?seconds)?|resets?_?(?:at|on)|reset_?time|next_?reset|estimated_time|"#,
        r#"next_?allowed_?at|available_?at|retry_?at|(?:blocked_?|retry_?)until|"#,
        r#"x-ratelimit-reset(?:-[a-z]+)*|anthropic-ratelimit-[a-z-]+-reset)["']?\s*[:=]\s*["']?([a-z]{3}, [0-9]{1,2} [a-z]{3} [0-9]{4} [0-9:]{8} gmt|[a-z0-9][a-z0-9:.+-]*)"#
    ))
    .ok()
});

/// `"reset": 1781092860`: too short a name for a delay, so only a time counts.
static RESET_EPOCH: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"["']reset["']\s*:\s*["']?(\d{10}|\d{13})\b"#).ok());

/// Fields of JSON bodies and header lines quoted in prose.
fn fields(text: &str, now: Timestamp) -> Vec<Claim> {
    let Some(pattern) = FIELD.as_ref() else { return Vec::new() };
    let named = pattern.captures_iter(text).take(8).filter_map(|found| {
        let unit = if found[1].ends_with("ms") { 0.001 } else { 1.0 };
        value(found[2].trim_end_matches(['.', ',', ':']), unit, now)
    });
    let epochs = RESET_EPOCH.as_ref().into_iter().flat_map(|reset| reset.captures_iter(text));
    named.chain(epochs.take(8).filter_map(|found| value(&found[1], 1.0, now))).collect()
}

static UNIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(?:,? ?(?:and )?)?(\d{1,12}(?:\.\d{1,12})?) ?(milliseconds?|msecs?|ms|seconds?|secs?|minuten|minutos?|minutes?|mins?|hours?|hrs?|days?|weeks?|months?|heures?|horas?|stunden?|jours?|tagen?|d[ií]as?|sekunden?|segundos?|s|m|h|d|w)\b?",
    )
    .ok()
});

static ISO_DURATION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^p(?:(\d{1,6})d)?(?:t(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6}(?:\.\d+)?)s)?)?")
        .ok()
});

/// `an hour`, `one minute`.
static ONE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?:an?|one) (second|minute|hour|day|week|month)\b").ok());

/// A duration at the start of the text, and its length in bytes: `6m0s`, `644ms`,
/// `5 days 22 hours 11 minutes`, `1h2m3.5s`, `pt1h2m`, `an hour`.
fn duration(text: &str) -> Option<(f64, usize)> {
    if let Some(found) = ONE.as_ref().and_then(|one| one.captures(text)) {
        return Some((unit_seconds(&found[1]), found[0].len()));
    }
    if text.starts_with('p') {
        let found = ISO_DURATION.as_ref()?.captures(text)?;
        let part = |index: usize, unit: f64| {
            found.get(index).and_then(|part| part.as_str().parse::<f64>().ok()).map(|n| n * unit)
        };
        let parts = [part(1, 86_400.0), part(2, 3600.0), part(3, 60.0), part(4, 1.0)];
        if parts.iter().all(Option::is_none) {
            return None;
        }
        return Some((parts.into_iter().flatten().sum(), found[0].len()));
    }
    let pattern = UNIT.as_ref()?;
    let (mut total, mut end) = (0.0, 0);
    while let Some(found) = text.get(end..).and_then(|rest| pattern.captures(rest)) {
        let next = text.get(end + found[0].len()..).and_then(|rest| rest.chars().next());
        // `5 months`, `3 million`: a unit is a whole word, or is followed by the next number.
        if next.is_some_and(char::is_alphabetic) {
            break;
        }
        total += found[1].parse::<f64>().ok()? * unit_seconds(&found[2]);
        end += found[0].len();
    }
    (end > 0).then_some((total, end))
}

fn unit_seconds(unit: &str) -> f64 {
    match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        _ if unit.starts_with("mo") => 30.0 * 86_400.0,
        _ if unit.starts_with("stunde") => 3600.0,
        _ if unit.starts_with("jour") || unit.starts_with("tag") => 86_400.0,
        _ if unit.starts_with("ms") || unit.starts_with("milli") => 0.001,
        _ if unit.starts_with('s') => 1.0,
        _ if unit.starts_with('m') => 60.0,
        _ if unit.starts_with('h') => 3600.0,
        _ if unit.starts_with('d') => 86_400.0,
        _ => 604_800.0,
    }
}

/// Words that announce a reset; what follows directly must be a duration.
static BEFORE_DURATION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?:\b(?:(?:please|can|may|should|must|then|or|to) retry(?: again| the request| your request)?|try(?: your request)? again|come back|check back|available(?: again)?|regain access|access (?:returns|resumes)|reset(?:s|ting)?(?: again)?|refresh(?:es)?|renews?|unlocks?)(?: will be)?,? (?:in|after|within)|\bretry(?: again| the request| your request)? (?:after|within)",
        r"|\bplease wait(?: for)?(?: at least)?|\bwait(?: for)?(?: at least)?|\bretry[-_ ]after:?|\blimits? will reset in|\bback in",
        r"|\bréessayez dans|\berneut in|\b(?:inténtalo|intente) de nuevo en|\btente novamente em) (?:about |around |approximately |approx\. |another |the next |less than |~)?",
    ))
    .ok()
});

/// Words that announce a reset; what follows directly must be a time.
static BEFORE_TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        // No boundary stands between two Chinese characters.
        r"(?:\b(?:try again|retry|come back|available(?: again)?|regain access|resume(?: using this model)?|reset(?:s|ting|ted)?|refresh(?:es)?|renews?|unlocks?|cycle ends|until|will be lifted|redefinido)|将在|将于)",
        r"(?: (?:time|date))?(?: (?:at|on|after|em))?:? ?",
    ))
    .ok()
});

/// `replenished in 06:14:20`, or with days before a dot, `5.03:23:11` (.NET): days, hours,
/// minutes, seconds. Behind other words it is a time of day.
static COUNTDOWN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b(?:again|available|replenished|resets?|retry) in (?:(\d{1,3})\.)?(\d{1,4}):([0-5]\d):([0-5]\d)\b",
    )
    .ok()
});

/// A bare `retry in` is the server's only from a minute on: clients print their own backoff so.
static BEFORE_LONG: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\bretry in (?:about |~)?").ok());

/// The wait of opencode and Claude Code: they repeat the server's figure there (their own backoff
/// is below a minute).
static COUNTED_WAIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\bretrying in ([0-9][0-9dhms. ]*?(?: ?seconds)?)(?:…|\.\.\.)?(?: -)? \(?attempt [#1]",
    )
    .ok()
});

/// `3 小时 20 分钟后`, `3時間20分後`: the wait stands before its announcement.
static CJK_WAIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?:(\d{1,4}) ?(?:天|日) ?)?(?:(\d{1,4}) ?[个個]?(?:小时|小時|時間) ?)?(?:(\d{1,4}) ?(?:分钟|分鐘|分) ?)?(?:(\d{1,5}) ?秒[钟鐘]? ?)?之?[后後]",
    )
    .ok()
});

/// `Claude AI usage limit reached|1762952400`.
static PIPED_EPOCH: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\| ?(\d{10}|\d{13})\b").ok());

/// A window named by the metric that was exceeded (Vertex), or by the one limit stated (Together).
static MINUTE_WINDOW: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"quota exceeded for [a-z./_]*per_minute|your rate limit is [0-9,]+ [a-z]+ per minute",
    )
    .ok()
});

/// `limit reached for 5 hour`, `5-hour usage quota`: the length of the window that is full.
static HOUR_WINDOW: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b(?:limit|quota) (?:has been |was )?(?:reached|exceeded|exhausted) for (\d{1,2}) hours?\b|\b(\d{1,2})[- ]hours? (?:usage |request )?(?:limit|quota)").ok()
});

/// A date and time without a zone: `2026-09-09 05:38:28`, and nothing of a zone behind it.
static ZONELESS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^\d{4}-\d{2}-\d{2}[ t]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\.? ?(?:$|[\x22'\])},;])|\. )",
    )
    .ok()
});

/// A window can't end later than its own length from now. A time without a zone that would, read
/// as UTC, is the server's local time; of the services that print such times, Zhipu's is UTC+8.
fn by_window(text: &str, stated: &str, at: Timestamp, now: Timestamp) -> Timestamp {
    let length = || -> Option<f64> {
        let window = HOUR_WINDOW.as_ref()?.captures(text)?;
        let hours: f64 = window.get(1).or(window.get(2))?.as_str().parse().ok()?;
        Some(hours * 3600.0)
    };
    if !ZONELESS.as_ref().is_some_and(|form| form.is_match(stated)) {
        return at;
    }
    let local = at.checked_sub(jiff::SignedDuration::from_hours(8)).unwrap_or(at);
    let beyond = length().is_some_and(|length| at.duration_since(now).as_secs_f64() > length);
    if beyond && local > now { local } else { at }
}

/// Codex and Gemini CLI count their own tries between the server's answers.
static COUNTED_TRIES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b(?:retrying|reconnecting\S*) [0-9]+/[0-9]+|\battempt [0-9]+ failed: ").ok()
});

fn prose(text: &str, now: Timestamp) -> Vec<Claim> {
    let mut found = Vec::new();
    if let Some(pattern) = BEFORE_DURATION.as_ref() {
        for anchor in pattern.find_iter(text).take(20) {
            let rest = text.get(anchor.end()..).unwrap_or("");
            if let Some((seconds, _)) = duration(rest) {
                found.push(Claim::In(seconds));
            }
        }
    }
    if let Some(pattern) = CJK_WAIT.as_ref() {
        let wait = |found: regex::Captures<'_>| {
            let parts: Vec<Option<f64>> =
                (1..=4).map(|part| found.get(part)?.as_str().parse().ok()).collect();
            let seconds = [86_400.0, 3600.0, 60.0, 1.0].into_iter().zip(&parts);
            let total = seconds.map(|(unit, part)| unit * part.unwrap_or(0.0)).sum();
            parts.iter().any(Option::is_some).then_some(Claim::In(total))
        };
        found.extend(pattern.captures_iter(text).take(20).filter_map(wait));
    }
    if let Some(left) = COUNTDOWN.as_ref().and_then(|countdown| countdown.captures(text)) {
        let part = |index: usize| -> f64 {
            left.get(index).and_then(|part| part.as_str().parse().ok()).unwrap_or(0.0)
        };
        found.push(Claim::In(((part(1) * 24.0 + part(2)) * 60.0 + part(3)) * 60.0 + part(4)));
    }
    if let Some(pattern) = BEFORE_LONG.as_ref() {
        let after = pattern.find_iter(text).take(20).filter_map(|at| text.get(at.end()..));
        let long = after.filter_map(duration).filter(|(seconds, _)| *seconds >= 60.0);
        found.extend(long.map(|(seconds, _)| Claim::In(seconds)));
    }
    // A transcript of tries repeats the answer with ever newer figures: the last one holds.
    if COUNTED_TRIES.as_ref().is_some_and(|tries| tries.is_match(text)) {
        found.reverse();
    }
    if let Some(pattern) = BEFORE_TIME.as_ref() {
        for anchor in pattern.find_iter(text).take(20) {
            let rest = text.get(anchor.end()..).unwrap_or("");
            found
                .extend(clock::read(rest, now).map(|at| Claim::At(by_window(text, rest, at, now))));
            let dated = rest.find(" gmt").and_then(|end| http_date(rest.get(..end + 4)?));
            found.extend(dated.map(Claim::At));
        }
    }
    let first = |pattern: &'static Option<Regex>| {
        pattern.as_ref()?.captures(text).map(|captures| captures[1].to_owned())
    };
    found.extend(first(&PIPED_EPOCH).and_then(|epoch| value(&epoch, 1.0, now)));
    found.extend(
        first(&COUNTED_WAIT)
            .and_then(|wait| duration(&wait))
            .filter(|(seconds, _)| *seconds >= 60.0)
            .map(|(seconds, _)| Claim::In(seconds)),
    );
    if MINUTE_WINDOW.as_ref().is_some_and(|window| window.is_match(text)) {
        found.push(Claim::In(60.0));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-06-10T12:00:00Z".parse().unwrap()
    }

    fn said(text: &str) -> Option<f64> {
        find(&BTreeMap::new(), text, now()).map(|reset| reset.seconds)
    }

    fn sent(headers: &[(&str, &str)]) -> Option<f64> {
        let headers = headers.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        find(&headers, "", now()).map(|reset| reset.seconds)
    }

    #[test]
    fn prose_durations() {
        for (text, seconds) in [
            ("please try again in 644ms.", 0.644),
            ("please try again in 9m38.016s. need more", 578.016),
            ("or try again in 5 days 22 hours 11 minutes.", 511_860.0),
            ("try again in 3 days 4 hours", 273_600.0),
            ("please try again in 58 hours. please review", 208_800.0),
            ("(reset after 27s)", 27.0),
            ("expected quota reset within 24h.", 86_400.0),
            ("please retry after 86400 seconds. please go", 86_400.0),
            ("please wait 52220 seconds before retrying", 52_220.0),
            ("your quota will reset after 2h5m3s.", 7503.0),
            ("please retry in 36.429760048s.", 36.429_760_048),
            ("expected available in 12 seconds.", 12.0),
            ("retrying in 20h28m - attempt #1", 73_680.0),
            ("resets in pt1h2m", 3720.0),
            ("try again in 17 seconds.; retrying 5/5 in 3.32s… try again in 11 seconds.", 11.0),
            ("try again in 1 hour, 5 minutes and 3 seconds", 3903.0),
            ("quota will be replenished in 06:14:20.", 22_460.0),
            ("please try again in an hour", 3600.0),
            ("please wait one minute.", 60.0),
            ("rate limit exceeded, retry in 1 minute", 60.0),
            ("\"next_allowed_at\": \"2026-06-10t12:10:00z\"", 600.0),
            ("\"reset\": 1781092860", 60.0),
            ("try again in less than a minute.", 60.0),
            ("retrying in 8h 13m attempt #1", 29_580.0),
            ("retrying in 2892 seconds… (attempt 1/10)", 2892.0),
            ("attempt 1 failed: reset after 5s. attempt 2 failed: reset after 1h2m", 3720.0),
            ("请在 3 小时 20 分钟后重试", 12_000.0),
            ("3時間20分後に再試行してください", 12_000.0),
            ("réessayez dans 3 heures 20 minutes", 12_000.0),
            ("erneut in 2 stunden 5 minuten", 7500.0),
            ("您的限额将在 2026-06-10 12:10:00 重置", 600.0),
            ("reset time: wed, 10 jun 2026 12:10:00 gmt", 600.0),
            ("you can resume using this model at 6/10/2026, 12:10:00 pm.", 600.0),
            ("quota will be replenished in 5.03:23:11", 444_191.0),
            ("quota will be replenished in 22.14:18:12.", 1_952_292.0),
            ("retry after wed, 10 jun 2026 12:20:00 gmt", 1200.0),
            ("请求过于频繁，请在 35 秒后重试", 35.0),
            ("リクエストが多すぎます。30秒後にもう一度お試しください。", 30.0),
            // Read as UTC the five hours would end in eleven.
            ("limit reached for 5 hour. your limit will reset at 2026-06-10 23:30:00", 12_600.0),
            ("limit reached for 5 hour. your limit will reset at 2026-06-10 14:30:00", 9000.0),
            ("5-hour limit reached, resets at 2026-06-10t23:30:00z", 41_400.0),
            (
                "exceeded the 5-hour usage quota. it will reset at 2026-06-10 22:54:33 +0800 cst",
                10_473.0,
            ),
        ] {
            let found = said(text).unwrap_or(-1.0);
            assert!((found - seconds).abs() < 0.01, "{text}: {found}");
        }
    }

    #[test]
    fn figures_that_are_no_resets() {
        for text in [
            "wait for limits to reset (every 5h and every week.)",
            "retrying in 1 seconds… (attempt 1/10)",
            "retry in 0.4 seconds.",
            "retrying in 2s - attempt #3",
            "retrying request to /chat/completions in 0.406378 seconds",
            "rate limit of 50 per 86400s exceeded",
            "maximum 100 credits per 1 hour",
            "please wait a few minutes before you try again",
            "api version 2024-05-01-preview have exceeded",
            "total retry wait time: 92.78521667234824 seconds",
            "\"totalretrydelay\":274",
            "{created_time:\"2024-05-26t04:18:56.862289+00:00\"",
            "try again in -5 seconds",
            "try again in 99999999999 days",
            "\"retrydelay\": \"nans\"",
            "resets 99:99",
            "\"reset\": 60",
            "try again in a moment",
            "retrying in 21s · attempt 7/10",
            "5 小时的使用上限",
            "wait a bit and try again",
        ] {
            assert_eq!(said(text), None, "{text}");
        }
    }

    #[test]
    fn headers_by_trust() {
        assert_eq!(sent(&[("retry-after", "30")]), Some(30.0));
        assert_eq!(sent(&[("retry-after-ms", "1500"), ("retry-after", "2")]), Some(1.5));
        assert_eq!(sent(&[("retry-after", "Wed, 10 Jun 2026 12:01:00 GMT")]), Some(60.0));
        assert_eq!(sent(&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")]), None);
        assert_eq!(sent(&[("retry-after", "Wednesday, 10-Jun-26 12:01:00 GMT")]), Some(60.0));
        assert_eq!(sent(&[("retry-after", "Wed Jun 10 12:01:00 2026")]), Some(60.0));
        assert_eq!(sent(&[("ratelimit", "limit=100, remaining=0, reset=30")]), Some(30.0));
        assert_eq!(sent(&[("ratelimit", "\"default\";r=0;t=30")]), Some(30.0));
        assert_eq!(sent(&[("x-rate-limit-reset", "45")]), Some(45.0));
        assert_eq!(sent(&[("retry-after", "1781092830")]), Some(30.0));
        assert_eq!(sent(&[("retry-after", "0")]), Some(0.0));
        assert_eq!(sent(&[("retry-after", "120, 120")]), Some(120.0));
        let unified = |window: &'static str, status: &'static str| {
            sent(&[
                (
                    "anthropic-ratelimit-unified-5h-status",
                    if window == "5h" { status } else { "allowed" },
                ),
                ("anthropic-ratelimit-unified-5h-reset", "1781100000"),
                (
                    "anthropic-ratelimit-unified-7d-status",
                    if window == "7d" { status } else { "allowed_warning" },
                ),
                ("anthropic-ratelimit-unified-7d-reset", "1781395200"),
                ("anthropic-ratelimit-unified-overage-status", "rejected"),
                ("anthropic-ratelimit-unified-overage-reset", "1783036800"),
            ])
        };
        assert_eq!(unified("5h", "rejected"), Some(7200.0));
        assert_eq!(unified("7d", "rejected"), Some(302_400.0));
        for absurd in ["-5", "NaN", "inf", "9999999999999999999", "soon", "", "1e300", "40000000"] {
            assert_eq!(sent(&[("retry-after", absurd)]), None, "{absurd}");
        }
        assert_eq!(sent(&[("x-ratelimit-reset", "1781092830000")]), Some(30.0));
        assert_eq!(
            sent(&[
                ("x-ratelimit-remaining-requests", "499"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-requests", "12s"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ]),
            Some(360.0)
        );
        assert_eq!(
            sent(&[("x-ratelimit-remaining-tokens", "-1"), ("x-ratelimit-reset-tokens", "0")]),
            None
        );
        assert_eq!(
            sent(&[("anthropic-ratelimit-tokens-reset", "2026-06-10T12:15:00Z")]),
            Some(900.0)
        );
    }

    #[test]
    fn fields_of_bodies() {
        assert_eq!(said("\"retrydelay\": \"39s\""), Some(39.0));
        assert_eq!(said("\"resets_at\":1781092830,\"resets_in_seconds\":30"), Some(30.0));
        assert_eq!(said("x-ratelimit-reset-requests: 4h30m15s"), Some(16_215.0));
        assert_eq!(said("usage limit reached|1781092830"), Some(30.0));
        assert_eq!(said("'retry_after': 12.5"), Some(12.5));
    }
}
