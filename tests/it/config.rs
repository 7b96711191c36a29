//! A maintainer writes `overhaul.yml`: the example, the schema, and what the two refuse.

use std::process::{Command, Output};

use overhaul::config::{Config, config_schema};

fn root(path: &str) -> String {
    let full = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&full).unwrap_or_else(|error| panic!("{full}: {error}"))
}

fn overhaul(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_overhaul")).args(args).env_clear().output().unwrap()
}

fn json(yaml: &str) -> serde_json::Value {
    serde_yaml::from_str(yaml).unwrap()
}

#[test]
fn the_example_is_valid_and_writes_the_defaults_out() {
    let text = root("examples/overhaul.yml");
    let config = Config::load(&text, "examples/overhaul.yml").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.warnings(), Vec::<String>::new());
    let short = Config::load("version: 1\npools: [{provider: host}]", "x").unwrap();
    assert_eq!(config.policy.scope_amend, short.policy.scope_amend);
    assert_eq!(config.policy.max_file_bytes, short.policy.max_file_bytes);
    assert_eq!(config.commands, short.commands);
    assert_eq!(config.report, short.report);
    assert_eq!(config.state, short.state);
    assert_eq!(config.dispatch.max_attempts, short.dispatch.max_attempts);
    assert_eq!(config.dispatch.lease, short.dispatch.lease);
    assert_eq!(config.pull_requests.max_open, short.pull_requests.max_open);
    let ids: Vec<String> = config.pools().iter().map(|p| p.pool_id().0).collect();
    assert_eq!(
        ids,
        [
            "openai-compatible/qwen/qwen3-coder-480b-a35b-instruct",
            "local-small",
            "codex#team/gpt-5-codex",
            "claude-worker/claude-sonnet-4-5",
            "codemods"
        ]
    );
}

#[test]
fn a_configuration_survives_a_round_trip() {
    let config = Config::load(&root("examples/overhaul.yml"), "x").unwrap();
    let again = serde_json::to_value(&config).unwrap();
    assert_eq!(serde_json::from_value::<Config>(again).unwrap(), config);
}

#[test]
fn the_committed_schema_is_the_generated_one() {
    let output = overhaul(&["schema"]);
    assert!(output.status.success());
    let generated = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        generated,
        root("schema/overhaul.schema.json"),
        "run `cargo run -- schema > schema/overhaul.schema.json`"
    );
}

#[test]
fn every_published_schema_is_a_schema() {
    for format in ["config", "plan", "pools", "event"] {
        let output = overhaul(&["schema", format]);
        assert!(output.status.success(), "{format}");
        let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(jsonschema::meta::is_valid(&schema), "{format}");
        assert_eq!(schema["$schema"], overhaul::config::DRAFT, "{format}");
    }
    assert_eq!(overhaul(&["schema", "poetry"]).status.code(), Some(2));
}

#[test]
fn the_schema_is_a_schema_and_accepts_the_example() {
    let schema = serde_json::to_value(config_schema()).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    let validator = jsonschema::validator_for(&schema).unwrap();
    let example = json(&root("examples/overhaul.yml"));
    let errors: Vec<String> =
        validator.iter_errors(&example).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert_eq!(errors, Vec::<String>::new());
}

#[test]
fn what_the_loader_refuses_structurally_the_schema_refuses_too() {
    let validator =
        jsonschema::validator_for(&serde_json::to_value(config_schema()).unwrap()).unwrap();
    let base = "version: 1\npools: [{provider: host}]\n";
    assert!(validator.is_valid(&json(base)));
    for extra in [
        "polls: []",
        "base: [main]",
        "dispatch: {dial: 2}",
        "dispatch: {dial: fast}",
        "dispatch: {attempt-timeout: 5 minutes}",
        "dispatch: {budget: {usd: lots}}",
        "planning: {min-severity: awful}",
        "verify: {commands: [{name: x}]}",
        "state: cloud",
        "state: {store: branch, brunch: x}",
        "commands: {permission: read}",
        "findings: [{file: a, colour: red}]",
        "pauses: nowhere",
        "report: {noise: {comments-per-day: -1}}",
    ] {
        let text = format!("{base}{extra}\n");
        assert!(Config::load(&text, "x").is_err(), "loader took {extra}");
        assert!(!validator.is_valid(&json(&text)), "schema took {extra}");
    }
    for extra in ["state: artifact", "dispatch: {dial: 0.25}", "dispatch: {dial: 1, lease: 1h 30m}"]
    {
        let text = format!("{base}{extra}\n");
        assert!(Config::load(&text, "x").is_ok(), "loader refused {extra}");
        assert!(validator.is_valid(&json(&text)), "schema refused {extra}");
    }
}

#[test]
fn validate_prints_every_error_with_its_place_and_exits_with_two() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("overhaul.yml");
    std::fs::write(&file, root("tests/data/config/broken.yml")).unwrap();
    let name = file.to_str().unwrap();
    let output = overhaul(&["validate", name]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    for part in ["has 4 errors", ":3:7:", ":6:5:", ":9:15:", ":11:11:"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("nvapi-"), "{text}");
    let output = overhaul(&["validate", name, "--json"]);
    assert_eq!(output.status.code(), Some(2));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["errors"].as_array().map(Vec::len), Some(4));
    assert_eq!(report["errors"][0]["line"], 3);
}

#[test]
fn validate_says_how_a_setting_should_stand_there() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("overhaul.yml");
    let text = "version: \"1\"\npools:\n  - provider: openai-compatible\n    tier: smart\nverify:\n  \
                commands:\n    - name: x\n      argv: cargo test\n";
    std::fs::write(&file, text).unwrap();
    let output = overhaul(&["validate", "--config", file.to_str().unwrap()]);
    let text = String::from_utf8(output.stderr).unwrap();
    for part in [
        "write it without quotes: `version: 1`",
        "use one of `small`, `standard`, `deep`, or a rank: 1, 2, 3",
        "write each argument by itself: `argv: [cargo, test]`",
        "more may follow",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains("why: \n"), "{text}");
    std::fs::write(&file, "version: 1\npools: [{provider: host}]\nexclude: [nope]\n").unwrap();
    let output = overhaul(&["validate", file.to_str().unwrap()]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("`claude-worker`") && !text.contains("more may follow"), "{text}");
}

#[test]
fn validate_sums_up_a_good_file_and_names_the_remedy_of_a_missing_one() {
    let example = format!("{}/examples/overhaul.yml", env!("CARGO_MANIFEST_DIR"));
    let output = overhaul(&["validate", &example]);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains(
            "codex#team/gpt-5-codex  meter api.openai.com#team, context 400000 (known model)"
        ),
        "{text}"
    );
    let output = overhaul(&["validate", "/nonexistent/overhaul.yml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("docs/configuration.md"));
}
