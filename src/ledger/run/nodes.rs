//! Events about a node that anyone may write.

use super::{Applied, Run};
use crate::ledger::event::{Event, EventKind};
use crate::ledger::record::{ChangeRequest, Gate, HeadRecord, Landing, PrEnd, PrRecord};
use crate::model::{NodeId, Usage};

impl Run {
    /// Events about a node that anyone may write: observations of the world, and people's words.
    pub(super) fn apply_node(&mut self, event: &Event) -> Applied {
        match &event.kind {
            EventKind::BranchPushed { node, commit, .. } => {
                self.heads.insert(commit.clone());
                let record = self.record(node);
                record.pushed = Some(commit.clone());
                record.head =
                    Some(HeadRecord { commit: commit.clone(), since: event.at, foreign: false });
            }
            EventKind::PrOpened { node, number, url, branch, base } => {
                let record = self.record(node);
                if record.pr.as_ref().is_some_and(|pr| pr.number == *number && pr.end.is_some()) {
                    return Applied::No("that pull request has ended");
                }
                let commit = match &record.landing {
                    Landing::Accepted { receipt, .. } => receipt.commit.clone(),
                    _ => String::new(),
                };
                let again = record.pr.as_ref().filter(|pr| pr.number == *number);
                let opened_at = again.map_or(event.at, |pr| pr.opened_at);
                let reviewed = again.and_then(|pr| pr.reviewed);
                record.pr = Some(PrRecord {
                    number: *number,
                    url: url.clone(),
                    branch: branch.clone(),
                    base: base.clone(),
                    opened_at,
                    commit,
                    end: None,
                    reviewed,
                });
            }
            EventKind::PrUpdated { node, number, commit, base } => {
                match self.record(node).pr.as_mut() {
                    Some(pr) if pr.number == *number && pr.end.is_none() => {
                        pr.commit.clone_from(commit);
                        if !base.is_empty() {
                            pr.base.clone_from(base);
                        }
                    }
                    _ => return Applied::No("no such open pull request"),
                }
            }
            EventKind::PrLost { node, number } => {
                let record = self.record(node);
                if record.pr.as_ref().is_none_or(|pr| pr.number != *number || pr.end.is_some()) {
                    return Applied::No("no such open pull request");
                }
                record.pr = None;
                record.past_prs.insert(*number);
            }
            EventKind::Reviewed { node, number, seen, reviews, by, reason } => {
                let record = self.record(node);
                let working = !matches!(record.landing, Landing::Accepted { .. });
                let news = reviews.iter().any(|review| !record.heeded.contains(review));
                match record.pr.as_mut() {
                    _ if working => return Applied::No("the node is at work already"),
                    Some(pr) if pr.number == *number && pr.end.is_none() => {
                        if pr.reviewed == Some(*seen) && !news {
                            return Applied::No("those reviews are known");
                        }
                        pr.reviewed = Some(*seen);
                    }
                    _ => return Applied::No("no such open pull request"),
                }
                if news {
                    record.heeded.extend(reviews.iter().cloned());
                    record.reopen(reason);
                    // A person's word, as a retry is.
                    record.contract_burnt = 0;
                    record.infrastructure_burnt = 0;
                    let review = reviews.last().cloned().unwrap_or_default();
                    record.change_request = Some(ChangeRequest { review, by: by.clone() });
                }
            }
            EventKind::PrMerged { node, number, commit } => {
                return self.end_pr(node, *number, PrEnd::Merged(commit.clone()));
            }
            EventKind::PrClosed { node, number } => {
                return self.end_pr(node, *number, PrEnd::Closed);
            }
            EventKind::Reopened { node, reason } => {
                let record = self.record(node);
                if record.landing == Landing::None {
                    return Applied::No("the node is at work already");
                }
                record.reopen(reason);
                record.reopenings += 1;
                // What has ended stays ended: new work has a pull request of its own.
                record.forget_ended_pr();
            }
            EventKind::Retried { node, .. } => {
                let record = self.record(node);
                if matches!(record.landing, Landing::Satisfied { .. })
                    || record.pr.as_ref().is_some_and(|p| matches!(p.end, Some(PrEnd::Merged(_))))
                {
                    return Applied::No("the node is finished");
                }
                if record.pr.as_ref().is_some_and(|p| p.end == Some(PrEnd::Closed)) {
                    record.forget_ended_pr();
                    record.landing = Landing::None;
                }
                record.contract_burnt = 0;
                record.infrastructure_burnt = 0;
                record.unheard = 0;
                record.reopenings = 0;
                record.skipped = None;
                record.outgrown.clear();
                record.took = Usage::default();
                self.bans.remove(node);
                self.closed = None;
                self.gate = Gate::default();
            }
            EventKind::Skipped { node, by } => {
                let record = self.record(node);
                record.skipped = Some(by.clone());
                record.claim = None;
            }
            _ => return Applied::No("no node event"),
        }
        Applied::Yes
    }

    pub(super) fn end_pr(&mut self, node: &NodeId, number: u64, end: PrEnd) -> Applied {
        match self.record(node).pr.as_mut() {
            Some(pr) if pr.number == number && pr.end.is_none() => {
                pr.end = Some(end);
                Applied::Yes
            }
            _ => Applied::No("no such open pull request"),
        }
    }
}
