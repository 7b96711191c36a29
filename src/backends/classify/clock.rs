//! Times of day and dates as services print them, read as the next such moment.

use std::sync::LazyLock;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan as _};
use regex::{Captures, Regex};

/// `2026-04-01T00:00:00Z`, `2026-04-01 at 00:00 UTC`, `2026-04-01`.
static ISO: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(\d{4})-(\d{2})-(\d{2})(?:(?:t|,? (?:at )?)(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?)? ?(z\b|utc\b|gmt\b|[+-]\d{2}:?\d{2})?",
    )
    .ok()
});

/// `7/21/2025`, as American tools print it.
static SLASHED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(\d{1,2})/(\d{1,2})/(\d{4})").ok());

/// `jul 5th, 2026 8:19 pm`, `oct 9 at 5pm (america/new_york)`, `aug 17, 5am`.
static MONTH: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? (\d{1,2})(?:st|nd|rd|th)?(?:,? (\d{4}))?(?:,? (?:at )?(\d{1,2})(?::(\d{2}))?(?::\d{2})? ?([ap]\.?m\b)?)?(?P<rest>.{0,48})",
    )
    .ok()
});

/// `8:30pm (asia/tokyo)`, `22:00`, `10:57 pm gmt-3`, `mon 9am`, `midnight utc`.
static CLOCK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(?:(?:on )?(mon|tue|wed|thu|fri|sat|sun)[a-z]*,? (?:at )?)?(?:(tomorrow),? (?:at )?)?(?:(\d{1,2})(?::(\d{2}))?(?::\d{2})? ?([ap]\.?m\b)?|(midnight|noon)\b)(?P<rest>.{0,48})",
    )
    .ok()
});

/// A zone after the time: `(america/bogota)`, `gmt-3`, `utc`, `pst`.
static ZONE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^ ?\(?(?:(?:gmt|utc) ?([+-]) ?(\d{1,2})(?::?(\d{2}))?|([a-z]+(?:/[a-z0-9_+-]+){1,2})|([a-z]{1,4})\b)",
    )
    .ok()
});

/// Reads a moment at the start of `text` (lower case). A moment without a date is the next one
/// after `now`; without a zone, or with an unknown one, it is UTC, which is what a runner uses.
pub(super) fn read(text: &str, now: Timestamp) -> Option<Timestamp> {
    iso(text).or_else(|| slashed(text)).or_else(|| month(text, now)).or_else(|| clock(text, now))
}

fn number<T: std::str::FromStr>(captures: &Captures<'_>, index: usize) -> Option<T> {
    captures.get(index)?.as_str().parse().ok()
}

fn iso(text: &str) -> Option<Timestamp> {
    let found = ISO.as_ref()?.captures(text)?;
    let date = Date::new(number(&found, 1)?, number(&found, 2)?, number(&found, 3)?).ok()?;
    let time = Time::new(
        number(&found, 4).unwrap_or(0),
        number(&found, 5).unwrap_or(0),
        number(&found, 6).unwrap_or(0),
        0,
    )
    .ok()?;
    let zone = found.get(7).map_or("", |zone| zone.as_str());
    let offset = match zone.as_bytes() {
        [sign @ (b'+' | b'-'), ..] => {
            let digits: String = zone.chars().filter(char::is_ascii_digit).collect();
            offset(*sign == b'-', digits.get(..2)?.parse().ok()?, digits.get(2..)?.parse().ok()?)?
        }
        _ => Offset::UTC,
    };
    offset.to_timestamp(date.to_datetime(time)).ok()
}

fn slashed(text: &str) -> Option<Timestamp> {
    let found = SLASHED.as_ref()?.captures(text)?;
    let date = Date::new(number(&found, 3)?, number(&found, 1)?, number(&found, 2)?).ok()?;
    Offset::UTC.to_timestamp(date.to_datetime(Time::midnight())).ok()
}

fn month(text: &str, now: Timestamp) -> Option<Timestamp> {
    let found = MONTH.as_ref()?.captures(text)?;
    let names =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let month = i8::try_from(names.iter().position(|name| *name == &found[1])? + 1).ok()?;
    let day: i8 = number(&found, 2)?;
    let time = match number::<i8>(&found, 4) {
        Some(hour) => time_of_day(hour, number(&found, 5), found.get(6).map(|m| m.as_str()))?,
        None => Time::midnight(),
    };
    let zone = zone(found.name("rest").map_or("", |rest| rest.as_str()));
    let at = |year: i16| moment(Date::new(year, month, day).ok()?.to_datetime(time), &zone);
    if let Some(year) = number(&found, 3) {
        return at(year);
    }
    let year = now.to_zoned_datetime(zone.clone()).year();
    at(year).filter(|moment| *moment > now).or_else(|| at(year.checked_add(1)?))
}

fn clock(text: &str, now: Timestamp) -> Option<Timestamp> {
    let found = CLOCK.as_ref()?.captures(text)?;
    let time = match found.get(6).map(|word| word.as_str()) {
        Some("noon") => Time::new(12, 0, 0, 0).ok()?,
        Some(_) => Time::midnight(),
        None => {
            let half = found.get(5).map(|half| half.as_str());
            // A bare number is no time of day.
            if half.is_none() && found.get(4).is_none() {
                return None;
            }
            time_of_day(number(&found, 3)?, number(&found, 4), half)?
        }
    };
    let zone = zone(found.name("rest").map_or("", |rest| rest.as_str()));
    let mut date = now.to_zoned_datetime(zone.clone()).date();
    if found.get(2).is_some() {
        date = date.checked_add(1.day()).ok()?;
    }
    if let Some(day) = found.get(1).and_then(|day| weekday(day.as_str())) {
        while date.weekday() != day {
            date = date.tomorrow().ok()?;
        }
        let first = moment(date.to_datetime(time), &zone)?;
        return if first > now {
            Some(first)
        } else {
            moment(date.checked_add(7.days()).ok()?.to_datetime(time), &zone)
        };
    }
    let first = moment(date.to_datetime(time), &zone)?;
    if first > now { Some(first) } else { moment(date.tomorrow().ok()?.to_datetime(time), &zone) }
}

