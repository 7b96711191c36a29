//! Positions, from the YAML parser itself: it marks an error with the place it was raised at, so a
//! walk that raises one at the wanted path finds the place, whatever the style of the file.

use std::fmt;

use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// One step into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// A place in the document, from the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Path(pub(super) Vec<Step>);

impl Path {
    pub(super) fn key(&self, key: impl Into<String>) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Key(key.into()));
        Self(steps)
    }

    pub(super) fn index(&self, index: usize) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Index(index));
        Self(steps)
    }
}

/// A path of keys and indexes.
macro_rules! at {
    ($($step:expr),* $(,)?) => {
        $crate::config::locate::Path(vec![$( $crate::config::locate::Step::from($step) ),*])
    };
}
pub(super) use at;

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if nth == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Line and column, both from 1; the column counts characters.
pub(super) type Position = (usize, usize);

/// The key or the value of a mapping's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Key,
    Value,
}

/// Where `path` is in the text; the nearest existing ancestor where it is not there.
pub(super) fn position(text: &str, path: &Path, part: Part) -> Position {
    if let Some(found) = exact(text, path, part) {
        return found;
    }
    let mut steps = path.0.clone();
    while steps.pop().is_some() {
        if let Some(found) = exact(text, &Path(steps.clone()), Part::Key) {
            return found;
        }
    }
    (1, 1)
}

fn exact(text: &str, path: &Path, part: Part) -> Option<Position> {
    let seed = Find { steps: &path.0, part };
    let error = seed.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    if !error.to_string().contains(HERE) {
        return None;
    }
    error.location().map(|at| (at.line(), at.column()))
}

/// Marks our own error among the parser's.
const HERE: &str = "\u{1}here\u{1}";

#[derive(Clone, Copy)]
struct Find<'p> {
    steps: &'p [Step],
    part: Part,
}

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.steps.is_empty() {
            deserializer.deserialize_any(Stop)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping or a sequence")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((Step::Key(wanted), rest)) = self.steps.split_first() else {
            return Err(de::Error::custom("not a sequence"));
        };
        let stop_at = (self.part == Part::Key && rest.is_empty()).then_some(wanted.as_str());
        while let Some(key) = map.next_key_seed(Key { stop_at })? {
            if key == *wanted {
                return map.next_value_seed(Find { steps: rest, part: self.part });
            }
            map.next_value::<IgnoredAny>()?;
        }
        Err(de::Error::custom("no such key"))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some((Step::Index(wanted), rest)) = self.steps.split_first() else {
            return Err(de::Error::custom("not a mapping"));
        };
        for _ in 0..*wanted {
            seq.next_element::<IgnoredAny>()?;
        }
        match seq.next_element_seed(Find { steps: rest, part: self.part })? {
            Some(()) => Ok(()),
            None => Err(de::Error::custom("no such element")),
        }
    }
}

/// A key's text; raises the mark at the wanted one.
struct Key<'p> {
    stop_at: Option<&'p str>,
}

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = String;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        if self.stop_at == Some(key) { Err(E::custom(HERE)) } else { Ok(key.to_owned()) }
    }
}

/// Refuses every value, so that the parser marks its place.
struct Stop;

impl Visitor<'_> for Stop {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HERE)
    }
}

/// Deserialises only what is at `path`; `None` when the path is not there.
pub(super) fn parse_at<'de, T: Deserialize<'de>>(
    text: &'de str,
    path: &Path,
) -> Result<Option<T>, serde_yaml::Error> {
    At { steps: &path.0, kind: std::marker::PhantomData }
        .deserialize(serde_yaml::Deserializer::from_str(text))
}

struct At<'p, T> {
    steps: &'p [Step],
    kind: std::marker::PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> DeserializeSeed<'de> for At<'_, T> {
    type Value = Option<T>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        if self.steps.is_empty() {
            T::deserialize(deserializer).map(Some)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for At<'_, T> {
    type Value = Option<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.steps.first() {
            Some(Step::Index(_)) => "a sequence",
            _ => "a mapping",
        })
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<T>, A::Error> {
        let Some((Step::Key(wanted), rest)) = self.steps.split_first() else {
            return Err(de::Error::invalid_type(de::Unexpected::Map, &self));
        };
        let mut found = None;
        while let Some(key) = map.next_key_seed(Key { stop_at: None })? {
            if key == *wanted {
                found = map.next_value_seed(At { steps: rest, kind: self.kind })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<T>, A::Error> {
        let Some((Step::Index(wanted), rest)) = self.steps.split_first() else {
            return Err(de::Error::invalid_type(de::Unexpected::Seq, &self));
        };
        for _ in 0..*wanted {
            if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let found = seq.next_element_seed(At { steps: rest, kind: self.kind })?.flatten();
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, position};

    const TEXT: &str = "a: 1\nb:\n  - x: [1, {y: 2}]\n    'z w': é\n  - {x: é, q: 5}\nc: &anchor\n  k: v\nd: *anchor\n";

    #[test]
    fn positions_are_the_parsers_own() {
        let of = |path, part| position(TEXT, &path, part);
        assert_eq!(of(at!["a"], Part::Value), (1, 4));
        assert_eq!(of(at!["b", 0, "x", 1, "y"], Part::Value), (3, 16));
        assert_eq!(of(at!["b", 0, "x", 1, "y"], Part::Key), (3, 13));
        assert_eq!(of(at!["b", 0, "z w"], Part::Key), (4, 5));
        assert_eq!(of(at!["b", 1, "q"], Part::Value), (5, 15));
        assert_eq!(of(at!["c", "k"], Part::Value), (7, 6));
        assert_eq!(of(at!["d", "k"], Part::Value), (7, 6), "an alias is where its anchor is");
    }

    #[test]
    fn what_is_not_there_is_placed_at_its_nearest_ancestor() {
        assert_eq!(position(TEXT, &at!["b", 1, "limits", "concurrent"], Part::Value), (5, 5));
        assert_eq!(position(TEXT, &at!["nothing"], Part::Value), (1, 1));
        assert_eq!(position("", &at!["a", 3], Part::Key), (1, 1));
        assert_eq!(position("[", &at!["a", 3], Part::Key), (1, 1));
    }
}
