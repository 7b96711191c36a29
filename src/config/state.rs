//! The `state` section: a store's name, or a mapping.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize};

/// Where the run's ledger is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct State {
    /// The kind of store.
    pub store: StateStore,
    /// The orphan branch, where the store is `branch`.
    pub branch: String,
    /// The folder, where the store is `directory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// The kind of store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StateStore {
    /// An orphan branch of the repository.
    #[default]
    Branch,
    /// Workflow artifacts.
    Artifact,
    /// A folder of this machine.
    Directory,
}

/// The long form.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Fields {
    /// The kind of store.
    #[serde(default)]
    store: StateStore,
    /// The orphan branch, where the store is `branch`.
    #[serde(default = "default_branch")]
    branch: String,
    /// The folder, where the store is `directory`.
    #[serde(default)]
    path: Option<String>,
}

fn default_branch() -> String {
    "overhaul/state".to_owned()
}

impl Default for State {
    fn default() -> Self {
        Self { store: StateStore::Branch, branch: default_branch(), path: None }
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = State;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`branch`, `artifact`, `directory`, or a mapping with `store`")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<State, E> {
                let store = match text {
                    "branch" => StateStore::Branch,
                    "artifact" => StateStore::Artifact,
                    "directory" => StateStore::Directory,
                    _ => {
                        return Err(E::unknown_variant(text, &["branch", "artifact", "directory"]));
                    }
                };
                Ok(State { store, ..State::default() })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<State, A::Error> {
                let Fields { store, branch, path } =
                    Fields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(State { store, branch, path })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for State {
    fn schema_name() -> Cow<'static, str> {
        "State".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let fields = generator.subschema_for::<Fields>();
        let store = generator.subschema_for::<StateStore>();
        json_schema!({ "anyOf": [store, fields] })
    }
}
