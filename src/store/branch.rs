//! The ledger on a branch of the repository.
//!
//! An orphan branch with one folder per run. Commits are made from objects, without a working
//! tree, on top of the tip that was read, and pushed by compare-and-swap: so the order of the
//! branch is the order of the world. The branch is ours only when its root holds [`MARKER`]; a
//! branch of this name without it is somebody else's and never written to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use crate::git::{
    Edit, Expect, GitError, Mode, Oid, PushResult, RefUpdate, Rejection, Remote, Repo, parse_oid,
};
use crate::ledger::Event;
use crate::model::RunId;

use super::layout::{self, BLOBS, EVENTS, README, SegmentName, foreign};
use super::{Batch, Loaded, Store, StoreError, Version};

/// The branch when the configuration names none.
pub const DEFAULT_BRANCH: &str = "overhaul/state";

/// The file at the root that says whose branch this is.
const MARKER: &[u8] = b"overhaul-state.json";
/// Its content; a higher format belongs to a newer version.
const MARKER_TEXT: &[u8] = b"{\"format\":1}\n";
/// The page for people at the root.
const ROOT_README: &str = "# State of overhaul\n\n\
    This branch holds what `overhaul` knows between its jobs, one folder per run. It shares no \
    history with the code and is never merged.\n\n\
    Please do not edit it by hand. Deleting the branch forgets every run: pull requests stay, \
    but nothing continues them.\n";
/// Races lost to writers of other runs before the caller is asked. Each loss is another's win.
const RACES: u32 = 8;

/// A branch on a remote, with a local object store to read and build in.
#[derive(Debug)]
pub struct BranchStore {
    repo: Repo,
    remote: Remote,
    /// Full name on the remote.
    branch: String,
    /// Where its last known tip is kept in `repo`, so that later fetches transfer only news.
    tracking: String,
    known: Mutex<Known>,
}

/// What this process knows of the branch.
#[derive(Debug, Default)]
struct Known {
    /// Whether `tip` was ever read.
    read: bool,
    tip: Option<Tip>,
    /// Parsed segments; a segment never changes, so its object id is a perfect key.
    segments: HashMap<Oid, Arc<[Event]>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tip {
    commit: Oid,
    tree: Oid,
}

impl BranchStore {
    /// Keeps the ledger on `branch` (short name) of `remote`.
    #[must_use]
    pub fn new(repo: Repo, remote: Remote, branch: &str) -> Self {
        Self {
            repo,
            remote,
            branch: format!("refs/heads/{branch}"),
            tracking: format!("refs/overhaul/tracking/{branch}"),
            known: Mutex::default(),
        }
    }

    fn place(&self) -> String {
        let short = self.branch.strip_prefix("refs/heads/").unwrap_or(&self.branch);
        format!("branch {short} of {}", self.remote.url())
    }

    /// One caller at a time: there is one branch, and a lost race costs more than a wait.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the remote for the tip and fetches it if it is new.
    fn refresh(&self, known: &mut Known) -> Result<(), StoreError> {
        known.read = false;
        let refs =
            self.remote.ls_remote(&self.repo, &[&self.branch]).map_err(|e| self.trouble(&e))?;
        let Some(commit) = refs.get(&self.branch).copied() else {
            *known = Known { read: true, ..Known::default() };
            return Ok(());
        };
        if known.tip.is_none_or(|tip| tip.commit != commit) {
            if !self.repo.has(commit) {
                let wanted = commit.to_string();
                self.remote.fetch(&self.repo, &[&wanted]).map_err(|e| self.trouble(&e))?;
            }
            let tree = self.repo.tree_of(commit).map_err(|e| self.trouble(&e))?;
            self.check_ours(tree)?;
            self.remember(known, Tip { commit, tree });
        }
        known.read = true;
        Ok(())
    }

    fn remember(&self, known: &mut Known, tip: Tip) {
        known.tip = Some(tip);
        known.read = true;
        // Another process may hold the ref for a moment; the next fetch is then a little larger.
        if let Err(error) = self.repo.update_ref(&self.tracking, Some(tip.commit), Expect::Any) {
            tracing::debug!(%error, "the tracking ref was not moved");
        }
    }

