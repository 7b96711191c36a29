//! What the types alone can't say: ranges, patterns, relations between settings.

mod pools;

use std::collections::HashSet;

use globset::GlobBuilder;

use super::locate::{Part, Path, at, position};
use super::placeholder::placeholders;
use super::state::StateStore;
use super::{Config, ConfigError, Exclusion, HumanDuration};

/// Collects errors with their places.
pub(super) struct Checker<'t> {
    file: &'t str,
    text: &'t str,
    errors: Vec<ConfigError>,
}

/// Most errors of one file; the rest would help nobody.
const MAX_ERRORS: usize = 100;

impl Checker<'_> {
    fn error(&mut self, at: &Path, message: impl Into<String>, remedy: impl Into<String>) {
        if self.errors.len() < MAX_ERRORS {
            let place = position(self.text, at, Part::Value);
            self.errors.push(ConfigError::new(self.file, self.text, place, message, remedy));
        }
    }

    /// An error whose source line must not be shown.
    fn hidden(&mut self, at: &Path, message: impl Into<String>, remedy: impl Into<String>) {
        if self.errors.len() < MAX_ERRORS {
            let place = position(self.text, at, Part::Value);
            self.errors.push(ConfigError::new(self.file, "", place, message, remedy));
        }
    }

    fn glob(&mut self, at: &Path, pattern: &str) {
        if pattern.trim().is_empty() {
            self.error(
                at,
                format!("{at} is empty"),
                "write a glob such as `docs/**`, or remove it",
            );
        } else if pattern.starts_with('/') || pattern.split('/').any(|part| part == "..") {
            self.error(
                at,
                format!("{at} leaves the repository"),
                "globs are relative to the repository's root, without a leading slash or `..`",
            );
        } else if let Err(error) = GlobBuilder::new(pattern).literal_separator(true).build() {
            self.error(
                at,
                format!("{at} is no valid glob: {}", error.kind()),
                "mend the pattern; `[` and `{` must be closed, or escaped as `[[]`",
            );
        }
    }

    fn globs(&mut self, at: &Path, patterns: &[String]) {
        for (nth, pattern) in patterns.iter().enumerate() {
            self.glob(&at.index(nth), pattern);
        }
    }

    fn positive(&mut self, at: &Path, value: u64, remedy: &str) {
        if value == 0 {
            self.error(at, format!("{at} must be at least 1"), remedy);
        }
    }

    fn duration(&mut self, at: &Path, value: HumanDuration) {
        if value.get().is_zero() {
            self.error(
                at,
                format!("{at} must be longer than nothing"),
                "write a duration such as `15m`",
            );
        }
    }

    fn money(&mut self, at: &Path, value: Option<f64>, zero: bool) {
        match value {
            Some(v) if !v.is_finite() || v < 0.0 || (v == 0.0 && !zero) => self.error(
                at,
                format!(
                    "{at} must be {} number of US dollars",
                    if zero { "a" } else { "a positive" }
                ),
                if zero {
                    "write 0 for free, or leave it out when unknown"
                } else {
                    "write an amount such as 5.00, or leave it out for no ceiling"
                },
            ),
            _ => {}
        }
    }

    fn argv(&mut self, at: &Path, argv: &[String], known: &[&str]) {
        match argv.first() {
            None => return,
            Some(program) if program.trim().is_empty() => {
                self.error(
                    &at.index(0),
                    format!("{at} has an empty program"),
                    "name the program first",
                );
            }
            Some(program) if argv.len() == 1 && program.contains(' ') => self.error(
                &at.index(0),
                format!("{at} is one text with spaces; no shell splits it"),
                "write each argument as its own element: `[cargo, test, --all]`",
            ),
            Some(_) => {}
        }
        for (nth, argument) in argv.iter().enumerate() {
            if argument.contains('\0') {
                self.error(&at.index(nth), format!("{at} holds a NUL character"), "remove it");
            }
            for name in placeholders(argument) {
                if !known.contains(&name) {
                    let remedy = if known.is_empty() {
                        "no placeholders are filled in here".to_owned()
                    } else {
                        let names: Vec<String> =
                            known.iter().map(|k| format!("`{{{k}}}`")).collect();
                        format!("the placeholders here are {}", names.join(", "))
                    };
                    self.error(&at.index(nth), format!("unknown placeholder `{{{name}}}`"), remedy);
                } else if name == "paths" && argument != "{paths}" {
                    self.error(
                        &at.index(nth),
                        "`{paths}` must be an argument of its own",
                        "it becomes one argument per path",
                    );
                }
            }
        }
    }

    fn filled(&mut self, at: &Path, text: &str, remedy: &str) {
        if text.trim().is_empty() || text.chars().any(char::is_control) {
            self.error(at, format!("{at} must be a non-empty line"), remedy);
        }
    }

    /// The rules of `git check-ref-format` that a configured name can break.
    fn branch(&mut self, at: &Path, name: &str) {
        let bad = name.is_empty()
            || name.len() > 200
            || name.starts_with(['/', '-'])
            || name.ends_with(['/', '.'])
            || name.contains("..")
            || name.contains("//")
            || name.contains("@{")
            || name.starts_with("refs/")
            || name.split('/').any(|part| part.starts_with('.') || part.ends_with(".lock"))
            || name.chars().any(|c| c.is_control() || " ~^:?*[\\".contains(c));
        if bad {
            self.error(
                at,
                format!("{at} is no valid branch name"),
                "write a short branch name such as `main` or `overhaul/state`",
            );
        }
    }
}

