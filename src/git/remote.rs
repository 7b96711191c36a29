//! Fetching from and pushing to a remote, by the git program.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use secrecy::{ExposeSecret, SecretString};

use super::program::hide_userinfo;
use super::{GitError, Oid, Program, Repo, parse_oid};
use crate::failpoint;

/// The longest that one remote operation may take. A clone of a large repository over a slow line
/// is minutes; a dead connection must not eat a job.
const DEADLINE: Duration = Duration::from_secs(600);

/// A place to fetch from and push to.
#[derive(Debug, Clone)]
pub struct Remote {
    url: String,
    credentials: Credentials,
}

#[derive(Debug, Clone)]
enum Credentials {
    Nothing,
    /// A whole `Authorization: ...` line.
    Header(SecretString),
    Tokens(Tokens),
}

/// Where tokens come from that end while a process lives. Calls block.
#[derive(Clone)]
pub struct Tokens(Arc<Source>);

type Source = dyn Fn(bool) -> Result<SecretString, String> + Send + Sync;

impl Tokens {
    /// `token(refused)` gives the token to use now; a new one, where that can be, when the last was
    /// refused. Its error says why there is none.
    pub fn new(
        token: impl Fn(bool) -> Result<SecretString, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(token))
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

impl Credentials {
    fn of(header: Option<SecretString>) -> Self {
        header.map_or(Self::Nothing, Self::Header)
    }
}

/// What a ref must be for an update to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It is not there.
    Absent,
    /// It points to this.
    At(Oid),
    /// Whatever it is: a forced update.
    Any,
}

/// One ref to write on a remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefUpdate {
    /// Full name.
    pub name: String,
    /// `None` deletes it.
    pub new: Option<Oid>,
    /// What it must be.
    pub expected: Expect,
}

/// One ref that the remote did not update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// Full name.
    pub name: String,
    /// The remote's words, e.g. `stale info` when somebody else was first.
    pub reason: String,
}

/// How a push ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushResult {
    /// Every ref is as asked.
    Done,
    /// These refs were refused. Of an atomic push nothing at all was written.
    Rejected(Vec<Rejection>),
}

impl Remote {
    /// A path, or an `https`, `http`, `ssh` or `file` address. A user and password inside the
    /// address are taken out of it and sent as a header. `header` is a whole `Authorization: ...`
    /// line.
    ///
    /// # Errors
    /// [`GitError::Invalid`] for what git could read as an option or a helper program.
    pub fn new(url: &str, header: Option<SecretString>) -> Result<Self, GitError> {
        let invalid = || GitError::Invalid { what: format!("remote '{}'", hide_userinfo(url)) };
        // `<name>::<address>` starts the helper program `git-remote-<name>`.
        let helper = url
            .split_once("::")
            .is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'));
        if url.is_empty() || url.starts_with('-') || helper || url.contains(['\n', '\0']) {
            return Err(invalid());
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return Ok(Self { url: url.to_owned(), credentials: Credentials::of(header) });
        };
        if !matches!(scheme, "https" | "http" | "ssh" | "file") {
            return Err(invalid());
        }
        let end = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        match authority.rsplit_once('@') {
            Some((user, host)) if scheme.starts_with("http") => {
                let decoded = percent_encoding::percent_decode_str(user).collect::<Vec<u8>>();
                let basic = base64::engine::general_purpose::STANDARD.encode(decoded);
                let header = header
                    .unwrap_or_else(|| SecretString::from(format!("Authorization: Basic {basic}")));
                let url = format!("{scheme}://{host}{path}");
                Ok(Self { url, credentials: Credentials::Header(header) })
            }
            _ => Ok(Self { url: url.to_owned(), credentials: Credentials::of(header) }),
        }
    }

