//! What a stranger installs says the same as the code.

use std::collections::BTreeSet;
use std::path::Path;

use overhaul::actions::{INPUTS, OUTPUTS, SECRET_INPUTS};
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

#[test]
fn our_workflows_ask_for_little_and_pin_what_they_use() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".github/workflows");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let workflow: Value = serde_yaml::from_str(&text).unwrap();
        assert!(workflow["permissions"].is_object(), "{}", path.display());
        for (name, job) in workflow["jobs"].as_object().unwrap() {
            assert!(job["timeout-minutes"].is_number(), "{name} in {}", path.display());
            for step in job["steps"].as_array().unwrap() {
                let Some(uses) = step["uses"].as_str().filter(|u| !u.starts_with("./")) else {
                    continue;
                };
                let (_, version) = uses.split_once('@').unwrap();
                assert_eq!(version.len(), 40, "{uses} is pinned to a full commit id");
                if uses.starts_with("actions/checkout@") {
                    assert_eq!(step["with"]["persist-credentials"], false, "{}", path.display());
                }
            }
        }
        seen += 1;
    }
    assert!(seen > 0);
}
