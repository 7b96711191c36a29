//! `doctor`: what it sees, what it says to do, and its exit codes.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

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

/// A backend: its address, and what it was asked.
struct Backend {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

/// A backend that answers with what `answer` gives for the text of a request's head.
fn backend(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> Backend {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heads = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (mut head, mut bytes) = (String::new(), [0; 4096]);
            while !head.contains("\r\n\r\n") {
                match stream.read(&mut bytes) {
                    Ok(count) if count > 0 => head += &String::from_utf8_lossy(&bytes[..count]),
                    _ => break,
                }
            }
            // A connection alone is no question.
            let Some(line) = head.lines().next() else { continue };
            heads.lock().unwrap().push(line.to_owned());
            let (status, body) = answer(&head);
            let _ = write!(
                stream,
                "HTTP/1.1 {status} S\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    Backend { url, asked }
}

/// Models to who has the key, else 401.
fn closed(head: &str) -> (u16, String) {
    if !head.contains("rig-secret-0001") {
        return (401, json!({"error": {"message": "Incorrect API key", "code": 401}}).to_string());
    }
    let models = json!([
        {"id": "vendor/coder-large", "max_model_len": 20_000},
        {"id": "vendor/coder-small", "max_model_len": 200_000},
    ]);
    (200, json!({"object": "list", "data": models}).to_string())
}

/// A world whose pools are these lines each.
fn asking(pools: &[String]) -> World {
    let mut world = world("sh", "true");
    let text = format!(
        "version: 1\nbase: main\nfindings:\n  - file: findings.json\npools:\n{}verify:\n  \
         commands:\n    - name: check\n      argv: [\"true\"]\n",
        pools.concat()
    );
    world.write("overhaul.yml", &text);
    world.set("RIG_KEY", "rig-secret-0001");
    world
}

fn pool(id: &str, backend: &Backend, model: &str, more: &str) -> String {
    format!(
        "  - id: {id}\n    provider: openai-compatible\n    model: {model}\n    base-url: {}\n{more}",
        backend.url
    )
}

const KEYED: &str = "    key-env: RIG_KEY\n";

/// Health, detail and remedy of the one check of an area.
fn told(seen: &Seen, area: &str) -> (String, String, String) {
    let of = checks(seen, area);
    assert_eq!(of.len(), 1, "{area}: {}", seen.report);
    let text = |name: &str| of[0][name].as_str().unwrap_or_default().to_owned();
    (text("health"), text("detail"), text("remedy"))
}

#[test]
fn key_and_model_are_proven_and_nothing_that_costs_is_asked() {
    let backend = backend(closed);
    let world = asking(&[pool("one", &backend, "vendor/coder-small", KEYED)]);
    let seen = doctor(&world);
    assert_eq!(seen.code, Some(0), "{}", seen.report);
    assert_eq!(told(&seen, "key").0, "ok", "{}", seen.report);
    assert_eq!(told(&seen, "model").0, "ok", "{}", seen.report);
    let asked = backend.asked.lock().unwrap().clone();
    assert!(!asked.is_empty() && asked.iter().all(|line| line.starts_with("GET /v1/models ")));
}

#[test]
fn a_refused_key_and_a_model_that_is_not_there_fail_with_their_remedies() {
    let backend = backend(closed);
    let mut world = asking(&[pool("one", &backend, "vendor/coder-larg", KEYED)]);
    let seen = doctor(&world);
    assert_eq!(seen.code, Some(1), "{}", seen.report);
    let (health, detail, remedy) = told(&seen, "model");
    assert_eq!(health, "failure", "{detail}");
    assert!(detail.contains("vendor/coder-larg") && remedy.contains("vendor/coder-large"));
    world.set("RIG_KEY", "another-secret-0002");
    let seen = doctor(&world);
    assert_eq!(seen.code, Some(1), "{}", seen.report);
    let (health, detail, remedy) = told(&seen, "key");
    assert_eq!(health, "failure", "{detail}");
    assert!(detail.contains("401") && remedy.contains("RIG_KEY"), "{detail} {remedy}");
    assert!(checks(&seen, "model").is_empty(), "one reason: {}", seen.report);
    assert!(!seen.report.to_string().contains("another-secret-0002"));
    // Without a variable it is told that one is needed; beside a good pool it is a warning.
    let world = asking(&[
        pool("one", &backend, "m", ""),
        pool("two", &backend, "vendor/coder-small", KEYED),
    ]);
    let seen = doctor(&world);
    assert_eq!(seen.code, Some(0), "{}", seen.report);
    let key = checks(&seen, "key").into_iter().find(|c| c["subject"] == "one").unwrap();
    assert_eq!(key["health"], "warning");
    assert!(key["remedy"].as_str().unwrap().contains("key-env"), "{key}");
}

#[test]
fn what_a_list_does_not_prove_is_told_as_unproven() {
    let open = backend(|_| closed("rig-secret-0001"));
    let none = backend(|_| (404, "{}".to_owned()));
    for (backend, why) in [(&open, "without a key as well"), (&none, "no list of models")] {
        let seen = doctor(&asking(&[pool("one", backend, "vendor/coder-small", KEYED)]));
        assert_eq!(seen.code, Some(0), "{}", seen.report);
        let (health, detail, _) = told(&seen, "key");
        assert_eq!(health, "warning", "{detail}");
        assert!(detail.contains("unproven") && detail.contains(why), "{detail}");
    }
    // Not every server minds the name: one with a single model may take any.
    let single = backend(|_| (200, json!({"data": [{"id": "the-one.gguf"}]}).to_string()));
    let seen = doctor(&asking(&[pool("one", &single, "mine", "")]));
    assert_eq!((seen.code, told(&seen, "model").0.as_str()), (Some(0), "warning"));
}

#[test]
fn windows_are_told_with_their_source() {
    let backend = backend(closed);
    let windows = |model: &str, more: &str| {
        let more = format!("{KEYED}{more}");
        told(&doctor(&asking(&[pool("one", &backend, model, &more)])), "windows")
    };
    let (health, detail, _) = windows("vendor/coder-small", "    context-tokens: 100000\n");
    assert_eq!(health, "ok", "{detail}");
    assert!(detail.contains("100000 tokens of context (declared)"), "{detail}");
    // Nobody knows the model, and its backend states more, or less, than is taken.
    let (health, detail, remedy) = windows("vendor/coder-small", "");
    assert_eq!(health, "warning", "{detail}");
    assert!(remedy.contains("context-tokens: 200000"), "{detail} {remedy}");
    let (health, detail, remedy) = windows("vendor/coder-large", "    context-tokens: 30000\n");
    assert_eq!(health, "warning", "{detail}");
    assert!(detail.contains("states 20000") && remedy.contains("20000"), "{detail} {remedy}");
}
