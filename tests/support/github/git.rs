//! The bare repository behind the rig, and git's own smart-HTTP server in front of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Method, Response};
use tokio::io::AsyncWriteExt as _;

/// A bare repository.
#[derive(Debug, Clone)]
pub struct BareGit {
    pub path: PathBuf,
}

impl BareGit {
    /// Makes one with a first commit that holds `README.md`.
    pub fn init(path: &Path, branch: &str) -> Self {
        let git = Self { path: path.to_owned() };
        std::fs::create_dir_all(path).expect("a folder");
        git.run(&["init", "--quiet", "--bare", "--initial-branch", branch, "."]);
        git.run(&["config", "http.receivepack", "true"]);
        git.run(&["config", "uploadpack.allowFilter", "true"]);
        git.run(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
        git.commit(branch, "README.md", "# hello\n", "First");
        git
    }

    /// Runs git in the repository and gives back what it printed; fails the test if git fails.
    pub fn run(&self, arguments: &[&str]) -> String {
        self.try_run(arguments, "").unwrap_or_else(|error| panic!("git {arguments:?}: {error}"))
    }

    pub fn try_run(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        use std::io::Write as _;
        let mut child = command(&self.path)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(input.as_bytes()).map_err(|error| error.to_string())?;
        drop(stdin);
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// The commit of a branch.
    pub fn head(&self, branch: &str) -> Option<String> {
        let name = format!("refs/heads/{branch}");
        self.try_run(&["rev-parse", "--verify", "--quiet", &name], "").ok()
    }

    /// Commits one file onto a branch, which is made from the default branch when it is new.
    pub fn commit(&self, branch: &str, file: &str, content: &str, message: &str) -> String {
        let parent = self.head(branch).or_else(|| self.try_run(&["rev-parse", "HEAD"], "").ok());
        let parent = parent.filter(|commit| commit.len() >= 40);
        let blob = self.try_run(&["hash-object", "-w", "--stdin"], content).expect("a blob");
        self.run(&["read-tree", parent.as_deref().unwrap_or("--empty")]);
        self.run(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},{file}")]);
        let tree = self.run(&["write-tree"]);
        let mut arguments = vec!["commit-tree", "-m", message, &tree];
        if let Some(parent) = &parent {
            arguments.extend(["-p", parent]);
        }
        let commit = self.run(&arguments);
        self.run(&["update-ref", &format!("refs/heads/{branch}"), &commit]);
        commit
    }

    /// Commits of `head` that `base` has not.
    pub fn ahead(&self, base: &str, head: &str) -> u64 {
        let range = format!("refs/heads/{base}..refs/heads/{head}");
        self.try_run(&["rev-list", "--count", &range], "").map_or(0, |n| n.parse().unwrap_or(0))
    }

    /// Merges commit `head` into a branch; the merge commit, or nothing on conflict.
    pub fn merge(&self, base: &str, head: &str, message: &str) -> Option<String> {
        let tip = self.head(base)?;
        let tree = self.try_run(&["merge-tree", "--write-tree", &tip, head], "").ok()?;
        let commit = self.run(&["commit-tree", "-m", message, "-p", &tip, "-p", head, &tree]);
        self.run(&["update-ref", &format!("refs/heads/{base}"), &commit, &tip]);
        Some(commit)
    }
}

/// git with an environment of its own.
fn command(path: &Path) -> Command {
    let mut command = Command::new("git");
    command.current_dir(path).envs([
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_AUTHOR_NAME", "Somebody"),
        ("GIT_AUTHOR_EMAIL", "somebody@example.com"),
        ("GIT_COMMITTER_NAME", "Somebody"),
        ("GIT_COMMITTER_EMAIL", "somebody@example.com"),
        ("GIT_AUTHOR_DATE", "2026-01-01T00:00:00Z"),
        ("GIT_COMMITTER_DATE", "2026-01-01T00:00:00Z"),
    ]);
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    command
}

/// Serves one request by `git http-backend`, as a web server would run it. `path` is below the
/// folder that holds the repositories.
pub async fn serve(
    root: &Path,
    method: &Method,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let mut child = tokio::process::Command::from(command(root))
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("REQUEST_METHOD", method.as_str())
        .env("CONTENT_TYPE", text("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", text("content-encoding"))
        .env("GIT_PROTOCOL", text("git-protocol"))
        .env("REMOTE_USER", "somebody")
        .env("REMOTE_ADDR", "127.0.0.1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("git http-backend starts");
    let mut stdin = child.stdin.take().expect("piped");
    // Both at once, or a full pipe would block either side.
    let feed = async move {
        let _ = stdin.write_all(&body).await;
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    let output = output.expect("git http-backend ends").stdout;
    let end = output.windows(4).position(|w| w == b"\r\n\r\n").unwrap_or(0);
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if name.eq_ignore_ascii_case("status") {
            let status = value.split(' ').next().and_then(|code| code.parse().ok());
            response = response.status(status.unwrap_or(500_u16));
        } else {
            response = response.header(name, value);
        }
    }
    let body = output.get(end + 4..).unwrap_or_default().to_vec();
    response.body(Body::from(body)).expect("a response")
}