/// Every semantic error, in no order.
pub(super) fn check(config: &Config, file: &str, text: &str) -> Vec<ConfigError> {
    let mut c = Checker { file, text, errors: Vec::new() };
    if config.version != 1 {
        c.error(
            &at!["version"],
            format!("version {} is not known", config.version),
            "write `version: 1`, or use a newer overhaul",
        );
    }
    if let Some(base) = &config.base {
        c.branch(&at!["base"], base);
    }
    findings(&mut c, config);
    c.positive(
        &at!["planning", "max-findings-per-node"],
        config.planning.max_findings_per_node.into(),
        "write 1 or more; 8 is the default",
    );
    if let Some(most) = config.planning.max_nodes {
        c.positive(&at!["planning", "max-nodes"], most.into(), "leave it out for no limit");
    }
    pools::check(&mut c, config);
    for (nth, pattern) in config.exclude.iter().enumerate() {
        if Exclusion::parse(pattern).is_err() {
            c.error(
                &at!["exclude", nth],
                format!("exclude[{nth}] is no exclusion"),
                format!(
                    "write a provider ({}), `provider:model`, or an endpoint `host[:port]` without \
                     a scheme",
                    super::exclude::provider_names()
                ),
            );
        }
    }
    dispatch(&mut c, config);
    verify(&mut c, config);
    c.globs(&at!["policy", "protected"], &config.policy.protected);
    c.globs(&at!["policy", "allow"], &config.policy.allow);
    c.positive(
        &at!["policy", "max-file-bytes"],
        config.policy.max_file_bytes,
        "write a size in bytes",
    );
    c.positive(
        &at!["policy", "max-worker-disk-bytes"],
        config.policy.max_worker_disk_bytes,
        "write a size in bytes",
    );
    sandbox(&mut c, config);
    people(&mut c, config);
    state(&mut c, config);
    c.errors
}

