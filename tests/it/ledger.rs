//! The log and its fold: order-faithful, deterministic, safe under concurrent writers.

use std::collections::BTreeMap;

use overhaul::ledger::{
    Applied, Burn, Event, EventKind, GrantedClaim, Landing, NodeState, PauseCause, Receipt, Run,
    Share, fold, node_states,
};
use overhaul::model::{
    AttemptNumber, Coverage, CycleId, GrantId, Node, NodeId, Outcome, OwnerToken, Plan, PoolId,
    RunId, ScopeEntry, Severity, Tier, Usage,
};
use proptest::prelude::*;

fn node(n: u8) -> NodeId {
    NodeId::new(format!("N-{n:03}")).unwrap()
}

fn owner(n: u8) -> OwnerToken {
    OwnerToken::new(format!("o{n}")).unwrap()
}

fn event(kind: EventKind) -> Event {
    Event { v: 1, at: jiff::Timestamp::UNIX_EPOCH, cycle: CycleId::new("c1").unwrap(), kind }
}

fn claimed(n: u8, attempt: u32, by: u8) -> Event {
    event(EventKind::Claimed {
        node: node(n),
        attempt: AttemptNumber(attempt),
        owner: owner(by),
        lease_until: jiff::Timestamp::UNIX_EPOCH,
        holder: overhaul::ledger::Holder::default(),
    })
}

fn receipt() -> Receipt {
    Receipt {
        base: "b".into(),
        on: vec![],
        commit: "c".into(),
        tree: "t".into(),
        resolved: vec![],
        touched: vec![],
        checks: vec![],
        pool: PoolId::new("p"),
        model_seen: None,
        agent: None,
        usage: Usage::default(),
        summary: String::new(),
        authors: vec![],
    }
}

fn accepted(n: u8, attempt: u32, by: u8) -> Event {
    event(EventKind::Accepted {
        node: node(n),
        attempt: AttemptNumber(attempt),
        owner: owner(by),
        receipt: receipt(),
    })
}

fn ended(n: u8, attempt: u32, by: u8, burn: Burn) -> Event {
    event(EventKind::AttemptEnded {
        node: node(n),
        attempt: AttemptNumber(attempt),
        owner: owner(by),
        pool: PoolId::new("p"),
        outcome: Outcome::InvalidResult,
        burn,
        detail: "d".into(),
        usage: Usage::default(),
        evidence: None,
        quarantine: None,
        conflicts_with: vec![],
    })
}

fn plan(nodes: &[(u8, &[u8])]) -> Plan {
    let nodes = nodes
        .iter()
        .map(|(n, deps)| Node {
            id: node(*n),
            title: "t".into(),
            findings: vec![],
            writes: vec![ScopeEntry::Glob("**".into())],
            creates: vec![],
            depends_on: deps.iter().map(|d| node(*d)).collect(),
            after: vec![],
            verify: vec![],
            verify_waived: Some("test".into()),
            tier: Tier::Standard,
            severity: Severity::Medium,
            input_tokens: 1,
            output_tokens: 1,
        })
        .collect();
    let coverage = Coverage { total: 0, in_nodes: 0, dropped: 0, places: BTreeMap::new() };
    Plan { version: 1, revision: 1, findings: vec![], nodes, coverage }
}

fn any_event() -> impl Strategy<Value = Event> {
    let small = 0u8..4;
    prop_oneof![
        (small.clone(), 1u32..4, 0u8..3).prop_map(|(n, a, o)| claimed(n, a, o)),
        (small.clone(), 1u32..4, 0u8..3).prop_map(|(n, a, o)| accepted(n, a, o)),
        (small.clone(), 1u32..4, 0u8..3).prop_map(|(n, a, o)| ended(n, a, o, Burn::Contract)),
        (small.clone(), 0u8..3).prop_map(|(n, o)| event(EventKind::Released {
            node: node(n),
            owner: owner(o),
            reason: "r".into()
        })),
        (small.clone(), 1u64..4).prop_map(|(n, number)| event(EventKind::PrOpened {
            node: node(n),
            number,
            url: "u".into(),
            branch: "b".into(),
            base: "m".into()
        })),
        (small.clone(), 1u64..4)
            .prop_map(|(n, number)| event(EventKind::PrClosed { node: node(n), number })),
        (small.clone()).prop_map(|n| event(EventKind::Retried { node: node(n), by: "x".into() })),
        (small).prop_map(|n| event(EventKind::Skipped { node: node(n), by: "x".into() })),
        Just(event(EventKind::Paused {
            cause: PauseCause::CapReached,
            nodes: vec![],
            not_before: None,
            by: None
        })),
        Just(event(EventKind::Unknown)),
        (1u64..3, 0u32..2).prop_map(|(comment, line)| event(EventKind::CommandReceived {
            comment,
            on: 1,
            body_digest: "d".into(),
            line,
            verb: "resume".into(),
            args: vec![],
            actor: "a".into(),
            result: "r".into()
        })),
    ]
}

