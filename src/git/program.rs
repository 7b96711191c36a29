//! The one place that starts the git program.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::GitError;

/// The oldest git that works: 2.31 brought `GIT_CONFIG_COUNT`, which keeps credentials off the
/// command line; 2.34 made `read-tree --reset -u` overwrite untracked files.
pub const MIN_VERSION: (u32, u32) = (2, 34);

/// Most of git's own complaint that we keep, bytes.
const STDERR_KEPT: usize = 2_000;

/// Variables of ours that git may see: how to find programs, proxies, trust anchors, agents.
const PASSED_ON: &[&str] = &[
    "PATH",
    "TMPDIR",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "GIT_SSL_CAINFO",
    "SSH_AUTH_SOCK",
];

/// Settings that hold for every call and beat any file.
const SETTINGS: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.excludesFile", "/dev/null"),
    ("core.attributesFile", "/dev/null"),
    ("core.autocrlf", "false"),
    ("core.quotePath", "false"),
    ("core.symlinks", "true"),
    ("core.fileMode", "true"),
    ("core.protectNTFS", "false"), // back slashes are ordinary in names here; scope.rs refuses tricks
    ("core.protectHFS", "false"),
    ("commit.gpgSign", "false"),
    ("push.gpgSign", "false"),
    ("credential.helper", ""),
    ("protocol.ext.allow", "never"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("safe.directory", "*"),
];

/// The settings above as `key=value`, for gix.
pub(crate) fn base_config() -> Vec<String> {
    SETTINGS.iter().map(|(key, value)| format!("{key}={value}")).collect()
}

/// One call of the git program.
pub(crate) struct Program {
    command: Command,
    what: String,
    extra: Vec<(String, String)>,
    secrets: Vec<String>,
}

impl Program {
    /// A call of `subcommand` on the store `git_dir`, with nothing inherited.
    pub(crate) fn new(git_dir: &Path, global: &Path, subcommand: &str) -> Self {
        let mut command = Command::new("git");
        command.env_clear().current_dir(git_dir);
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("GIT_CONFIG_GLOBAL", global)
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ASKPASS", "true")
            .env("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_LITERAL_PATHSPECS", "1")
            .env("GIT_DIR", git_dir)
            .env("HOME", "/nonexistent")
            .env("LC_ALL", "C");
        command.arg(subcommand);
        Self { command, what: subcommand.to_owned(), extra: Vec::new(), secrets: Vec::new() }
    }

    /// Appends an argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Appends arguments.
    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Works on a worktree with an index of its own.
    pub(crate) fn worktree(mut self, tree: &Path, index: &Path) -> Self {
        self.command.env("GIT_WORK_TREE", tree).env("GIT_INDEX_FILE", index).current_dir(tree);
        self
    }

    /// Adds a setting whose value is secret: it travels in the environment and is scrubbed from
    /// whatever git says.
    pub(crate) fn secret_setting(mut self, key: String, value: String) -> Self {
        self.secrets.push(value.clone());
        if let Some((_, credential)) = value.rsplit_once(' ') {
            self.secrets.push(credential.to_owned());
        }
        self.extra.push((key, value));
        self
    }

    /// Runs to its end; a non-zero exit is an error.
    pub(crate) fn run(self) -> Result<Vec<u8>, GitError> {
        self.run_noisily().map(|(stdout, _)| stdout)
    }

    /// As [`Program::run`], with what a successful call complained about.
    pub(crate) fn run_noisily(self) -> Result<(Vec<u8>, String), GitError> {
        let (output, what, stderr) = self.output(None)?;
        if output.status.success() {
            return Ok((output.stdout, stderr));
        }
        Err(GitError::Failed { what, code: output.status.code().unwrap_or(-1), stderr })
    }

