//! What a stranger installs says the same as the code.

use std::collections::BTreeSet;
use std::path::Path;

use overhaul::actions::{INPUTS, OUTPUTS, SECRET_INPUTS};
use overhaul::config::Config;
use serde_json::Value;

fn yaml(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn the_action_declares_what_the_code_reads_and_sets() {
    let action = yaml("action.yml");
    let read: BTreeSet<&str> = INPUTS.iter().chain(SECRET_INPUTS).copied().collect();
    assert_eq!(keys(&action["inputs"]), read);
    assert_eq!(keys(&action["outputs"]), OUTPUTS.iter().copied().collect());
    for (name, field) in
        action["inputs"].as_object().unwrap().iter().chain(action["outputs"].as_object().unwrap())
    {
        assert!(field["description"].as_str().is_some_and(|d| d.len() > 10), "{name}");
    }
    assert_eq!(action["runs"]["using"], "docker");
}

/// Every workflow that we run or ship, with its path and its jobs.
fn workflows() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for folder in [".github/workflows", "examples/workflows"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = format!("{folder}/{name}");
            let workflow = yaml(&path);
            found.push((path, workflow));
        }
    }
    assert!(found.len() >= 5, "{found:?}");
    found
}

fn each<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

/// The same job's steps that use something.
fn uses(job: &Value) -> impl Iterator<Item = (&str, &Value)> {
    each(job, "steps").filter_map(|step| Some((step["uses"].as_str()?, step)))
}

#[test]
fn workflows_ask_for_little_and_pin_what_they_use() {
    for (path, workflow) in workflows() {
        assert_eq!(workflow["permissions"], serde_json::json!({}), "{path}: nothing by default");
        for (name, job) in workflow["jobs"].as_object().unwrap() {
            let place = format!("{name} in {path}");
            assert!(job["timeout-minutes"].is_number(), "{place}");
            assert!(job["permissions"].is_object(), "{place}");
            for (uses, step) in uses(job).filter(|(uses, _)| !uses.starts_with("./")) {
                let (action, version) = uses.split_once('@').unwrap();
                let ours = action.split('/').take(2).eq(["overhaul-rs", "overhaul"]);
                let pinned = version.len() == 40 && version.bytes().all(|b| b.is_ascii_hexdigit());
                assert!(ours || pinned, "{place}: {uses} is pinned to a full commit id");
                if action == "actions/checkout" {
                    assert_eq!(step["with"]["persist-credentials"], false, "{place}");
                }
            }
            // What an expression holds is code once it stands in a script.
            for step in each(job, "steps") {
                let script = step["run"].as_str().unwrap_or_default();
                assert!(!script.contains("${{"), "{place}: {script}");
            }
        }
    }
}

#[test]
fn schedules_keep_off_the_hour() {
    let mut seen = 0;
    for (path, workflow) in workflows() {
        for schedule in each(&workflow["on"], "schedule") {
            let cron = schedule["cron"].as_str().unwrap();
            let minute: u32 = cron.split(' ').next().unwrap().parse().unwrap();
            assert!(!minute.is_multiple_of(5), "{path}: {cron}");
            seen += 1;
        }
    }
    assert!(seen >= 2);
}

/// A misspelt input is silently ignored on GitHub.
#[test]
fn examples_use_inputs_and_outputs_that_exist() {
    let (action, setup) = (yaml("action.yml"), yaml("setup/action.yml"));
    let mut seen = 0;
    for (path, workflow) in workflows() {
        for (name, job) in workflow["jobs"].as_object().unwrap() {
            let ours: Vec<(&Value, &Value)> = uses(job)
                .filter_map(|(uses, step)| match uses.split('@').next()? {
                    "overhaul-rs/overhaul" => Some((&action, step)),
                    "overhaul-rs/overhaul/setup" => Some((&setup, step)),
                    _ => None,
                })
                .collect();
            for (definition, step) in &ours {
                for input in step["with"].as_object().into_iter().flatten().map(|(name, _)| name) {
                    assert!(definition["inputs"][input].is_object(), "{input} in {name} of {path}");
                }
                seen += 1;
            }
            // `steps.ID.outputs.NAME` of our own steps, wherever the job says it.
            let text = job.to_string();
            for (definition, id) in ours.iter().filter_map(|(d, s)| Some((d, s["id"].as_str()?))) {
                for part in text.split(&format!("steps.{id}.outputs.")).skip(1) {
                    let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                    let output = &part[..end.unwrap_or(part.len())];
                    assert!(definition["outputs"][output].is_object(), "{output} in {path}");
                }
            }
        }
    }
    assert!(seen >= 3);
}

#[test]
fn example_configurations_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "yml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let config =
                Config::load(&text, &path.to_string_lossy()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(config.warnings(), Vec::<String>::new(), "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 2);
}

/// A release makes the action run its image; what it edits must be there.
#[test]
fn a_release_pins_the_action_to_its_image() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir(copy.path().join("setup")).unwrap();
    for file in ["action.yml", "setup/action.yml", "setup/pin"] {
        std::fs::copy(root.join(file), copy.path().join(file)).unwrap();
    }
    let pin = |tag: &str, image: &str| {
        let program = copy.path().join("setup/pin");
        std::process::Command::new(program).args([tag, image]).output().unwrap().status.code()
    };
    let image = format!("ghcr.io/overhaul-rs/overhaul@sha256:{}", "a".repeat(64));
    assert_eq!(pin("v0", &image), Some(2));
    assert_eq!(pin("v1.2.3", "ghcr.io/overhaul-rs/overhaul:v1.2.3"), Some(2));
    assert_eq!(pin("v1.2.3", &image), Some(0));
    let read = |file: &str| -> Value {
        let text = std::fs::read_to_string(copy.path().join(file)).unwrap();
        serde_yaml::from_str(&text).unwrap()
    };
    let (before, mut after) = (yaml("action.yml"), read("action.yml"));
    assert_eq!(after["runs"]["image"], format!("docker://{image}"));
    after["runs"]["image"] = before["runs"]["image"].clone();
    assert_eq!(after, before);
    assert_eq!(read("setup/action.yml")["inputs"]["version"]["default"], "v1.2.3");
}