fn findings(c: &mut Checker<'_>, config: &Config) {
    for (nth, source) in config.findings.iter().enumerate() {
        let at = at!["findings", nth];
        let origins = source.origins().len();
        if origins != 1 {
            c.error(
                &at,
                format!("findings[{nth}] names {origins} sources"),
                "name exactly one of `file`, `intent`, `code-scanning` and `issues`; start a new list element for another",
            );
        }
        if source.file.is_none()
            && (source.format != super::FindingsFormat::Auto || source.source_root.is_some())
        {
            c.error(
                &at,
                format!("findings[{nth}] has settings of a file but no `file`"),
                "add `file:`, or remove `format` and `source-root`",
            );
        }
        if let Some(file) = &source.file
            && let Err(error) = crate::model::RepoPath::new(file)
        {
            c.error(
                &at.key("file"),
                format!("{at}.file: {error}"),
                "write a path relative to the repository's root",
            );
        }
        if let Some(intent) = &source.intent
            && intent.trim().is_empty()
        {
            c.error(
                &at.key("intent"),
                format!("{at}.intent is empty"),
                "say in one sentence what to do",
            );
        }
        if let Some(issues) = &source.issues {
            c.filled(
                &at.key("issues").key("label"),
                &issues.label,
                "name the label that issues carry",
            );
        }
        c.argv(&at.key("recheck"), &source.recheck, &["paths"]);
    }
}

fn dispatch(c: &mut Checker<'_>, config: &Config) {
    let (at, d) = (at!["dispatch"], &config.dispatch);
    c.positive(
        &at.key("concurrent"),
        d.concurrent.into(),
        "write how many attempts may run at once",
    );
    c.duration(&at.key("attempt-timeout"), d.attempt_timeout);
    c.duration(&at.key("lease"), d.lease);
    if let Some(budget) = d.time_budget {
        c.duration(&at.key("time-budget"), budget);
    }
    if d.lease < d.attempt_timeout {
        c.error(
            &at.key(if c.has(&at.key("lease")) { "lease" } else { "attempt-timeout" }),
            format!("a lease of {} ends before an attempt of {} can", d.lease, d.attempt_timeout),
            "make `lease` at least as long as `attempt-timeout`",
        );
    }
    let (at, budget) = (at.key("budget"), &d.budget);
    for (key, value) in [
        ("usd", budget.usd),
        ("cycle-usd", budget.cycle_usd),
        ("node-usd", budget.node_usd),
        ("attempt-usd", budget.attempt_usd),
    ] {
        c.money(&at.key(key), value, false);
    }
    for (key, value) in [
        ("tokens", budget.tokens),
        ("cycle-tokens", budget.cycle_tokens),
        ("node-tokens", budget.node_tokens),
        ("attempt-tokens", budget.attempt_tokens),
        ("requests", budget.requests),
        ("cycle-requests", budget.cycle_requests),
        ("node-requests", budget.node_requests),
        ("attempt-requests", Some(budget.attempt_requests.into())),
    ] {
        c.positive(&at.key(key), value.unwrap_or(1), "leave it out for no ceiling");
    }
    let at = at!["dispatch", "max-attempts"];
    c.positive(
        &at.key("contract"),
        d.max_attempts.contract.into(),
        "a node needs at least one attempt",
    );
    c.positive(
        &at.key("infrastructure"),
        d.max_attempts.infrastructure.into(),
        "a node needs at least one attempt",
    );
}

fn verify(c: &mut Checker<'_>, config: &Config) {
    let mut names = HashSet::new();
    for (nth, rule) in config.verify.commands.iter().enumerate() {
        let at = at!["verify", "commands", nth];
        c.filled(&at.key("name"), &rule.name, "give the command a short name such as `test`");
        if !names.insert(rule.name.as_str()) {
            c.error(
                &at.key("name"),
                format!("the command name `{}` is used twice", rule.name),
                "give each command a name of its own",
            );
        }
        if rule.argv.is_empty() {
            c.error(
                &at.key("argv"),
                format!("{at}.argv is empty"),
                "write the program and its arguments: `[cargo, test]`",
            );
        }
        c.argv(&at.key("argv"), &rule.argv, &[]);
        c.duration(&at.key("timeout"), rule.timeout);
        c.globs(&at.key("paths"), &rule.paths);
    }
    if let Some(reason) = &config.verify.waive
        && reason.trim().is_empty()
    {
        c.error(
            &at!["verify", "waive"],
            "verify.waive has no reason",
            "say why nodes without a verify command are fine, or remove it",
        );
    }
}