proptest! {
    /// Folding a prefix, storing it, reading it back and folding the rest is folding the whole.
    #[test]
    fn a_snapshot_never_changes_a_result(
        events in proptest::collection::vec(any_event(), 0..60), cut in 0usize..60
    ) {
        let cut = cut.min(events.len());
        let stored = serde_json::to_string(&fold(&events[..cut])).unwrap();
        let mut resumed: Run = serde_json::from_str(&stored).unwrap();
        for e in &events[cut..] {
            resumed.apply(e);
        }
        prop_assert_eq!(resumed, fold(&events));
    }

    /// An event that the rules ignore leaves nothing behind but its count.
    #[test]
    fn ignored_events_change_nothing(events in proptest::collection::vec(any_event(), 0..60)) {
        let mut with = Run::default();
        let mut kept = Vec::new();
        for e in &events {
            if with.apply(e) == Applied::Yes {
                kept.push(e.clone());
            }
        }
        let mut without = fold(&kept);
        without.events = with.events;
        without.unknown_events = with.unknown_events;
        // Known friction and ended pull requests only count.
        prop_assert_eq!(strip_defaults(without), strip_defaults(with));
    }

    /// Whatever two writers interleave, a node has one owner and lands at most once per claim.
    #[test]
    fn at_most_one_owner_and_one_landing(events in proptest::collection::vec(any_event(), 0..80)) {
        let mut run = Run::default();
        let mut landings = 0;
        for e in &events {
            let before = run.clone();
            let applied = run.apply(e);
            match &e.kind {
                EventKind::Claimed { node, .. } if applied == Applied::Yes => {
                    prop_assert!(before.nodes.get(node).is_none_or(|n| n.claim.is_none()));
                }
                EventKind::Accepted { node, owner, .. } if applied == Applied::Yes => {
                    prop_assert!(before.is_owned(node, owner));
                    landings += 1;
                }
                _ => {}
            }
        }
        prop_assert_eq!(run.accepted, landings);
    }

    /// Events survive their wire format.
    #[test]
    fn events_round_trip(e in any_event().prop_filter("ours", |e| e.kind != EventKind::Unknown)) {
        let line = serde_json::to_string(&e).unwrap();
        prop_assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), e);
    }
}

/// Records that only came into being by being looked at are equal to absent ones.
fn strip_defaults(mut run: Run) -> Run {
    run.nodes.retain(|_, n| *n != overhaul::ledger::NodeRecord::default());
    run
}

#[test]
fn unknown_kinds_are_seen_and_leave_a_reader_working() {
    let line =
        r#"{"v":1,"at":"2026-01-01T00:00:00Z","cycle":"c","kind":"from_the_future","x":[1]}"#;
    let newer: Event = serde_json::from_str(line).unwrap();
    assert_eq!(newer.kind, EventKind::Unknown);
    let run = fold(&[newer, claimed(1, 1, 1)]);
    assert_eq!(run.unknown_events, 1);
    assert!(run.is_owned(&node(1), &owner(1)));
}

#[test]
fn no_node_is_ever_resolved_without_its_recorded_landing() {
    let plan = plan(&[(1, &[])]);
    let mut run = fold(&[claimed(1, 1, 1)]);
    // The worker ended well and the process died before the landing was written.
    run.apply(&event(EventKind::Released {
        node: node(1),
        owner: owner(1),
        reason: "owner is dead".into(),
    }));
    let states = node_states(&run, &plan, Default::default(), Default::default());
    assert_eq!(states[&node(1)], NodeState::Ready);
    assert!(run.resolved().is_empty());
}

#[test]
fn ownership_is_fenced_at_the_effect_not_timed_by_file_age() {
    // The first owner's claim was taken away; its late landing is ignored.
    let released =
        event(EventKind::Released { node: node(1), owner: owner(1), reason: "dead".into() });
    let mut run = fold(&[claimed(1, 1, 1), released, claimed(1, 2, 2)]);
    assert!(matches!(run.apply(&accepted(1, 1, 1)), Applied::No(_)));
    assert_eq!(run.nodes[&node(1)].landing, Landing::None);
    assert_eq!(run.apply(&accepted(1, 2, 2)), Applied::Yes);
    // An expired lease alone gives nothing to anybody: leases end by an event.
    let mut run = fold(&[claimed(1, 1, 1)]);
    assert!(matches!(run.apply(&claimed(1, 2, 2)), Applied::No(_)));
}

