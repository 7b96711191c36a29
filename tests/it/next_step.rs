//! Whole cycles through the real binary: what lands, what does not, and what is kept.

use crate::support::{World, config, findings, git};

/// Three files with a finding each, and a worker that upper-cases what it is told to.
fn world(worker: &str, verify: &str, more: &str) -> World {
    let world = World::new(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("c.txt", "c\n")]);
    let script = world.write("worker.sh", worker);
    world.write("overhaul.yml", &config(&script, verify, more));
    world.write(
        "checkout/findings.json",
        &findings(&[("A", "a.txt", "fix a"), ("B", "b.txt", "fix b"), ("C", "c.txt", "fix c")]),
    );
    world
}

const UPPER: &str =
    "shift\nfor f in \"$@\"; do tr a-z A-Z < \"$f\" > \"$f.new\" && mv \"$f.new\" \"$f\"; done\n";

#[test]
fn every_accepted_node_becomes_one_branch_and_one_pull_request() {
    let world = world(UPPER, "true", "");
    let cycle = world.next_step();
    assert_eq!(cycle.status(), "waiting", "{}", cycle.stderr);
    assert_eq!(cycle.nodes("in_review"), 3);
    assert_eq!(world.pulls().len(), 3);
    let run = cycle.report["run-id"].as_str().unwrap().to_owned();
    for (node, file, text) in [("N-001", "a.txt", "A\n"), ("N-002", "b.txt", "B\n")] {
        assert_eq!(world.show(&format!("overhaul/{run}/{node}"), file), text);
    }
    // Each branch holds its own node's change and nothing else.
    assert_eq!(world.show(&format!("overhaul/{run}/N-001"), "b.txt"), "b\n");
}

#[test]
fn what_happens_is_a_line_each_for_whoever_watches() {
    let world = world(UPPER, "true", "");
    let cycle = world.next_step_with(&["--log-level", "info"]);
    let log = &cycle.stderr;
    for line in [
        " opened on main",
        "cycle begins: run r-0001-",
        "3 of 3 nodes ready; pools: worker",
        "N-001: claimed for attempt 1",
        "N-001: attempt 1 begins on worker",
        "N-001: attempt 1 on worker ended, verified and accepted: check passed",
        "N-001: pull request ",
        "cycle ends: run r-0001-",
        " is waiting: 3 pull requests wait for people",
    ] {
        assert!(log.contains(line), "{line} is not in {log}");
    }
    // Nobody watches: nothing is said.
    assert_eq!(world.next_step().stderr, "");
}

#[test]
fn at_a_shell_a_long_wait_is_a_pause() {
    let limited = "echo 'Error: 429 Too Many Requests, retry-after: 3600' >&2; exit 1\n";
    let world = world(limited, "true", "");
    let begun = std::time::Instant::now();
    let cycle = world.next_step_with(&["--log-level", "info"]);
    assert!(begun.elapsed().as_secs() < 300, "it sat the wait out");
    assert_eq!(cycle.status(), "paused", "{}", cycle.stderr);
    assert!(cycle.report["not-before"].is_string(), "{}", cycle.report);
    assert!(cycle.stderr.contains("pool worker: waits until "), "{}", cycle.stderr);
    assert!(cycle.stderr.contains(" on worker ended, rate limited: "), "{}", cycle.stderr);
}

/// Without `origin` the checkout decides the base of a new run, and of that only.
#[test]
fn an_open_run_keeps_its_base_whatever_is_checked_out() {
    let world = world(UPPER, "true", "");
    let text = std::fs::read_to_string(world.path("overhaul.yml")).unwrap();
    world.write("overhaul.yml", &text.replace("base: main\n", ""));
    let checkout = world.path("checkout");
    git(&checkout, &["remote", "remove", "origin"]);
    let first = world.next_step();
    assert_eq!(first.status(), "waiting", "{}", first.stderr);
    git(&checkout, &["checkout", "-q", "-b", "feature"]);
    git(&checkout, &["commit", "-q", "--allow-empty", "-m", "a person's own"]);
    let second = world.next_step_with(&["--log-level", "info"]);
    assert_eq!(second.status(), "waiting", "{}", second.stderr);
    assert!(second.stderr.contains(" on main, "), "{}", second.stderr);
    assert!(world.pulls().values().all(|text| text.contains("base: main")), "{:?}", world.pulls());
    git(&checkout, &["checkout", "-q", "--detach"]);
    let detached = world.next_step();
    assert_eq!(detached.code, Some(2), "{}", detached.stderr);
    assert!(detached.stderr.contains("no branch is checked out"), "{}", detached.stderr);
    assert!(detached.stderr.contains("`base`"), "{}", detached.stderr);
}