fn weekday(name: &str) -> Option<Weekday> {
    Some(match name {
        "mon" => Weekday::Monday,
        "tue" => Weekday::Tuesday,
        "wed" => Weekday::Wednesday,
        "thu" => Weekday::Thursday,
        "fri" => Weekday::Friday,
        "sat" => Weekday::Saturday,
        "sun" => Weekday::Sunday,
        _ => return None,
    })
}

fn time_of_day(hour: i8, minute: Option<i8>, half: Option<&str>) -> Option<Time> {
    let hour = match half.and_then(|half| half.chars().next()) {
        Some('a') if hour == 12 => 0,
        Some('p') if (1..12).contains(&hour) => hour + 12,
        _ => hour,
    };
    Time::new(hour, minute.unwrap_or(0), 0, 0).ok()
}

fn moment(civil: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    zone.to_timestamp(civil).ok()
}

fn offset(west: bool, hours: i32, minutes: i32) -> Option<Offset> {
    let seconds = hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?;
    Offset::from_seconds(if west { -seconds } else { seconds }).ok()
}

fn zone(text: &str) -> TimeZone {
    let Some(found) = ZONE.as_ref().and_then(|zone| zone.captures(text)) else {
        return TimeZone::UTC;
    };
    if let Some(hours) = number(&found, 2) {
        return offset(&found[1] == "-", hours, number(&found, 3).unwrap_or(0))
            .map_or(TimeZone::UTC, TimeZone::fixed);
    }
    if let Some(name) = found.get(4) {
        return TimeZone::get(name.as_str()).unwrap_or(TimeZone::UTC);
    }
    // Abbreviations are ambiguous in general; these are the readings of the tools that print them.
    let hours = match found.get(5).map_or("", |name| name.as_str()) {
        "pst" => -8,
        "pdt" | "mst" => -7,
        "cst" | "mdt" => -6,
        "est" | "cdt" => -5,
        "edt" => -4,
        "bst" | "cet" => 1,
        "cest" => 2,
        "jst" | "kst" => 9,
        "pt" => return TimeZone::get("America/Los_Angeles").unwrap_or(TimeZone::UTC),
        "et" => return TimeZone::get("America/New_York").unwrap_or(TimeZone::UTC),
        _ => 0,
    };
    offset(hours < 0, i32::abs(hours), 0).map_or(TimeZone::UTC, TimeZone::fixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> String {
        let now: Timestamp = "2026-06-10T12:00:00Z".parse().unwrap();
        read(text, now).map(|moment| moment.to_string()).unwrap_or_default()
    }

    #[test]
    fn the_next_such_time_in_the_named_zone() {
        assert_eq!(at("8:30pm (asia/tokyo)"), "2026-06-11T11:30:00Z");
        assert_eq!(at("8:30pm (asia/seoul)"), "2026-06-11T11:30:00Z");
        assert_eq!(at("3am (europe/berlin)"), "2026-06-11T01:00:00Z");
        assert_eq!(at("3pm"), "2026-06-10T15:00:00Z");
        assert_eq!(at("11am"), "2026-06-11T11:00:00Z");
        assert_eq!(at("12am."), "2026-06-11T00:00:00Z");
        assert_eq!(at("12:05pm"), "2026-06-10T12:05:00Z");
        assert_eq!(at("22:15 utc"), "2026-06-10T22:15:00Z");
        assert_eq!(at("10:57 pm gmt-3."), "2026-06-11T01:57:00Z");
        assert_eq!(at("3pm (mars/olympus)"), "2026-06-10T15:00:00Z");
        assert_eq!(at("midnight utc"), "2026-06-11T00:00:00Z");
        assert_eq!(at("thu 9:00 am"), "2026-06-11T09:00:00Z");
        assert_eq!(at("wednesday 9:00 am"), "2026-06-17T09:00:00Z");
    }

    #[test]
    fn dates_with_and_without_a_year() {
        assert_eq!(at("jul 5th, 2026 8:19 pm."), "2026-07-05T20:19:00Z");
        assert_eq!(at("oct 9 at 5pm (america/new_york)"), "2026-10-09T21:00:00Z");
        assert_eq!(at("aug 17, 5am (america/sao_paulo)"), "2026-08-17T08:00:00Z");
        assert_eq!(at("jan 2, 5am"), "2027-01-02T05:00:00Z");
        assert_eq!(at("2026-07-01 at 00:00 utc."), "2026-07-01T00:00:00Z");
        assert_eq!(at("2026-07-01t10:30:00.123+02:00"), "2026-07-01T08:30:00Z");
        assert_eq!(at("7/21/2026"), "2026-07-21T00:00:00Z");
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in
            ["", "soon", "5", "99:99", "13 seconds", "feb 31", "every 5h", "2026-13-40", "\u{130}"]
        {
            assert_eq!(at(text), "", "{text}");
        }
    }
}
