//! The JSON Schema of `overhaul.yml`, made from the types that read it.

use schemars::generate::SchemaSettings;

use super::Config;

/// The dialect of every schema that we publish.
pub const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The schema of the configuration (draft 2020-12).
#[must_use]
pub fn config_schema() -> schemars::Schema {
    let mut schema =
        SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Config>();
    schema.insert("title".to_owned(), "overhaul.yml".into());
    schema
}