#[test]
fn a_place_for_pull_requests_is_neither_made_by_a_look_nor_inside_the_checkout() {
    let world = world(UPPER, "true", "");
    let config = world.path("overhaul.yml").display().to_string();
    let run = |command: &str, local: &str| {
        let checkout = world.path("checkout").display().to_string();
        let args = [command, "--repo", &checkout, "--config", &config, "--local", local];
        world.command(&args).output().unwrap()
    };
    for command in ["status", "report", "pause"] {
        let output = run(command, "typo");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("--local typo is no folder"), "{text}");
        assert!(!world.path("typo").exists());
    }
    let output = run("next-step", "checkout/forge");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("inside the checkout") && text.contains("--local"), "{text}");
    assert!(!world.path("checkout/forge").exists());
    assert!(run("next-step", "checkout/../beside").status.success());
}

#[test]
fn a_rerun_is_a_no_op() {
    let world = world(UPPER, "true", "");
    world.next_step();
    let (branches, pulls) = (world.branches(), world.pulls());
    let again = world.next_step();
    assert_eq!((again.status(), again.report["attempts"].as_u64()), ("waiting", Some(0)));
    assert_eq!(world.branches().keys().collect::<Vec<_>>(), branches.keys().collect::<Vec<_>>());
    assert_eq!(world.pulls(), pulls);
}

#[test]
fn exit_0_without_a_change_is_a_failed_attempt() {
    let world = world("exit 0\n", "true", "");
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("failed"), 3, "{}", cycle.stderr);
    assert!(world.pulls().is_empty());
    let why = world.node("N-001")["last-failure"].as_str().unwrap().to_owned();
    assert!(why.contains("changed nothing"), "{why}");
}

#[test]
fn a_retry_starts_a_new_attempt_and_calls_the_worker_again() {
    let world = world(
        "echo called >> \"$HOME/../../../../calls\" 2>/dev/null; echo x > \"$2.other\"\n",
        "true",
        "",
    );
    world.next_step();
    assert_eq!(world.node("N-001")["attempts"], 2, "the contract budget is two attempts");
    let out = world.run(&["retry", "N-001"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    world.next_step();
    assert_eq!(world.node("N-001")["attempts"], 4, "a retry works again, with new numbers");
}

#[test]
fn verify_runs_on_the_exact_tree_and_refuses_what_breaks_it() {
    // The worker leaves an untracked helper that the commit does not hold because it is ignored.
    let world = World::new(&[("a.txt", "a\n"), (".gitignore", "helper\n")]);
    let script = world.write("worker.sh", "echo ok > helper; echo A > a.txt\n");
    world.write("overhaul.yml", &config(&script, "test -e helper || ! grep -q A a.txt", ""));
    world.write("checkout/findings.json", &findings(&[("A", "a.txt", "fix a")]));
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("failed"), 1, "{}", cycle.stderr);
    let why = world.node("N-001")["last-failure"].as_str().unwrap().to_owned();
    assert!(why.contains("Verify command `check` failed"), "{why}");
}

#[test]
fn one_nodes_failure_never_touches_anothers() {
    let world = world(
        "case \"$1\" in N-002) exit 3;; esac\n shift\nfor f in \"$@\"; do echo X > \"$f\"; done\n",
        "true",
        "",
    );
    let cycle = world.next_step();
    assert_eq!((cycle.nodes("in_review"), cycle.nodes("failed")), (2, 1), "{}", cycle.stderr);
}

#[test]
fn out_of_scope_changes_are_refused_and_kept_for_people() {
    let world = world("echo X > \"$2\"; echo evil > README.md\n", "true", "");
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("failed"), 3, "{}", cycle.stderr);
    let why = world.node("N-001")["last-failure"].as_str().unwrap().to_owned();
    assert!(why.contains("README.md"), "{why}");
    assert!(world.branches().keys().all(|b| !b.contains("N-00")));
}

