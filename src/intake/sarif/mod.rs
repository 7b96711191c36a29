//! SARIF 2.1.0 (OASIS standard): one result is one finding.

mod message;
mod places;
mod rules;

use serde_json::{Map, Value};

use self::places::Places;
use self::rules::{RuleUse, Rules};
use super::draft::Draft;
use super::json::At;
use super::{IntakeContext, IntakeError, finding_id, text};
use crate::model::{DropReason, Finding, Level, Severity};

/// Reads the whole log.
pub(super) fn read(root: &At, ctx: &IntakeContext) -> Result<Vec<Draft>, IntakeError> {
    check_version(root)?;
    let Some(runs) = root.items("runs")? else { return Err(root.missing("runs")) };
    let mut drafts = Vec::new();
    for run in runs {
        read_run(&run.expect_object()?, ctx, &mut drafts)?;
    }
    Ok(drafts)
}

fn check_version(root: &At) -> Result<(), IntakeError> {
    let schema = root.text("$schema").ok().flatten().unwrap_or_default();
    let found = match root.text("version")? {
        Some(version) => version.trim().to_owned(),
        None if schema.contains("2.1.0") => "2.1.0".to_owned(),
        None if schema.is_empty() => return Err(root.missing("version")),
        None => schema.to_owned(),
    };
    let is_ours = found == "2.1.0" || found.starts_with("2.1.0-");
    if is_ours {
        return Ok(());
    }
    Err(IntakeError::Version {
        name: root.name().to_owned(),
        format: "SARIF",
        found,
        supported: "2.1.0",
    })
}

/// What the results of one run share.
struct Run<'r, 'v> {
    tool: String,
    rules: Rules<'v>,
    places: Places<'r, 'v>,
    secrets: bool,
}

fn read_run(run: &At, ctx: &IntakeContext, drafts: &mut Vec<Draft>) -> Result<(), IntakeError> {
    let results = run.objects("results")?;
    if results.is_empty() {
        if is_external(run, "results")? {
            return Err(external(run, "results"));
        }
        if did_not_finish(run)? {
            return Err(IntakeError::Unfinished {
                name: run.name().to_owned(),
                place: run.place(),
            });
        }
        return Ok(());
    }
    let tool = run.object("tool")?;
    let driver = match &tool {
        Some(tool) => tool.object("driver")?,
        None => None,
    };
    let name = match &driver {
        Some(driver) => driver.text("name")?,
        None => None,
    };
    let tool_name = name.map(str::trim).filter(|name| !name.is_empty()).unwrap_or("sarif");
    let shared = Run {
        secrets: text::is_secret_scanner(tool_name),
        tool: text::title(tool_name),
        rules: Rules::read(run)?,
        places: Places::read(run, ctx)?,
    };
    for result in &results {
        drafts.push(shared.finding(result)?);
    }
    Ok(())
}

/// Whether the run keeps these properties in other files.
fn is_external(run: &At, property: &str) -> Result<bool, IntakeError> {
    let files = run.object("externalPropertyFileReferences")?;
    Ok(files.is_some_and(|files| files.get(property).is_some()))
}

fn external(at: &At, what: &'static str) -> IntakeError {
    IntakeError::External { name: at.name().to_owned(), place: at.place(), what }
}

/// §3.14.23: null results are those of a tool that could not look. One that was stopped says so.
fn did_not_finish(run: &At) -> Result<bool, IntakeError> {
    let invocations = run.objects("invocations")?;
    let failed = |invocation: &At| {
        invocation.get("executionSuccessful").is_some_and(|s| s.value == &Value::Bool(false))
    };
    Ok(run.value.get("results").is_some_and(Value::is_null)
        || (!invocations.is_empty() && invocations.iter().all(failed)))
}