#[test]
fn every_loop_has_a_stored_falling_measure() {
    let plan = plan(&[(1, &[])]);
    let mut run = Run::default();
    for attempt in 1..=2 {
        run.apply(&claimed(1, attempt, 1));
        run.apply(&ended(1, attempt, 1, Burn::Contract));
    }
    let states = node_states(&run, &plan, Default::default(), Default::default());
    assert_eq!(states[&node(1)], NodeState::Failed);
    run.apply(&event(EventKind::Retried { node: node(1), by: "ann".into() }));
    let states = node_states(&run, &plan, Default::default(), Default::default());
    assert_eq!(states[&node(1)], NodeState::Ready);
    assert_eq!(run.nodes[&node(1)].attempts, 2, "attempt numbers are never used again");
}

#[test]
fn a_429_burns_no_attempt() {
    let plan = plan(&[(1, &[])]);
    let mut run = Run::default();
    for attempt in 1..=20 {
        run.apply(&claimed(1, attempt, 1));
        run.apply(&ended(1, attempt, 1, Burn::None));
    }
    let states = node_states(&run, &plan, Default::default(), Default::default());
    assert_eq!(states[&node(1)], NodeState::Ready);
}

#[test]
fn dependencies_fail_closed() {
    let plan = plan(&[(1, &[]), (2, &[1]), (3, &[2]), (4, &[9])]);
    let mut run = Run::default();
    run.apply(&event(EventKind::Skipped { node: node(1), by: "ann".into() }));
    let states = node_states(&run, &plan, Default::default(), Default::default());
    assert_eq!(states[&node(2)], NodeState::Blocked);
    assert_eq!(states[&node(3)], NodeState::Blocked, "blocked goes on down the chain");
    assert_eq!(states[&node(4)], NodeState::Blocked, "an unknown dependency is not satisfied");
    run.apply(&event(EventKind::Retried { node: node(1), by: "ann".into() }));
    let states = node_states(&run, &plan, Default::default(), Default::default());
    assert_eq!(states[&node(1)], NodeState::Ready);
    assert_eq!(states[&node(2)], NodeState::Waiting, "and lifts when its cause is gone");
}

#[test]
fn an_answered_question_is_acted_on_once() {
    let command = event(EventKind::CommandReceived {
        comment: 7,
        on: 1,
        body_digest: "d".into(),
        line: 1,
        verb: "budget".into(),
        args: vec!["5".into()],
        actor: "ann".into(),
        result: "ok".into(),
    });
    let mut run = Run::default();
    assert_eq!(run.apply(&command), Applied::Yes);
    assert!(matches!(run.apply(&command), Applied::No(_)));
    assert!(run.is_command_done(7, "d", 1));
}

#[test]
fn a_review_sends_work_back_once_and_counts_its_attempts_anew() {
    let opened = event(EventKind::PrOpened {
        node: node(1),
        number: 7,
        url: "u".into(),
        branch: "b".into(),
        base: "main".into(),
    });
    let reviewed = |number: u64, seconds: i64, reviews: &[&str]| {
        event(EventKind::Reviewed {
            node: node(1),
            number,
            seen: jiff::Timestamp::from_second(seconds).unwrap(),
            reviews: reviews.iter().map(|id| (*id).to_owned()).collect(),
            by: vec!["ann".into()],
            reason: format!("{reviews:?}"),
        })
    };
    let failed = [claimed(1, 1, 1), ended(1, 1, 1, Burn::Contract)];
    let mut run = fold(failed.iter().chain(&[claimed(1, 2, 2), accepted(1, 2, 2), opened]));
    assert_eq!(run.apply(&reviewed(8, 5, &["x"])), Applied::No("no such open pull request"));
    assert_eq!(run.apply(&reviewed(7, 5, &[])), Applied::Yes);
    assert_eq!(run.apply(&reviewed(7, 5, &[])), Applied::No("those reviews are known"));
    assert_eq!(run.nodes[&node(1)].contract_burnt, 1);
    assert_eq!(run.apply(&reviewed(7, 6, &["x"])), Applied::Yes);
    let record = &run.nodes[&node(1)];
    assert_eq!((&record.landing, record.contract_burnt), (&Landing::None, 0));
    assert_eq!(record.reopened.as_deref(), Some("[\"x\"]"));
    // Whoever saw the same at the same time changes nothing; nor does it count again later.
    assert_eq!(run.apply(&reviewed(7, 6, &["x"])), Applied::No("the node is at work already"));
    run.apply(&claimed(1, 3, 3));
    run.apply(&accepted(1, 3, 3));
    assert_eq!(run.apply(&reviewed(7, 7, &["x"])), Applied::Yes);
    assert!(matches!(run.nodes[&node(1)].landing, Landing::Accepted { .. }));
}