#[test]
fn nothing_depends_on_what_is_checked_out() {
    let world = world(UPPER, "true", "");
    let checkout = world.path("checkout");
    git(&checkout, &["checkout", "-q", "-b", "mine"]);
    std::fs::write(checkout.join("a.txt"), "my own edit\n").unwrap();
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("in_review"), 3, "{}", cycle.stderr);
    assert_eq!(std::fs::read_to_string(checkout.join("a.txt")).unwrap(), "my own edit\n");
    assert_eq!(git(&checkout, &["rev-parse", "--abbrev-ref", "HEAD"]).trim(), "mine");
    let run = cycle.report["run-id"].as_str().unwrap().to_owned();
    assert_eq!(world.show(&format!("overhaul/{run}/N-001"), "a.txt"), "A\n");
}

#[test]
fn people_merge_and_close_and_the_run_closes_with_evidence() {
    let world = world(UPPER, "grep -q . a.txt", "");
    let first = world.next_step();
    let run = first.report["run-id"].as_str().unwrap().to_owned();
    // One is merged for real, two are closed.
    let work = world.path("people");
    git(world.dir.path(), &["clone", "-q", "remote.git", "people"]);
    git(&work, &["merge", "-q", "--no-ff", "-m", "merge", &format!("origin/overhaul/{run}/N-001")]);
    git(&work, &["push", "-q", "origin", "main"]);
    for (name, text) in world.pulls() {
        let state = if text.contains("/N-001") { "merged" } else { "closed" };
        let path = world.path("forge/pulls").join(name);
        std::fs::write(path, text.replacen("state: open", &format!("state: {state}"), 1)).unwrap();
    }
    let last = world.next_step();
    assert_eq!(last.status(), "complete", "{}", last.stderr);
    assert_eq!((last.nodes("landed"), last.nodes("rejected")), (1, 2));
    assert_eq!(world.next_step().status(), "idle", "the same findings open no second run");
}

#[test]
fn a_cancelled_run_ends_whatever_it_waited_for() {
    let world = world(UPPER, "true", "");
    world.next_step();
    for command in ["pause", "cancel"] {
        assert!(world.run(&[command]).status.success(), "{command}");
    }
    for (name, text) in world.pulls() {
        let path = world.path("forge/pulls").join(name);
        std::fs::write(path, text.replacen("state: open", "state: closed", 1)).unwrap();
    }
    let last = world.next_step();
    assert_eq!(last.status(), "complete", "{} {}", last.report, last.stderr);
    world.write("checkout/findings.json", &findings(&[("B", "b.txt", "upper-case b")]));
    let next = world.next_step();
    assert!(next.report["run-id"].as_str().unwrap().starts_with("r-0002"), "{}", next.report);
    assert_eq!(next.nodes("in_review"), 1, "{}", next.stderr);
}

#[test]
fn no_findings_is_idle_and_a_broken_file_is_an_error() {
    let world = world(UPPER, "true", "");
    world.write("checkout/findings.json", &findings(&[]));
    assert_eq!(world.next_step().status(), "idle");
    world.write(
        "checkout/findings.json",
        "{\"contract_version\": \"audit-tools/audit-findings/v1\", ",
    );
    let broken = world.next_step();
    assert_eq!(broken.code, Some(2), "{}", broken.stderr);
    assert!(broken.stderr.contains("findings.json"), "{}", broken.stderr);
}

#[test]
fn the_default_branch_is_found_without_being_named() {
    let world = world(UPPER, "true", "");
    let text = std::fs::read_to_string(world.path("overhaul.yml")).unwrap();
    world.write("overhaul.yml", &text.replace("base: main\n", ""));
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("in_review"), 3, "{}", cycle.stderr);
}

#[test]
fn a_run_that_does_not_exist_is_never_made_up() {
    let world = world(UPPER, "true", "");
    world.next_step();
    let branches = world.branches();
    for command in ["next-step", "status", "cancel", "pause"] {
        let out = world.run(&[command, "--run-id", "ghost"]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("there is no run ghost"), "{command}: {said}");
    }
    assert_eq!(world.branches(), branches, "nothing was written");
}

#[test]
fn places_that_cannot_work_are_said_before_anything_is_spent() {
    let world = world(UPPER, "true", "");
    let mut args = world.places();
    let work = args.iter().position(|a| a == "--work-dir").unwrap() + 1;
    args[work] = world.path("checkout/inside").display().to_string();
    let mut all = vec!["next-step".to_owned()];
    all.extend(args);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let out = world.command(&all).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("inside the checkout"));

    world.write("forge", "a file, not a folder");
    let cycle = world.next_step();
    assert_eq!(cycle.code, Some(2), "{}", cycle.stderr);
    assert!(cycle.stderr.contains("--local"), "{}", cycle.stderr);
}

