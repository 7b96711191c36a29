//! `subprocess-template` and `worker-command`: configured programs as workers.
//!
//! The program is an argv; what comes from outside is put into single arguments and never meets a
//! shell. It sees the variables that the configuration names and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use super::classify::classify_cli;
use super::gateway::{Evidence, Gateway, Upstream};
use super::prompt::{self, Finish};
use super::redact::{MAX_DETAIL, Redactor};
use super::result::{self, ResultError};
use super::{Attempt, Confinement, WorkReport, Worker, WorkerResult};
use crate::config::fill;
use crate::model::{Classification, Outcome, ScopeEntry};
use crate::planning::scope;
use crate::process::{self, Captured, Ended, Spec, Status};

/// Bytes kept of each output stream.
const OUTPUT_CAP: usize = 1 << 20;

/// What the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandKind {
    /// An agent: it gets a prompt and owes a result.
    Template,
    /// A plain fixer: ending with 0 claims every finding, unless it leaves a result file. Our own
    /// checks decide, as for every claim.
    Plain,
}

/// A configured program.
#[derive(Debug, Clone)]
pub struct CommandSettings {
    /// What it is.
    pub kind: CommandKind,
    /// Program and arguments with the placeholders `{prompt-file}`, `{result-file}`, `{workdir}`,
    /// `{node}`, and `{paths}` as an argument of its own: one argument for each path.
    pub argv: Vec<String>,
    /// The variables that it may see, with their values.
    pub env: BTreeMap<String, SecretString>,
    /// The endpoint that it may talk to, through a gateway of each attempt.
    pub upstream: Option<Upstream>,
    /// The variable in which it looks for its key; with an endpoint it finds the gateway's token.
    pub key_variable: Option<String>,
    /// Name of the backend for the classification rules.
    pub backend: String,
    /// What keeps it to its attempt.
    pub confinement: Confinement,
}

impl CommandSettings {
    /// A program without variables or limits.
    #[must_use]
    pub fn new(kind: CommandKind, argv: Vec<String>) -> Self {
        let backend = match kind {
            CommandKind::Template => "subprocess-template",
            CommandKind::Plain => "worker-command",
        };
        Self {
            kind,
            argv,
            env: BTreeMap::new(),
            upstream: None,
            key_variable: None,
            backend: backend.to_owned(),
            confinement: Confinement::default(),
        }
    }
}

/// The worker.
#[derive(Debug)]
pub struct CommandWorker {
    settings: CommandSettings,
    redactor: Redactor,
}

impl CommandWorker {
    /// Takes the settings.
    #[must_use]
    pub fn new(settings: CommandSettings) -> Self {
        let secrets = settings.env.iter().filter(|(name, value)| is_secret(name, value));
        let secrets = secrets.map(|(_, value)| value);
        let keys = settings.upstream.iter().flat_map(Upstream::secrets);
        let redactor = Redactor::new(secrets.chain(keys).cloned());
        Self { settings, redactor }
    }

