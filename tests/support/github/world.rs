//! What the rig knows: people, tokens, issues, pull requests, comments, runs, limits.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::artifacts::Artifact;
use super::clock::RigClock;
use super::git::BareGit;

/// A person or a bot.
#[derive(Debug, Clone)]
pub struct User {
    pub id: u64,
    pub bot: bool,
    /// `read`, `triage`, `write`, `maintain`, `admin`, or `none`.
    pub role: &'static str,
}

/// A token: whose it is and what it may do.
#[derive(Debug, Clone)]
pub struct Token {
    pub login: String,
    /// `issues: write` and the like; `*` for everything.
    pub grants: Vec<&'static str>,
    pub expires: Option<Timestamp>,
    /// Uses after which it is refused.
    pub uses: Option<u32>,
}

impl Token {
    pub fn may(&self, area: &str, level: &str) -> bool {
        self.grants.iter().any(|grant| {
            *grant == "*"
                || grant.split_once(": ").is_some_and(|(name, granted)| {
                    name == area && (granted == level || granted == "write")
                })
        })
    }
}

/// A GitHub App.
#[derive(Debug, Clone)]
pub struct App {
    pub id: String,
    /// Its public key, DER (PKCS#1).
    pub public_key: Vec<u8>,
    pub installation: u64,
    pub minted: u32,
    /// Uses that each minted token has.
    pub uses: Option<u32>,
}

/// An issue, or the issue side of a pull request.
#[derive(Debug, Clone)]
pub struct Issue {
    pub title: String,
    pub body: String,
    pub author: String,
    pub open: bool,
    pub locked: bool,
    pub labels: Vec<String>,
    pub created: Timestamp,
    pub updated: Timestamp,
    /// Who edited the text last, and when.
    pub edited: Option<(String, Timestamp)>,
    pub pull: Option<Pull>,
    pub lag: Lag,
}

/// The rest of a pull request.
#[derive(Debug, Clone)]
pub struct Pull {
    pub head: String,
    pub head_commit: String,
    pub base: String,
    pub base_commit: String,
    pub draft: bool,
    pub merged: Option<(Timestamp, String)>,
    pub reviewers: Vec<String>,
    /// The head that auto-merge was turned on for.
    pub auto_merge: Option<String>,
    /// From a fork with the same branch name.
    pub fork: Option<String>,
    /// For answers with a word that no client knows.
    pub mergeable_state: String,
}

/// How late a new object shows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lag {
    /// Lists that do not have it yet.
    pub lists: u32,
    /// Calls on it that fail yet.
    pub follow_ups: u32,
}

#[derive(Debug, Clone)]
pub struct Comment {
    pub on: u64,
    pub author: String,
    pub body: String,
    pub created: Timestamp,
    pub updated: Timestamp,
    pub lag: Lag,
}

/// A person's review of a pull request.
#[derive(Debug, Clone)]
pub struct Review {
    pub id: String,
    pub on: u64,
    pub author: String,
    /// `APPROVED`, `CHANGES_REQUESTED`, `COMMENTED`, `DISMISSED`.
    pub state: &'static str,
    pub body: String,
    /// Path, line and text.
    pub remarks: Vec<(String, u64, String)>,
}

#[derive(Debug, Clone)]
pub struct Run {
    pub status: &'static str,
    pub attempt: u32,
}

/// Requests a client may send.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Per hour.
    pub primary: u32,
    /// Content-creating requests a minute.
    pub creations: usize,
}

/// A request as it came, for tests to look at.
#[derive(Debug, Clone)]
pub struct Logged {
    pub at: Timestamp,
    pub method: String,
    /// Path without prefix, with query.
    pub target: String,
    pub status: u16,
    pub body: Option<Value>,
}