#[test]
fn run_ids_are_ours_and_safe() {
    for bad in ["", "../x", "a b", "a/b", ".hidden", "a..b", "x.lock", "ü"] {
        assert!(RunId::new(bad).is_err(), "{bad}");
    }
    assert!(RunId::new("r-20261130-1a2b").is_ok());
}

fn granted(name: &str, claims: &[(u8, u32, u8)]) -> Event {
    let claims = claims.iter().map(|&(n, attempt, by)| GrantedClaim {
        node: node(n),
        attempt: AttemptNumber(attempt),
        owner: owner(by),
        pool: PoolId::new("p"),
        base: "b".into(),
        share: Share::Work,
        verify_key: String::new(),
    });
    event(EventKind::Granted {
        grant: GrantId::new(name).unwrap(),
        expires: jiff::Timestamp::UNIX_EPOCH,
        claims: claims.collect(),
    })
}

fn grant_ended(name: &str) -> Event {
    event(EventKind::GrantEnded { grant: GrantId::new(name).unwrap() })
}

#[test]
fn a_grant_holds_only_what_its_owners_hold() {
    let mut run = fold(&[claimed(1, 1, 1), claimed(2, 1, 2)]);
    // Of another owner, of another attempt, of nobody.
    let others = granted("g-0", &[(1, 1, 9), (2, 7, 2), (3, 1, 3)]);
    assert!(matches!(run.apply(&others), Applied::No(_)));
    assert_eq!(run.apply(&granted("g-1", &[(1, 1, 1), (2, 1, 9), (3, 1, 3)])), Applied::Yes);
    assert!(matches!(run.apply(&granted("g-1", &[(2, 1, 2)])), Applied::No(_)), "never again");
    let held = |run: &Run| {
        let grant = &run.grants[&GrantId::new("g-1").unwrap()];
        (grant.claims.len(), run.outstanding(grant).count(), grant.ended)
    };
    assert_eq!(held(&run), (1, 1, false));
    let (grant, claim) = run.grant_of(&owner(1)).unwrap();
    assert_eq!((grant.as_str(), &claim.node), ("g-1", &node(1)));
    assert_eq!(run.grant_of(&owner(2)), None, "claimed, and not handed out");
    assert_eq!(run.apply(&accepted(1, 1, 1)), Applied::Yes);
    assert_eq!(held(&run), (1, 0, false));
    assert_eq!(run.apply(&grant_ended("g-1")), Applied::Yes);
    assert!(matches!(run.apply(&grant_ended("g-1")), Applied::No(_)));
    assert!(matches!(run.apply(&grant_ended("g-9")), Applied::No(_)));
    assert_eq!(held(&run), (1, 0, true));
}

#[test]
fn the_smallest_size_that_a_pool_refused_stays_banned() {
    let pool = PoolId::new("p");
    let banned = |tokens| {
        let (node, pool) = (node(1), pool.clone());
        event(EventKind::SizeBanned { node, pool, tokens, context_tokens: Some(32_000) })
    };
    let run = fold(&[banned(9_000), banned(4_000), banned(20_000)]);
    assert_eq!(run.bans[&node(1)][&pool].tokens, 4_000);
}

#[test]
fn a_pool_is_remembered_by_what_its_accepted_attempts_took() {
    let at = |second: i64, mut event: Event| {
        event.at = jiff::Timestamp::from_second(second).unwrap();
        event
    };
    let began = |n: u8, by: u8| {
        event(EventKind::AttemptStarted {
            node: node(n),
            attempt: AttemptNumber(1),
            owner: owner(by),
            pool: PoolId::new("p"),
            base: "b".into(),
            expected: Usage::default(),
        })
    };
    let run = fold(&[
        at(10, claimed(1, 1, 1)),
        at(20, began(1, 1)),
        at(110, accepted(1, 1, 1)),
        // A clock that went back says nothing.
        at(200, claimed(2, 1, 2)),
        at(210, began(2, 2)),
        at(150, accepted(2, 1, 2)),
    ]);
    let served = run.pools[&PoolId::new("p")].served;
    assert_eq!((served.attempts, served.millis), (1.0, 90_000.0));
}