    fn check_ours(&self, tree: Oid) -> Result<(), StoreError> {
        let marker = self.repo.read_path(tree, MARKER).map_err(|e| self.trouble(&e))?;
        let format = marker
            .and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok())
            .and_then(|json| json.get("format")?.as_u64());
        let reason = match format {
            Some(1) => return Ok(()),
            Some(newer) => {
                format!("it has format {newer}; this version of overhaul reads format 1")
            }
            None => format!(
                "it was not made by overhaul ({} is missing or damaged); choose another branch \
                 or repair that file",
                String::from_utf8_lossy(MARKER)
            ),
        };
        Err(foreign(&self.place(), reason))
    }

    /// The segments of a run in order.
    fn segments(
        &self,
        tip: Option<Tip>,
        run: &RunId,
    ) -> Result<Vec<(SegmentName, Oid)>, StoreError> {
        let Some(tip) = tip else { return Ok(Vec::new()) };
        let folder = format!("{run}/{EVENTS}");
        let mut found = Vec::new();
        for entry in self.repo.list(tip.tree, folder.as_bytes()).map_err(|e| self.trouble(&e))? {
            let path = String::from_utf8_lossy(&entry.path);
            let name = path.strip_prefix(&folder).and_then(|n| n.strip_prefix('/'));
            match name.and_then(SegmentName::parse) {
                Some(name) if entry.mode == Mode::File => found.push((name, entry.id)),
                _ => {
                    let place = format!("{path} on {}", self.place());
                    return Err(foreign(&place, "not a segment".to_owned()));
                }
            }
        }
        layout::in_order(&format!("{folder} on {}", self.place()), found)
    }

    fn events(
        &self,
        known: &mut Known,
        run: &RunId,
        name: &SegmentName,
        id: Oid,
    ) -> Result<Arc<[Event]>, StoreError> {
        if let Some(events) = known.segments.get(&id) {
            return Ok(Arc::clone(events));
        }
        let place = format!("{run}/{EVENTS}/{} on {}", name.file(), self.place());
        let bytes = self.read_bounded(&place, id, layout::SEGMENT_LIMIT)?;
        let events: Arc<[Event]> = layout::decode(&place, &bytes)?.into();
        known.segments.insert(id, Arc::clone(&events));
        Ok(events)
    }

    fn read_bounded(&self, place: &str, id: Oid, limit: usize) -> Result<Vec<u8>, StoreError> {
        let size = self.repo.size(id).map_err(|e| self.trouble(&e))?;
        if size > limit as u64 {
            return Err(foreign(place, format!("{size} bytes are more than {limit}")));
        }
        self.repo.blob(id).map_err(|e| self.trouble(&e))
    }

    /// The tree with the batch in it; the old one when the batch adds nothing.
    fn build(
        &self,
        tip: Option<Tip>,
        run: &RunId,
        segment: Option<&(SegmentName, Oid)>,
        batch: &Batch,
    ) -> Result<Option<Oid>, StoreError> {
        let put = |path: String, id: Oid| Edit::Put(path.into_bytes(), Mode::File, id);
        let write = |bytes: &[u8]| self.repo.write_blob(bytes).map_err(|e| self.trouble(&e));
        let mut edits = Vec::new();
        for (name, bytes) in &batch.blobs {
            let path = format!("{run}/{BLOBS}/{name}");
            let id = write(bytes)?;
            let there = match tip {
                Some(tip) => {
                    self.repo.entry(tip.tree, path.as_bytes()).map_err(|e| self.trouble(&e))?
                }
                None => None,
            };
            match there {
                None => edits.push(put(path, id)),
                Some(there) if there.id == id => {}
                Some(_) => {
                    let place = format!("{run}/{BLOBS} on {}", self.place());
                    return Err(layout::changed_blob(&place, name));
                }
            }
        }
        if let Some((name, id)) = segment {
            edits.push(put(format!("{run}/{EVENTS}/{}", name.file()), *id));
            let page = layout::readme(run, name, &batch.events);
            edits.push(put(format!("{run}/{README}"), write(page.as_bytes())?));
        }
        if edits.is_empty() {
            return Ok(tip.map(|tip| tip.tree));
        }
        if tip.is_none() {
            edits.push(Edit::Put(MARKER.to_vec(), Mode::File, write(MARKER_TEXT)?));
            edits.push(put(README.to_owned(), write(ROOT_README.as_bytes())?));
        }
        let tree = self.repo.edit_tree(tip.map(|tip| tip.tree), &edits);
        tree.map(Some).map_err(|e| self.trouble(&e))
    }

