//! Taking results in: the files of a grant's jobs are hostile input. Each is refused or judged by
//! itself, from the ledger and not from what it says of itself; what passes lands in the order of the
//! plan, so that the order of arrival changes nothing. Whatever happens, nothing of the grant is
//! held afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::StreamExt as _;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::accept::{self, Refusal, Verdict};
use super::attempt::{self, End, Ticket};
use super::bundle::{self, Bundle, Manifest, Said};
use super::context::Cycle;
use super::desk::Desk;
use super::next_step::{self, Begun, CycleReport, Job, Worked};
use super::setup::{self, Options};
use super::{CycleError, drive, land, names, reconcile, work};
use crate::backends::{ModelSwitch, WorkReport, prompt, result};
use crate::git::Oid;
use crate::ledger::{EventKind, GrantedClaim, Run};
use crate::model::{Classification, GrantId, NodeId, Outcome, OwnerToken, RunId, Usage, scrub};
use crate::workspace::{ParcelError, unpack};

/// Entries of the folder that are looked at; a grant has at most 256 results.
const MAX_ENTRIES: usize = 4_096;

/// Entries of a folder in it that are looked at; an artifact holds one result.
const MAX_BELOW: usize = 16;

/// Longest reason that is taken over from a job, characters; the prompt's own limit.
const MAX_DETAIL: usize = 6_000;

/// Most tokens or requests that a job's word can book for one attempt.
const MAX_COUNT: u64 = 1_000_000_000;

/// Most US dollars that a job's word can book for one attempt.
const MAX_USD: f64 = 100_000.0;

/// Where results are, and of what.
#[derive(Debug, Clone)]
pub struct TakeInOptions {
    /// Folder of the files, each in it or in a folder of its artifact.
    pub bundles: PathBuf,
    /// The grant; those of the files that are there, when absent.
    pub grant: Option<GrantId>,
}

/// What became of one handed-out node, or of one file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TakenIn {
    /// The node, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// The file, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What became of it.
    pub fate: Fate,
    /// One sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What became of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Accepted, or proven to need nothing.
    Landed,
    /// Booked as an attempt that did not succeed.
    Failed,
    /// No file came; the node was given back.
    Missing,
    /// Not the result of a handed-out node, or not in time: nothing of it counts.
    Refused,
}

/// Takes in the results of a grant.
///
/// # Errors
/// As a cycle. What is wrong with a result is no error.
pub async fn merge_results(
    options: Options,
    how: TakeInOptions,
    cancel: CancellationToken,
) -> Result<CycleReport, CycleError> {
    // With a grant its nodes are given back all the same: no job may have left anything.
    if how.grant.is_none() && !how.bundles.is_dir() {
        return Err(CycleError::input(
            format!("{} is no folder with results", how.bundles.display()),
            "name the folder that the results were downloaded to with --bundles",
        ));
    }
    let job = Job::TakeIn(how.grant.clone());
    let (cycle, set) = match next_step::begin(options, job, cancel).await? {
        Begun::Over(report) => return Ok(*report),
        Begun::Ready(cycle, set) => (cycle, set),
    };
    if let Some(id) = how.grant.as_ref().filter(|id| !cycle.journal.state().grants.contains_key(id))
    {
        return Err(CycleError::input(
            format!("run {} has no grant {id}", cycle.run_id()),
            "name the grant as the job that handed out printed it",
        ));
    }
    // Nothing is booked or given back yet: the job can be run again with the programs.
    setup::check_programs(&cycle)?;
    let mut grants: BTreeSet<GrantId> = how.grant.iter().cloned().collect();
    let outcome = take_in(&cycle, &how, &mut grants).await;
    // On every path: nothing stays held that no job works on.
    let released = give_back(&cycle, &grants).await;
    let mut taken = outcome?;
    for node in released? {
        if !taken.iter().any(|t| t.node.as_ref() == Some(&node) && t.fate != Fate::Refused) {
            let why = "no result came; the node was given back".to_owned();
            taken.push(TakenIn { node: Some(node), file: None, fate: Fate::Missing, why });
        }
    }
    taken.sort();
    let counted = taken.iter().filter(|t| matches!(t.fate, Fate::Landed | Fate::Failed)).count();
    let mut worked = Worked { attempts: counted, ..Worked::default() };
    next_step::wind_up(&cycle, &set, &mut worked).await?;
    let mut report = next_step::report(&cycle, &set, worked).await?;
    report.results = taken;
    Ok(report)
}

