//! Proof by re-check: the tool that reported a finding is run again, before money is spent and
//! after the fix, and its own report decides.
//!
//! Lines move when a file is edited, so findings are counted by (rule, path, text without figures
//! of lines) and not compared by place.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use super::CycleError;
use super::accept;
use super::context::{Cycle, Recheck};
use crate::config::NewFindings;
use crate::git::Oid;
use crate::intake::{self, IntakeContext, PathKind};
use crate::ledger::CheckRecord;
use crate::model::{Finding, RepoPath};
use crate::process::{Ended, Status, base_env};
use crate::workspace::{self, Slot, toolchain_env};

/// The key in [`Finding::extra`] that names the configured source of a finding.
pub const SOURCE_KEY: &str = "findings-source";

/// Longest that one re-check may run.
const DEADLINE: Duration = Duration::from_secs(900);

/// Largest report of a re-check, bytes.
const REPORT_CAP: usize = 64 << 20;

/// How findings are counted.
type Key = (Option<String>, String, String);

/// What the proof says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// Gone, as these runs of the re-checks show; none where there is nothing to prove with.
    Holds(Vec<CheckRecord>),
    /// Still there, or worse.
    Fails(String),
}

fn key(finding: &Finding) -> Key {
    let path = finding.path().map(ToString::to_string).unwrap_or_default();
    let text: String = finding.title.chars().filter(|c| !c.is_ascii_digit()).collect();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (finding.rule.clone(), path, text)
}

fn count<'a>(findings: impl IntoIterator<Item = &'a Finding>) -> BTreeMap<Key, usize> {
    let mut counts = BTreeMap::new();
    for finding in findings {
        if !finding.suppressed {
            *counts.entry(key(finding)).or_insert(0) += 1;
        }
    }
    counts
}

/// The re-checks that prove all of these findings; `None` when one of them has none.
pub(super) fn for_all<'a>(cycle: &'a Cycle, findings: &[Finding]) -> Option<Vec<&'a Recheck>> {
    let mut found: Vec<&Recheck> = Vec::new();
    for finding in findings {
        let recheck = of(cycle, finding)?;
        if !found.contains(&recheck) {
            found.push(recheck);
        }
    }
    if found.is_empty() { None } else { Some(found) }
}

/// The findings that have a re-check.
pub(super) fn checkable(cycle: &Cycle, findings: &[Finding]) -> Vec<Finding> {
    findings.iter().filter(|f| of(cycle, f).is_some()).cloned().collect()
}

fn of<'a>(cycle: &'a Cycle, finding: &Finding) -> Option<&'a Recheck> {
    let source = finding.extra.get(SOURCE_KEY)?.as_str()?;
    cycle.rechecks.iter().find(|r| r.source == source)
}

/// What the re-checks report in a worktree.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// All of them together.
    pub findings: Vec<Finding>,
    /// How each ran, as a receipt records one that proves.
    runs: Vec<CheckRecord>,
}

/// A run of a re-check. Linters that find something exit with 1: the report is the word that counts.
fn run_of(recheck: &Recheck, ended: &Ended) -> CheckRecord {
    let words = recheck.argv.iter().map(String::as_str).filter(|word| *word != "{paths}");
    CheckRecord {
        name: format!("re-check: {}", words.collect::<Vec<_>>().join(" ")),
        exit_code: match ended.status {
            Status::Exited(code) => Some(code),
            _ => None,
        },
        millis: u64::try_from(ended.elapsed.as_millis()).unwrap_or(u64::MAX),
        verdict: "gone".to_owned(),
    }
}

/// Runs the re-checks in a worktree; `Err` inside says in one sentence why one gave no report.
pub(super) async fn observe(
    cycle: &Cycle,
    rechecks: &[&Recheck],
    paths: &[RepoPath],
    slot: &Slot,
) -> Result<Result<Seen, String>, CycleError> {
    let mut all = Seen::default();
    for recheck in rechecks {
        let it = workspace::Recheck {
            argv: recheck.argv.clone(),
            paths: paths.to_vec(),
            env: check_env(slot),
            deadline: DEADLINE,
            output_cap: REPORT_CAP,
            walls: cycle.walls.checks.clone(),
            cancel: cycle.cancel.clone(),
        };
        let argv = recheck.argv.join(" ");
        let ended = match workspace::recheck(slot, &it).await {
            Ok(ended) => ended,
            Err(error) => return Ok(Err(format!("`{argv}`: {error}"))),
        };
        if ended.stdout.truncated {
            return Ok(Err(format!("`{argv}` printed too much to be read")));
        }
        let here = slot.path();
        let lookup = |path: &str| match std::fs::metadata(here.join(path)) {
            Ok(found) if found.is_dir() => PathKind::Folder,
            Ok(_) => PathKind::File,
            Err(_) => PathKind::Missing,
        };
        let root = here.to_string_lossy().into_owned();
        let context = IntakeContext {
            source_root: Some(root.clone()),
            checkout: Some(root),
            lookup: &lookup,
        };
        match intake::read(&ended.stdout.bytes, &argv, &context) {
            Ok(findings) => {
                all.findings.extend(findings);
                all.runs.push(run_of(recheck, &ended));
            }
            Err(error) => {
                let said = ended.stderr.text();
                let said: String = said.chars().take(400).collect();
                return Ok(Err(format!("{error}; it said: {}", said.trim())));
            }
        }
    }
    Ok(Ok(all))
}

/// What a re-check sees of the environment: toolchains, no secrets.
fn check_env(slot: &Slot) -> BTreeMap<OsString, OsString> {
    let tools = toolchain_env();
    let path = tools.get(OsString::from("PATH").as_os_str()).cloned().unwrap_or_default();
    let mut env = base_env(&slot.home(), &path);
    env.extend(tools);
    env
}

