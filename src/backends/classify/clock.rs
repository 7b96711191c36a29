//! Times of day and dates as services print them, read as the next such moment.

use std::sync::LazyLock;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, ToSpan as _};
use regex::{Captures, Regex};

/// `2026-04-01T00:00:00Z`, `2026-04-01 at 00:00 UTC`, `2026-04-01`.
static ISO: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(\d{4})[-/](\d{2})[-/](\d{2})(?:(?:t|,? (?:at )?)(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?)? ?(z\b|utc\b|gmt\b|[+-]\d{2}:?\d{2})?",
    )
    .ok()
});

/// `7/21/2025`, as American tools print it.
static SLASHED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?<month>\d{1,2})/(?<day>\d{1,2})/(?<year>\d{4})\b").ok());

/// `14.6.2026`, as German tools print it.
static DOTTED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?<day>\d{1,2})\. ?(?<month>\d{1,2})\. ?(?<year>\d{4})\b").ok());

/// The day of the week before a date; it adds nothing.
static WEEKDAY: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?:on )?(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? ").ok());

/// `jul 5th, 2026`, `oct 9`, `aug 17`.
static MONTH_FIRST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(?<month>\p{L}{3,12})\.? (?<day>\d{1,2})(?:st|nd|rd|th)?\b(?:,? (?<year>\d{4})\b)?",
    )
    .ok()
});

/// `10 de jul. de 2026`, `10. juli 2026`, `2 mar`.
static DAY_FIRST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(?<day>\d{1,2})(?:st|nd|rd|th|\.)? (?:de |of )?(?<month>\p{L}{3,12})\b\.?(?:,? (?:de )?(?<year>\d{4})\b(?: г\.)?)?",
    )
    .ok()
});

/// `2026年8月7日`, `8月16日`.
static CJK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?:(?<year>\d{4}) ?年 ?)?(?<month>\d{1,2}) ?月 ?(?<day>\d{1,2}) ?日").ok()
});

/// The time behind a date: ` at 5pm`, `, 11:52`, ` 8:19 pm`. A bare number needs its `at`.
static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^,? ?(?:(?<at>at|um|à|às|a las|om|kl\.?|alle|ore) )?(?<hour>\d{1,2})(?::(?<minute>\d{2}))?(?::\d{2})? ?(?<half>[ap]\.? ?m\b)?(?<rest>.{0,48})",
    )
    .ok()
});

/// `8:30pm (asia/tokyo)`, `22:00`, `10:57 pm gmt-3`, `mon 9am`, `midnight utc`.
static CLOCK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^(?:(?:on )?(mon|tue|wed|thu|fri|sat|sun)[a-z]*,? (?:at )?)?(?:(tomorrow),? (?:at )?)?(?:(\d{1,2})(?::(\d{2}))?(?::\d{2})? ?([ap]\.? ?m\b)?|(midnight|noon)\b)(?P<rest>.{0,48})",
    )
    .ok()
});

/// A zone after the time: `(america/bogota)`, `gmt-3`, `utc`, `pst`.
static ZONE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"^ ?\(?(?:(?:gmt|utc) ?([+-]) ?(\d{1,2})(?::?(\d{2}))?|([a-z]+(?:/[a-z0-9_+-]+){1,2})|(pacific|eastern|central|mountain|[a-z]{1,4})\b)",
    )
    .ok()
});