    fn spec(
        &self,
        attempt: &Attempt,
        files: &Files,
        gateway: Option<&Gateway>,
    ) -> Result<Spec, std::io::Error> {
        let (prompt_file, result_file) = (text(&files.prompt), text(&files.result));
        let workdir = text(&attempt.workdir);
        let base_url = gateway.map(Gateway::base_url).unwrap_or_default();
        let argv = fill(
            &self.settings.argv,
            &paths(attempt),
            &[
                ("prompt-file", &prompt_file),
                ("result-file", &result_file),
                ("workdir", &workdir),
                ("node", attempt.node.id.as_str()),
                ("base-url", &base_url),
            ],
        );
        let finish = Finish::File(result_file.clone());
        let prompt = prompt::render(attempt, &finish).single();
        std::fs::create_dir_all(attempt.home.join("tmp"))?;
        // A result of an earlier turn must not count for this one, and a link that the worker left
        // in the place of a file must not lead us elsewhere.
        for file in [&files.prompt, &files.result] {
            match std::fs::remove_file(file) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        std::fs::File::create_new(&files.prompt)?.write_all(prompt.as_bytes())?;
        let mut spec = Spec::new(argv, &attempt.workdir);
        spec.env = process::base_env(&attempt.home, &search_path());
        let own = [
            ("OVERHAUL_NODE", attempt.node.id.as_str()),
            ("OVERHAUL_PROMPT_FILE", &prompt_file),
            ("OVERHAUL_RESULT_FILE", &result_file),
        ];
        spec.env.extend(own.map(|(name, value)| (OsString::from(name), OsString::from(value))));
        let named = self.settings.env.iter();
        spec.env.extend(named.map(|(n, v)| (OsString::from(n), OsString::from(v.expose_secret()))));
        if let Some(gateway) = gateway {
            let token = OsString::from(gateway.token().expose_secret());
            spec.env.insert("OVERHAUL_BASE_URL".into(), base_url.into());
            spec.env.extend(self.settings.key_variable.iter().map(|n| (n.into(), token.clone())));
            spec.env.insert("OVERHAUL_TOKEN".into(), token);
        }
        if self.settings.kind == CommandKind::Template
            && !self.settings.argv.iter().any(|a| a.contains("{prompt-file}"))
        {
            spec.stdin = Some(prompt.into_bytes());
        }
        spec.output_cap = OUTPUT_CAP;
        self.settings.confinement.confine(&mut spec, attempt, gateway);
        Ok(spec)
    }

    fn judge(&self, attempt: &Attempt, files: &Files, ended: &Ended) -> WorkReport {
        let (stdout, stderr) = (lossy(&ended.stdout), lossy(&ended.stderr));
        let command = self.settings.argv.first().map_or("", String::as_str);
        let log = format!("$ {command} ...\n{stdout}\n{stderr}\n{:?}\n", ended.status);
        let of = |outcome, detail: String| self.report(outcome, None, None, &detail, &log);
        match ended.status {
            Status::TimedOut => {
                let seconds = attempt.deadline.as_secs();
                return of(Outcome::Timeout, format!("the attempt's {seconds} s are over"));
            }
            Status::Cancelled => {
                return of(Outcome::Timeout, "stopped because the cycle ends".to_owned());
            }
            Status::OverDisk => {
                return of(Outcome::Error, format!("`{command}` wrote more than its disk cap"));
            }
            Status::OverMemory => {
                return of(Outcome::Error, format!("`{command}` used more than its memory"));
            }
            Status::OverTasks => {
                return of(Outcome::Error, format!("`{command}` started too many processes"));
            }
            Status::Exited(_) | Status::Signalled(_) => {}
        }
        let result = self.result(attempt, files, &stdout);
        let failed = !ended.status.success();
        // A result wins over any text about limits, but a plain command must say 0.
        if let Ok(result) = &result
            && !(failed && self.settings.kind == CommandKind::Plain)
        {
            return self.report(
                Outcome::Success,
                Some(result.clone()),
                None,
                &result.summary,
                &log,
            );
        }
        let code = match ended.status {
            Status::Exited(code) => Some(code),
            _ => None,
        };
        let backend = &self.settings.backend;
        let reading = classify_cli(backend, code, &stdout, &stderr, Timestamp::now());
        if failed {
            let tail = last_lines(if stderr.trim().is_empty() { &stdout } else { &stderr });
            let tail =
                if tail.is_empty() { " and said nothing".to_owned() } else { format!(": {tail}") };
            let detail = format!("`{command}` ended with {}{tail}", ending(ended.status));
            let outcome = match reading.outcome {
                // It ended by itself without success, whatever a rule makes of its text.
                Outcome::Success | Outcome::InvalidResult => Outcome::Error,
                other => other,
            };
            return self.report(outcome, None, Some(reading), &detail, &log);
        }
        // Ended with 0 and without a usable result: a limit if it says so, else its own fault. One
        // that says nothing at all, or hands in something else, is told what is missing.
        let (problem, handed_in) = match result {
            Err(ResultError::Missing) => (format!("{}; {WHERE}", ResultError::Missing), false),
            Err(problem) => (problem.to_string(), true),
            Ok(_) => (String::new(), true),
        };
        let silent = stdout.trim().is_empty() && stderr.trim().is_empty();
        match reading.outcome {
            Outcome::Success | Outcome::InvalidResult | Outcome::Error | Outcome::BadRequest => {
                of(Outcome::InvalidResult, problem)
            }
            _ if silent || handed_in => of(Outcome::InvalidResult, problem),
            outcome => {
                let detail = format!("`{command}` gave no result: {}", reading.evidence);
                self.report(outcome, None, Some(reading), &detail, &log)
            }
        }
    }

    fn result(
        &self,
        attempt: &Attempt,
        files: &Files,
        stdout: &str,
    ) -> Result<WorkerResult, ResultError> {
        if let Some(found) = read_result(&files.result) {
            return result::parse_output(&found, &attempt.node);
        }
        match self.settings.kind {
            CommandKind::Template => match result::parse_output(stdout, &attempt.node) {
                Ok(echo) if echo.summary == prompt::EXAMPLE => Err(ResultError::Missing),
                read => read,
            },
            CommandKind::Plain => Ok(WorkerResult {
                resolved: attempt.node.findings.clone(),
                blocked: Vec::new(),
                summary: format!("Ran `{}`.", self.settings.argv.join(" ")),
            }),
        }
    }

    fn report(
        &self,
        outcome: Outcome,
        result: Option<WorkerResult>,
        classification: Option<Classification>,
        detail: &str,
        log: &str,
    ) -> WorkReport {
        let mut report = WorkReport::ended(outcome, detail);
        report.result = result;
        report.classification = classification;
        log.clone_into(&mut report.log);
        self.redactor.report(report)
    }
}

/// Where a program of people puts its result.
const WHERE: &str = "the program writes it to the file that `OVERHAUL_RESULT_FILE` names \
                     (`{result-file}` in `command`), or prints it as the last thing; one that \
                     simply changes files is a `worker-command`";

impl CommandWorker {
    /// What the gateway saw counts more than what the program said of it.
    fn with_evidence(&self, mut report: WorkReport, model: &str, seen: &Evidence) -> WorkReport {
        report.usage = seen.usage;
        report.model_seen.clone_from(&seen.model_seen);
        report.model_switch = seen.switch(model);
        if report.outcome != Outcome::Success {
            let said = report.classification.take();
            let (outcome, reading, detail) = seen.judge(report.outcome, said, report.detail);
            report.outcome = outcome;
            report.classification = reading.map(|reading| self.clean_reading(reading));
            report.detail = prompt::cut(&self.redactor.apply(&detail), MAX_DETAIL);
        }
        report
    }

