//! One pass over the whole document before it is given a type: repeated keys, inline secrets, and a
//! bound on what its aliases unfold to.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

use super::super::locate::Path;
use super::super::secret;

/// Most values of a document once its aliases are unfolded; an alias bomb has more.
const MAX_VALUES: usize = 100_000;
/// Most secrets that are reported one by one.
const MAX_SECRETS: usize = 20;

/// What the pass saw.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The top-level keys and the lengths of their sequences (0 for anything else).
    pub(super) top: Vec<(String, usize)>,
    /// Where values look like secrets.
    pub(super) secrets: Vec<Path>,
    values: usize,
}

pub(super) fn survey(text: &str) -> Result<Seen, serde_yaml::Error> {
    let seen = RefCell::new(Seen::default());
    let walk = Walk { seen: &seen, path: Path::default() };
    match walk.deserialize(serde_yaml::Deserializer::from_str(text)) {
        Err(error) if !error.to_string().starts_with("EOF") => Err(error),
        _ => Ok(seen.into_inner()),
    }
}

#[derive(Clone)]
struct Walk<'s> {
    seen: &'s RefCell<Seen>,
    path: Path,
}

impl Walk<'_> {
    fn count<E: de::Error>(&self) -> Result<(), E> {
        let mut seen = self.seen.borrow_mut();
        seen.values += 1;
        if seen.values > MAX_VALUES {
            return Err(E::custom(format!(
                "more than {MAX_VALUES} values once aliases are unfolded"
            )));
        }
        Ok(())
    }

    fn child(&self, path: Path) -> Self {
        Walk { seen: self.seen, path }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.count()?;
        let secret = secret::looks_secret(text) || super::secret_by_name(&self.path, text);
        let mut seen = self.seen.borrow_mut();
        if secret && seen.secrets.len() < MAX_SECRETS {
            seen.secrets.push(self.path);
        }
        Ok(())
    }
    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        self.count()
    }
    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        self.count()
    }
    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        self.count()
    }
    fn visit_i128<E: de::Error>(self, _: i128) -> Result<(), E> {
        self.count()
    }
    fn visit_u128<E: de::Error>(self, _: u128) -> Result<(), E> {
        self.count()
    }
    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.count()
    }
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.count()
    }
    fn visit_none<E: de::Error>(self) -> Result<(), E> {
        self.count()
    }
    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(de::Error::custom("YAML tags (`!name`) mean nothing here"))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.count()?;
        let mut length = 0;
        while seq.next_element_seed(self.child(self.path.index(length)))?.is_some() {
            length += 1;
        }
        if self.path.0.len() == 1
            && let Some(last) = self.seen.borrow_mut().top.last_mut()
        {
            last.1 = length;
        }
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.count()?;
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key_seed(FreshKey { keys: &keys })? {
            if self.path.0.is_empty() {
                self.seen.borrow_mut().top.push((key.clone(), 0));
            }
            map.next_value_seed(self.child(self.path.key(key.clone())))?;
            keys.insert(key);
        }
        Ok(())
    }
}

/// A key that was not seen in its mapping yet.
struct FreshKey<'k> {
    keys: &'k HashSet<String>,
}

impl<'de> DeserializeSeed<'de> for FreshKey<'_> {
    type Value = String;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FreshKey<'_> {
    type Value = String;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        if self.keys.contains(key) {
            return Err(E::custom(format!("the key `{key}` is repeated")));
        }
        Ok(key.to_owned())
    }
}

/// The type's own refusal of one top-level key, marked at it.
pub(super) fn refuse_key(text: &str, key: &str) -> serde_yaml::Error {
    struct Only<'k>(&'k str);
    impl<'de> Visitor<'de> for Only<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a mapping")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            while map.next_key_seed(Refuse(self.0))?.is_some() {
                map.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }
    struct Refuse<'k>(&'k str);
    impl<'de> DeserializeSeed<'de> for Refuse<'_> {
        type Value = ();
        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_str(self)
        }
    }
    impl Visitor<'_> for Refuse<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a key")
        }
        fn visit_str<E: de::Error>(self, key: &str) -> Result<(), E> {
            if key == self.0 { Err(E::unknown_field(key, TOP_KEYS)) } else { Ok(()) }
        }
    }
    match serde_yaml::Deserializer::from_str(text).deserialize_map(Only(key)) {
        Err(error) => error,
        Ok(()) => de::Error::unknown_field(key, TOP_KEYS),
    }
}

/// The keys of the file, as the schema names them (a test compares the two).
pub(in crate::config) const TOP_KEYS: &[&str] = &[
    "version",
    "base",
    "findings",
    "planning",
    "pools",
    "exclude",
    "dispatch",
    "verify",
    "policy",
    "sandbox",
    "pull-requests",
    "pauses",
    "commands",
    "state",
    "report",
];

#[cfg(test)]
mod tests {
    #[test]
    fn the_top_keys_are_those_of_the_schema() {
        let schema = serde_json::to_value(crate::config::config_schema()).unwrap();
        let keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(keys, super::TOP_KEYS);
    }
}
