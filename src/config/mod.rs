//! `overhaul.yml`: typed configuration with positions, validation and JSON Schema. Pure.
