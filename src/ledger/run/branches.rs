//! Events about what is on a node's branch.

use super::{Applied, Run};
use crate::ledger::event::{Event, EventKind};
use crate::ledger::record::{Approval, Asked, HeadRecord, Landing};

impl Run {
    /// Events about what is on a node's branch.
    pub(super) fn apply_branch(&mut self, event: &Event) -> Applied {
        match &event.kind {
            EventKind::HeadSeen { node, commit } => {
                let foreign = !self.heads.contains(commit);
                let record = self.record(node);
                if record.head.as_ref().is_some_and(|head| head.commit == *commit) {
                    return Applied::No("the head is known");
                }
                record.head = Some(HeadRecord { commit: commit.clone(), since: event.at, foreign });
            }
            EventKind::BranchBuilt { commit, .. } => {
                if !self.heads.insert(commit.clone()) {
                    return Applied::No("the commit is known as ours");
                }
            }
            EventKind::Rebuilt { node, from, receipt, adopted_by, .. } => {
                let record = self.record(node);
                let Some(work) = record.open_work(from) else {
                    return Applied::No("the node's work is another one by now");
                };
                *work = receipt.clone();
                if adopted_by.is_some() {
                    record.pushed = Some(receipt.commit.clone());
                    record.head = Some(HeadRecord {
                        commit: receipt.commit.clone(),
                        since: event.at,
                        foreign: false,
                    });
                }
                self.heads.insert(receipt.commit.clone());
            }
            EventKind::FoundOnBase { node, from, evidence } => {
                let record = self.record(node);
                if record.open_work(from).is_none() {
                    return Applied::No("the node's work is another one by now");
                }
                record.landing = Landing::Satisfied { evidence: evidence.clone() };
            }
            EventKind::BranchAsked { node, ask, by, comment, line, said } => {
                self.record(node).asked = Some(Asked {
                    ask: *ask,
                    by: by.clone(),
                    comment: *comment,
                    line: *line,
                    said: *said,
                });
            }
            EventKind::BranchAnswered { node, result } => {
                let Some(asked) = self.record(node).asked.take() else {
                    return Applied::No("nothing is asked for that branch");
                };
                let lines = self.received.iter_mut();
                for line in lines.filter(|r| r.comment == asked.comment && r.line == asked.line) {
                    line.result.clone_from(result);
                }
            }
            EventKind::HeadReset { node, commit, .. } => {
                self.heads.insert(commit.clone());
                let record = self.record(node);
                if record.foreign_head() == Some(commit.as_str()) {
                    record.head = None;
                }
            }
            EventKind::Approved { node, commit, by } => {
                self.record(node).approved =
                    Some(Approval { commit: commit.clone(), by: by.clone() });
            }
            _ => return Applied::No("no event of a branch"),
        }
        Applied::Yes
    }
}
