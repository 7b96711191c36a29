//! A forge in a folder: pull requests, issues and comments as files that a person reads and edits.
//! For the demo, for tests and for repositories without a forge. `README.md` beside this file is
//! what people get to read.

mod document;
mod files;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::document::{CommentHead, Document, IssueHead, PullHead};
use self::files::Mode;
use super::{
    Alive, Comment, Edit, Forge, ForgeError, Issue, NewPullRequest, Permission, PullRequest,
    PullRequestPatch, State,
};

/// Who writes our comments.
const OURSELVES: &str = "overhaul[bot]";
/// Who writes comments that name no author.
const SOMEBODY: &str = "you";

/// A forge below one folder. Its calls are short file operations and block.
#[derive(Debug, Clone)]
pub struct LocalForge {
    root: PathBuf,
}

/// A comment file as found.
struct Found {
    path: PathBuf,
    changed: SystemTime,
    document: Document<CommentHead>,
    id: u64,
}

impl LocalForge {
    /// A forge below `root`, which is created by the first write.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn folder(&self, kind: &str) -> PathBuf {
        self.root.join(kind)
    }

    fn begin(&self) -> Result<files::Lock, ForgeError> {
        let lock = files::lock(&self.root)?;
        let readme = self.root.join("README.md");
        if files::read(&readme)?.is_none() {
            files::write(&readme, include_str!("README.md"), Mode::Replace)?;
        }
        Ok(lock)
    }

    /// Pull requests and issues share their numbers, as on GitHub.
    fn next_number(&self) -> Result<u64, ForgeError> {
        let highest =
            files::highest(&self.folder("pulls"))?.max(files::highest(&self.folder("issues"))?);
        Ok(highest.saturating_add(1))
    }

    fn all<T: DeserializeOwned>(&self, kind: &str) -> Result<Vec<Document<T>>, ForgeError> {
        let mut found = Vec::new();
        for entry in files::entries(&self.folder(kind))? {
            if let Some((text, _)) = files::read(&entry.path)? {
                found.push(document::parse(&self.place(&entry.path), &text)?);
            }
        }
        Ok(found)
    }

    fn one<T: DeserializeOwned>(&self, kind: &str, number: u64) -> Result<Document<T>, ForgeError> {
        let path = files::numbered(&self.folder(kind), number);
        let place = self.place(&path);
        match files::read(&path)? {
            Some((text, _)) => document::parse(&place, &text),
            None => Err(ForgeError::NotFound(place)),
        }
    }

    fn save<T: Serialize>(
        &self,
        kind: &str,
        number: u64,
        document: &Document<T>,
        mode: Mode,
    ) -> Result<(), ForgeError> {
        let path = files::numbered(&self.folder(kind), number);
        files::write(&path, &document::render(document)?, mode)
    }

    fn place(&self, path: &Path) -> String {
        path.strip_prefix(&self.root).unwrap_or(path).display().to_string()
    }

    fn url(&self, kind: &str, number: u64) -> String {
        files::numbered(&self.folder(kind), number).display().to_string()
    }

    fn pull(&self, document: Document<PullHead>) -> PullRequest {
        let head = document.head;
        PullRequest {
            url: self.url("pulls", head.number),
            number: head.number,
            title: head.title,
            body: document.body,
            head: head.head,
            head_commit: head.head_commit,
            base: head.base,
            state: head.state,
            merge_commit: head.merge_commit,
            draft: head.draft,
            labels: head.labels,
            updated_at: None,
        }
    }

    fn issue(&self, document: Document<IssueHead>) -> Issue {
        Issue {
            url: self.url("issues", document.head.number),
            number: document.head.number,
            title: document.head.title,
            body: document.body,
            state: document.head.state,
        }
    }

    fn exists(&self, number: u64) -> Result<bool, ForgeError> {
        for kind in ["pulls", "issues"] {
            if files::read(&files::numbered(&self.folder(kind), number))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The open issue first, else the newest: a closed one may be of an earlier run.
    fn issue_with(&self, marker: &str) -> Result<Option<Document<IssueHead>>, ForgeError> {
        let with = self.all::<IssueHead>("issues")?.into_iter();
        Ok(with
            .filter(|d| d.head.marker == marker || has_line(&d.body, marker))
            .max_by_key(|d| (d.head.state == State::Open, d.head.number)))
    }

    fn comments(&self) -> Result<Vec<Found>, ForgeError> {
        let mut found = Vec::new();
        for entry in files::entries(&self.folder("comments"))? {
            let Some((text, changed)) = files::read(&entry.path)? else { continue };
            let document = document::parse_lenient(&self.place(&entry.path), &text)?;
            found.push(Found { id: comment_id(&entry.stem), path: entry.path, changed, document });
        }
        Ok(found)
    }

    fn as_comment(&self, found: &Found) -> Result<Comment, ForgeError> {
        let on = match found.document.head.on {
            Some(on) => on,
            None => self
                .all::<IssueHead>("issues")?
                .iter()
                .find(|d| d.head.state == State::Open)
                .map_or(0, |d| d.head.number),
        };
        Ok(Comment {
            id: found.id,
            on,
            author: found.document.head.author.clone().unwrap_or_else(|| SOMEBODY.to_owned()),
            by_bot: found.document.head.bot,
            body: found.document.body.clone(),
            edited: false,
            updated_at: Timestamp::try_from(found.changed)
                .map_err(|e| ForgeError::Invalid(format!("{}: {e}", found.path.display())))?,
        })
    }
}

/// Markers are matched as whole lines, so that a quoted or embedded one is not ours.
fn has_line(body: &str, marker: &str) -> bool {
    !marker.is_empty() && body.lines().any(|line| line.trim_end() == marker)
}

fn with_marker(body: &str, marker: &str) -> String {
    if marker.is_empty() || has_line(body, marker) {
        body.to_owned()
    } else {
        format!("{}\n\n{marker}\n", body.trim_end())
    }
}

/// Numbered files have their number; a person's file has an id made from its name, above every
/// number, and exact in JavaScript's integers (53 bits) as GitHub's ids are.
fn comment_id(stem: &str) -> u64 {
    stem.parse().unwrap_or_else(|_| {
        let hex = crate::model::hex_digest([stem.as_bytes()]);
        let hash = u64::from_str_radix(hex.get(..12).unwrap_or_default(), 16).unwrap_or(0);
        (1 << 52) | hash
    })
}

#[async_trait]
impl Forge for LocalForge {
    fn name(&self) -> String {
        format!("folder {}", self.root.display())
    }

    fn is_written_by_hand(&self) -> bool {
        true
    }

    async fn pull_requests(&self, head_prefix: &str) -> Result<Vec<PullRequest>, ForgeError> {
        let pulls = self.all::<PullHead>("pulls")?.into_iter();
        let ours = pulls.filter(|d| d.head.head.starts_with(head_prefix)).map(|d| self.pull(d));
        let mut ours: Vec<PullRequest> = ours.collect();
        ours.sort_by_key(|pull| pull.number);
        Ok(ours)
    }

    async fn find_pull_request(&self, number: u64) -> Result<Option<PullRequest>, ForgeError> {
        match self.one::<PullHead>("pulls", number) {
            Ok(found) => Ok(Some(self.pull(found))),
            Err(ForgeError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn open_pull_request(&self, new: NewPullRequest) -> Result<PullRequest, ForgeError> {
        let _lock = self.begin()?;
        let body = with_marker(&new.body, &new.marker);
        // A merged or closed one is the same only with the same commit: then this call repeats one
        // whose answer was lost. With another commit, people have asked for another attempt.
        let there = self.all::<PullHead>("pulls")?.into_iter().rfind(|d| {
            d.head.head == new.head
                && d.head.marker == new.marker
                && (d.head.state == State::Open || d.head.head_commit == new.head_commit)
        });
        let mut labels = new.labels;
        if let Some(there) = &there {
            if there.head.state != State::Open {
                return Ok(self.pull(there.clone()));
            }
            labels.extend(there.head.labels.iter().cloned());
        }
        labels.sort();
        labels.dedup();
        let (number, mode) = match &there {
            Some(there) => (there.head.number, Mode::Replace),
            None => (self.next_number()?, Mode::Create),
        };
        let document = Document {
            head: PullHead {
                number,
                title: new.title,
                state: State::Open,
                draft: there.map_or(new.draft, |t| t.head.draft),
                head: new.head,
                head_commit: new.head_commit,
                base: new.base,
                merge_commit: None,
                labels,
                reviewers: new.reviewers,
                marker: new.marker,
            },
            body,
        };
        self.save("pulls", number, &document, mode)?;
        Ok(self.pull(document))
    }

    async fn pull_requests_onto(&self, base_prefix: &str) -> Result<Vec<PullRequest>, ForgeError> {
        let pulls = self.all::<PullHead>("pulls")?.into_iter();
        let onto = pulls
            .filter(|d| d.head.state == State::Open && d.head.base.starts_with(base_prefix))
            .map(|d| self.pull(d));
        Ok(onto.collect())
    }

    async fn enable_auto_merge(&self, _number: u64, _head: &str) -> Result<(), ForgeError> {
        Err(ForgeError::Invalid("a forge in a folder merges nothing by itself".to_owned()))
    }

    async fn update_pull_request(
        &self,
        number: u64,
        patch: PullRequestPatch,
    ) -> Result<PullRequest, ForgeError> {
        let _lock = self.begin()?;
        let mut document = self.one::<PullHead>("pulls", number)?;
        if let Some(state) = patch.state {
            if state == State::Merged {
                return Err(ForgeError::Invalid("only people merge pull requests".to_owned()));
            }
            if document.head.state == State::Merged {
                return Err(ForgeError::Invalid(format!("pull request {number} is merged")));
            }
            document.head.state = state;
        }
        document.head.title = patch.title.unwrap_or(document.head.title);
        document.head.base = patch.base.unwrap_or(document.head.base);
        if let Some(body) = patch.body {
            document.body = with_marker(&body, &document.head.marker);
        }
        self.save("pulls", number, &document, Mode::Replace)?;
        Ok(self.pull(document))
    }

    async fn find_issue(&self, marker: &str) -> Result<Option<Issue>, ForgeError> {
        Ok(self.issue_with(marker)?.map(|d| self.issue(d)))
    }

    async fn open_issue(
        &self,
        title: &str,
        body: &str,
        marker: &str,
        labels: &[String],
    ) -> Result<Issue, ForgeError> {
        let _lock = self.begin()?;
        if let Some(there) = self.issue_with(marker)? {
            return Ok(self.issue(there));
        }
        let number = self.next_number()?;
        let document = Document {
            head: IssueHead {
                number,
                title: title.to_owned(),
                state: State::Open,
                labels: labels.to_vec(),
                marker: marker.to_owned(),
            },
            body: with_marker(body, marker),
        };
        self.save("issues", number, &document, Mode::Create)?;
        Ok(self.issue(document))
    }

    async fn update_issue(
        &self,
        number: u64,
        body: Option<&str>,
        state: Option<State>,
    ) -> Result<Issue, ForgeError> {
        let _lock = self.begin()?;
        let mut document = self.one::<IssueHead>("issues", number)?;
        if state == Some(State::Merged) {
            return Err(ForgeError::Invalid("issues are open or closed".to_owned()));
        }
        document.head.state = state.unwrap_or(document.head.state);
        if let Some(body) = body {
            document.body = with_marker(body, &document.head.marker);
        }
        self.save("issues", number, &document, Mode::Replace)?;
        Ok(self.issue(document))
    }

    async fn comment(&self, on: u64, body: &str, marker: &str) -> Result<Comment, ForgeError> {
        let _lock = self.begin()?;
        if !self.exists(on)? {
            return Err(ForgeError::NotFound(format!("issue or pull request {on}")));
        }
        let there = self.comments()?;
        if let Some(found) = there.iter().find(|f| {
            f.document.head.on == Some(on)
                && f.document.head.bot
                && has_line(&f.document.body, marker)
        }) {
            return self.as_comment(found);
        }
        let folder = self.folder("comments");
        let id = files::highest(&folder)?.saturating_add(1);
        let path = files::numbered(&folder, id);
        let document = Document {
            head: CommentHead {
                on: Some(on),
                author: Some(OURSELVES.to_owned()),
                bot: true,
                reactions: Vec::new(),
            },
            body: with_marker(body, marker),
        };
        files::write(&path, &document::render(&document)?, Mode::Create)?;
        let changed = files::read(&path)?.map_or(SystemTime::UNIX_EPOCH, |(_, time)| time);
        self.as_comment(&Found { path, changed, document, id })
    }

    async fn comments_since(&self, since: Timestamp) -> Result<Vec<Comment>, ForgeError> {
        let mut comments = Vec::new();
        for found in self.comments()? {
            let comment = self.as_comment(&found)?;
            if comment.updated_at >= since {
                comments.push(comment);
            }
        }
        comments.sort_by_key(|c| (c.updated_at, c.id));
        Ok(comments)
    }

    async fn react(&self, comment: u64, reaction: &str) -> Result<(), ForgeError> {
        let _lock = self.begin()?;
        let Some(mut found) = self.comments()?.into_iter().find(|f| f.id == comment) else {
            return Err(ForgeError::NotFound(format!("comment {comment}")));
        };
        let reactions = &mut found.document.head.reactions;
        if reactions.iter().any(|r| r == reaction) {
            return Ok(());
        }
        reactions.push(reaction.to_owned());
        // A reaction is no edit: the comment keeps its time, or it would look new again.
        let text = document::render(&found.document)?;
        files::write(&found.path, &text, Mode::Keep(found.changed))
    }

    async fn permission(&self, login: &str) -> Result<Permission, ForgeError> {
        let path = self.root.join("people.yml");
        let Some((text, _)) = files::read(&path)? else { return Ok(Permission::Admin) };
        let people: BTreeMap<String, String> = serde_yaml::from_str(&text)
            .map_err(|e| ForgeError::Invalid(format!("{}: {e}", self.place(&path))))?;
        let role = people.iter().find(|(name, _)| name.eq_ignore_ascii_case(login));
        Ok(match role.map(|(_, role)| role.as_str()) {
            Some("read") => Permission::Read,
            Some("triage") => Permission::Triage,
            Some("write") => Permission::Write,
            Some("maintain") => Permission::Maintain,
            Some("admin") => Permission::Admin,
            _ => Permission::None,
        })
    }

    async fn issue_edit(&self, number: u64) -> Result<Option<Edit>, ForgeError> {
        let path = files::numbered(&self.folder("issues"), number);
        let Some((_, changed)) = files::read(&path)? else { return Ok(None) };
        let at = Timestamp::try_from(changed)
            .map_err(|e| ForgeError::Invalid(format!("{}: {e}", self.place(&path))))?;
        // Whose file it is, is not told; who can write to the folder is somebody who may.
        Ok(Some(Edit { by: SOMEBODY.to_owned(), by_bot: false, at }))
    }

    async fn workflow_run_alive(&self, _run: u64, _attempt: u32) -> Alive {
        Alive::Unknown
    }
}
