//! Nodes that somebody else's agent does, beside our own pools or instead of them.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{
    WORKER, call, clone, entries, grant, grant_report, land, nothing_is_held, run_of, work, world,
};
use crate::support::{World, git};

/// One pool of ours and a host, or only a host.
fn attended(nodes: usize, pools: &str) -> World {
    let world = world(nodes, WORKER, "true", "");
    let file = world.path("overhaul.yml");
    let text = fs::read_to_string(&file).unwrap();
    let (before, rest) = text.split_once("pools:\n").unwrap();
    let (own, after) = rest.split_once("dispatch:\n").unwrap();
    let host = "  - id: agent\n    provider: host\n    account: team\n    backend: agency\n    \
                cost-per-mtok: 0\n";
    let pools = match pools {
        "both" => format!("{own}{host}"),
        "dear" => {
            let four = own.replace("limits:\n", "limits:\n      concurrent: 4\n");
            format!("{four}{}", host.replace("mtok: 0", "mtok: 75"))
        }
        "host" => host.to_owned(),
        "limited" => format!("{own}{host}    limits: {{concurrent: 1}}\n"),
        other => panic!("{other}"),
    };
    fs::write(&file, format!("{before}pools:\n{pools}dispatch:\n{after}")).unwrap();
    world
}

/// The host does one node at a time, and has so many requests a day.
fn declare(world: &World, requests: u32) {
    let file = world.path("overhaul.yml");
    let host = "    backend: agency\n";
    let limits = format!("{host}    limits: {{concurrent: 1, requests-per-day: {requests}}}\n");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace(host, &limits)).unwrap();
}

fn of_share(grant: &Value, share: &str) -> Vec<Value> {
    entries(grant).into_iter().filter(|e| e["share"] == share).collect()
}

/// The agent's job: a checkout at the base, changed in place.
fn agent(world: &World, on: &str, entry: &Value, change: impl Fn(&Path)) {
    let checkout = clone(world, on);
    git(&checkout, &["checkout", "-q", "--detach", entry["base"].as_str().unwrap()]);
    git(&checkout, &["reset", "-q", "--hard"]);
    git(&checkout, &["clean", "-fdq"]);
    change(&checkout);
}