    fn clean_reading(&self, mut reading: Classification) -> Classification {
        reading.evidence = prompt::cut(&self.redactor.apply(&reading.evidence), MAX_DETAIL);
        reading
    }
}

#[async_trait]
impl Worker for CommandWorker {
    async fn work(&self, attempt: Attempt) -> WorkReport {
        let files = Files {
            prompt: attempt.home.join("prompt.md"),
            result: attempt.home.join("result.json"),
        };
        let gateway = match &self.settings.upstream {
            None => None,
            Some(upstream) => match Gateway::of(upstream, &attempt).await {
                Ok(gateway) => Some(gateway),
                Err(e) => return self.report(Outcome::Error, None, None, &e.to_string(), ""),
            },
        };
        let spec = match self.spec(&attempt, &files, gateway.as_ref()) {
            Ok(spec) => spec,
            Err(e) => {
                let detail = format!("the worker's home could not be prepared: {e}");
                return self.report(Outcome::Error, None, None, &detail, "");
            }
        };
        let ended = run_gated(spec, gateway.as_ref()).await;
        let report = match ended {
            Ok(ended) => self.judge(&attempt, &files, &ended),
            Err(e) => self.report(Outcome::Error, None, None, &e.to_string(), ""),
        };
        match gateway {
            Some(gateway) => self.with_evidence(report, &attempt.pool.model, &gateway.stop().await),
            None => report,
        }
    }
}

/// Runs a program, whose cancel token is its own; a budget that is used up at its gateway ends it.
pub(super) async fn run_gated(
    spec: Spec,
    gateway: Option<&Gateway>,
) -> Result<Ended, process::ProcessError> {
    let stop = spec.cancel.clone();
    let budget = gateway.map(Gateway::exhausted);
    let over = async {
        match budget {
            // Nothing more will be answered.
            Some(budget) => budget.cancelled().await,
            None => std::future::pending().await,
        }
        stop.cancel();
        std::future::pending::<std::convert::Infallible>().await
    };
    tokio::select! {
        ended = process::run(spec) => ended,
        never = over => match never {},
    }
}

/// The files that the program and we exchange, in its home.
struct Files {
    prompt: PathBuf,
    result: PathBuf,
}

/// The files of the findings that are in scope, else the paths of the scope itself. One that
/// starts with a dash is written so that no program takes it for an option.
fn paths(attempt: &Attempt) -> Vec<String> {
    let writes = &attempt.node.writes;
    let places = attempt.findings.iter().flat_map(|f| &f.places).map(|p| &p.path);
    let mut paths: BTreeSet<&str> = places
        .filter(|path| scope::matches(writes, path.as_str().as_bytes()))
        .map(|path| path.as_str())
        .collect();
    if paths.is_empty() {
        paths.extend(writes.iter().filter_map(|entry| match entry {
            ScopeEntry::Path(path) | ScopeEntry::Folder(path) => Some(path.as_str()),
            ScopeEntry::Glob(_) => None,
        }));
    }
    let safe =
        |path: &str| if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
    paths.into_iter().map(safe).collect()
}

/// The result file's text, if there is a regular file of bounded size.
fn read_result(path: &Path) -> Option<String> {
    let flags = (nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK).bits();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(result::MAX_OUTPUT as u64).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Our own search path; the one thing of our environment that every program needs.
pub(super) fn search_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// Whether a variable's value must not be seen. Paths and switches are no secrets, unless the name
/// says so.
fn is_secret(name: &str, value: &SecretString) -> bool {
    let name = name.to_ascii_uppercase();
    let named = ["KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "AUTH"];
    named.iter().any(|word| name.contains(word)) || !value.expose_secret().starts_with('/')
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn lossy(captured: &Captured) -> String {
    String::from_utf8_lossy(&captured.bytes).into_owned()
}

/// The last lines that say something.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// How a program ended, in words.
pub(super) fn ending(status: Status) -> String {
    match status {
        Status::Exited(code) => format!("exit code {code}"),
        Status::Signalled(signal) => format!("signal {signal}"),
        other => format!("{other:?}"),
    }
}
