//! Configured programs as workers: what they get, what they owe, how they end.

use std::time::Duration;

use overhaul::backends::command::{CommandKind, CommandSettings, CommandWorker};
use overhaul::backends::gateway::Upstream;
use overhaul::backends::openai::{ProcessVerify, VerifyRunner};
use overhaul::backends::scripted::{Answer, Reply, Scripted};
use overhaul::backends::{Surroundings, WorkReport, Worker, WorkerError, worker_for};
use overhaul::config::PoolConfig;
use overhaul::model::{Outcome, Provider, RepoPath, ScopeEntry};

use crate::attempts::Bench;

const RESULT: &str =
    r#"{"resolved":["F-1"],"blocked":[{"finding":"F-2","reason":"no"}],"summary":"did it"}"#;

/// A program as a fixed shell script; arguments follow as `$1`, `$2`, ...
fn sh(script: &str, args: &[&str]) -> Vec<String> {
    let head = ["/bin/sh", "-c", script, "sh"];
    head.iter().chain(args).map(|a| (*a).to_owned()).collect()
}

async fn run(bench: &Bench, kind: CommandKind, argv: Vec<String>) -> WorkReport {
    let mut settings = CommandSettings::new(kind, argv);
    settings.env.insert("AGENT_KEY".to_owned(), "s3cret-value-1".into());
    CommandWorker::new(settings).work(bench.attempt.clone()).await
}

#[tokio::test]
async fn a_plain_fixer_claims_everything_by_ending_with_zero() {
    let bench = Bench::new();
    let argv = sh("for f in \"$@\"; do sed -i 's/== None/is None/' \"$f\"; done", &["{paths}"]);
    let report = run(&bench, CommandKind::Plain, argv).await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    assert_eq!(report.result.unwrap().resolved, bench.attempt.node.findings);
    assert!(bench.text("src/a.py").contains("is None"));
}

#[tokio::test]
async fn a_plain_fixer_that_fails_has_failed_whatever_it_wrote() {
    let bench = Bench::new();
    let argv =
        sh("echo \"$2\" > \"$1\"; echo 'cannot parse' >&2; exit 3", &["{result-file}", RESULT]);
    let report = run(&bench, CommandKind::Plain, argv).await;
    assert_eq!(report.outcome, Outcome::Error);
    assert!(report.detail.contains("exit code 3: cannot parse"), "{}", report.detail);
    assert!(report.result.is_none());
}

#[tokio::test]
async fn a_template_gets_its_prompt_and_owes_a_result() {
    for (script, args) in [
        // By file or by standard output; the prompt by file or by standard input.
        (
            "grep -q '### F-1' \"$1\" && cp \"$3\" \"$2\"",
            vec!["{prompt-file}", "{result-file}", "given.json"],
        ),
        ("grep -q 'Write scope' \"$OVERHAUL_PROMPT_FILE\" && cat given.json", vec![]),
        (
            "grep -q '### F-1' && echo 'Ok:' && echo '```json' && cat given.json && echo '```'",
            vec![],
        ),
        // A result counts whatever else was said, and whatever the exit code.
        (
            "echo 'Error: 429 Too Many Requests, rate limit' >&2; cp given.json \"$OVERHAUL_RESULT_FILE\"; exit 1",
            vec![],
        ),
    ] {
        let bench = Bench::new();
        std::fs::write(bench.tree.path().join("given.json"), format!("{RESULT}\n")).unwrap();
        let report = run(&bench, CommandKind::Template, sh(script, &args)).await;
        assert_eq!(report.outcome, Outcome::Success, "{script}: {}", report.detail);
        let result = report.result.unwrap();
        assert_eq!((result.resolved.len(), result.blocked.len()), (1, 1));
        assert_eq!(report.detail, "did it");
    }
}

#[tokio::test]
async fn a_template_without_a_usable_result_is_told_why() {
    for (script, why) in [
        ("true", "there is no result"),
        // A prompt that is printed is no result, for all the example in it.
        ("cat \"$OVERHAUL_PROMPT_FILE\"", "there is no result"),
        ("echo done", "`OVERHAUL_RESULT_FILE`"),
        ("echo done", "there is no result"),
        ("echo '{\"resolved\":[\"F-9\"]}'", "not of this task: F-9"),
        ("echo '{\"resolved\":' > \"$OVERHAUL_RESULT_FILE\"", "there is no result"),
        ("ln -s /etc/passwd \"$OVERHAUL_RESULT_FILE\"", "there is no result"),
        ("mkfifo \"$OVERHAUL_RESULT_FILE\"", "there is no result"),
    ] {
        let bench = Bench::new();
        let report = run(&bench, CommandKind::Template, sh(script, &[])).await;
        assert_eq!(report.outcome, Outcome::InvalidResult, "{script}");
        assert!(report.detail.contains(why), "{script}: {}", report.detail);
    }
}

