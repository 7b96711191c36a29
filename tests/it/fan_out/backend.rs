//! What a backend, or our own limits before it, did in a job: as the land job books it.

use overhaul::backends::scripted::{Reply, Request, Scripted, fixer};
use overhaul::model::Outcome;

use super::{entries, grant, grant_report, land, run_of, work};
use crate::support::{World, findings};

/// One file with a finding that the scripted model fixes with four requests, and one pool of it.
fn attempted(endpoint: &Scripted, limits: &str, more: &str) -> World {
    let mut world = World::new(&[("a.txt", "a\n")]);
    world.write("checkout/findings.json", &findings(&[("A", "a.txt", "replace `a` with `A`")]));
    let base = endpoint.base_url().unwrap();
    world.write(
        "overhaul.yml",
        &format!(
            "version: 1\nbase: main\nfindings:\n  - file: findings.json\npools:\n  - id: one\n    \
             provider: openai-compatible\n    model: scripted/fixer\n    base-url: {base}\n    \
             key-env: KEY_ONE\n    context-tokens: 64000\n    output-tokens: 2000\n    \
             limits: {{{limits}}}\nverify:\n  commands:\n    - name: check\n      \
             argv: [\"true\"]\n      timeout: 20s\n{more}"
        ),
    );
    world.set("TOKIO_WORKER_THREADS", "2");
    world.set("KEY_ONE", "scripted-key-0001");
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_our_own_limits_end_in_a_job_is_no_word_of_its_backend() {
    let budget = "dispatch:\n  budget: {requests: 2}\n";
    for (limits, more) in [("requests-per-day: 2", ""), ("concurrent: 1", budget)] {
        let endpoint = Scripted::start(fixer).await.unwrap();
        let world = attempted(&endpoint, limits, more);
        let handed_out = grant(&world, &[]);
        work(&world, "clone-a", &entries(&handed_out)[0]);
        assert_eq!(endpoint.requests().len(), 2, "{limits}");
        let landed = land(&world, &handed_out);
        assert_eq!((landed.code, landed.fate("N-001")), (Some(0), "failed"), "{}", landed.report);
        let run = run_of(&world);
        let (pool, node) =
            (run.pools.values().next().unwrap(), &run.nodes[&"N-001".parse().unwrap()]);
        assert_eq!((&pool.paused, &pool.learned), (&None, &None), "{limits}");
        assert_eq!((node.contract_burnt, node.infrastructure_burnt), (0, 0), "{node:?}");
        assert_eq!(run.usage.requests, 2, "{limits}");
        let (report, stderr) = grant_report(&world, &[]);
        assert_eq!(report["pause"]["cause"], "budget_exhausted", "{report} {stderr}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_key_that_was_refused_in_a_job_is_known_by_its_tag() {
    let refused = |request: &Request, n: usize| match request
        .headers
        .get("authorization")
        .map(String::as_str)
    {
        Some("Bearer scripted-key-0002") => fixer(request, n),
        _ => Reply::error(401, "Incorrect API key provided", "invalid_api_key"),
    };
    let endpoint = Scripted::start(refused).await.unwrap();
    let mut world = attempted(&endpoint, "concurrent: 1", "");
    let handed_out = grant(&world, &[]);
    work(&world, "clone-a", &entries(&handed_out)[0]);
    // Where results land is no key.
    world.set("KEY_ONE", "");
    assert_eq!(land(&world, &handed_out).code, Some(0));
    let settled = run_of(&world).pools.values().next().unwrap().settled.clone().unwrap();
    assert_eq!(settled.outcome, Outcome::Auth);
    assert!(settled.key.is_some(), "{settled:?}");
    assert!(grant(&world, &[]).is_null(), "no job without a key can tell");
    world.set("KEY_ONE", "scripted-key-0001");
    assert!(grant(&world, &[]).is_null(), "the same key");
    world.set("KEY_ONE", "scripted-key-0002");
    let again = grant(&world, &[]);
    assert_eq!(entries(&again).len(), 1, "another key is tried by itself");
    std::fs::remove_dir_all(world.path("bundles")).unwrap();
    work(&world, "clone-a", &entries(&again)[0]);
    assert_eq!(land(&world, &again).nodes("in_review"), 1);
}