impl Run<'_, '_> {
    fn finding(&self, result: &At) -> Result<Draft, IntakeError> {
        let rule = self.rules.of(result)?;
        let secret = self.secrets || rule.is_about_secrets();
        let level = level(result, &rule)?;
        let mut spots = self.places.of(result)?;
        let secrets = if secret { secrets_of(result) } else { Vec::new() };
        let quoted: Vec<String> = if secret {
            spots.iter_mut().filter_map(|s| s.snippet.take()).collect()
        } else {
            Vec::new()
        };
        let hidden: Vec<&str> =
            secrets.iter().copied().chain(quoted.iter().map(String::as_str)).collect();

        let said = message::of(result, &rule, self.rules.global_messages())?;
        let said = text::redact(&said, &hidden);
        let fallback =
            || rule.description().or(rule.id.as_deref()).unwrap_or("a result without a message");
        let detail = if said.trim().is_empty() { fallback().to_owned() } else { said };
        let suppressed = is_suppressed(result)?;
        let finding = Finding {
            id: finding_id(1)?,
            source_id: result.text("guid")?.map(text::title),
            source: self.tool.clone(),
            title: text::title(&detail),
            detail: text::long(&detail),
            severity: rule.severity(level),
            level: Some(level),
            places: Vec::new(),
            suppressed,
            evidence: rule.evidence(result)?.iter().map(|e| text::redact(e, &hidden)).collect(),
            fingerprint: stable_hash(result).unwrap_or_default(),
            dropped: is_no_problem(result)?.then_some(DropReason::NotAProblem),
            extra: Map::new(),
            rule: rule.id,
        };
        Ok(Draft { finding, spots })
    }
}

/// §3.27.10: the result's level; else none for anything but a failure; else what the invocation's
/// configuration or the rule says; else warning.
fn level(result: &At, rule: &RuleUse) -> Result<Level, IntakeError> {
    if let Some(level) = result.text("level")?.filter(|level| !level.trim().is_empty()) {
        return Ok(parse_level(level));
    }
    let fails = result.text("kind")?.is_none_or(|kind| kind.eq_ignore_ascii_case("fail"));
    if !fails {
        return Ok(Level::None);
    }
    Ok(rule.level.map_or(Level::Warning, parse_level))
}

/// Words outside the standard that leave no doubt mean what they say; others read as its default.
fn parse_level(text: &str) -> Level {
    match text.trim().to_ascii_lowercase().as_str() {
        "none" => Level::None,
        "note" | "info" | "information" | "informational" | "hint" | "low" => Level::Note,
        "error" | "critical" | "fatal" | "high" => Level::Error,
        _ => Level::Warning,
    }
}

/// §3.27.9 `kind` and §3.27.24 `baselineState`. `open` and `review` need a look, so they stay.
fn is_no_problem(result: &At) -> Result<bool, IntakeError> {
    let kind = result.text("kind")?.unwrap_or("fail");
    let passed =
        ["pass", "notApplicable", "informational"].iter().any(|k| k.eq_ignore_ascii_case(kind));
    let gone = result.text("baselineState")?.is_some_and(|s| s.eq_ignore_ascii_case("absent"));
    Ok(passed || gone)
}

/// §3.35: suppressed when there is a suppression, and none is under review or rejected.
fn is_suppressed(result: &At) -> Result<bool, IntakeError> {
    let suppressions = result.objects("suppressions")?;
    for suppression in &suppressions {
        let status = suppression.text("status")?.unwrap_or("accepted");
        if !status.eq_ignore_ascii_case("accepted") {
            return Ok(false);
        }
    }
    Ok(!suppressions.is_empty())
}

/// What a secret scanner says besides the place: the secret and the people who wrote it.
fn secrets_of<'v>(result: &At<'_, 'v>) -> Vec<&'v str> {
    const KEYS: [&str; 12] = [
        "offender",
        "secret",
        "match",
        "raw",
        "rawV2",
        "line",
        "author",
        "email",
        "commitMessage",
        "offenderEntropy",
        "redacted",
        "authorEmail",
    ];
    let bags = ["properties", "partialFingerprints", "fingerprints"];
    bags.iter()
        .filter_map(|bag| result.value.get(*bag)?.as_object())
        .flat_map(|bag| KEYS.iter().filter_map(|key| bag.get(*key)?.as_str()))
        .collect()
}

/// The one widely agreed partial fingerprint: a hash of the line and its surroundings. Others hold
/// commits, authors or placeholders, and are no identity.
fn stable_hash(result: &At) -> Option<String> {
    let hash = result.value.get("partialFingerprints")?.get("primaryLocationLineHash")?.as_str()?;
    (!hash.is_empty() && hash.len() <= 200).then(|| hash.to_owned())
}

/// From the SARIF level.
fn severity_of(level: Level) -> Severity {
    match level {
        Level::Error => Severity::High,
        Level::Warning => Severity::Medium,
        Level::Note => Severity::Low,
        Level::None => Severity::Info,
    }
}