/// See the module's text.
pub struct World {
    pub owner: String,
    pub name: String,
    pub default_branch: String,
    pub private: bool,
    pub archived: bool,
    pub has_issues: bool,
    /// "Allow GitHub Actions to create and approve pull requests".
    pub actions_may_open: bool,
    pub drafts: bool,
    /// "Allow auto-merge".
    pub allow_auto_merge: bool,
    /// Whether anything stands between an open pull request and its merge.
    pub required_checks: bool,
    pub users: BTreeMap<String, User>,
    pub tokens: BTreeMap<String, Token>,
    pub app: Option<App>,
    pub issues: BTreeMap<u64, Issue>,
    pub comments: BTreeMap<u64, Comment>,
    /// Oldest first.
    pub reviews: Vec<Review>,
    /// Comment, login, content.
    pub reactions: Vec<(u64, String, String)>,
    pub runs: BTreeMap<u64, Run>,
    pub alerts: Vec<Value>,
    pub artifacts: Vec<Artifact>,
    /// Workflow and the body of each dispatch.
    pub dispatches: Vec<(String, Value)>,
    pub limits: Limits,
    /// Start of the hour that is counted, and requests in it.
    pub used: (Timestamp, u32),
    pub creations: Vec<Timestamp>,
    /// For objects that are made from now on.
    pub lag: Lag,
    pub log: Vec<Logged>,
    pub clock: RigClock,
    pub git: BareGit,
    next_number: u64,
    next_id: u64,
}

impl World {
    pub fn new(owner: &str, name: &str, git: BareGit, clock: RigClock) -> Self {
        let user = |id, bot, role| User { id, bot, role };
        let users = [
            ("maintainer", user(1, false, "maintain")),
            ("writer", user(2, false, "write")),
            ("reader", user(3, false, "read")),
            ("stranger", user(4, false, "none")),
            ("github-actions[bot]", user(5, true, "none")),
            ("overhaul-app[bot]", user(6, true, "none")),
            (owner, user(7, false, "admin")),
        ];
        let token = |login: &str, grants: &[&'static str]| Token {
            login: login.to_owned(),
            grants: grants.to_vec(),
            expires: None,
            uses: None,
        };
        let default = [
            "contents: write",
            "pull-requests: write",
            "issues: write",
            "actions: write",
            "security-events: read",
            "metadata: read",
        ];
        let reading = ["contents: read", "pull-requests: read", "issues: read", "metadata: read"];
        let tokens = [
            ("ghs_workflow", token("github-actions[bot]", &default)),
            ("ghs_readonly", token("github-actions[bot]", &reading)),
            ("ghp_writer", token("writer", &["*"])),
        ];
        let now = clock.read();
        Self {
            owner: owner.to_owned(),
            name: name.to_owned(),
            default_branch: "main".to_owned(),
            private: false,
            archived: false,
            has_issues: true,
            actions_may_open: true,
            drafts: true,
            allow_auto_merge: false,
            required_checks: false,
            users: users.map(|(login, user)| (login.to_owned(), user)).into(),
            tokens: tokens.map(|(text, token)| (text.to_owned(), token)).into(),
            app: None,
            issues: BTreeMap::new(),
            comments: BTreeMap::new(),
            reviews: Vec::new(),
            reactions: Vec::new(),
            runs: BTreeMap::new(),
            alerts: Vec::new(),
            artifacts: Vec::new(),
            dispatches: Vec::new(),
            limits: Limits { primary: 1000, creations: 80 },
            used: (now, 0),
            creations: Vec::new(),
            lag: Lag::default(),
            log: Vec::new(),
            clock,
            git,
            next_number: 1,
            next_id: 1000,
        }
    }

    pub fn now(&self) -> Timestamp {
        // GitHub's times are whole seconds.
        Timestamp::from_second(self.clock.read().as_second()).expect("in range")
    }

    /// A token that is good now; one with so many uses has one less.
    pub fn use_token(&mut self, text: &str) -> Option<Token> {
        let now = self.now();
        let token = self.tokens.get_mut(text).filter(|t| t.expires.is_none_or(|end| now < end))?;
        if let Some(uses) = &mut token.uses {
            *uses = uses.checked_sub(1)?;
        }
        Some(token.clone())
    }

    pub fn slug(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    pub fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Adds an issue; gives its number, shared with pull requests.
    pub fn add_issue(&mut self, author: &str, title: &str, body: &str) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        let now = self.now();
        let issue = Issue {
            title: title.to_owned(),
            body: body.to_owned(),
            author: author.to_owned(),
            open: true,
            locked: false,
            labels: Vec::new(),
            created: now,
            updated: now,
            edited: None,
            pull: None,
            lag: self.lag,
        };
        self.issues.insert(number, issue);
        number
    }