#[test]
fn a_verify_program_that_is_not_there_burns_no_attempt() {
    let world = world(UPPER, "true", "");
    let text = std::fs::read_to_string(world.path("overhaul.yml")).unwrap();
    world.write("overhaul.yml", &text.replace("argv: [sh,", "argv: [no-such-program,"));
    let cycle = world.next_step();
    assert_eq!(cycle.code, Some(2), "{}", cycle.stderr);
    assert!(cycle.stderr.contains("no-such-program"), "{}", cycle.stderr);
    assert_eq!(world.node("N-001")["attempts"], 0);
}

/// The worker writes down that it was called.
fn rechecked_world(recheck: &str) -> World {
    let world = World::new(&[("a.txt", "a\n"), ("b.txt", "b\n")]);
    let calls = world.path("calls");
    let script = format!("echo called >> {}\necho A > \"$2\"\n", calls.display());
    let script = world.write("worker.sh", &script);
    let text = config(&script, "true", "");
    let text = text.replace(
        "  - file: findings.json\n",
        &format!("  - file: findings.json\n    recheck: {recheck}\n"),
    );
    world.write("overhaul.yml", &text);
    world.write(
        "checkout/findings.json",
        &findings(&[("A", "a.txt", "fix a"), ("B", "b.txt", "fix b")]),
    );
    world
}

#[test]
fn a_recheck_that_cannot_run_is_said_before_anything_is_paid() {
    let world = rechecked_world("[no-such-linter, \"{paths}\"]");
    let cycle = world.next_step();
    assert_eq!(cycle.code, Some(2), "{}", cycle.stderr);
    assert!(cycle.stderr.contains("no-such-linter"), "{}", cycle.stderr);
    assert_eq!(world.node("N-001")["attempts"], 0);
    assert!(!world.path("calls").exists());
}

#[test]
fn no_worker_is_paid_where_the_recheck_gives_no_report_on_the_base() {
    let world = rechecked_world("[sh, -c, echo no report here; exit 3]");
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("failed"), 2, "{} {}", cycle.report, cycle.stderr);
    assert!(!world.path("calls").exists(), "a worker was started");
    let why = world.node("N-001")["last-failure"].as_str().unwrap().to_owned();
    assert!(why.starts_with("No worker was started: the re-check on the base"), "{why}");
    let friction = world.status()["friction"].to_string();
    assert!(friction.contains("re-check of N-001"), "{friction}");
}

#[test]
fn a_passed_recheck_is_shown() {
    let clean = r#"{"contract_version": "audit-tools/audit-findings/v1", "findings": []}"#;
    let dirty = r#"{"contract_version": "audit-tools/audit-findings/v1", "findings": [{"id": "A",
        "title": "fix", "severity": "medium", "category": "correctness", "summary": "fix",
        "affected_files": [{"path": "a.txt", "line_start": 1}], "evidence": []}, {"id": "B",
        "title": "fix", "severity": "medium", "category": "correctness", "summary": "fix",
        "affected_files": [{"path": "b.txt", "line_start": 1}], "evidence": []}]}"#;
    let world = rechecked_world("[sh, tools/lint.sh, \"{paths}\"]");
    let checkout = world.path("checkout");
    world.write("checkout/tools/clean.json", clean);
    world.write("checkout/tools/dirty.json", dirty);
    let lint =
        "if grep -q A \"$1\"; then cat tools/clean.json; else cat tools/dirty.json; exit 1; fi\n";
    world.write("checkout/tools/lint.sh", lint);
    world.write("checkout/findings.json", dirty);
    git(&checkout, &["add", "-A"]);
    git(&checkout, &["commit", "-q", "-m", "a linter"]);
    git(&checkout, &["push", "-q", "origin", "main"]);
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("in_review"), 2, "{} {}", cycle.report, cycle.stderr);
    let pull = world.pulls().into_values().next().unwrap();
    let row = "| `re-check: sh tools/lint.sh` | the findings are gone | 0 |";
    assert!(pull.contains(row), "{pull}");
    assert!(pull.contains("\"verdict\": \"gone\""), "it is in the receipt: {pull}");
    assert!(pull.contains("| `check` | passed | 0 |"), "{pull}");
}

/// Where the configuration says this of verify commands.
fn verified_by(world: &World, verify: &str) {
    let text = std::fs::read_to_string(world.path("overhaul.yml")).unwrap();
    let before = text.split("verify:\n").next().unwrap();
    world.write("overhaul.yml", &format!("{before}{verify}"));
}