/// Gives back what is still held, and ends the grants. A grant whose claims were all gone before is
/// ended as well.
async fn give_back(cycle: &Cycle, grants: &BTreeSet<GrantId>) -> Result<Vec<NodeId>, CycleError> {
    let (mut events, mut nodes) = (Vec::new(), Vec::new());
    {
        let run = cycle.journal.state();
        for id in grants {
            let Some(record) = run.grants.get(id).filter(|record| !record.ended) else { continue };
            for granted in run.outstanding(record) {
                let claim = run.nodes.get(&granted.node).and_then(|n| n.claim.as_ref());
                let Some(claim) = claim else { continue };
                let why = "no result came from its job";
                events.push(reconcile::end_of_dead_claim(&run, &granted.node, claim, why));
                nodes.push(granted.node.clone());
            }
            events.push(EventKind::GrantEnded { grant: id.clone() });
        }
    }
    if !events.is_empty() {
        cycle.journal.write(events).await?;
    }
    Ok(nodes)
}

/// One result whose origin and content are what they must be; not judged yet.
struct Arrived {
    ticket: Ticket,
    manifest: Manifest,
    seal: String,
    file: String,
    tree: Option<Oid>,
}

async fn take_in(
    cycle: &Arc<Cycle>,
    how: &TakeInOptions,
    grants: &mut BTreeSet<GrantId>,
) -> Result<Vec<TakenIn>, CycleError> {
    next_step::observe(cycle).await?;
    let names = expected(&cycle.journal.state(), grants);
    let (files, overflow) = find(&how.bundles, &names);
    let mut taken = Vec::new();
    if overflow {
        let why =
            "a folder has more entries than a grant has results; the rest was not read".into();
        taken.push(TakenIn { node: None, file: None, fate: Fate::Refused, why });
    }
    let mut arrived: BTreeMap<OwnerToken, Vec<Arrived>> = BTreeMap::new();
    for path in files {
        if cycle.cancel.is_cancelled() {
            break;
        }
        let file = shown(&how.bundles, &path);
        match open(cycle, how.grant.as_ref(), path, file.clone()).await? {
            Ok((grant, it)) => {
                grants.insert(grant);
                let same = arrived.entry(it.ticket.owner.clone()).or_default();
                // Twice the same is once.
                if same.iter().all(|other| other.seal != it.seal) {
                    same.push(it);
                }
            }
            Err((node, why)) => {
                tracing::warn!(file, why, "a result is refused");
                taken.push(TakenIn { node, file: Some(file), fate: Fate::Refused, why });
            }
        }
    }

    let place: BTreeMap<&NodeId, usize> =
        cycle.plan.nodes.iter().zip(0..).map(|(node, at)| (&node.id, at)).collect();
    let mut in_order: Vec<Vec<Arrived>> = arrived.into_values().collect();
    in_order
        .sort_by_key(|results| results.first().and_then(|r| place.get(&r.ticket.node.id).copied()));

    let desk = Desk::new(drive::scheduler_over(cycle, |_| true)?, cycle.clock.clone());
    let started: Vec<EventKind> = in_order.iter().filter_map(|r| r.first()).map(started).collect();
    if !started.is_empty() {
        cycle.journal.write(started).await?;
    }
    let at_once = usize::try_from(cycle.config.dispatch.concurrent).unwrap_or(usize::MAX).max(1);
    let judged = futures_util::stream::iter(in_order)
        .map(|results| judge_apart(cycle.clone(), results))
        .buffered(at_once);
    let mut judged = std::pin::pin!(judged);
    while let Some(judged) = judged.next().await {
        let Some((ticket, file, report, verdict)) = judged? else { continue };
        let (node, pool) = (ticket.node.id.clone(), ticket.pool.pool.id.clone());
        let why = match &verdict {
            Verdict::Refused(refusal) => refusal.detail.clone(),
            Verdict::Good(_) | Verdict::Satisfied { .. } => String::new(),
        };
        let done = attempt::record(cycle, &ticket, report, verdict).await?;
        let (fate, why) = match done.end {
            End::Landed => (Fate::Landed, why),
            End::Ended | End::HeldBack(_) => (Fate::Failed, why),
            End::Conflict => (
                Fate::Failed,
                "it conflicts with accepted work; a new attempt builds on that".into(),
            ),
            End::Lost => (Fate::Refused, "its claim was lost meanwhile".into()),
        };
        taken.push(TakenIn { node: Some(node), file: Some(file), fate, why });
        drive::settle(cycle, &desk, done, Some(&pool), None).await?;
    }
    land::finish_pending(cycle).await?;
    Ok(taken)
}