    /// A remote whose tokens end and are made again.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_tokens(url: &str, tokens: Tokens) -> Result<Self, GitError> {
        Ok(Self { credentials: Credentials::Tokens(tokens), ..Self::new(url, None)? })
    }

    /// The `origin` of a repository; the repository itself where it has none.
    ///
    /// # Errors
    /// When its configuration can't be read, or the address is refused by [`Remote::new`].
    pub fn origin_of(repository: &Path) -> Result<Self, GitError> {
        let repository = Repo::open(repository)?;
        let repository = repository.dir();
        let asked = Program::new(repository, Path::new("/dev/null"), "config")
            .args(["--get", "remote.origin.url"])
            .run();
        match asked {
            Ok(url) => {
                let url = String::from_utf8_lossy(&url).trim_end().to_owned();
                // git reads a relative path from the checkout; this program stands elsewhere.
                let checkout = if repository.ends_with(".git") {
                    repository.parent().unwrap_or(repository)
                } else {
                    repository
                };
                if url.contains(':') || url.starts_with('/') {
                    Self::new(&url, None)
                } else {
                    Self::new(&checkout.join(&url).to_string_lossy(), None)
                }
            }
            // Exit code 1: there is no such key.
            Err(_) => Self::new(&repository.to_string_lossy(), None),
        }
    }

    /// The header that GitHub takes from a token of any kind, for [`Remote::new`].
    #[must_use]
    pub fn token_header(token: &SecretString) -> SecretString {
        let pair = format!("x-access-token:{}", token.expose_secret());
        let basic = base64::engine::general_purpose::STANDARD.encode(pair);
        SecretString::from(format!("Authorization: Basic {basic}"))
    }

    /// The address, without credentials.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Runs a call, and once more with a new token when the first was refused: what a remote
    /// refuses for its token it has not done.
    fn call<T>(
        &self,
        repo: &Repo,
        subcommand: &str,
        act: impl Fn(Program) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        match act(self.program(repo, subcommand, false)?) {
            Err(GitError::Auth { .. }) if matches!(self.credentials, Credentials::Tokens(_)) => {
                act(self.program(repo, subcommand, true)?)
            }
            other => other,
        }
    }

    fn program(&self, repo: &Repo, subcommand: &str, refused: bool) -> Result<Program, GitError> {
        let program = repo.program(subcommand);
        if !self.url.starts_with("http") {
            return Ok(program);
        }
        let header = match &self.credentials {
            Credentials::Nothing => return Ok(program),
            Credentials::Header(header) => header.clone(),
            Credentials::Tokens(Tokens(token)) => match token(refused) {
                Ok(token) => Self::token_header(&token),
                Err(stderr) => {
                    let what = format!("git {subcommand}");
                    return Err(GitError::Auth { what, url: hide_userinfo(&self.url), stderr });
                }
            },
        };
        let setting = format!("http.{}.extraHeader", origin(&self.url));
        Ok(program.secret_setting(setting, header.expose_secret().to_owned()))
    }

    fn failure(&self, what: String, code: i32, stderr: String) -> GitError {
        let url = hide_userinfo(&self.url);
        match classify(&stderr) {
            Cause::Auth => GitError::Auth { what, url, stderr },
            Cause::Network => GitError::Network { what, url, stderr },
            Cause::Other => GitError::Failed { what, code, stderr },
        }
    }

    fn run(&self, program: Program) -> Result<Vec<u8>, GitError> {
        let (output, what, stderr) = program.output(Some(DEADLINE))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(self.failure(what, output.status.code().unwrap_or(-1), stderr))
    }

    /// Fetches `refspecs` (or single object ids) into `repo`. No tags, no submodules.
    ///
    /// # Errors
    /// By cause; see [`GitError`].
    pub fn fetch(&self, repo: &Repo, refspecs: &[&str]) -> Result<(), GitError> {
        let options =
            ["--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--"];
        self.call(repo, "fetch", |program| {
            self.run(program.args(options).arg(&self.url).args(refspecs)).map(drop)
        })
    }

    /// Brings the whole history of `refspec` to a store that borrows from a shallow clone.
    ///
    /// # Errors
    /// By cause; see [`GitError`].
    pub fn deepen(&self, repo: &Repo, refspec: &str) -> Result<(), GitError> {
        if !repo.is_shallow() {
            return Ok(());
        }
        let options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--unshallow", "--"];
        self.call(repo, "fetch", |program| {
            self.run(program.args(options).args([&self.url, refspec])).map(drop)
        })
    }

    /// The remote's refs that match `patterns` (all of them when empty), by full name.
    ///
    /// # Errors
    /// By cause; see [`GitError`].
    pub fn ls_remote(
        &self,
        repo: &Repo,
        patterns: &[&str],
    ) -> Result<BTreeMap<String, Oid>, GitError> {
        let out = self.call(repo, "ls-remote", |program| {
            self.run(program.args(["--quiet", "--"]).arg(&self.url).args(patterns))
        })?;
        String::from_utf8_lossy(&out)
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .filter(|(_, name)| !name.ends_with("^{}"))
            .map(|(id, name)| Ok((name.to_owned(), parse_oid(id)?)))
            .collect()
    }

    /// The remote's default branch as a full ref name, and its head, where it says.
    ///
    /// # Errors
    /// By cause; see [`GitError`].
    pub fn default_branch(&self, repo: &Repo) -> Result<Option<(String, Oid)>, GitError> {
        let out = self.call(repo, "ls-remote", |program| {
            self.run(program.args(["--quiet", "--symref", "--"]).arg(&self.url).arg("HEAD"))
        })?;
        let text = String::from_utf8_lossy(&out);
        let mut of_head = text.lines().filter_map(|line| line.strip_suffix("\tHEAD"));
        let name = of_head.clone().find_map(|it| it.strip_prefix("ref: "));
        let head = of_head.find_map(|it| parse_oid(it).ok());
        Ok(name.map(str::to_owned).zip(head))
    }

    /// Writes refs by compare-and-swap; with `atomic` all or none.
    ///
    /// # Errors
    /// By cause; see [`GitError`]. A lost race is not an error but [`PushResult::Rejected`].
    pub fn push(
        &self,
        repo: &Repo,
        updates: &[RefUpdate],
        atomic: bool,
    ) -> Result<PushResult, GitError> {
        if updates.is_empty() {
            return Ok(PushResult::Done);
        }
        self.call(repo, "push", |program| self.push_once(program, updates, atomic))
    }

    /// Whether a push of `commit` to the ref `name` is let through; nothing is written. What a forge
    /// refuses by the branch's name (rules that protect it) does not show here.
    ///
    /// # Errors
    /// By cause; see [`GitError`].
    pub fn may_push(&self, repo: &Repo, commit: Oid, name: &str) -> Result<(), GitError> {
        let refspec = format!("{commit}:{name}");
        let options = ["--quiet", "--dry-run", "--no-verify", "--no-follow-tags", "--"];
        self.call(repo, "push", |program| {
            self.run(program.args(options).args([&self.url, &refspec])).map(drop)
        })
    }

    fn push_once(
        &self,
        program: Program,
        updates: &[RefUpdate],
        atomic: bool,
    ) -> Result<PushResult, GitError> {
        let mut program = program.args(["--porcelain", "--no-verify", "--no-follow-tags"]);
        if atomic {
            program = program.arg("--atomic");
        }
        let mut refspecs = Vec::with_capacity(updates.len());
        for RefUpdate { name, new, expected } in updates {
            if !name.starts_with("refs/") || name.contains([':', ' ', '*', '\n']) {
                return Err(GitError::Invalid {
                    what: format!("ref name '{}'", name.escape_debug()),
                });
            }
            let source = new.map(|id| id.to_string()).unwrap_or_default();
            match expected {
                Expect::Absent => program = program.arg(format!("--force-with-lease={name}:")),
                Expect::At(id) => program = program.arg(format!("--force-with-lease={name}:{id}")),
                Expect::Any => {}
            }
            let force = if *expected == Expect::Any { "+" } else { "" };
            refspecs.push(format!("{force}{source}:{name}"));
        }
        let program = program.arg("--").arg(&self.url).args(refspecs);
        let (output, what, stderr) = program.output(Some(DEADLINE))?;
        let rejected = rejections(&String::from_utf8_lossy(&output.stdout));
        if !rejected.is_empty() {
            if classify(&stderr) == Cause::Auth {
                return Err(self.failure(what, output.status.code().unwrap_or(-1), stderr));
            }
            return Ok(PushResult::Rejected(rejected));
        }
        if output.status.success() {
            failpoint::reached("push");
            return Ok(PushResult::Done);
        }
        Err(self.failure(what, output.status.code().unwrap_or(-1), stderr))
    }
}