#[tokio::test]
async fn a_result_of_an_earlier_turn_does_not_count() {
    let mut bench = Bench::new();
    let argv = || {
        sh("test -e wrote || { touch wrote; echo \"$1\" > \"$OVERHAUL_RESULT_FILE\"; }", &[RESULT])
    };
    let report = run(&bench, CommandKind::Template, argv()).await;
    assert_eq!(report.outcome, Outcome::Success);
    bench.attempt.repair = Some("again".to_owned());
    let report = run(&bench, CommandKind::Template, argv()).await;
    assert_eq!(report.outcome, Outcome::InvalidResult);
}

#[tokio::test]
async fn arguments_stay_arguments() {
    let mut bench = Bench::new();
    let evil = ["src/a b;touch pwned", "src/$(touch pwned)", "src/{node}", "-rf"];
    bench.attempt.node.writes =
        evil.iter().map(|p| ScopeEntry::Path(RepoPath::new(p).unwrap())).collect();
    for (finding, path) in bench.attempt.findings.iter_mut().zip(evil) {
        finding.places[0].path = RepoPath::new(path).unwrap();
    }
    let extra = bench.attempt.findings.clone();
    bench.attempt.findings.extend(extra);
    bench.attempt.findings[2].places[0].path = RepoPath::new(evil[2]).unwrap();
    bench.attempt.findings[3].places[0].path = RepoPath::new(evil[3]).unwrap();
    let argv = sh("printf '%s\\n' \"$@\" > args", &["--node={node}", "{paths}", "{\"a\": 1}"]);
    let report = run(&bench, CommandKind::Plain, argv).await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    let want =
        "--node=N-001\n./-rf\nsrc/$(touch pwned)\nsrc/a b;touch pwned\nsrc/{node}\n{\"a\": 1}\n";
    assert_eq!(bench.text("args"), want);
    assert!(!bench.exists("pwned"));
}

#[tokio::test]
async fn the_environment_is_what_was_named() {
    let bench = Bench::new();
    let argv =
        sh("env > seen; echo \"the key is $AGENT_KEY\"; echo \"$AGENT_KEY\" >&2; exit 1", &[]);
    let report = run(&bench, CommandKind::Plain, argv).await;
    assert!(
        !report.log.contains("s3cret") && report.log.contains("the key is ***"),
        "{}",
        report.log
    );
    assert!(!report.detail.contains("s3cret"));
    let seen = bench.text("seen");
    let mut names: Vec<&str> = seen.lines().filter_map(|l| Some(l.split_once('=')?.0)).collect();
    names.retain(|n| !matches!(*n, "PWD" | "_" | "SHLVL" | "OLDPWD" | "OVERHAUL_PROCESS"));
    names.sort_unstable();
    let want = [
        "AGENT_KEY",
        "CI",
        "HOME",
        "LANG",
        "LC_ALL",
        "NO_COLOR",
        "OVERHAUL_NODE",
        "OVERHAUL_PROMPT_FILE",
        "OVERHAUL_RESULT_FILE",
        "PATH",
        "TERM",
        "TMPDIR",
    ];
    assert_eq!(names, want);
    assert!(seen.contains(&format!("HOME={}\n", bench.attempt.home.display())));
}

#[tokio::test]
async fn the_deadline_and_the_cancel_kill_the_group() {
    let mut bench = Bench::new();
    bench.attempt.deadline = Duration::from_millis(300);
    let report = run(&bench, CommandKind::Template, sh("sleep 600 & sleep 600", &[])).await;
    assert_eq!(report.outcome, Outcome::Timeout);

    let bench = Bench::new();
    bench.attempt.cancel.cancel();
    let report = run(&bench, CommandKind::Plain, sh("sleep 600", &[])).await;
    assert_eq!(report.outcome, Outcome::Timeout);
    assert!(report.detail.contains("cycle ends"), "{}", report.detail);
}

#[tokio::test]
async fn a_program_that_is_not_there() {
    let bench = Bench::new();
    let report = run(&bench, CommandKind::Plain, vec!["no-such-program-here".to_owned()]).await;
    assert_eq!(report.outcome, Outcome::Error);
    assert!(report.detail.contains("no-such-program-here"), "{}", report.detail);
}

#[tokio::test]
async fn checks_run_as_processes() {
    let bench = Bench::new();
    let check = &bench.attempt.node.verify[0];
    let ran = ProcessVerify::default().verify(check, &bench.attempt).await;
    assert!(!ran.passed && ran.output.contains("[exit code 1]"), "{}", ran.output);
    std::fs::write(bench.tree.path().join("src/a.py"), "x is None\n").unwrap();
    let ran = ProcessVerify::default().verify(check, &bench.attempt).await;
    assert!(ran.passed && ran.output.starts_with("x is None\n"), "{}", ran.output);
}

/// What the program wrote into a pipe; waits until it has.
async fn told(pipe: &std::path::Path) -> String {
    let pipe = pipe.to_path_buf();
    tokio::task::spawn_blocking(move || std::fs::read_to_string(pipe).unwrap()).await.unwrap()
}