fn started(it: &Arrived) -> EventKind {
    EventKind::AttemptStarted {
        node: it.ticket.node.id.clone(),
        attempt: it.ticket.number,
        owner: it.ticket.owner.clone(),
        pool: it.ticket.pool.pool.id.clone(),
        base: it.ticket.base.commit().to_string(),
    }
}

/// The files that may be results, by name: in the folder itself and one below, as artifacts are
/// unpacked. What the grant expects is there whatever else is; `true` when there was more than
/// anyone looks at.
fn find(folder: &Path, expected: &[String]) -> (Vec<PathBuf>, bool) {
    let mut overflow = false;
    let mut list = |folder: &Path, most: usize| -> Vec<std::fs::DirEntry> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut found: Vec<_> = entries.flatten().take(most + 1).collect();
        overflow |= found.len() > most;
        found.truncate(most);
        found
    };
    let is_result = |path: &Path| path.extension().is_some_and(|e| e == "bundle");
    let mut files: Vec<PathBuf> = Vec::new();
    for name in expected {
        let file = bundle::file_name(name);
        let both = [folder.join(&file), folder.join(name).join(&file)];
        files.extend(both.into_iter().filter(|p| std::fs::symlink_metadata(p).is_ok()));
    }
    for entry in list(folder, MAX_ENTRIES) {
        let path = entry.path();
        // Of the entry itself, not of what a link points to.
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            let below = list(&path, MAX_BELOW).into_iter().map(|e| e.path());
            files.extend(below.filter(|p| is_result(p)));
        } else if is_result(&path) {
            files.push(path);
        }
    }
    files.sort();
    files.dedup();
    (files, overflow)
}

/// The names that the results of a grant have.
fn expected(run: &Run, grants: &BTreeSet<GrantId>) -> Vec<String> {
    let records = grants.iter().filter_map(|id| Some((id, run.grants.get(id)?)));
    records
        .flat_map(|(id, record)| record.claims.iter().map(|c| names::bundle(id, &c.node)))
        .collect()
}

/// A file's name for people: below the folder, escaped and cut.
fn shown(folder: &Path, path: &Path) -> String {
    let name = path.strip_prefix(folder).unwrap_or(path).to_string_lossy();
    let short: String = name.chars().take(200).collect();
    short.escape_debug().to_string()
}

type RefusedFile = (Option<NodeId>, String);