/// Reads a moment at the start of `text` (lower case). A moment without a date is the next one
/// after `now`; without a zone, or with an unknown one, it is UTC, which is what a runner uses.
pub(super) fn read(text: &str, now: Timestamp) -> Option<Timestamp> {
    let after_weekday = || Some(&text[WEEKDAY.as_ref()?.find(text)?.end()..]);
    iso(text)
        .or_else(|| dated(text, now))
        .or_else(|| dated(after_weekday()?, now))
        .or_else(|| clock(text, now))
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

/// A date without its time.
struct Day {
    year: Option<i16>,
    month: i8,
    day: i8,
}

impl Day {
    /// A date at the start of the text, and what follows it.
    fn read(text: &str) -> Option<(Self, &str)> {
        [&MONTH_FIRST, &DAY_FIRST, &CJK, &SLASHED, &DOTTED].into_iter().find_map(|form| {
            let found = form.as_ref()?.captures(text)?;
            let month = found.name("month")?.as_str();
            let mut day = Self {
                year: found.name("year").and_then(|year| year.as_str().parse().ok()),
                month: month_of(month).or_else(|| month.parse().ok())?,
                day: found.name("day")?.as_str().parse().ok()?,
            };
            if day.month > 12 {
                // `14/6/2026`: British order.
                std::mem::swap(&mut day.month, &mut day.day);
            }
            Some((day, text.get(found[0].len()..)?))
        })
    }

    /// This day at a time; without a year the next one after `now`.
    fn at(&self, time: Time, zone: &TimeZone, now: Timestamp) -> Option<Timestamp> {
        let of =
            |year: i16| moment(Date::new(year, self.month, self.day).ok()?.to_datetime(time), zone);
        if let Some(year) = self.year {
            return of(year);
        }
        let year = now.to_zoned_datetime(zone.clone()).year();
        of(year).filter(|moment| *moment > now).or_else(|| of(year.checked_add(1)?))
    }
}

/// The month of a name or its abbreviation, in the languages that clients print dates in.
fn month_of(name: &str) -> Option<i8> {
    const NAMES: [&str; 12] = [
        "jan january januar janeiro enero ene janv janvier gen gennaio januari янв января",
        "feb february februar fev fevereiro febrero fév févr février febbraio februari фев февраля",
        "mar march märz mär mrz março marzo mars maart mrt мар марта",
        "apr april abr abril avr avril aprile апр апреля",
        "may mai maio mayo mag maggio mei мая",
        "jun june juni junho junio juin giu giugno июн июня",
        "jul july juli julho julio juil juillet lug luglio июл июля",
        "aug august ago agosto août augustus авг августа",
        "sep sept september set setembro septiembre septembre settembre сен сент сентября",
        "oct october okt oktober out outubro octubre octobre ott ottobre окт октября",
        "nov november novembro noviembre novembre ноя нояб ноября",
        "dec december dez dezember dezembro dic diciembre déc décembre dicembre дек декабря",
    ];
    let at = NAMES.iter().position(|names| names.split(' ').any(|known| known == name))?;
    i8::try_from(at + 1).ok()
}

fn dated(text: &str, now: Timestamp) -> Option<Timestamp> {
    let (day, rest) = Day::read(text)?;
    let found = TIME
        .as_ref()?
        .captures(rest)
        .filter(|found| ["at", "minute", "half"].iter().any(|part| found.name(part).is_some()));
    let Some(found) = found else { return day.at(Time::midnight(), &zone(rest), now) };
    let number = |part: &str| found.name(part).and_then(|n| n.as_str().parse().ok());
    let half = found.name("half").map(|half| half.as_str());
    let time = time_of_day(number("hour")?, number("minute"), half)?;
    day.at(time, &zone(found.name("rest").map_or("", |rest| rest.as_str())), now)
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
    let rest = found.name("rest").map_or("", |rest| rest.as_str());
    // `21:13 on 2 Mar`, `5 pm ET on June 11`
    if let Some((before, after)) = rest.split_once("on ").filter(|(before, _)| before.len() < 24)
        && let Some((day, after)) = Day::read(after)
    {
        let named = if before.trim().is_empty() { after } else { before };
        return day.at(time, &zone(named), now);
    }
    let zone = zone(rest.trim_start().trim_start_matches("tomorrow"));
    let mut date = now.to_zoned_datetime(zone.clone()).date();
    let tomorrow = rest.trim_start().starts_with("tomorrow");
    if found.get(2).is_some() || tomorrow {
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
    let named = |name: &str| TimeZone::get(name).unwrap_or(TimeZone::UTC);
    let hours = match found.get(5).map_or("", |name| name.as_str()) {
        "hst" => -10,
        "akst" => -9,
        "pst" | "akdt" => -8,
        "pdt" | "mst" => -7,
        "cst" | "mdt" => -6,
        "est" | "cdt" => -5,
        "edt" => -4,
        "brt" | "art" => -3,
        "bst" | "cet" | "west" => 1,
        "cest" | "eet" => 2,
        "eest" | "msk" => 3,
        "sgt" | "hkt" => 8,
        "jst" | "kst" => 9,
        "aest" => 10,
        "aedt" => 11,
        "ist" => return named("Asia/Kolkata"),
        "pt" | "pacific" => return named("America/Los_Angeles"),
        "mt" | "mountain" => return named("America/Denver"),
        "ct" | "central" => return named("America/Chicago"),
        "et" | "eastern" => return named("America/New_York"),
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
        assert_eq!(at("midnight pacific time."), "2026-06-11T07:00:00Z");
        assert_eq!(at("9am ist"), "2026-06-11T03:30:00Z");
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
        assert_eq!(at("september 6, 2026, 11:15."), "2026-09-06T11:15:00Z");
        assert_eq!(at("july 1."), "2026-07-01T00:00:00Z");
        assert_eq!(at("thu, jun 11, 9:30am (europe/berlin)"), "2026-06-11T07:30:00Z");
        assert_eq!(at("6/14/2026, 9:41:07 pm."), "2026-06-14T21:41:00Z");
        assert_eq!(at("14/6/2026, 21:41"), "2026-06-14T21:41:00Z");
        assert_eq!(at("3pm tomorrow (europe/paris)"), "2026-06-11T13:00:00Z");
    }

    #[test]
    fn dates_of_other_languages() {
        for text in [
            "10 de jul. de 2026, 11:52.",
            "10 de julio de 2026, 11:52",
            "10. juli 2026 um 11:52",
            "10 juil. 2026 à 11:52",
            "2026年7月10日 11:52",
            "10.7.2026, 11:52:07",
            "10 июл. 2026 г., 11:52",
            "10 jul 2026, 11:52 a. m.",
            "7月10日 11:52です",
            "11:52 on 10 jul",
            "11:52 on july 10, 2026",
        ] {
            assert_eq!(at(text), "2026-07-10T11:52:00Z", "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "soon",
            "5",
            "99:99",
            "13 seconds",
            "feb 31",
            "every 5h",
            "2026-13-40",
            "\u{130}",
            "5 seconds",
            "10 minutes 3 seconds",
            "junk 4 at 5pm",
        ] {
            assert_eq!(at(text), "", "{text}");
        }
    }
}
