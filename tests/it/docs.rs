//! What is written for people is complete and leads somewhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use overhaul::commands::Verb;
use overhaul::config::config_schema;
use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Every page for people: at the root and in `docs`.
fn pages() -> Vec<String> {
    let in_docs = std::fs::read_dir(root().join("docs")).unwrap();
    let in_docs = in_docs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let in_docs = in_docs.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    let top = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned);
    top.into_iter().chain(in_docs).collect()
}

/// The paths of all settings, a list's elements as `*`: `pools.*.limits.concurrent`.
fn settings() -> BTreeSet<String> {
    fn walk(schema: &Value, whole: &Value, path: &str, found: &mut BTreeSet<String>) {
        if let Some(name) = schema["$ref"].as_str() {
            let pointer = name.trim_start_matches('#');
            return walk(whole.pointer(pointer).unwrap(), whole, path, found);
        }
        for choice in ["anyOf", "oneOf", "allOf"] {
            for each in schema[choice].as_array().into_iter().flatten() {
                walk(each, whole, path, found);
            }
        }
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}{name}");
            walk(inner, whole, &format!("{path}."), found);
            found.insert(path);
        }
        if schema["items"].is_object() {
            walk(&schema["items"], whole, &format!("{path}*."), found);
        }
    }
    let schema = serde_json::to_value(config_schema()).unwrap();
    let mut found = BTreeSet::new();
    walk(&schema, &schema, "", &mut found);
    assert!(found.len() > 100, "{found:?}");
    found
}

/// The text below a heading of the third level, to the next heading.
fn section<'t>(page: &'t str, heading: &str) -> Option<&'t str> {
    let (_, after) = page.split_once(&format!("\n### `{heading}`\n"))?;
    let end = after.find("\n##").unwrap_or(after.len());
    after.get(..end)
}

#[test]
fn every_setting_is_in_its_section_of_the_page_about_the_configuration() {
    let page = text("docs/configuration.md");
    for setting in settings() {
        let parts: Vec<&str> = setting.split('.').filter(|part| *part != "*").collect();
        let name = parts.last().unwrap();
        let parent = parts[..parts.len() - 1].join(".");
        let below = section(&page, &parent).or_else(|| section(&page, parts[0]));
        let below = match below {
            Some(below) if parts.len() > 1 => below,
            // A section is in the table of sections.
            _ => &page,
        };
        let said = below.contains(&format!("`{name}`")) || below.contains(&format!("{name}: "));
        assert!(said, "{setting} is not in its section of docs/configuration.md");
    }
}

/// What can't be set beside the rest, or is refused: in a comment of the example.
const IN_COMMENTS: [&str; 3] = ["planning.max-nodes", "state.path", "verify.waive"];

#[test]
fn every_setting_is_in_the_example() {
    fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        for (name, inner) in value.as_object().into_iter().flatten() {
            let path = format!("{path}{name}");
            paths(inner, &format!("{path}."), found);
            found.insert(path);
        }
        for inner in value.as_array().into_iter().flatten() {
            paths(inner, &format!("{path}*."), found);
        }
    }
    let example = text("examples/overhaul.yml");
    let mut shown = BTreeSet::new();
    paths(&serde_yaml::from_str(&example).unwrap(), "", &mut shown);
    for setting in settings() {
        let name = setting.rsplit('.').next().unwrap();
        let commented = example.contains(&format!("# {name}: "));
        assert_eq!(IN_COMMENTS.contains(&setting.as_str()), commented, "{setting}");
        assert!(commented || shown.contains(&setting), "{setting} is not in examples/overhaul.yml");
    }
}