/// `scheme://host:port/` of an address: the narrowest that a header may be bound to and still
/// follow a renamed repository.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let host = rest.split('/').next().unwrap_or(rest);
    format!("{scheme}://{host}/")
}

/// The `!` lines of `git push --porcelain`: flag, `from:to`, summary with the reason in brackets.
fn rejections(stdout: &str) -> Vec<Rejection> {
    stdout
        .lines()
        .filter_map(|line| {
            let mut fields = line.strip_prefix("!\t")?.splitn(2, '\t');
            let name = fields.next()?.rsplit_once(':')?.1.to_owned();
            let summary = fields.next().unwrap_or_default();
            let reason = match (summary.rfind('('), summary.ends_with(')')) {
                (Some(open), true) => &summary[open + 1..summary.len() - 1],
                _ => summary,
            };
            Some(Rejection { name, reason: reason.to_owned() })
        })
        .collect()
}

#[derive(Debug, PartialEq, Eq)]
enum Cause {
    Auth,
    Network,
    Other,
}

/// Reads git's own (C locale) messages, those of curl's errors and of ssh.
fn classify(stderr: &str) -> Cause {
    const AUTH: &[&str] = &[
        "Authentication failed",
        "could not read Username",
        "could not read Password",
        "Permission denied",
        "Permission to ",
        "Write access to repository not granted",
        "Invalid username or",
        "The requested URL returned error: 401",
        "The requested URL returned error: 403",
        "Resource not accessible by integration",
        "refusing to allow",
        "Host key verification failed",
    ];
    const NETWORK: &[&str] = &[
        "Could not resolve host",
        "Failed to connect",
        "Connection refused",
        "Connection reset",
        "Connection timed out",
        "Operation timed out",
        "Operation too slow",
        "Empty reply from server",
        "The requested URL returned error: 429",
        "The requested URL returned error: 5",
        "RPC failed",
        "early EOF",
        "the remote end hung up unexpectedly",
        "SSL_ERROR",
        "gnutls_handshake",
        "Couldn't connect to server",
        "Network is unreachable",
    ];
    if AUTH.iter().any(|sign| stderr.contains(sign)) {
        Cause::Auth
    } else if NETWORK.iter().any(|sign| stderr.contains(sign)) {
        Cause::Network
    } else {
        Cause::Other
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::{Cause, Credentials, Rejection, Remote, classify, origin, rejections};

    #[test]
    fn porcelain_rejections() {
        let out = "To /r.git\n!\tabc:refs/heads/x\t[rejected] (stale info)\n*\tabc:refs/heads/y\t[new branch]\n!\t:refs/heads/z\t[remote rejected] (pre-receive hook declined)\nDone\n";
        assert_eq!(
            rejections(out),
            [
                Rejection { name: "refs/heads/x".into(), reason: "stale info".into() },
                Rejection {
                    name: "refs/heads/z".into(),
                    reason: "pre-receive hook declined".into()
                },
            ]
        );
    }

    #[test]
    fn credentials_leave_the_address() {
        let remote = Remote::new("https://me:p%40ss@h.example:8443/a/b.git", None).unwrap();
        assert_eq!(remote.url(), "https://h.example:8443/a/b.git");
        let Credentials::Header(header) = remote.credentials else { panic!("no header") };
        assert_eq!(header.expose_secret(), "Authorization: Basic bWU6cEBzcw==");
        assert_eq!(origin("https://h.example:8443/a/b.git"), "https://h.example:8443/");
    }

    #[test]
    fn helper_programs_and_options_are_no_remotes() {
        for bad in ["--upload-pack=x", "ext::sh -c x", "foo::https://h/", "ftp://h/", ""] {
            assert!(Remote::new(bad, None).is_err(), "{bad}");
        }
        assert!(Remote::new("/srv/git/r.git", None).is_ok());
        assert!(Remote::new("git@h.example:o/r.git", None).is_ok());
    }

    #[test]
    fn causes() {
        assert_eq!(
            classify("fatal: unable to access 'http://h/': The requested URL returned error: 403"),
            Cause::Auth
        );
        assert_eq!(
            classify("fatal: unable to access 'http://h/': Could not resolve host: h"),
            Cause::Network
        );
        assert_eq!(
            classify("fatal: unable to access 'http://h/': The requested URL returned error: 503"),
            Cause::Network
        );
        assert_eq!(classify("fatal: couldn't find remote ref x"), Cause::Other);
    }
}
