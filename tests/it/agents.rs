//! Command-line agents in whole cycles: the real binary, and small programs in the agents' place
//! that play what the real ones were recorded to print (`tests/data/agent-output`).

use std::path::Path;

use overhaul::backends::scripted::{Answer, Reply, Request, Scripted};
use serde_json::Value;

use crate::support::{Cycle, World, findings};

const KEY: &str = "real-key-0123456789abcdef";
const MODEL: &str = "vendor/model-a";

/// A budget of time that outlasts no pause.
const SHORT: &[&str] = &["--time-budget", "50s"];

/// What a program in an agent's place does after it has noted how it was called. `$port` is where
/// its gateway listens, `$token` what it shows there.
const EDIT: &str = "echo fixed > a.txt";

/// A request to the gateway, in the protocol of the agent.
const ASK: &str = r#"
ask() {
  exec 3<>"/dev/tcp/127.0.0.1/$port" || return 1
  printf 'POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' \
    "$1" "$token" "${#2}" "$2" >&3
  answer=$(cat <&3)
  exec 3>&-
  printf '%s\n' "$answer" >> "$here/answers"
}
"#;

struct Play<'a> {
    provider: &'a str,
    /// The recording that it prints, or a text of its own.
    prints: String,
    body: String,
    exit: &'a str,
    /// Further lines of the pool.
    more: &'a [&'a str],
}

impl<'a> Play<'a> {
    fn new(provider: &'a str, recording: &str) -> Self {
        let path =
            format!("{}/tests/data/agent-output/{recording}.jsonl", env!("CARGO_MANIFEST_DIR"));
        Self::printing(provider, std::fs::read_to_string(path).unwrap())
    }

    fn printing(provider: &'a str, prints: impl Into<String>) -> Self {
        Self { provider, prints: prints.into(), body: EDIT.to_owned(), exit: "exit 0", more: &[] }
    }

    fn body(self, body: &str) -> Self {
        Self { body: body.to_owned(), ..self }
    }

    fn exit(self, exit: &'a str) -> Self {
        Self { exit, ..self }
    }

    fn more(self, more: &'a [&'a str]) -> Self {
        Self { more, ..self }
    }

    /// A world with one finding in `a.txt`, and this program as its only pool.
    fn world(&self, endpoint: Option<&Scripted>) -> World {
        let mut world = World::new(&[("a.txt", "a\n")]);
        world.set("AGENT_KEY", KEY);
        world.set("SEEN_BY_AGENT", "as-named");
        world.set("GITHUB_TOKEN", "job-token-0123456789");
        world.write("checkout/findings.json", &findings(&[("F", "a.txt", "fix it")]));
        world.write("seen/prints", &self.prints);
        let here = world.path("seen");
        let program = format!(
            "#!/bin/bash\nhere={here}\n[ \"$1\" = --version ] && {{ echo 'agent 1.2.3 (a play)'; exit 0; }}\n\
             n=$(ls \"$here\" | grep -c '^args')\nprintf '%s\\n' \"$@\" > \"$here/args$n\"\n\
             env > \"$here/env$n\"\ncat > \"$here/stdin$n\"\ncp -r \"$HOME\" \"$here/home$n\"\n\
             settings=$(cat \"$HOME/.config/opencode/opencode.json\" 2>/dev/null)\n\
             port=$(printf '%s\\n' \"$*\" \"$ANTHROPIC_BASE_URL\" \"$settings\" | grep -o '127.0.0.1:[0-9]*' | head -n 1)\n\
             port=${{port#*:}}\ntoken=${{OVERHAUL_GATEWAY_TOKEN:-$ANTHROPIC_API_KEY}}\n{ASK}\n{body}\n\
             cat \"$here/prints\"\n{exit}\n",
            here = here.display(),
            body = self.body,
            exit = self.exit,
        );
        let path = world.write("agent", &program);
        executable(&path);
        let reached = endpoint.map_or_else(String::new, |e| {
            format!("    base-url: {}\n    key-env: AGENT_KEY\n", e.base_url().unwrap())
        });
        let more: String = self.more.iter().map(|line| format!("    {line}\n")).collect();
        world.write(
            "overhaul.yml",
            &format!(
                "version: 1\nbase: main\nfindings:\n  - file: findings.json\npools:\n  - id: agent\n    \
                 provider: {}\n    model: {MODEL}\n    command: [{}]\n    env: [SEEN_BY_AGENT]\n{reached}{more}\
                 dispatch:\n  max-attempts: {{contract: 1, infrastructure: 1}}\nstate:\n  store: \
                 directory\n  path: ../ledger\nsandbox:\n  write: [{}]\nverify:\n  commands:\n    - name: check\n      argv: [grep, \
                 -q, fixed, a.txt]\n      timeout: 20s\n",
                self.provider,
                path.display(),
                world.path("").display(),
            ),
        );
        world
    }
}

fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Every event of the run.
fn events(world: &World) -> Vec<Value> {
    let mut texts = Vec::new();
    let mut folders = vec![world.path("ledger")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "ndjson") {
                texts.push((path.clone(), std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    texts.sort();
    let lines = texts.iter().flat_map(|(_, text)| text.lines());
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_free_agent_that_says_what_it_cost_is_dear_from_then_on() {
    let play = Play::new("claude-worker", "claude-ok");
    let world = play.more(&["cost-per-mtok: 0"]).world(None);
    let cycle = world.next_step_with(SHORT);
    assert_eq!(cycle.nodes("in_review"), 1, "{} {}", cycle.report, cycle.stderr);
    let told = |event: &&Value| event["friction"] == "declared_cost_drift";
    let events = events(&world);
    assert_eq!(events.iter().filter(told).count(), 1, "{events:#?}");
}

/// Outcome and detail of the first attempt, where it was refused.
fn refused(world: &World, cycle: &Cycle) -> (String, String) {
    let events = events(world);
    let ended = events.iter().find(|e| e.get("burn").is_some());
    let ended = ended.unwrap_or_else(|| panic!("{} {}", cycle.report, cycle.stderr));
    let text = |name: &str| ended[name].as_str().unwrap().to_owned();
    (text("outcome"), text("detail"))
}

async fn endpoint(script: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted::start(script).await.unwrap()
}

/// An endpoint that nothing should ask.
async fn quiet() -> Scripted {
    endpoint(|_, _| Reply::error(500, "asked", "asked")).await
}

fn seen(world: &World, name: &str) -> String {
    std::fs::read_to_string(world.path("seen").join(name)).unwrap()
}

fn everything_below(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            everything_below(&path, found);
        } else {
            found.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_agent_lands_its_change_and_never_sees_a_key() {
    let agy = r#"{"event":"init","init":{"model":"vendor/model-a"}}
{"event":"step_update","step_update":{"step_type":"agent_response","text_delta":"x"}}
{"event":"result","result":{"status":"SUCCESS","response":"Done. I wrote hello.txt.","error":"","num_turns":2,"usage":{"input_tokens":200,"output_tokens":30,"thinking_tokens":10,"cache_read_tokens":40}}}
"#;
    for (provider, recording) in [
        ("codex", "codex-ok"),
        ("codex", "codex-fail2-500"),
        ("opencode", "opencode-ok"),
        ("opencode", "opencode-fail2-429"),
        ("claude-worker", "claude-ok"),
        ("agy", ""),
    ] {
        let endpoint = quiet().await;
        let play = if provider == "agy" {
            Play::printing(provider, agy)
        } else {
            Play::new(provider, recording)
        };
        let more = ["version: 1.2.3", "args: [--own, 'a b;c']"];
        let world = play.more(&more).world((provider != "agy").then_some(&endpoint));
        let cycle = world.next_step_with(SHORT);
        let what = format!("{provider} {recording}: {} {}", cycle.report, cycle.stderr);
        assert_eq!(cycle.nodes("in_review"), 1, "{what}");
        assert_eq!(cycle.report["agents"]["agent"], "agent 1.2.3", "{what}");
        let pull = world.pulls().into_values().next().unwrap();
        assert!(pull.contains("Done. I wrote hello.txt"), "{pull}");
        assert!(pull.contains("| agent | `agent 1.2.3` |"), "{pull}");
        let usage = &world.status()["usage"];
        assert_eq!(
            (&usage["input-tokens"], &usage["output-tokens"]),
            (&240.into(), &40.into()),
            "{what}"
        );

        let (args, env) = (seen(&world, "args0"), seen(&world, "env0"));
        assert!(args.contains("--own\na b;c\n"), "{args}");
        if provider == "opencode" {
            let settings = seen(&world, "home0/.config/opencode/opencode.json");
            assert!(settings.contains(&format!("\"model\":\"overhaul/{MODEL}\"")), "{settings}");
        } else {
            assert!(args.contains(MODEL), "{args}");
        }
        if provider == "agy" {
            assert!(args.contains("--print=") && args.contains("# Task N-001"), "{args}");
        } else {
            assert!(seen(&world, "stdin0").contains("# Task N-001"), "{what}");
            assert!(!args.contains("# Task"), "a prompt is no argument where it need not be");
        }
        assert!(env.contains("SEEN_BY_AGENT=as-named\n"), "{env}");
        let names: Vec<&str> = env.lines().filter_map(|l| Some(l.split_once('=')?.0)).collect();
        assert!(!names.contains(&"AGENT_KEY") && !names.contains(&"GITHUB_TOKEN"), "{env}");
        let mut all = String::new();
        everything_below(&world.path("seen"), &mut all);
        assert!(!all.contains(KEY) && !all.contains("job-token"), "{provider}");
        let home = env.lines().find_map(|l| l.strip_prefix("HOME=")).unwrap();
        assert!(
            !Path::new(home).exists() || std::fs::read_dir(home).unwrap().count() == 0,
            "{home}"
        );
        assert!(endpoint.requests().is_empty());
    }
}

/// What real agents printed when a backend failed, with the code that they ended with.
const FAILURES: &[(&str, &str, &str, &str)] = &[
    ("codex", "codex-400ctx", "exit 1", "packet_too_large"),
    ("codex", "codex-401", "exit 1", "auth"),
    ("codex", "codex-403", "exit 1", "auth"),
    ("codex", "codex-404", "exit 1", "model_unavailable"),
    ("codex", "codex-413", "exit 1", "packet_too_large"),
    ("codex", "codex-429", "exit 1", "quota_unclassified"),
    ("codex", "codex-429ra", "exit 1", "quota_unclassified"),
    ("codex", "codex-500", "exit 1", "transient"),
    ("codex", "codex-503", "exit 1", "transient"),
    ("codex", "codex-badjson", "exit 1", "transient"),
    ("codex", "codex-cut", "exit 1", "transient"),
    ("codex", "codex-hang", "exit 1", "transient"),
    ("codex", "codex-fail2-429", "exit 1", "quota_unclassified"),
    ("codex", "codex-vllm-2048", "exit 1", "packet_too_large"),
    ("opencode", "opencode-400ctx", "exit 1", "packet_too_large"),
    ("opencode", "opencode-401", "exit 1", "auth"),
    ("opencode", "opencode-403", "exit 1", "auth"),
    ("opencode", "opencode-404", "exit 1", "model_unavailable"),
    ("opencode", "opencode-413", "exit 1", "packet_too_large"),
    ("opencode", "opencode-429long", "exit 1", "rate_limited"),
    ("opencode", "opencode-429ra", "exit 1", "rate_limited"),
    // These never ended: an endless loop, ended by the attempt's clock.
    ("opencode", "opencode-badjson", "exec sleep 600", "timeout"),
    ("opencode", "opencode-cut", "exec sleep 600", "timeout"),
    ("opencode", "opencode-vllm-2048", "exec sleep 600", "timeout"),
    ("opencode", "opencode-vllm-40000", "exit 0", "packet_too_large"),
    ("claude-worker", "claude-400ctx", "exit 1", "packet_too_large"),
    ("claude-worker", "claude-401", "exit 1", "auth"),
    ("claude-worker", "claude-403", "exit 1", "auth"),
    ("claude-worker", "claude-404", "exit 1", "model_unavailable"),
    ("claude-worker", "claude-413", "exit 1", "packet_too_large"),
    ("claude-worker", "claude-429ra", "exit 1", "rate_limited"),
    ("claude-worker", "claude-529", "exit 1", "transient"),
    ("claude-worker", "claude-badjson", "exit 1", "transient"),
    ("claude-worker", "claude-vllm-2048", "exit 1", "packet_too_large"),
];

async fn recorded_failures(provider: &str) {
    let mut wrong = Vec::new();
    for (_, recording, exit, expected) in FAILURES.iter().filter(|f| f.0 == provider) {
        let endpoint = quiet().await;
        let timeout = if exit.contains("sleep") { "timeout: 3s" } else { "timeout: 1m" };
        let more = [timeout];
        // An agent that failed may have written something: it does not count. A second attempt,
        // where one comes at once, goes well.
        let second = format!("{EDIT}\n[ \"$n\" -gt 0 ] && cat \"$here/good\" && exit 0");
        let play = Play::new(provider, recording).body(&second).exit(exit).more(&more);
        let world = play.world(Some(&endpoint));
        let good = Play::new(provider, &format!("{}-ok", recording.split('-').next().unwrap()));
        world.write("seen/good", &good.prints);
        let cycle = world.next_step_with(SHORT);
        let (outcome, detail) = refused(&world, &cycle);
        // Its limit says that a second is enough.
        let again = u64::from(*recording == "opencode-429ra");
        if outcome != *expected || cycle.nodes("in_review") != again || detail.is_empty() {
            wrong.push(format!("{recording}: {outcome}, not {expected}: {detail}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn recorded_failures_of_codex() {
    recorded_failures("codex").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn recorded_failures_of_opencode() {
    recorded_failures("opencode").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn recorded_failures_of_claude() {
    recorded_failures("claude-worker").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn exit_0_without_a_change_is_a_failed_attempt() {
    for (provider, recording) in
        [("codex", "codex-ok"), ("opencode", "opencode-ok"), ("claude-worker", "claude-text")]
    {
        let endpoint = quiet().await;
        let world = Play::new(provider, recording).body("").world(Some(&endpoint));
        let cycle = world.next_step_with(SHORT);
        let (outcome, detail) = refused(&world, &cycle);
        assert_eq!(outcome, "invalid_result", "{provider}: {detail}");
        assert!(detail.contains("changed nothing"), "{provider}: {detail}");
        assert_eq!(cycle.nodes("failed"), 1);
    }
    // Nor is one that prints nothing at all, whatever it left in the tree.
    let endpoint = quiet().await;
    let world = Play::printing("codex", "").world(Some(&endpoint));
    let cycle = world.next_step_with(SHORT);
    assert_eq!(refused(&world, &cycle).0, "transient");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_the_gateway_saw_comes_before_what_the_agent_says() {
    // codex drops the body of a 429; the backend said that the money is gone.
    let broke = endpoint(|_, _| {
        let words = "You exceeded your current quota, please check your plan and billing details.";
        Reply::error(429, words, "insufficient_quota")
    })
    .await;
    let ask = r#"ask /v1/responses '{"model":"vendor/model-a","input":[],"stream":true}'"#;
    let world = Play::new("codex", "codex-429").body(ask).exit("exit 1").world(Some(&broke));
    let cycle = world.next_step_with(SHORT);
    let (outcome, detail) = refused(&world, &cycle);
    assert_eq!(outcome, "credit_exhausted", "{detail}");
    // The agent saw the very answer, and the backend the real key.
    assert!(seen(&world, "answers").contains("insufficient_quota"));
    let asked = broke.requests();
    assert_eq!(asked[0].headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(cycle.status(), "paused");

    // An agent that tries again for ever is ended by its clock; the reason is the backend's.
    let refusing = endpoint(|_, _| Reply::error(401, "bad key", "invalid_api_key")).await;
    let ask = r#"ask /v1/messages '{"model":"vendor/model-a","messages":[]}'"#;
    let more = ["timeout: 3s"];
    let play = Play::printing("claude-worker", "").body(ask).exit("exec sleep 600").more(&more);
    let world = play.world(Some(&refusing));
    let (outcome, detail) = refused(&world, &world.next_step_with(SHORT));
    assert_eq!(outcome, "auth", "{detail}");
    assert!(detail.contains("3 s are over"), "{detail}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_request_budget_ends_an_endless_loop() {
    let asks =
        r#"while :; do ask /v1/chat/completions '{"model":"vendor/model-a","messages":[]}'; done"#;
    // Good answers without end: the agent goes round in circles.
    let endless = endpoint(|_, _| Answer::text("again").into()).await;
    let world = Play::printing("opencode", "").body(asks).world(Some(&endless));
    let (outcome, detail) = refused(&world, &world.next_step_with(SHORT));
    assert_eq!(outcome, "error", "{detail}");
    assert!(detail.contains("request budget"), "{detail}");
    let requests = endless.requests().len();
    assert!((1..=60).contains(&requests), "{requests}");
    assert_eq!(world.status()["usage"]["requests"], requests);

    // Overflows without end: the request is too large for this pool, whatever the agent makes of it.
    let overflow =
        "This model's maximum context length is 2048 tokens. However, you requested 9001 tokens.";
    let full = endpoint(move |_, _| Reply::error(400, overflow, "context_length_exceeded")).await;
    let world = Play::printing("opencode", "").body(asks).world(Some(&full));
    let (outcome, detail) = refused(&world, &world.next_step_with(SHORT));
    assert_eq!(outcome, "packet_too_large", "{detail}");
    assert!(full.requests().len() <= 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_silent_switch_of_models_is_reported() {
    let other = endpoint(|_, _| {
        Answer { model: Some("vendor/model-b".to_owned()), ..Answer::text("x") }.into()
    })
    .await;
    let ask = format!(
        "{EDIT}\nask /v1/chat/completions '{{\"model\":\"vendor/model-a\",\"messages\":[]}}'"
    );
    let world = Play::new("opencode", "opencode-ok").body(&ask).world(Some(&other));
    let cycle = world.next_step_with(SHORT);
    assert_eq!(cycle.nodes("in_review"), 1, "{}", cycle.stderr);
    let friction = world.status()["friction"].clone();
    assert_eq!(friction[0]["friction"], "model_switched", "{friction}");
    let text = friction[0]["text"].as_str().unwrap();
    assert!(text.contains("model-a") && text.contains("model-b"), "{text}");
    assert!(world.pulls().into_values().next().unwrap().contains("vendor/model-b"));

    // One that signs in by itself says so in its own words.
    let printed = r#"{"event":"init","init":{"model":"vendor/small"}}
{"event":"result","result":{"status":"SUCCESS","response":"done","error":""}}
"#;
    let world = Play::printing("agy", printed).world(None);
    world.next_step_with(SHORT);
    assert_eq!(world.status()["friction"][0]["friction"], "model_switched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_result_of_another_task_is_told_once_and_then_mended() {
    let endpoint = quiet().await;
    let event = |ids: &str| {
        let text =
            format!("{{\"resolved\": [\"{ids}\"], \"blocked\": [], \"summary\": \"did it\"}}");
        let item = serde_json::json!({"type": "item.completed", "item": {"type": "agent_message", "text": text}});
        format!("{item}\n{{\"type\":\"turn.completed\",\"usage\":{{}}}}\n")
    };
    let mended = r#"if [ "$n" = 1 ]; then
      id=$(sed -n 's/.*in exactly one of them: \([^.]*\)\. No other keys.*/\1/p' "$here/stdin1")
      sed -i "s/F-FOREIGN/$id/" "$here/prints"
    fi"#;
    let play = Play::printing("codex", event("F-FOREIGN")).body(&format!("{EDIT}\n{mended}"));
    let world = play.world(Some(&endpoint));
    let cycle = world.next_step_with(SHORT);
    assert_eq!(cycle.nodes("in_review"), 1, "{} {}", cycle.report, cycle.stderr);
    assert!(seen(&world, "stdin1").contains("not of this task: F-FOREIGN"));
    assert!(world.pulls().into_values().next().unwrap().contains("did it"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn another_version_than_the_pinned_one_does_not_work() {
    let endpoint = quiet().await;
    let more = ["version: 1.2.4"];
    let world = Play::new("codex", "codex-ok").more(&more).world(Some(&endpoint));
    let cycle = world.next_step_with(SHORT);
    assert_eq!(cycle.status(), "paused", "{}", cycle.stderr);
    let left_out = cycle.report["pools-left-out"][0].as_str().unwrap();
    assert!(left_out.contains("agent is 1.2.3, and version 1.2.4 is asked for"), "{left_out}");
    assert!(!world.path("seen/args0").exists());

    let report = doctor(&world);
    assert_eq!(report["health"], "failure", "{report}");
    assert!(report["remedy"].as_str().unwrap().contains("1.2.4"), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn doctor_tells_of_launchers_versions_and_meters() {
    let endpoint = quiet().await;
    let world = Play::new("codex", "codex-ok").world(Some(&endpoint));
    let report = doctor(&world);
    assert_eq!(report["health"], "warning", "{report}");
    let detail = report["detail"].as_str().unwrap();
    assert!(detail.contains("agent 1.2.3 is there") && detail.contains("no `version`"), "{detail}");

    let more = ["version: 1.2.3"];
    let world = Play::printing("agy", "").more(&more).world(None);
    let report = doctor(&world);
    assert_eq!(report["health"], "ok", "{report}");
    assert!(report["detail"].as_str().unwrap().contains("signs in by itself"), "{report}");

    std::fs::write(world.path("agent"), "#!/bin/bash\necho nonsense\n").unwrap();
    let report = doctor(&world);
    assert!(report["detail"].as_str().unwrap().contains("--version"), "{report}");

    std::fs::remove_file(world.path("agent")).unwrap();
    let report = doctor(&world);
    assert_eq!(report["health"], "failure", "{report}");
    assert!(report["detail"].as_str().unwrap().contains("is not"), "{report}");
}

/// What `doctor` says of the pool.
fn doctor(world: &World) -> Value {
    let output = world.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().clone();
    checks.into_iter().find(|c| c["area"] == "pool").unwrap()
}