    /// Runs to its end whatever the exit; also gives the subcommand and the scrubbed complaint.
    pub(crate) fn output(
        mut self,
        deadline: Option<Duration>,
    ) -> Result<(Output, String, String), GitError> {
        let settings = SETTINGS
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .chain(std::mem::take(&mut self.extra));
        let mut count = 0_usize;
        for (key, value) in settings {
            self.command.env(format!("GIT_CONFIG_KEY_{count}"), key);
            self.command.env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        self.command.env("GIT_CONFIG_COUNT", count.to_string());
        let output = execute(&mut self.command, deadline, &self.what)?;
        let stderr = scrub(&output.stderr, &self.secrets);
        Ok((output, self.what, stderr))
    }
}

/// Starts the child in a group of its own and collects both streams; kills the group at the deadline.
fn execute(
    command: &mut Command,
    deadline: Option<Duration>,
    what: &str,
) -> Result<Output, GitError> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let folder = command.get_current_dir().unwrap_or(Path::new("."));
            let missing = error.kind() == std::io::ErrorKind::NotFound && folder.exists();
            return Err(if missing { GitError::Missing } else { GitError::io(folder, error) });
        }
    };
    let Some(after) = deadline else {
        return child.wait_with_output().map_err(|e| GitError::io(PathBuf::from("git"), e));
    };
    let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(child.wait_with_output());
    });
    match receiver.recv_timeout(after) {
        Ok(output) => output.map_err(|e| GitError::io(PathBuf::from("git"), e)),
        Err(_) => {
            let _ = killpg(group, Signal::SIGKILL);
            let _ = receiver.recv_timeout(Duration::from_secs(2));
            Err(GitError::TimedOut { what: what.to_owned(), after })
        }
    }
}

/// Removes credentials and keeps the end, where git says what went wrong.
fn scrub(stderr: &[u8], secrets: &[String]) -> String {
    let mut text = String::from_utf8_lossy(stderr).into_owned();
    for secret in secrets.iter().filter(|s| s.len() >= 4) {
        text = text.replace(secret.as_str(), "***");
    }
    let mut text = crate::model::scrub(&hide_userinfo(text.trim())).into_owned();
    if text.len() > STDERR_KEPT {
        let mut from = text.len() - STDERR_KEPT;
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text = format!("...{}", &text[from..]);
    }
    text
}

/// `scheme://user:password@host` without its user and password.
pub(super) fn hide_userinfo(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || matches!(c, '/' | '\'' | '"'));
        let authority = &after[..end.unwrap_or(after.len())];
        match authority.rfind('@') {
            Some(user) => {
                out.push_str("***");
                rest = &after[user..];
            }
            None => rest = after,
        }
    }
    out.push_str(rest);
    out
}

/// The installed version, looked up once a process.
///
/// # Errors
/// [`GitError::Missing`] or [`GitError::TooOld`].
pub fn version() -> Result<String, GitError> {
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let output = Command::new("git").arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().strip_prefix("git version ").map(str::to_owned)
    });
    let found = found.clone().ok_or(GitError::Missing)?;
    if parse_version(&found).is_some_and(|it| it < MIN_VERSION) {
        let needed = format!("{}.{}", MIN_VERSION.0, MIN_VERSION.1);
        return Err(GitError::TooOld { found, needed });
    }
    Ok(found)
}

/// Major and minor of `2.39.5 (Apple Git-154)` and the like.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{hide_userinfo, parse_version, scrub};

    #[test]
    fn versions_of_several_vendors() {
        assert_eq!(parse_version("2.47.3"), Some((2, 47)));
        assert_eq!(parse_version("2.39.5 (Apple Git-154)"), Some((2, 39)));
        assert_eq!(parse_version("2.45.2.windows.1"), Some((2, 45)));
        assert_eq!(parse_version("x"), None);
    }

    #[test]
    fn credentials_never_reach_an_error() {
        assert_eq!(
            hide_userinfo("fatal: 'https://x:ghp_1@h.example/a' and http://h/b@c"),
            "fatal: 'https://***@h.example/a' and http://h/b@c"
        );
        let secrets = vec!["Authorization: Basic abcdef".to_owned(), "abcdef".to_owned()];
        assert_eq!(scrub(b"got abcdef twice abcdef\n", &secrets), "got *** twice ***");
    }

    #[test]
    fn long_complaints_keep_their_end() {
        let text = format!("{}\u{e9}nd", "x".repeat(5_000));
        let kept = scrub(text.as_bytes(), &[]);
        assert!(kept.starts_with("...") && kept.ends_with("\u{e9}nd") && kept.len() < 2_010);
    }
}