/// The agent's jobs for these entries, each with work that is good.
fn deliver(world: &World, theirs: &[Value]) {
    for entry in theirs {
        agent(world, "host", entry, |tree| fs::write(tree.join(file(entry)), "theirs\n").unwrap());
        let output = call(world, "accept-node", "host", entry, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// The file of a node of [`super::world`].
fn file(entry: &Value) -> String {
    format!("f{}.txt", entry["node"].as_str().unwrap().trim_start_matches("N-"))
}

#[test]
fn a_host_and_our_pools_share_the_frontier_and_land_together() {
    let world = attended(4, "both");
    let handed_out = grant(&world, &[]);
    let (ours, theirs) = (of_share(&handed_out, "work"), of_share(&handed_out, "host"));
    assert_eq!(ours.len() + theirs.len(), 4, "each node once");
    assert!(!ours.is_empty() && !theirs.is_empty(), "{handed_out}");
    let prompts = Path::new(handed_out["prompts"].as_str().unwrap());
    let prompt = fs::read_to_string(prompts.join(theirs[0]["prompt-file"].as_str().unwrap()));
    let prompt = prompt.unwrap();
    for needed in [&file(&theirs[0]), "do not commit", "What happens then", "\"resolved\""] {
        assert!(prompt.contains(needed), "{needed} in {prompt}");
    }
    for entry in &ours {
        work(&world, "clone-a", entry);
    }
    for entry in &theirs {
        agent(&world, "host", entry, |tree| {
            fs::write(tree.join(file(entry)), "by the agent\n").unwrap();
            // What an agent does with git changes nothing.
            git(tree, &["add", "-A"]);
            git(tree, &["commit", "-q", "-m", "mine"]);
        });
        let output =
            call(&world, "accept-node", "host", entry, &["--model", "m", "--cost-usd", "0.5"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let landed = land(&world, &handed_out);
    assert_eq!(landed.code, Some(0), "{}", landed.stderr);
    assert_eq!(landed.nodes("in_review"), 4, "{}", landed.report);
    let branch = format!("/{}", theirs[0]["node"].as_str().unwrap());
    let branch = world.branches().into_keys().find(|b| b.ends_with(&branch)).unwrap();
    assert_eq!(world.show(&branch, &file(&theirs[0])), "by the agent\n");
    let cost = run_of(&world).usage.cost_usd;
    assert!((cost - 0.5 * theirs.len() as f64).abs() < 1e-9, "{cost}");
    nothing_is_held(&world);
}

#[test]
fn what_an_agent_must_not_do_is_refused_with_the_reason() {
    let world = attended(1, "host");
    let handed_out = grant(&world, &[]);
    let entry = of_share(&handed_out, "host").remove(0);
    let refused = |on: &str, change: &dyn Fn(&Path), more: &[&str]| {
        agent(&world, on, &entry, change);
        let output = call(&world, "accept-node", on, &entry, more);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        stderr
    };
    let outside = refused("h1", &|tree| fs::write(tree.join("new.txt"), "x").unwrap(), &[]);
    assert!(outside.contains("'new.txt' is outside"), "{outside}");
    let nothing = refused("h1", &|_| {}, &[]);
    assert!(nothing.contains("changed nothing"), "{nothing}");
    let nested = refused(
        "h2",
        &|tree| {
            let inner = tree.join("inner");
            fs::create_dir_all(&inner).unwrap();
            git(&inner, &["init", "-q"]);
            fs::write(inner.join("x"), "x").unwrap();
            git(&inner, &["add", "x"]);
            git(&inner, &["commit", "-q", "-m", "x"]);
        },
        &[],
    );
    assert!(nested.contains("'inner' is a submodule"), "{nested}");
    assert!(world.path("h2/inner/.git").exists(), "a checkout is only read");
    let link = refused(
        "h3",
        &|tree| {
            fs::remove_file(tree.join("f001.txt")).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", tree.join("f001.txt")).unwrap();
        },
        &[],
    );
    assert!(link.contains("f001.txt"), "{link}");
    // Its words are read as strictly as a worker's.
    let words = world.write(
        "last.txt",
        "Done!\n```json\n{\"resolved\": [\"F-9999\"], \"blocked\": [], \"summary\": \"\"}\n```\n",
    );
    let words = words.display().to_string();
    let foreign = refused(
        "h1",
        &|tree| fs::write(tree.join("f001.txt"), "x").unwrap(),
        &["--result", &words],
    );
    assert!(foreign.contains("F-9999"), "{foreign}");
    // The failed attempt is handed in and counts; the next one is told why.
    let landed = land(&world, &handed_out);
    assert_eq!((landed.code, landed.fate("N-001")), (Some(0), "failed"), "{}", landed.report);
    let again = grant(&world, &[]);
    let entry = of_share(&again, "host").remove(0);
    let prompt =
        Path::new(again["prompts"].as_str().unwrap()).join(entry["prompt-file"].as_str().unwrap());
    assert!(fs::read_to_string(prompt).unwrap().contains("F-9999"));
}

#[test]
fn a_dear_host_gets_only_what_the_free_side_has_no_room_for() {
    let shares = |nodes: usize| {
        let world = attended(nodes, "dear");
        let handed_out = grant(&world, &[]);
        (of_share(&handed_out, "work").len(), of_share(&handed_out, "host").len())
    };
    assert_eq!(shares(4), (4, 0), "our four slots take all");
    assert_eq!(shares(6), (4, 2), "nothing waits beside a pool that fits");
}

#[test]
fn the_whole_frontier_goes_to_the_host_when_no_pool_of_ours_is_usable() {
    let world = attended(3, "both");
    let mut text = fs::read_to_string(world.path("overhaul.yml")).unwrap();
    text.push_str("exclude: [worker-command]\n");
    fs::write(world.path("overhaul.yml"), text).unwrap();
    let handed_out = grant(&world, &[]);
    assert_eq!((of_share(&handed_out, "work").len(), of_share(&handed_out, "host").len()), (0, 3));
    let (report, _) = grant_report(&world, &[]);
    assert_eq!(report["status"], "waiting", "an empty share is no pause: {report}");
    // A cycle that would drive hands it out as well.
    land(&world, &handed_out);
    let cycle = world.next_step();
    let out = &cycle.report["grant"];
    assert_eq!(
        (of_share(out, "work").len(), of_share(out, "host").len()),
        (0, 3),
        "{}",
        cycle.report
    );
    assert_eq!((cycle.status(), run_of(&world).pause.is_none()), ("waiting", true));
}

#[test]
fn the_requests_that_a_host_declares_are_kept_over_its_jobs() {
    let world = attended(2, "host");
    declare(&world, 1);
    let first = grant(&world, &[]);
    assert_eq!(entries(&first).len(), 1);
    deliver(&world, &entries(&first));
    assert_eq!(land(&world, &first).nodes("in_review"), 1);
    assert_eq!(run_of(&world).usage.requests, 1, "whatever is not told, one was sent");
    let (report, _) = grant_report(&world, &[]);
    assert!(report["grant"].is_null(), "one a day: {report}");
    assert_eq!(report["pause"]["cause"], "budget_exhausted", "{report}");
    // An agent that counts says how many it were.
    let world = attended(2, "host");
    declare(&world, 5);
    let first = grant(&world, &[]);
    let entry = &entries(&first)[0];
    agent(&world, "host", entry, |tree| fs::write(tree.join(file(entry)), "theirs\n").unwrap());
    let output = call(&world, "accept-node", "host", entry, &["--requests", "5"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    land(&world, &first);
    assert_eq!(run_of(&world).usage.requests, 5);
    assert!(grant_report(&world, &[]).0["grant"].is_null());
}

#[test]
fn a_node_that_no_side_takes_has_one_wall_over_both() {
    for pools in ["host", "both"] {
        let world = attended(2, pools);
        declare(&world, 1);
        // Ours, where there is one, is too small for any node.
        let file = world.path("overhaul.yml");
        let small = "provider: worker-command\n    context-tokens: 100\n    output-tokens: 10\n";
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace("provider: worker-command\n", small)).unwrap();
        let first = grant(&world, &[]);
        assert_eq!(of_share(&first, "host").len(), 1, "{first}");
        deliver(&world, &entries(&first));
        assert_eq!(land(&world, &first).nodes("in_review"), 1);
        let granted = grant_report(&world, &[]).0;
        let cycle = world.next_step_with(&["--resume", "--time-budget", "30s"]).report;
        for report in [&granted, &cycle] {
            assert_eq!(report["pause"]["cause"], "budget_exhausted", "{pools}: {report}");
            assert!(report["not-before"].is_string(), "the host's reset: {report}");
            let nodes = report["pause"]["nodes"].as_array().unwrap();
            assert_eq!(nodes.len(), 1, "each node once: {report}");
            let reason = nodes[0]["reason"].as_str().unwrap();
            assert!(reason.contains("agent: its daily allowance is used"), "{reason}");
            assert_eq!(reason.contains("its context window has 100"), pools == "both", "{reason}");
        }
    }
}

#[test]
fn what_was_handed_out_is_given_back_when_the_cycle_fails() {
    let world = attended(4, "both");
    // The ledger refuses one write, the first after our worker has begun.
    let hook = world.write(
        "remote.git/hooks/pre-receive",
        "#!/bin/sh\nif grep -q refs/heads/overhaul/state && rm refuse 2>/dev/null; then exit 1; fi\n",
    );
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let refuse = world.path("remote.git/refuse");
    let script = format!("echo \"$1\" >> \"$2\"\ntouch {}\n", refuse.display());
    fs::write(world.path("worker.sh"), script).unwrap();
    let cycle = world.next_step();
    assert_eq!(cycle.code, Some(3), "{} {}", cycle.report, cycle.stderr);
    assert!(cycle.report.is_null() && !refuse.exists(), "{}", cycle.stderr);
    let run = run_of(&world);
    assert_eq!(run.grants.len(), 1);
    assert!(run.grants.values().all(|grant| grant.ended), "nobody was told of it");
    nothing_is_held(&world);
    fs::write(world.path("worker.sh"), WORKER).unwrap();
    let again = grant(&world, &[]);
    assert!(!of_share(&again, "host").is_empty(), "and goes out again: {again}");
}

#[test]
fn a_wall_in_the_middle_of_a_cycle_leaves_the_hosts_share_out() {
    let world = attended(4, "both");
    let script = "echo 'HTTP 429 Too Many Requests: rate limit exceeded, retry after 600 seconds' >&2\nexit 1\n";
    fs::write(world.path("worker.sh"), script).unwrap();
    let cycle = world.next_step_with(&["--time-budget", "5m"]);
    assert_eq!(cycle.code, Some(0), "{}", cycle.stderr);
    let handed_out = &cycle.report["grant"];
    let theirs = of_share(handed_out, "host");
    assert!(!theirs.is_empty() && theirs.len() < 4, "{}", cycle.report);
    let run = run_of(&world);
    assert!(run.pools.values().any(|pool| pool.paused.is_some()), "our pool waits");
    assert_eq!((cycle.status(), run.pause.is_none()), ("waiting", true), "{}", cycle.report);
    deliver(&world, &theirs);
    let landed = land(&world, handed_out);
    assert_eq!(landed.code, Some(0), "{}", landed.stderr);
    assert_eq!(landed.nodes("in_review") as usize, theirs.len(), "{}", landed.report);
}

#[test]
fn a_wall_of_our_pools_leaves_the_host_going() {
    // Our one pool waits for its quota; the host's one slot is taken.
    let world = attended(4, "limited");
    let script = "echo 'HTTP 429 Too Many Requests: rate limit exceeded, retry after 600 seconds' >&2\nexit 1\n";
    fs::write(world.path("worker.sh"), script).unwrap();
    let first = grant(&world, &["--max-nodes", "1"]);
    let node = entries(&first).remove(0);
    assert_eq!(node["share"], "work", "{first}");
    work(&world, "clone-a", &node);
    land(&world, &first);
    let second = grant(&world, &[]);
    let theirs = of_share(&second, "host");
    assert_eq!(entries(&second).len(), 1, "{second}");
    assert_eq!(theirs.len(), 1, "the host goes on");
    assert!(run_of(&world).pause.is_none(), "the run is not paused");
    let (report, _) = grant_report(&world, &[]);
    assert!(report["grant"].is_null() && report["status"] == "waiting", "{report}");
    // Shorter than the pool's wait: a longer job would wait for it in place.
    let cycle = world.next_step_with(&["--time-budget", "5m"]);
    assert_eq!(cycle.status(), "waiting", "a cycle does not pause it either: {}", cycle.report);
    assert!(run_of(&world).pause.is_none());
}

#[test]
fn a_cycle_drives_its_share_while_the_hosts_is_out() {
    let world = attended(4, "both");
    let cycle = world.next_step();
    assert_eq!(cycle.code, Some(0), "{}", cycle.stderr);
    let handed_out = &cycle.report["grant"];
    let theirs = of_share(handed_out, "host");
    assert!(!theirs.is_empty() && theirs.len() < 4, "{}", cycle.report);
    assert_eq!(entries(handed_out).len(), theirs.len(), "ours is driven, not handed out");
    assert_eq!(cycle.nodes("in_review") as usize, 4 - theirs.len(), "{}", cycle.report);
    assert_eq!((cycle.status(), cycle.nodes("claimed") as usize), ("waiting", theirs.len()));
    deliver(&world, &theirs);
    let landed = land(&world, handed_out);
    assert_eq!((landed.code, landed.nodes("in_review")), (Some(0), 4), "{}", landed.stderr);
    nothing_is_held(&world);
}