fn warnings(report: &serde_json::Value) -> Vec<String> {
    let all = report["warnings"].as_array().unwrap().iter();
    all.map(|warning| warning["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_no_command_verifies_opens_and_is_never_silent() {
    let world = world(UPPER, "true", "");
    verified_by(&world, "");
    let doctor = world.run(&["doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("warning  verify: no command is configured"), "{doctor}");
    let dry = world.next_step_with(&["--dry-run"]);
    assert_eq!(warnings(&dry.report).len(), 1, "{}", dry.report);
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("in_review"), 3, "{}", cycle.stderr);
    let said = "no command verifies 3 of 3 open nodes (N-001, N-002, N-003): no verify rule fits";
    assert!(warnings(&cycle.report)[0].starts_with(said), "{}", cycle.report);
    assert!(warnings(&world.status())[0].starts_with(said));
    for command in [&["next-step"], &["status"]] {
        let out = world.run(command);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(text.contains("warning: no command verifies 3 of 3"), "{command:?}: {text}");
    }
    assert!(world.pulls().values().all(|pull| pull.contains("Not verified by any command")));

    // A reason is a person's decision.
    verified_by(&world, "verify:\n  waive: documentation only\n");
    assert_eq!(warnings(&world.status()), Vec::<String>::new());
    let doctor = world.run(&["doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(
        doctor.contains("ok       verify: no command is configured: documentation"),
        "{doctor}"
    );
}

#[test]
fn a_command_that_fails_on_the_base_too_proves_nothing_and_that_is_said() {
    let world = world(UPPER, "exit 3", "");
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("in_review"), 3, "{}", cycle.stderr);
    let said = "verify command `check` fails on the base too, so it proves nothing of N-001";
    assert!(warnings(&cycle.report)[0].starts_with(said), "{}", cycle.report);
    let pull = world.pulls().into_values().next().unwrap();
    let said = "> [!WARNING]\n> Not verified by any command: `check` fails on the base too";
    assert!(pull.contains(said), "{pull}");
    assert!(pull.contains("| `check` | fails on the base too | 3 |"), "{pull}");
}

/// Writes into the pull request files of a node (of all, where none is named).
fn set_state(world: &World, node: &str, state: &str) {
    for (name, text) in world.pulls() {
        if text.contains(&format!("/{node}")) {
            let head = text.find("state: ").unwrap() + "state: ".len();
            let end = head + text[head..].find('\n').unwrap();
            let path = world.path("forge/pulls").join(name);
            std::fs::write(path, format!("{}{state}{}", &text[..head], &text[end..])).unwrap();
        }
    }
}

#[test]
fn a_file_that_says_merged_is_not_believed_before_git_says_so() {
    let world = world(UPPER, "true", "");
    let run = world.next_step().report["run-id"].as_str().unwrap().to_owned();
    let branches = world.branches();
    set_state(&world, "N-", "merged");
    let refused = world.next_step();
    assert_eq!(refused.code, Some(2), "{}", refused.report);
    let branch = format!("overhaul/{run}/N-001");
    let said = format!("main does not hold overhaul/{run}/N-00");
    assert!(refused.stderr.contains(&said), "{}", refused.stderr);
    let said = format!("git merge origin/overhaul/{run}/N-00");
    assert!(refused.stderr.contains(&said), "{}", refused.stderr);
    let left = world.branches();
    assert!(branches.iter().all(|(name, at)| !name.contains("/N-") || left.get(name) == Some(at)));

    // Squashed is merged as well; the others wait.
    set_state(&world, "N-002", "open");
    set_state(&world, "N-003", "open");
    let people = world.path("people");
    git(world.dir.path(), &["clone", "-q", "remote.git", "people"]);
    git(&people, &["merge", "-q", "--squash", &format!("origin/{branch}")]);
    git(&people, &["commit", "-q", "-m", "squashed"]);
    git(&people, &["push", "-q", "origin", "main"]);
    let next = world.next_step();
    assert_eq!((next.nodes("landed"), next.nodes("in_review")), (1, 2), "{}", next.stderr);
}

/// The only issue.
fn dashboard(world: &World) -> String {
    let mut issues = std::fs::read_dir(world.path("forge/issues")).unwrap();
    std::fs::read_to_string(issues.next().unwrap().unwrap().path()).unwrap()
}

#[test]
fn what_failed_in_a_closed_run_is_said_each_time_and_a_mended_setting_tries_it_again() {
    let world = world("exit 7\n", "true", "");
    assert_eq!(world.next_step().status(), "complete");
    let issue = dashboard(&world);
    assert!(!issue.contains("- [ ]"), "nobody reads a tick any more: {issue}");
    assert!(issue.contains("0 of 3 nodes done, 3 failed"), "{issue}");
    let idle = world.next_step();
    assert_eq!(idle.status(), "idle");
    let message = idle.report["message"].as_str().unwrap();
    assert!(message.contains("3 of 3 nodes failed in it"), "{message}");
    assert!(idle.report["warnings"][0]["remedy"].as_str().unwrap().contains("retry N-001"));
    assert_eq!(idle.report["failed"].as_array().unwrap().len(), 3);
    // The time of an attempt is part of what may have failed it.
    let text = std::fs::read_to_string(world.path("overhaul.yml")).unwrap();
    world.write("overhaul.yml", &text.replace("dispatch:\n", "dispatch:\n  attempt-timeout: 7m\n"));
    let anew = world.next_step();
    assert!(anew.report["run-id"].as_str().unwrap().starts_with("r-0002"), "{}", anew.report);
}

#[test]
fn a_mended_setting_is_no_reason_to_do_again_what_was_done() {
    let world = world(UPPER, "true", "");
    world.next_step();
    set_state(&world, "N-", "closed");
    assert_eq!(world.next_step().status(), "complete");
    let text = std::fs::read_to_string(world.path("overhaul.yml")).unwrap();
    world.write("overhaul.yml", &text.replace("dispatch:\n", "dispatch:\n  attempt-timeout: 7m\n"));
    assert_eq!(world.next_step().status(), "idle");
}

#[test]
fn a_failure_is_told_with_its_own_number_and_only_while_it_matters() {
    // The first attempt fails; of one node the second as well.
    let worker = "if ! grep -q 'previous attempt' \"$OVERHAUL_PROMPT_FILE\"; then exit 5; fi\n\
                  case \"$1\" in N-002) exit 6;; esac\nshift\nfor f in \"$@\"; do echo X > \"$f\"; done\n";
    let world = world(worker, "true", "");
    let cycle = world.next_step();
    assert_eq!((cycle.nodes("in_review"), cycle.nodes("failed")), (2, 1), "{}", cycle.stderr);
    let good = world.node("N-001");
    assert_eq!((&good["attempts"], &good["last-failure"]), (&2.into(), &serde_json::Value::Null));
    let bad = world.node("N-002");
    assert_eq!(bad["failed-attempt"], 2);
    assert!(
        bad["last-failure"].as_str().unwrap().contains("exit code 6 and said nothing"),
        "{bad}"
    );
    let text = world.run(&["status"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("attempt 2: ") && !text.contains("exit code 5"), "{text}");
}

#[test]
fn outputs_name_states_as_everything_else_is_named() {
    let world = world(UPPER, "true", "report:\n  title: Our board\n");
    let cycle = world.next_step();
    assert_eq!(cycle.report["nodes"], serde_json::json!({"in-review": 3}), "{}", cycle.stderr);
    assert_eq!(world.status()["counts"], serde_json::json!({"in-review": 3}));
    let issue = dashboard(&world);
    assert!(issue.contains("Our board: run r-0001-"), "{issue}");
    assert!(issue.contains("0 of 3 nodes done, 3 in review"), "{issue}");
}

#[test]
fn a_closed_run_says_what_failed_and_why() {
    let world = world("exit 7\n", "true", "");
    let cycle = world.next_step();
    assert_eq!(cycle.status(), "complete", "{}", cycle.stderr);
    assert!(cycle.report["message"].as_str().unwrap().contains("3 of 3 nodes failed"));
    assert_eq!(cycle.report["failed"].as_array().unwrap().len(), 3);
    assert!(cycle.report["failed"][0]["why"].as_str().unwrap().contains('7'));
}

#[test]
fn an_exclusion_that_matches_nothing_is_said_by_the_cycle_and_by_doctor() {
    let world = world(UPPER, "true", "exclude: [codex]\n");
    let cycle = world.next_step();
    let warning = "exclude: 'codex' matches no declared pool";
    assert_eq!(cycle.report["warnings"][0]["text"], warning, "{}", cycle.stderr);
    for command in ["next-step", "doctor"] {
        let shown = String::from_utf8_lossy(&world.run(&[command]).stdout).into_owned();
        assert!(shown.contains(warning), "{command}: {shown}");
    }
}