#[tokio::test]
async fn a_program_with_an_endpoint_gets_an_address_and_a_token_and_never_the_key() {
    const KEY: &str = "real-key-0123456789";
    let bench = Bench::new();
    let server = Scripted::start(|_, _| Answer::text("hi").into()).await.unwrap();
    for pipe in ["told", "go"] {
        let path = bench.tree.path().join(pipe);
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    let script = "tr '\\0' '\\n' < /proc/self/environ > seen; tr '\\0' ' ' < /proc/$$/cmdline >> seen; \
                  find \"$HOME\" -type f -exec cat {} + >> seen; \
                  echo \"$OVERHAUL_BASE_URL $AGENT_KEY $OVERHAUL_TOKEN $1\" > told; read go < go";
    let mut pool = PoolConfig::new(Provider::WorkerCommand, "m");
    pool.command = sh(script, &["{base-url}"]);
    pool.base_url = Some(server.base_url().unwrap().to_string());
    pool.key_env = Some("AGENT_KEY".to_owned());
    pool.env = vec!["AGENT_KEY".to_owned()];
    let env = |name: &str| (name == "AGENT_KEY").then(|| KEY.to_owned());
    let worker = worker_for(&pool, &env, &Surroundings::default()).unwrap();
    let work = tokio::spawn({
        let attempt = bench.attempt.clone();
        async move { worker.work(attempt).await }
    });
    let told = told(&bench.tree.path().join("told")).await;
    let words: Vec<&str> = told.split_whitespace().collect();
    let [address, token, same, argument] = words[..] else { panic!("{told}") };
    assert_eq!((token, address), (same, argument));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("{address}/chat/completions")).bearer_auth(token);
    assert_eq!(request.body("{}").send().await.unwrap().status(), 200);
    std::fs::write(bench.tree.path().join("go"), "go\n").unwrap();
    let report = work.await.unwrap();
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    assert_eq!((report.usage.requests, report.usage.input_tokens), (1, 100));
    assert_eq!(server.requests()[0].headers["authorization"], format!("Bearer {KEY}"));
    let seen = bench.text("seen");
    assert!(seen.contains("OVERHAUL_TOKEN=ovh-") && !seen.contains(KEY), "{seen}");
    assert!(!report.log.contains(KEY) && address != server.base_url().unwrap().as_str());
}

#[tokio::test]
async fn what_the_gateway_saw_counts_more_than_what_the_program_says() {
    let bench = Bench::new();
    let server = Scripted::start(|_, _| Reply::error(401, "Incorrect API key", "invalid_api_key"));
    let server = server.await.unwrap();
    nix::unistd::mkfifo(&bench.tree.path().join("told"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    nix::unistd::mkfifo(&bench.tree.path().join("go"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = "echo \"$OVERHAUL_BASE_URL $OVERHAUL_TOKEN\" > told; read go < go; \
                  echo 'something is odd'; exit 1";
    let mut settings = CommandSettings::new(CommandKind::Template, sh(script, &[]));
    let address = server.base_url().unwrap();
    settings.upstream = Some(Upstream::new(address, None, "openai").unwrap());
    let work = tokio::spawn({
        let attempt = bench.attempt.clone();
        async move { CommandWorker::new(settings).work(attempt).await }
    });
    let told = told(&bench.tree.path().join("told")).await;
    let (address, token) = told.trim().split_once(' ').unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("{address}/chat/completions")).bearer_auth(token);
    assert_eq!(request.body("{}").send().await.unwrap().status(), 401);
    std::fs::write(bench.tree.path().join("go"), "go\n").unwrap();
    let report = work.await.unwrap();
    assert_eq!(report.outcome, Outcome::Auth, "{}", report.detail);
    assert_eq!(report.classification.unwrap().outcome, Outcome::Auth);
}

#[tokio::test]
async fn pools_become_workers() {
    let bench = Bench::new();
    let around = Surroundings::default();
    let env = |name: &str| (name == "AGENT_TOKEN").then(|| "s3cret-value-2".to_owned());
    let mut pool = PoolConfig::new(Provider::WorkerCommand, "");
    pool.command = sh("test \"$AGENT_TOKEN\" = s3cret-value-2 && echo $AGENT_TOKEN", &[]);
    pool.env = vec!["AGENT_TOKEN".to_owned(), "NOT_SET".to_owned()];
    let report = worker_for(&pool, &env, &around).unwrap().work(bench.attempt.clone()).await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    assert!(!report.log.contains("s3cret"));

    let error = |pool: &PoolConfig| worker_for(pool, &env, &around).err().unwrap();
    let mut pool = PoolConfig::new(Provider::OpenaiCompatible, "m");
    assert!(matches!(error(&pool), WorkerError::NoAddress(_)));
    pool.base_url = Some("ftp://host/v1".to_owned());
    assert!(matches!(error(&pool), WorkerError::Endpoint(..)));
    pool.base_url = Some("https://host/v1".to_owned());
    pool.key_env = Some("MISSING".to_owned());
    assert!(matches!(error(&pool), WorkerError::NoVariable(_, name) if name == "MISSING"));
    assert!(matches!(error(&PoolConfig::new(Provider::Host, "")), WorkerError::NotInProcess(_)));
}