/// Reads one file and asks the ledger whose it is. Only what comes from a claim's own job gets
/// beyond this, and its tree is made here.
async fn open(
    cycle: &Arc<Cycle>,
    wanted: Option<&GrantId>,
    path: PathBuf,
    file: String,
) -> Result<Result<(GrantId, Arrived), RefusedFile>, CycleError> {
    let limits = accept::take_limits(cycle);
    let reading = {
        let limits = limits.clone();
        tokio::task::spawn_blocking(move || bundle::read(&path, &limits))
    };
    let bundle = match reading.await.map_err(|e| CycleError::Internal(e.to_string()))? {
        Ok(bundle) => bundle,
        Err(why) => return Ok(Err((None, why))),
    };
    let node = bundle.manifest.node.clone();
    let known = cycle.plan.node(&node).map(|_| node);
    let found = whose(&cycle.journal.state(), cycle.run_id(), wanted, &bundle);
    let claim = match found {
        Ok(claim) => claim,
        Err(why) => return Ok(Err((known, why))),
    };
    let ticket = match work::ticket(cycle, &claim).await {
        Ok(ticket) => ticket,
        Err(error @ CycleError::Journal(_)) => return Err(error),
        Err(error) => return Ok(Err((known, error.to_string()))),
    };
    let Bundle { manifest, content, seal, .. } = bundle;
    let (repo, base, pieces) =
        (cycle.repo().clone(), ticket.base.commit(), manifest.pieces.clone());
    let tree = manifest.tree.clone();
    let made = tokio::task::spawn_blocking(move || {
        let base = repo.tree_of(base)?;
        match tree {
            Some(tree) => unpack(&repo, base, &tree, &pieces, &content, &limits).map(Some),
            None if pieces.is_empty() && content.is_empty() => Ok(None),
            None => Err(ParcelError::Refused("it has content and names no tree".to_owned())),
        }
    });
    let grant = manifest.grant.clone();
    match made.await.map_err(|e| CycleError::Internal(e.to_string()))? {
        Ok(tree) => Ok(Ok((grant, Arrived { ticket, manifest, seal, file, tree }))),
        Err(ParcelError::Refused(why)) => Ok(Err((known, why))),
        Err(ParcelError::Workspace(error)) => Err(error.into()),
    }
}

/// The claim whose job made this; or why it is nobody's.
fn whose(
    run: &Run,
    run_id: &RunId,
    wanted: Option<&GrantId>,
    bundle: &Bundle,
) -> Result<GrantedClaim, String> {
    let it = &bundle.manifest;
    if it.run != *run_id {
        return Err(format!("it is of run {}", it.run));
    }
    let Some(grant) = run.grants.get(&it.grant).filter(|_| wanted.is_none_or(|w| *w == it.grant))
    else {
        return Err(format!("it is of grant {}, which is not taken in here", it.grant));
    };
    let Some(claim) = grant.claims.iter().find(|c| c.node == it.node) else {
        return Err(format!("the grant handed out no node {}", it.node));
    };
    if claim.owner != it.owner || claim.attempt != it.attempt {
        return Err("its owner is not the owner of the node's claim".to_owned());
    }
    if !bundle.is_from(&claim.verify_key) {
        return Err("its seal is not of the job that got the node".to_owned());
    }
    if claim.base != it.base {
        return Err(format!("it starts from {}, not from {}", it.base, claim.base));
    }
    let held = run.nodes.get(&claim.node).and_then(|n| n.claim.as_ref());
    if held.is_none_or(|held| held.owner != claim.owner) {
        return Err("it is late: its claim is not held any more".to_owned());
    }
    Ok(claim.clone())
}

type Judged = (Ticket, String, WorkReport, Verdict);

/// Judges in a task of its own: a panic there is that result's end and nobody else's.
async fn judge_apart(
    cycle: Arc<Cycle>,
    mut results: Vec<Arrived>,
) -> Result<Option<Judged>, CycleError> {
    let several = results.len() > 1;
    let Some(it) = results.pop() else { return Ok(None) };
    let Arrived { ticket, mut manifest, tree, file, .. } = it;
    let report = report(&mut manifest, &ticket);
    if several {
        let why = "Two different results came from its job; neither counts.";
        let verdict = Verdict::Refused(Refusal::new(Outcome::Error, why));
        return Ok(Some((ticket, file, report, verdict)));
    }
    let ticket = Arc::new(ticket);
    let verdict = {
        let (cycle, ticket, report) = (cycle.clone(), ticket.clone(), report.clone());
        let said = manifest.said;
        tokio::spawn(async move { judge(&cycle, &ticket, said, tree, &report).await }).await
    };
    let verdict = match verdict {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(error)) => attempt::unworkable(error)?,
        Err(panicked) => attempt::unworkable(CycleError::Internal(panicked.to_string()))?,
    };
    let ticket = Arc::into_inner(ticket)
        .ok_or_else(|| CycleError::Internal("a judgement is still held".to_owned()))?;
    Ok(Some((ticket, file, report, verdict)))
}