/// GitHub's anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The targets of a page's links to files of the repository.
fn links(page: &str) -> Vec<String> {
    let targets = text(page);
    let targets = targets.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

#[test]
fn links_lead_somewhere() {
    for page in pages() {
        let folder = root().join(&page).parent().unwrap().to_owned();
        for link in links(&page) {
            let (file, part) = link.split_once('#').unwrap_or((&link, ""));
            let path: PathBuf =
                if file.is_empty() { root().join(&page) } else { folder.join(file) };
            assert!(path.exists(), "{page} leads to {link}");
            if !part.is_empty() {
                let there = std::fs::read_to_string(&path).unwrap();
                let found = there.lines().filter(|line| line.starts_with('#'));
                let mut found = found.map(|line| anchor(line.trim_start_matches('#')));
                assert!(found.any(|it| it == part), "{page} leads to {link}");
            }
        }
    }
}

#[test]
fn every_page_and_example_is_linked_from_the_readme() {
    let linked: BTreeSet<String> = links("README.md").into_iter().collect();
    let examples = std::fs::read_dir(root().join("examples/workflows")).unwrap();
    let examples = examples.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let examples = examples.map(|name| format!("examples/workflows/{name}"));
    for page in pages().into_iter().chain(examples).filter(|page| page != "README.md") {
        assert!(linked.contains(&page), "{page} is not linked");
    }
}

#[test]
fn the_readme_shows_the_examples_that_it_names() {
    let readme = text("README.md");
    assert!(readme.contains(&text("examples/overhaul-ruff.yml")));
    let workflow = text("examples/workflows/lint-and-fix.yml");
    let (_, heart) = readme.split_once("```yaml\n").unwrap();
    let (heart, _) = heart.split_once("```").unwrap();
    for line in heart.lines().map(str::trim) {
        // Pins and further options are in the file only.
        let start = line.split('@').next().unwrap();
        assert!(workflow.contains(start), "{line}");
    }
}

/// The first thing that a newcomer copies must have what it reads and starts.
#[test]
fn example_workflows_make_the_findings_that_their_configuration_names() {
    for (workflow, config) in [("lint-and-fix", "overhaul-ruff"), ("nim", "overhaul-nim")] {
        let config: Value = serde_yaml::from_str(&text(&format!("examples/{config}.yml"))).unwrap();
        let workflow: Value =
            serde_yaml::from_str(&text(&format!("examples/workflows/{workflow}.yml"))).unwrap();
        let steps = workflow["jobs"]["cycle"]["steps"].as_array().unwrap();
        let scripts: Vec<&str> = steps.iter().filter_map(|step| step["run"].as_str()).collect();
        for source in config["findings"].as_array().unwrap() {
            let (file, program) = (source["file"].as_str().unwrap(), &source["recheck"][0]);
            let makes = |s: &&str| s.contains(file) && s.contains(program.as_str().unwrap());
            let made = scripts.iter().position(makes).expect(file);
            let used = scripts.iter().position(|s| s.starts_with("overhaul next-step")).unwrap();
            assert!(made < used, "{file}");
        }
        let keys = config["pools"].as_array().unwrap().iter().filter_map(|p| p["key-env"].as_str());
        for key in keys {
            let cycle = steps.iter().find(|step| step["id"] == "overhaul").unwrap();
            assert!(cycle["env"][key].is_string(), "{key}");
        }
    }
}

#[test]
fn one_name_for_the_key_of_one_endpoint() {
    for file in pages().into_iter().chain(["examples/overhaul.yml".to_owned()]) {
        assert!(!text(&file).contains("NIM_API_KEY"), "{file}");
    }
}

#[test]
fn the_comment_commands_are_listed() {
    let page = text("docs/github.md");
    for (usage, does) in Verb::ALL.map(Verb::usage) {
        assert!(page.contains(&format!("| `{usage}` | {does} |")), "{usage}");
    }
}

/// Of tests and of parts of ours among each other.
const NOT_FOR_PEOPLE: [&str; 7] = [
    "OVERHAUL_CRASH_AFTER",
    "OVERHAUL_EFFECTS_LOG",
    "OVERHAUL_GATEWAY_TOKEN",
    "OVERHAUL_NOW",
    "OVERHAUL_PANIC_NODE",
    "OVERHAUL_PROCESS",
    "OVERHAUL_SPEED",
];

#[test]
fn every_variable_of_ours_is_documented() {
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let documented = text("docs/command-line.md") + &text("docs/workers.md");
    let mut seen = BTreeSet::new();
    for file in files {
        let source = std::fs::read_to_string(&file).unwrap();
        for rest in source.split("\"OVERHAUL_").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_uppercase() && c != '_').unwrap();
            let name = format!("OVERHAUL_{}", &rest[..end]);
            let known = documented.contains(&format!("`{name}`"));
            assert!(known || NOT_FOR_PEOPLE.contains(&name.as_str()), "{name} of {file:?}");
            seen.insert(name);
        }
    }
    assert!(seen.len() >= 8, "{seen:?}");
}