    /// The branches to keep. Nearly all are new, so that is what the first try expects; once the
    /// remote refused, each is expected where the remote has it now. Whether they may be moved at
    /// all (a person's commits on them) is for the cycle to decide.
    fn keep_updates(
        &self,
        keep: &[(String, String)],
        ask: bool,
    ) -> Result<Vec<RefUpdate>, StoreError> {
        if keep.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<&str> = keep.iter().map(|(name, _)| name.as_str()).collect();
        let there = if ask {
            self.remote.ls_remote(&self.repo, &names).map_err(|e| self.trouble(&e))?
        } else {
            std::collections::BTreeMap::new()
        };
        let mut updates: Vec<RefUpdate> = Vec::new();
        for (name, commit) in keep {
            if *name == self.branch {
                return Err(foreign(&self.place(), "the state can't be a kept branch".to_owned()));
            }
            let new = parse_oid(commit).map_err(|e| self.trouble(&e))?;
            let old = there.get(name).copied();
            updates.retain(|update| update.name != *name);
            if old != Some(new) {
                let expected = old.map_or(Expect::Absent, Expect::At);
                updates.push(RefUpdate { name: name.clone(), new: Some(new), expected });
            }
        }
        Ok(updates)
    }

    /// Pushes all or nothing; `Ok(false)` = another writer was first.
    fn push(&self, keep: &[RefUpdate], state: Option<RefUpdate>) -> Result<bool, StoreError> {
        let mut all = keep.to_vec();
        all.extend(state.clone());
        let pushed = match self.remote.push(&self.repo, &all, all.len() > 1) {
            // Then in the order that a crash between them does no harm.
            Err(error) if error.to_string().contains("does not support --atomic") => {
                match self.remote.push(&self.repo, keep, false).map_err(|e| self.trouble(&e))? {
                    PushResult::Done => {
                        let state: Vec<RefUpdate> = state.into_iter().collect();
                        self.remote.push(&self.repo, &state, false)
                    }
                    rejected => Ok(rejected),
                }
            }
            other => other,
        };
        match pushed.map_err(|e| self.trouble(&e))? {
            PushResult::Done => Ok(true),
            PushResult::Rejected(rejections) => self.judge(&rejections).map(|()| false),
        }
    }

    /// A lost race, or a reason that will not go away.
    fn judge(&self, rejections: &[Rejection]) -> Result<(), StoreError> {
        /// Reasons of git's client and of receive-pack for "the ref is not where you said".
        const RACES: &[&str] = &[
            "stale info",
            "fetch first",
            "non-fast-forward",
            "already exists",
            "cannot lock ref",
            "failed to update ref",
            "failed to lock",
            "incorrect old value",
            "atomic push failed",
            "atomic transaction failed",
            "atomic push failure",
        ];
        let race = |reason: &str| RACES.iter().any(|sign| reason.contains(sign));
        let Some(other) = rejections.iter().find(|r| !race(&r.reason)) else { return Ok(()) };
        let place = format!("{} of {}", other.name, self.remote.url());
        let reason = other.reason.clone();
        let forbidden = ["declined", "protected", "denied", "prohibited", "rule", "permission"];
        if forbidden.iter().any(|sign| reason.contains(sign)) {
            Err(StoreError::Forbidden { place, reason })
        } else {
            Err(StoreError::Unavailable { place, reason })
        }
    }

    fn trouble(&self, error: &GitError) -> StoreError {
        let (place, reason) = (self.place(), error.to_string());
        match error {
            GitError::Auth { .. } => StoreError::Forbidden { place, reason },
            GitError::Invalid { .. } => StoreError::Foreign { place, reason },
            _ => StoreError::Unavailable { place, reason },
        }
    }
}

impl Store for BranchStore {
    fn name(&self) -> String {
        self.place()
    }

    fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        let mut known = self.known();
        self.refresh(&mut known)?;
        let Some(tip) = known.tip else { return Ok(Vec::new()) };
        let mut runs: Vec<RunId> = Vec::new();
        for entry in self.repo.list(tip.tree, b"").map_err(|e| self.trouble(&e))? {
            let path = String::from_utf8_lossy(&entry.path);
            let mut parts = path.split('/');
            if let (Some(run), Some(EVENTS)) = (parts.next(), parts.next())
                && let Ok(run) = RunId::new(run)
                && runs.last() != Some(&run)
            {
                runs.push(run);
            }
        }
        runs.sort();
        runs.dedup();
        Ok(runs)
    }

    fn load(&self, run: &RunId) -> Result<Loaded, StoreError> {
        let mut known = self.known();
        self.refresh(&mut known)?;
        let segments = self.segments(known.tip, run)?;
        let mut loaded = Loaded { version: version(segments.last()), events: Vec::new() };
        for (name, id) in &segments {
            loaded.events.extend_from_slice(&self.events(&mut known, run, name, *id)?);
        }
        Ok(loaded)
    }

    fn append(
        &self,
        run: &RunId,
        expected: &Version,
        batch: &Batch,
    ) -> Result<Version, StoreError> {
        let place = self.place();
        layout::check_blobs(&place, &batch.blobs)?;
        let bytes = layout::encode(&place, &batch.events)?;
        let mut known = self.known();
        // The tip that was read may still be the tip: then one push is all.
        let mut fresh = false;
        if !known.read {
            self.refresh(&mut known)?;
            fresh = true;
        }
        let mut refused = false;
        for _ in 0..RACES {
            let segments = self.segments(known.tip, run)?;
            if version(segments.last()) != *expected {
                if fresh {
                    return Err(StoreError::Conflict);
                }
                self.refresh(&mut known)?;
                fresh = true;
                continue;
            }
            let last = segments.last().map_or(0, |(name, _)| name.sequence);
            let segment = match SegmentName::next(last, &batch.events) {
                Some(name) => {
                    let id = self.repo.write_blob(&bytes).map_err(|e| self.trouble(&e))?;
                    Some((name, id))
                }
                None => None,
            };
            let old = known.tip;
            let new = match self.build(old, run, segment.as_ref(), batch)? {
                Some(tree) if old.is_none_or(|tip| tip.tree != tree) => {
                    let at = batch.events.last().map_or_else(Timestamp::now, |event| event.at);
                    let parents: Vec<Oid> = old.iter().map(|tip| tip.commit).collect();
                    let commit = self
                        .repo
                        .commit(tree, &parents, &message(run, segment.as_ref()), at)
                        .map_err(|e| self.trouble(&e))?;
                    Some(Tip { commit, tree })
                }
                _ => None,
            };
            let state = new.map(|tip| RefUpdate {
                name: self.branch.clone(),
                new: Some(tip.commit),
                expected: old.map_or(Expect::Absent, |tip| Expect::At(tip.commit)),
            });
            // Until the answer is in, nothing is known.
            known.read = false;
            if self.push(&self.keep_updates(&batch.keep, refused)?, state)? {
                match new {
                    Some(tip) => self.remember(&mut known, tip),
                    None => known.read = true,
                }
                if let Some((_, id)) = &segment {
                    known.segments.insert(*id, batch.events.clone().into());
                }
                return Ok(version(segment.as_ref().or(segments.last())));
            }
            refused = true;
            self.refresh(&mut known)?;
            fresh = true;
        }
        Err(StoreError::Conflict)
    }

    fn blob(&self, run: &RunId, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        if !layout::is_blob_name(name) {
            return Ok(None);
        }
        let path = format!("{run}/{BLOBS}/{name}");
        let mut known = self.known();
        // Blobs never change: one that is known needs no question to the remote.
        for ask in [false, true] {
            if ask {
                self.refresh(&mut known)?;
            }
            let Some(tip) = known.tip else { continue };
            let found = self.repo.entry(tip.tree, path.as_bytes()).map_err(|e| self.trouble(&e))?;
            if let Some(entry) = found.filter(|entry| entry.mode == Mode::File) {
                let place = format!("{path} on {}", self.place());
                return self.read_bounded(&place, entry.id, layout::BLOB_LIMIT).map(Some);
            }
        }
        Ok(None)
    }
}

/// The last segment by number and content: a branch that was deleted and begun anew never looks
/// like the one that was read.
fn version(last: Option<&(SegmentName, Oid)>) -> Version {
    Version(last.map_or_else(String::new, |(name, id)| format!("{}-{id}", name.sequence)))
}

fn message(run: &RunId, segment: Option<&(SegmentName, Oid)>) -> String {
    match segment {
        Some((name, _)) => format!("{run}: segment {} of cycle {}\n", name.sequence, name.cycle),
        None => format!("{run}: blobs\n"),
    }
}