async fn judge(
    cycle: &Arc<Cycle>,
    ticket: &Ticket,
    said: Said,
    tree: Option<Oid>,
    report: &WorkReport,
) -> Result<Verdict, CycleError> {
    let refused = |outcome, why: &str| Verdict::Refused(Refusal::new(outcome, why));
    match (said, tree) {
        (Said::Refused { outcome: Outcome::Success, .. }, _) => {
            Ok(refused(Outcome::InvalidResult, "Its job says neither yes nor no."))
        }
        (Said::Refused { outcome, detail }, tree) => {
            let detail = prompt::cut(&scrub(&detail), MAX_DETAIL);
            Ok(Verdict::Refused(Refusal { tree, ..Refusal::new(outcome, detail) }))
        }
        (Said::Satisfied, _) => {
            let slot = accept::slot_at(cycle, ticket.base.commit()).await?;
            Ok(match accept::already_gone(cycle, ticket, &slot).await? {
                Some(evidence) => Verdict::Satisfied { evidence },
                None => refused(
                    Outcome::InvalidResult,
                    "Its job says that there is nothing to do; no check of ours says so.",
                ),
            })
        }
        (Said::Done, None) => Ok(refused(Outcome::InvalidResult, "Its job names no tree.")),
        (Said::Done, Some(tree)) => match accept::claims(ticket, report) {
            Ok(result) => accept::judge_tree(cycle, ticket, tree, Vec::new(), result).await,
            Err(refusal) => Ok(Verdict::Refused(refusal)),
        },
    }
}

/// The job's word on how its backend did, within bounds.
fn report(manifest: &mut Manifest, ticket: &Ticket) -> WorkReport {
    let usage = manifest.usage;
    let sane = usage.cost_usd.is_finite();
    let usage = Usage {
        requests: usage.requests.min(u32::try_from(MAX_COUNT).unwrap_or(u32::MAX)),
        input_tokens: usage.input_tokens.min(MAX_COUNT),
        output_tokens: usage.output_tokens.min(MAX_COUNT),
        cost_usd: if sane { usage.cost_usd.clamp(0.0, MAX_USD) } else { 0.0 },
    };
    let checked = manifest.result.take().map(|it| result::check(it, &ticket.node));
    let (outcome, result, detail) = match (manifest.outcome, checked) {
        (outcome, Some(Ok(result))) => (outcome, Some(result), String::new()),
        (_, Some(Err(error))) => (Outcome::InvalidResult, None, format!("The result: {error}.")),
        (outcome, None) => (outcome, None, String::new()),
    };
    let line = |text: &str, most: usize| -> String {
        scrub(&text.chars().take(most).collect::<String>()).into_owned()
    };
    let classification = manifest.classification.take().filter(|c| c.outcome == outcome);
    let model_seen = manifest.model_seen.take().map(|model| line(&model, 200));
    let model = &ticket.pool.pool.model;
    WorkReport {
        outcome,
        result,
        model_switch: model_seen
            .as_deref()
            .and_then(|seen| ModelSwitch::between(model, model, seen)),
        classification: classification.map(|c| Classification {
            evidence: line(&c.evidence, 2_000),
            rule: line(&c.rule, 100),
            ..c
        }),
        detail,
        usage,
        model_seen,
        log: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BELOW, find};

    #[test]
    fn what_is_expected_is_found_whatever_else_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path
        };
        let evil = folder("overhaul-g-N-001");
        for n in 0..=MAX_BELOW {
            std::fs::write(evil.join(format!("{n}.bundle")), "").unwrap();
        }
        std::fs::write(evil.join("overhaul-g-N-001.bundle"), "").unwrap();
        std::fs::write(folder("other").join("x.bundle"), "").unwrap();
        std::fs::write(dir.path().join("notes.txt"), "").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        std::fs::write(elsewhere.path().join("y.bundle"), "").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("link")).unwrap();
        let (files, overflow) = find(dir.path(), &["overhaul-g-N-001".to_owned()]);
        let has = |name: &str| files.contains(&dir.path().join(name));
        assert!(overflow);
        assert!(has("overhaul-g-N-001/overhaul-g-N-001.bundle") && has("other/x.bundle"));
        assert!(files.len() <= MAX_BELOW + 2 && !has("link/y.bundle"), "{files:?}");
    }
}