/// Paths that the findings point to, each once.
pub(super) fn paths_of(findings: &[Finding]) -> Vec<RepoPath> {
    let mut paths: Vec<RepoPath> =
        findings.iter().flat_map(|f| f.places.iter().map(|p| p.path.clone())).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// A tool that is asked for a file that is not there fails: ask for what exists.
pub(super) fn existing(slot: &Slot, paths: &[RepoPath]) -> Vec<RepoPath> {
    let root = slot.path();
    paths.iter().filter(|p| root.join(p.as_str()).exists()).cloned().collect()
}

/// Which of `targets` a report still shows.
pub(super) fn still_there<'a>(targets: &'a [Finding], report: &[Finding]) -> Vec<&'a Finding> {
    let seen = count(report);
    targets.iter().filter(|t| seen.contains_key(&key(t))).collect()
}

/// Checks after the fix, on the commit that would land, against the same check on its base.
pub(super) async fn after(
    cycle: &Cycle,
    base: Oid,
    resolved: &[Finding],
    touched: &[String],
    commit: Oid,
) -> Result<Proof, CycleError> {
    let checkable = checkable(cycle, resolved);
    let Some(rechecks) = for_all(cycle, &checkable) else { return Ok(Proof::Holds(Vec::new())) };
    let mut before_paths = paths_of(&checkable);
    let mut reports = Vec::with_capacity(2);
    for (at, which) in [(base, "base"), (commit, "change")] {
        let slot = accept::slot_at(cycle, at).await?;
        if which == "change" {
            before_paths.extend(touched.iter().filter_map(|t| RepoPath::new(t).ok()));
            before_paths.sort();
            before_paths.dedup();
        }
        let paths = existing(&slot, &before_paths);
        if paths.is_empty() {
            reports.push(Seen::default());
            continue;
        }
        match observe(cycle, &rechecks, &paths, &slot).await? {
            Ok(seen) => reports.push(seen),
            Err(why) => {
                return Ok(Proof::Fails(format!(
                    "The re-check on the {which} gave no report: {why}"
                )));
            }
        }
    }
    let after = reports.pop().unwrap_or_default();
    let before = reports.pop().unwrap_or_default();
    let new = cycle.config.policy.new_findings;
    Ok(match compare(&checkable, &before.findings, &after.findings, new) {
        None => Proof::Holds(after.runs),
        Some(why) => Proof::Fails(why),
    })
}

/// Each target must be fewer than before by its own number, and nothing may be more than before
/// where policy refuses new findings; why it fails, if it does.
fn compare(
    targets: &[Finding],
    before: &[Finding],
    after: &[Finding],
    new_findings: NewFindings,
) -> Option<String> {
    let (before, after) = (count(before), count(after));
    let mut remaining = Vec::new();
    for (target, resolved) in count(targets) {
        let was = before.get(&target).copied().unwrap_or(0);
        let is = after.get(&target).copied().unwrap_or(0);
        if is > was.saturating_sub(resolved) {
            remaining.push(describe(&target));
        }
    }
    if !remaining.is_empty() {
        return Some(format!("The re-check still reports: {}", remaining.join("; ")));
    }
    let new: Vec<String> = after
        .iter()
        .filter(|(key, n)| before.get(key).copied().unwrap_or(0) < **n)
        .map(|(key, _)| describe(key))
        .collect();
    if !new.is_empty() {
        let list = new.join("; ");
        if new_findings == NewFindings::Refuse {
            return Some(format!("The change brings new findings: {list}"));
        }
        tracing::warn!(%list, "the change brings new findings");
    }
    None
}

fn describe((rule, path, text): &Key) -> String {
    format!("{} in {path} ({text})", rule.as_deref().unwrap_or("finding"))
}

#[cfg(test)]
mod tests {
    use super::compare;
    use crate::config::NewFindings;
    use crate::model::{Finding, FindingId, Place, RepoPath, Severity};

    fn finding(rule: &str, title: &str, line: u32) -> Finding {
        Finding {
            id: FindingId::new("F-1").expect("valid"),
            source_id: None,
            source: "t".into(),
            rule: Some(rule.into()),
            title: title.into(),
            detail: String::new(),
            severity: Severity::Low,
            level: None,
            places: vec![Place {
                path: RepoPath::new("a.py").expect("valid"),
                line: Some(line),
                end_line: None,
                snippet: None,
                symbol: None,
            }],
            suppressed: false,
            evidence: vec![],
            fingerprint: String::new(),
            dropped: None,
            extra: serde_json::Map::new(),
        }
    }

    #[test]
    fn gone_holds_even_when_lines_moved() {
        let before = [finding("R1", "x", 3), finding("R1", "x", 9), finding("R2", "y", 4)];
        let targets = [finding("R1", "x", 3)];
        let after = [finding("R1", "x", 8), finding("R2", "y", 3)];
        assert_eq!(compare(&targets, &before, &after, NewFindings::Refuse), None);
    }

    #[test]
    fn still_there_fails() {
        let one = [finding("R1", "x", 3)];
        assert!(compare(&one, &one, &one, NewFindings::Report).is_some());
    }

    #[test]
    fn new_findings_are_refused_by_policy_only() {
        let target = [finding("R1", "x", 3)];
        let new = [finding("R9", "z", 1)];
        assert!(compare(&target, &target, &new, NewFindings::Refuse).is_some());
        assert_eq!(compare(&target, &target, &new, NewFindings::Report), None);
    }
}
