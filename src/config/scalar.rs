//! Values with a text form of their own.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};

/// A span of time written for people: `90s`, `15m`, `6h`, `1h30m`, `2d`, `500ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanDuration(pub Duration);

/// Longest span that is accepted: 366 days. Anything above is a slip of the keyboard.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

impl HumanDuration {
    /// So many seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// So many minutes.
    #[must_use]
    pub const fn minutes(minutes: u64) -> Self {
        Self(Duration::from_secs(minutes * 60))
    }

    /// So many hours.
    #[must_use]
    pub const fn hours(hours: u64) -> Self {
        Self(Duration::from_secs(hours * 3600))
    }

    /// The span.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Whole seconds.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0.as_secs()
    }

    /// Reads the text form; `None` when it is not one, or longer than 366 days.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        let mut total = Duration::ZERO;
        if rest.is_empty() {
            return None;
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let value: u64 = rest.get(..digits)?.parse().ok()?;
            rest = rest.get(digits..)?.trim_start();
            let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
            let millis: u64 = match rest.get(..letters)? {
                "ms" => 1,
                "s" => 1000,
                "m" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return None,
            };
            rest = rest.get(letters..)?.trim_start();
            total = total.checked_add(Duration::from_millis(value.checked_mul(millis)?))?;
        }
        (total <= LONGEST).then_some(Self(total))
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        for (size, unit) in
            [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms")]
        {
            if millis >= size {
                write!(f, "{}{unit}", millis / size)?;
                millis %= size;
            }
        }
        Ok(())
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = HumanDuration;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as 90s, 15m, 6h or 1h30m")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<HumanDuration, E> {
                HumanDuration::parse(text)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for HumanDuration {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^\s*([0-9]+\s*(ms|s|m|h|d)\s*)+$",
            "examples": ["90s", "15m", "6h", "1h30m"],
        })
    }
}

/// The cost/speed dial: 0 = cheapest pool first, 1 = fastest first.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Dial(pub f64);

impl Dial {
    /// Cheapest first.
    pub const COST: Self = Self(0.0);
    /// Fastest first.
    pub const SPEED: Self = Self(1.0);
}

impl Default for Dial {
    fn default() -> Self {
        Self::COST
    }
}

impl Serialize for Dial {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Self::COST {
            serializer.serialize_str("cost")
        } else if *self == Self::SPEED {
            serializer.serialize_str("speed")
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Dial {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Dial;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "`cost`, `speed`, or a number from 0 (cheapest first) to 1 (fastest first)",
                )
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Dial, E> {
                match text {
                    "cost" => Ok(Dial::COST),
                    "speed" => Ok(Dial::SPEED),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Dial, E> {
                if (0.0..=1.0).contains(&value) {
                    Ok(Dial(value))
                } else {
                    Err(E::invalid_value(de::Unexpected::Float(value), &self))
                }
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Dial, E> {
                match value {
                    0 => Ok(Dial::COST),
                    1 => Ok(Dial::SPEED),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(value), &self)),
                }
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Dial, E> {
                Err(E::invalid_value(de::Unexpected::Signed(value), &self))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Dial {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Dial".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "oneOf": [
                { "enum": ["cost", "speed"] },
                { "type": "number", "minimum": 0, "maximum": 1 },
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::HumanDuration;

    #[test]
    fn durations_are_read_and_written() {
        for (text, seconds) in
            [("90s", 90), ("15m", 900), ("6h", 21_600), ("1h30m", 5400), ("2d", 172_800)]
        {
            assert_eq!(HumanDuration::parse(text), Some(HumanDuration::seconds(seconds)), "{text}");
        }
        for text in
            ["", "5", "m", "-5m", "1.5h", "5 weeks", "99999d", "18446744073709551615d", "5mé"]
        {
            assert_eq!(HumanDuration::parse(text), None, "{text}");
        }
        assert_eq!(HumanDuration::seconds(5430).to_string(), "1h30m30s");
    }
}
