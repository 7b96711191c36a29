//! What the parsers say, in words of the input files: the place, and what was perhaps meant.

use serde::Deserialize as _;
use serde_json::Value;

use super::input::{InputError, NodeInput};
use crate::config::meant;

/// How the parsers call what is expected, and what it is.
const WORDS: &[(&str, &str)] = &[
    ("struct PlanFile", "an object with `nodes`"),
    ("struct PoolsFile", "a mapping with `pools`"),
    ("struct NodeInput", "a node"),
    ("struct PoolInput", "a pool"),
    ("struct ServiceInput", "how a pool behaves"),
    ("struct OutageInput", "an outage"),
    ("struct Limits", "limits"),
    ("invalid type: sequence", "invalid type: a list"),
    ("invalid type: map", "invalid type: a mapping"),
    ("expected a sequence", "expected a list"),
    ("expected u64", "expected a whole number from 0"),
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected f64", "expected a number"),
    ("expected ident", "this is no JSON"),
    ("expected value", "this is no JSON"),
];
/// Longest name of a node that is shown, characters.
const SHOWN: usize = 60;

/// Of a plan.
pub(super) fn plan(text: &str, error: &serde_json::Error) -> InputError {
    let said = error.to_string();
    match place(text) {
        Some((node, Some(key))) if !said.starts_with("unknown field") => {
            explain(&format!("{node}: {key}: {said}"))
        }
        Some((node, _)) => explain(&format!("{node}: {said}")),
        None => explain(&said),
    }
}

/// The first node that is refused, and its key that is.
fn place(text: &str) -> Option<(String, Option<String>)> {
    let plan: Value = serde_json::from_str(text).ok()?;
    let nodes = plan.as_array().or_else(|| plan.get("nodes")?.as_array())?;
    let (at, node) = nodes.iter().enumerate().find(|(_, n)| NodeInput::deserialize(*n).is_err())?;
    let name = match node.get("id").and_then(Value::as_str) {
        Some(id) => {
            let shown: String = id.chars().take(SHOWN).flat_map(char::escape_debug).collect();
            format!("node '{shown}'")
        }
        None => format!("node {}", at + 1),
    };
    let mut keys = node.as_object().into_iter().flatten();
    let key = keys.find(|(key, value)| {
        let mut alone = serde_json::Map::new();
        alone.insert("id".to_owned(), Value::from("any"));
        alone.insert((*key).clone(), (*value).clone());
        NodeInput::deserialize(Value::Object(alone)).is_err()
    });
    Some((name, key.map(|(key, _)| key.clone())))
}

/// With the nearest known key or word, without the names of our own types.
pub(super) fn explain(message: &str) -> InputError {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = message.contains("unknown field") || message.contains("unknown variant");
    let nearest = quoted.next().filter(|_| unknown).and_then(|word| {
        let known: Vec<&str> = quoted.collect();
        meant(word, &known).map(str::to_owned)
    });
    let plain = |text: String, (word, ours): &(&str, &str)| text.replace(word, ours);
    let message = WORDS.iter().fold(message.to_owned(), plain);
    InputError::Format { message: message.chars().take(600).collect(), nearest }
}