    /// Adds a pull request of a branch that exists.
    pub fn add_pull(&mut self, author: &str, head: &str, base: &str, body: &str) -> u64 {
        let number = self.add_issue(author, &format!("Change {head}"), body);
        let pull = Pull {
            head: head.to_owned(),
            head_commit: self.git.head(head).unwrap_or_default(),
            base: base.to_owned(),
            base_commit: self.git.head(base).unwrap_or_default(),
            draft: false,
            merged: None,
            reviewers: Vec::new(),
            auto_merge: None,
            fork: None,
            mergeable_state: "clean".to_owned(),
        };
        self.issue(number).pull = Some(pull);
        number
    }

    /// A person's comment; gives its id.
    pub fn add_comment(&mut self, author: &str, on: u64, body: &str) -> u64 {
        let id = self.new_id();
        let now = self.now();
        let (author, body) = (author.to_owned(), body.to_owned());
        let comment = Comment { on, author, body, created: now, updated: now, lag: self.lag };
        self.comments.insert(id, comment);
        self.issue(on).updated = now;
        id
    }

    /// A person reviews a pull request. A second later than whatever changed it last: times on
    /// GitHub are whole seconds.
    pub fn review(&mut self, author: &str, on: u64, state: &'static str, body: &str) {
        let id = format!("PRR_{}", self.new_id());
        let (author, body) = (author.to_owned(), body.to_owned());
        self.reviews.push(Review { id, on, author, state, body, remarks: Vec::new() });
        self.issue(on).updated += jiff::SignedDuration::from_secs(1);
    }

    /// A person edits a comment.
    pub fn edit_comment(&mut self, id: u64, body: &str) {
        let now = self.now();
        let comment = self.comments.get_mut(&id).expect("a comment");
        body.clone_into(&mut comment.body);
        comment.updated = now;
    }

    /// A person edits the text of an issue.
    pub fn edit_issue(&mut self, by: &str, number: u64, body: &str) {
        let now = self.now();
        let issue = self.issue(number);
        body.clone_into(&mut issue.body);
        issue.updated = now;
        issue.edited = Some((by.to_owned(), now));
    }

    pub fn issue(&mut self, number: u64) -> &mut Issue {
        self.issues.get_mut(&number).expect("an issue")
    }

    pub fn pull(&mut self, number: u64) -> &mut Pull {
        self.issue(number).pull.as_mut().expect("a pull request")
    }

    /// A person presses the button; the merge commit.
    pub fn merge(&mut self, number: u64) -> Result<String, String> {
        self.settle();
        let now = self.now();
        let issue = self.issues.get(&number).ok_or("no such pull request")?;
        let pull = issue.pull.clone().ok_or("it is an issue")?;
        if !issue.open || pull.draft {
            return Err("it is closed or a draft".to_owned());
        }
        let message = format!("Merge pull request #{number} from {}", pull.head);
        let commit =
            self.git.merge(&pull.base, &pull.head_commit, &message).ok_or("it has conflicts")?;
        let issue = self.issue(number);
        issue.open = false;
        issue.updated = now;
        self.pull(number).merged = Some((now, commit.clone()));
        self.settle();
        Ok(commit)
    }

    /// A person closes an issue or a pull request.
    pub fn close(&mut self, number: u64) {
        let now = self.now();
        let issue = self.issue(number);
        issue.open = false;
        issue.updated = now;
    }

    /// Lets pull requests follow their branches, as after a push: heads move; a branch that is
    /// gone closes what is from it or onto it; commits that arrived in the base are merged.
    pub fn settle(&mut self) {
        let now = self.now();
        let git = self.git.clone();
        for issue in self.issues.values_mut().filter(|issue| issue.open) {
            let Some(pull) = issue.pull.as_mut().filter(|pull| pull.fork.is_none()) else {
                continue;
            };
            let (head, base) = (git.head(&pull.head), git.head(&pull.base));
            let (Some(head), Some(base)) = (head, base) else {
                issue.open = false;
                issue.updated = now;
                continue;
            };
            if pull.head_commit != head {
                issue.updated = now;
            }
            pull.head_commit = head;
            if git.ahead(&pull.base, &pull.head) == 0 && pull.base_commit != base {
                pull.merged = Some((now, base.clone()));
                issue.open = false;
                issue.updated = now;
            }
            pull.base_commit = base;
        }
    }

    /// Moves the rig's own clock.
    pub fn pass(&self, duration: Duration) {
        self.clock.advance(duration);
    }
}
