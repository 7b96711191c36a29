//! `doctor`: what it sees, what it says to do, and its exit codes.

use serde_json::Value;

use crate::support::{World, config};

struct Seen {
    code: Option<i32>,
    report: Value,
}

fn doctor(world: &World) -> Seen {
    let output = world.run(&["doctor", "--json"]);
    let report = serde_json::from_slice(&output.stdout).unwrap();
    Seen { code: output.status.code(), report }
}

fn checks<'a>(seen: &'a Seen, area: &str) -> Vec<&'a Value> {
    let all = seen.report["checks"].as_array().unwrap();
    all.iter().filter(|c| c["area"] == area).collect()
}

fn world(worker: &str, verify: &str) -> World {
    let world = World::new(&[("a.txt", "a\n")]);
    let script = world.write("worker.sh", "exit 0\n");
    let text = config(&script, "true", "");
    let text = text
        .replace("command: [sh,", &format!("command: [{worker},"))
        .replace("argv: [sh,", &format!("argv: [{verify},"));
    world.write("overhaul.yml", &text);
    world
}

#[test]
fn a_place_where_a_cycle_works() {
    let world = world("sh", "sh");
    let seen = doctor(&world);
    assert_eq!(seen.code, Some(0), "{}", seen.report);
    for area in ["git", "configuration", "pool", "verify", "remote", "state", "sandbox"] {
        assert!(!checks(&seen, area).is_empty(), "{area}: {}", seen.report);
    }
    assert_eq!(checks(&seen, "remote")[0]["subject"], "main");
    // It looked, and did nothing.
    assert!(world.pulls().is_empty());
    assert_eq!(world.branches().len(), 1);
}

#[test]
fn each_failure_has_one_reason_and_one_remedy() {
    let world = world("no-such-worker", "no-such-check");
    let seen = doctor(&world);
    assert_eq!(seen.code, Some(1), "{}", seen.report);
    for (area, program) in [("pool", "no-such-worker"), ("verify", "no-such-check")] {
        let check = checks(&seen, area)[0];
        assert_eq!(check["health"], "failure");
        assert!(check["detail"].as_str().unwrap().contains(program), "{check}");
        assert!(!check["remedy"].as_str().unwrap().is_empty());
    }
    let text = world.run(&["doctor"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("FAILED   pool worker: "), "{text}");
}

#[test]
fn the_program_of_a_recheck_is_looked_for() {
    let world = world("sh", "sh");
    let text = std::fs::read_to_string(world.path("overhaul.yml")).unwrap();
    let source = "  - file: findings.json\n";
    let with = |program: &str| text.replace(source, &format!("{source}    recheck: [{program}]\n"));
    world.write("overhaul.yml", &with("no-such-linter"));
    let seen = doctor(&world);
    assert_eq!(seen.code, Some(1), "{}", seen.report);
    let check = checks(&seen, "recheck")[0];
    assert!(check["detail"].as_str().unwrap().contains("no-such-linter"), "{check}");
    assert!(check["remedy"].as_str().unwrap().contains("`recheck`"), "{check}");
    world.write("overhaul.yml", &with("sh"));
    assert_eq!(checks(&doctor(&world), "recheck")[0]["health"], "ok");
}

#[test]
fn a_missing_key_is_named_and_never_shown() {
    let mut world = world("sh", "sh");
    let pools = "version: 1\nbase: main\nfindings:\n  - file: findings.json\npools:\n  - id: one\n    \
                 provider: openai-compatible\n    model: m\n    base-url: http://127.0.0.1:9/v1\n    \
                 key-env: RIG_KEY\n";
    world.write("overhaul.yml", pools);
    let seen = doctor(&world);
    let pool = checks(&seen, "pool")[0].clone();
    assert!(pool["remedy"].as_str().unwrap().contains("RIG_KEY"), "{pool}");
    world.set("RIG_KEY", "rig-secret-0001");
    let seen = doctor(&world);
    assert_eq!(seen.code, Some(1), "nothing listens there: {}", seen.report);
    assert!(!seen.report.to_string().contains("rig-secret-0001"));
}

#[test]
fn a_broken_configuration_and_a_missing_base_are_told_apart() {
    let world = world("sh", "sh");
    let good = std::fs::read_to_string(world.path("overhaul.yml")).unwrap();
    world.write("overhaul.yml", &good.replace("base: main", "base: gone"));
    let seen = doctor(&world);
    assert_eq!(seen.code, Some(1), "{}", seen.report);
    assert!(checks(&seen, "remote")[0]["detail"].as_str().unwrap().contains("gone"));
    world.write("overhaul.yml", &format!("{good}colour: red\n"));
    let seen = doctor(&world);
    assert_eq!(seen.code, Some(2), "{}", seen.report);
    let check = checks(&seen, "configuration")[0];
    assert!(check["detail"].as_str().unwrap().contains("colour"), "{check}");
}