fn sandbox(c: &mut Checker<'_>, config: &Config) {
    let (at, it) = (at!["sandbox"], &config.sandbox);
    for (key, list) in [("read", &it.read), ("write", &it.write)] {
        for (nth, path) in list.iter().enumerate() {
            let at = at.key(key).index(nth);
            let known = path.starts_with('/') || path.starts_with("~/");
            if !known || path.contains('\0') || path.split('/').any(|part| part == "..") {
                c.error(
                    &at,
                    format!("{at} is no absolute path"),
                    "write a path that begins with `/` or `~/`, without `..`",
                );
            }
        }
    }
    c.positive(&at.key("memory-bytes"), it.memory_bytes, "write a size in bytes");
    c.positive(&at.key("processes"), it.processes, "write how many processes may run");
}

fn people(c: &mut Checker<'_>, config: &Config) {
    let (at, pulls) = (at!["pull-requests"], &config.pull_requests);
    c.branch(&at.key("branch-prefix"), &pulls.branch_prefix);
    c.positive(
        &at.key("max-open"),
        pulls.max_open.into(),
        "write how many pull requests may be open at once",
    );
    for (key, list) in [("labels", &pulls.labels), ("reviewers", &pulls.reviewers)] {
        for (nth, text) in list.iter().enumerate() {
            c.filled(&at.key(key).index(nth), text, "remove it, or give it a name");
        }
    }
    if pulls.draft && pulls.auto_merge {
        c.error(
            &at.key("auto-merge"),
            "drafts can't be merged automatically",
            "set only one of `draft` and `auto-merge`",
        );
    }
    let (at, commands) = (at!["commands"], &config.commands);
    let word = commands.prefix.strip_prefix('/').unwrap_or("");
    if word.is_empty() || !word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    {
        c.error(
            &at.key("prefix"),
            "commands.prefix must be one word after a slash",
            "write for example `/overhaul`",
        );
    }
    c.positive(
        &at.key("fuse").key("commands-per-hour"),
        commands.fuse.commands_per_hour.into(),
        "write 1 or more",
    );
    c.positive(
        &at.key("fuse").key("cycles-per-hour"),
        commands.fuse.cycles_per_hour.into(),
        "write 1 or more",
    );
    let at = at!["report"];
    c.filled(&at.key("title"), &config.report.title, "give the dashboard a title");
    let noise = &config.report.noise;
    c.positive(
        &at.key("noise").key("pull-requests-per-day"),
        noise.pull_requests_per_day.into(),
        "write 1 or more",
    );
    c.positive(
        &at.key("noise").key("pull-requests-per-hour"),
        noise.pull_requests_per_hour.into(),
        "write 1 or more",
    );
}

fn state(c: &mut Checker<'_>, config: &Config) {
    let (at, state) = (at!["state"], &config.state);
    c.branch(&at.key("branch"), &state.branch);
    if config.base.as_deref() == Some(state.branch.as_str()) {
        c.error(
            &at.key("branch"),
            "the state branch can't be the base branch",
            "give the state a branch of its own, such as `overhaul/state`",
        );
    }
    // `overhaul` and `overhaul/state` can't both be branches.
    if state.branch == config.pull_requests.branch_prefix {
        c.error(
            &at.key("branch"),
            "the state branch can't be the prefix of node branches",
            "use another name for one of them",
        );
    }
    match (state.store, &state.path) {
        (StateStore::Directory, None) => c.error(
            &at,
            "a directory store needs a folder",
            "write `state: {store: directory, path: FOLDER}`",
        ),
        (StateStore::Directory, Some(folder)) => c.filled(&at.key("path"), folder, "name a folder"),
        (_, Some(_)) => c.error(
            &at.key("path"),
            "only a directory store has a `path`",
            "remove it, or set `store: directory`",
        ),
        (_, None) => {}
    }
}

impl Checker<'_> {
    /// Is the setting written in the file?
    fn has(&self, at: &Path) -> bool {
        matches!(super::locate::parse_at::<serde::de::IgnoredAny>(self.text, at), Ok(Some(_)))
    }
}
