//! The loop: ask, do what was asked for, tell the result, until the model finishes or a bound ends it.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::Value;

use super::caller::{Caller, Stop, reading};
use super::dialect::{Block, Dialect, blocks, text_calls, without_thoughts};
use super::history::History;
use super::tools::{Refusal, Tools, bounded, definitions};
use super::verify::VerifyRunner;
use super::wire::{Completion, ToolCall};
use crate::backends::prompt::{self, Finish};
use crate::backends::result::{self, ResultError};
use crate::backends::{Attempt, WorkerResult};
use crate::model::{Classification, Outcome, RepoPath, ScopeEntry};

/// Malformed calls in a row that end the attempt.
const MAX_MALFORMED: u32 = 6;
/// Unusable results that end the attempt.
const MAX_BAD_RESULTS: u32 = 3;
/// The same call so often in a row ends the attempt.
const MAX_REPEATS: u32 = 5;
/// Calls done of one answer; further ones are refused.
const MAX_PARALLEL: usize = 32;

mod talk;

/// How the loop ended.
#[derive(Debug)]
pub(super) enum End {
    Done(WorkerResult),
    Failed(Outcome, Option<Classification>, String),
}

fn invalid(detail: impl Into<String>) -> End {
    End::Failed(Outcome::InvalidResult, None, detail.into())
}

/// One attempt's loop and its state.
pub(super) struct Session<'a> {
    attempt: &'a Attempt,
    pub(super) caller: Caller,
    tools: Arc<Tools>,
    verify: Option<Arc<dyn VerifyRunner>>,
    dialect: Dialect,
    fixed: bool,
    definitions: Vec<Value>,
    history: History,
    pub(super) log: String,
    malformed: u32,
    bad_results: u32,
    idle: u32,
    /// A dialect was given up because the model only talked.
    talks: bool,
    cut: u32,
    last_cut: Option<(u64, u64)>,
    repeats: u32,
    last_call: String,
    worked: bool,
    last_problem: String,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        attempt: &'a Attempt,
        caller: Caller,
        tools: Tools,
        verify: Option<Arc<dyn VerifyRunner>>,
        dialect: Option<Dialect>,
    ) -> Self {
        let names = attempt.node.verify.iter().map(|v| v.name.clone()).collect::<Vec<_>>();
        let mut session = Self {
            attempt,
            caller,
            tools: Arc::new(tools),
            definitions: definitions(if verify.is_some() { &names } else { &[] }),
            verify,
            dialect: dialect.unwrap_or(Dialect::Tools),
            fixed: dialect.is_some(),
            history: History::default(),
            log: String::new(),
            malformed: 0,
            bad_results: 0,
            idle: 0,
            talks: false,
            cut: 0,
            last_cut: None,
            repeats: 0,
            last_call: String::new(),
            worked: false,
            last_problem: String::new(),
        };
        session.restart();
        session
    }

    /// Starts the conversation in the current dialect. Changes made so far stay in the tree.
    fn restart(&mut self) {
        let finish =
            if self.dialect == Dialect::Plain { Finish::LastMessage } else { Finish::Tool };
        let mut prompt = prompt::render(self.attempt, &finish);
        let _ = write!(prompt.system, "\n\n{}", self.dialect.explain(&self.definitions));
        if self.dialect == Dialect::Plain {
            prompt.task.push_str(&self.files());
        }
        if self.worked {
            prompt.task.push_str(
                "\nThe tree already holds some of your changes; look before you repeat them.\n",
            );
        }
        self.history = History::new(&prompt.system, &prompt.task);
    }

    /// The files of the findings and of the scope, for a model that cannot read on its own.
    fn files(&self) -> String {
        let places = self.attempt.findings.iter().flat_map(|f| &f.places).map(|p| &p.path);
        let scope = self.attempt.node.writes.iter().filter_map(|entry| match entry {
            ScopeEntry::Path(path) => Some(path),
            _ => None,
        });
        let mut paths: Vec<&RepoPath> = places.chain(scope).collect();
        paths.sort_unstable();
        paths.dedup();
        // Half of the window, at four bytes a token.
        let mut room = usize::try_from(self.attempt.pool.context_tokens).unwrap_or(usize::MAX) * 2;
        let mut out = "\n## Files\n".to_owned();
        for path in paths {
            if let Some(text) = self.tools.text(path)
                && text.len() <= room
            {
                room -= text.len();
                let _ = writeln!(out, "\n### {path}\n\n{}", prompt::fence("data", &text));
            }
        }
        out
    }

    pub(super) async fn run(&mut self) -> End {
        loop {
            let tools: &[Value] =
                if self.dialect == Dialect::Tools { &self.definitions } else { &[] };
            match self.caller.ask(self.history.messages(), tools).await {
                Ok(answer) => {
                    if let Some(end) = self.react(answer).await {
                        return end;
                    }
                }
                Err(Stop::NoTools(body)) => {
                    self.note("backend", &format!("takes no tools: {body}"));
                    if let Some(end) = self.step_down("the endpoint takes no tool calls") {
                        return end;
                    }
                }
                Err(Stop::TooLong(reading)) => {
                    self.note("loop", &format!("too long: {}", reading.evidence));
                    if !self.history.compact() {
                        let detail =
                            format!("the request is too large for the pool: {}", reading.evidence);
                        return End::Failed(Outcome::PacketTooLarge, Some(reading), detail);
                    }
                }
                Err(Stop::End(outcome, reading, detail)) => {
                    return End::Failed(outcome, reading, detail);
                }
            }
        }
    }

    /// Does what one answer asks for; `Some` ends the attempt.
    async fn react(&mut self, answer: Completion) -> Option<End> {
        self.note("model", &answer.text);
        let finish = answer.finish.as_deref().unwrap_or("");
        if !answer.refusal.trim().is_empty()
            || (finish == "content_filter" && answer.calls.is_empty())
        {
            let text =
                if answer.refusal.trim().is_empty() { &answer.text } else { &answer.refusal };
            let evidence = prompt::cut(text, 500);
            let detail = format!("the model refused: {evidence}");
            let rule = if finish == "content_filter" { "content-filter" } else { "refusal" };
            let reading = reading(Outcome::ContentFiltered, rule, evidence);
            return Some(End::Failed(Outcome::ContentFiltered, Some(reading), detail));
        }
        let cut = matches!(finish, "length" | "max_tokens");
        if !answer.calls.is_empty() {
            return self.native_calls(answer, cut).await;
        }
        let text = without_thoughts(&answer.text).trim().to_owned();
        match result::parse_output(&text, &self.attempt.node) {
            Ok(_) if blocks(&text).is_empty() => return self.finish_text(&text),
            Ok(_) | Err(ResultError::Missing) => {}
            Err(problem) => self.last_problem = problem.to_string(),
        }
        let blocks = blocks(&text);
        if self.dialect != Dialect::Tools && !blocks.is_empty() {
            self.history.assistant(&answer.text);
            return self.plain_blocks(blocks, &text).await;
        }
        let calls = text_calls(&text);
        if !calls.is_empty() && self.dialect != Dialect::Plain {
            if self.dialect == Dialect::Tools && !self.fixed {
                // It calls tools, but its server does not see that.
                self.note("loop", "tool calls come as text: going on in JSON");
                self.dialect = Dialect::Json;
                self.restart();
            }
            let calls = calls
                .into_iter()
                .map(|c| ToolCall {
                    id: String::new(),
                    name: c.name,
                    arguments: c.args.to_string(),
                })
                .collect();
            return self.text_calls(&answer.text, calls).await;
        }
        self.no_action(&answer, cut)
    }

    async fn native_calls(&mut self, mut answer: Completion, cut: bool) -> Option<End> {
        if self.dialect != Dialect::Tools {
            return self.text_calls(&answer.text, std::mem::take(&mut answer.calls)).await;
        }
        for (number, call) in answer.calls.iter_mut().enumerate() {
            if call.id.is_empty() {
                call.id = format!("call_{}_{number}", self.caller.requests);
            }
        }
        self.history.assistant_calls(&answer.text, &answer.calls);
        for (number, call) in answer.calls.iter().enumerate() {
            let text = if number >= MAX_PARALLEL {
                format!("not done: at most {MAX_PARALLEL} calls per answer")
            } else {
                match self.call(&call.name, &call.arguments, cut).await {
                    Ok(text) => text,
                    Err(end) => return Some(end),
                }
            };
            self.history.tool(&call.id, &text);
        }
        None
    }

    async fn text_calls(&mut self, said: &str, calls: Vec<ToolCall>) -> Option<End> {
        self.history.assistant(said);
        let mut told = String::new();
        for call in calls.iter().take(MAX_PARALLEL) {
            match self.call(&call.name, &call.arguments, false).await {
                Ok(text) => {
                    let _ = writeln!(
                        told,
                        "Result of {}:\n{}",
                        call.name,
                        prompt::fence("data", &text)
                    );
                }
                Err(end) => return Some(end),
            }
        }
        self.history.user(&told);
        None
    }

    /// One call: the text for the model, or the end of the attempt.
    async fn call(&mut self, name: &str, arguments: &str, cut: bool) -> Result<String, End> {
        self.note("call", &format!("{name} {arguments}"));
        let signature = format!("{name}\0{arguments}");
        self.repeats = if signature == self.last_call { self.repeats + 1 } else { 0 };
        self.last_call = signature;
        if self.repeats >= MAX_REPEATS {
            return Err(invalid(format!("the model repeats the same call of {name} without end")));
        }
        let outcome = self.call_once(name, arguments, cut).await?;
        let text = match outcome {
            Ok(text) => {
                self.malformed = 0;
                text
            }
            Err(refusal) => {
                if matches!(refusal, Refusal::Malformed(_)) {
                    self.malformed += 1;
                    if self.malformed >= MAX_MALFORMED {
                        return Err(invalid(format!(
                            "{MAX_MALFORMED} malformed tool calls in a row; the last: {}",
                            refusal.text()
                        )));
                    }
                }
                format!("error: {}", refusal.text())
            }
        };
        self.idle = 0;
        self.note("result", &text);
        if self.repeats >= 2 {
            return Ok(format!(
                "{text}\n(You made this very call before; its result does not change. Go on.)"
            ));
        }
        Ok(text)
    }

    async fn call_once(
        &mut self,
        name: &str,
        arguments: &str,
        cut: bool,
    ) -> Result<Result<String, Refusal>, End> {
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
        let args = match serde_json::from_str::<Value>(arguments) {
            Ok(args) if args.is_object() => args,
            Ok(_) => {
                return Ok(Err(Refusal::Malformed("the arguments are no JSON object".to_owned())));
            }
            Err(e) => {
                let why = if cut {
                    "; your answer was cut at the output limit: take smaller steps"
                } else {
                    ""
                };
                return Ok(Err(Refusal::Malformed(format!(
                    "the arguments are no valid JSON: {e}{why}"
                ))));
            }
        };
        match name {
            "finish" => match result::parse_json(&args.to_string(), &self.attempt.node) {
                Ok(result) => Err(End::Done(result)),
                Err(problem) => {
                    self.bad_result(&problem)?;
                    Ok(Err(Refusal::Refused(problem.to_string())))
                }
            },
            "run_verify" => Ok(self.run_verify(&args).await),
            _ => {
                let (tools, name) = (Arc::clone(&self.tools), name.to_owned());
                let writes = matches!(
                    name.as_str(),
                    "edit_file" | "create_file" | "delete_file" | "rename_file"
                );
                let done = tokio::task::spawn_blocking(move || tools.run(&name, &args)).await;
                let done =
                    done.unwrap_or_else(|e| Err(Refusal::Refused(format!("the tool failed: {e}"))));
                self.worked |= writes && done.is_ok();
                Ok(done)
            }
        }
    }

    fn bad_result(&mut self, problem: &ResultError) -> Result<(), End> {
        self.bad_results += 1;
        self.last_problem = problem.to_string();
        if self.bad_results >= MAX_BAD_RESULTS { Err(invalid(problem.to_string())) } else { Ok(()) }
    }

    async fn run_verify(&self, args: &Value) -> Result<String, Refusal> {
        let name = args.get("name").and_then(Value::as_str).unwrap_or_default();
        let command = self.attempt.node.verify.iter().find(|v| v.name == name);
        let (Some(command), Some(verify)) = (command, &self.verify) else {
            let names: Vec<&str> =
                self.attempt.node.verify.iter().map(|v| v.name.as_str()).collect();
            return Err(Refusal::Malformed(format!(
                "there is no check of that name; the checks are: {}",
                names.join(", ")
            )));
        };
        let ran = verify.verify(command, self.attempt).await;
        let word = if ran.passed { "passed" } else { "failed" };
        Ok(format!("{name} {word}\n---\n{}", bounded(&ran.output, 12 * 1024)))
    }

    async fn plain_blocks(&mut self, blocks: Vec<Block>, text: &str) -> Option<End> {
        let (mut told, mut errors) = (String::new(), 0);
        for block in blocks {
            let tools = Arc::clone(&self.tools);
            let done = tokio::task::spawn_blocking(move || match block {
                Block::Write { path, content } => tools.write_whole(&path, &content),
                Block::Edit { path, edits } => tools.edit_current(&path, &edits),
                Block::Delete { path } => {
                    tools.run("delete_file", &serde_json::json!({ "path": path }))
                }
                Block::Broken(why) => Err(Refusal::Malformed(why)),
            });
            let done = done.await.unwrap_or_else(|e| Err(Refusal::Refused(format!("failed: {e}"))));
            let line = match &done {
                Ok(line) => line,
                Err(refusal) => {
                    errors += 1;
                    refusal.text()
                }
            };
            self.worked |= done.is_ok();
            let _ = writeln!(told, "- {line}");
        }
        self.note("result", &told);
        let result = result::parse_output(text, &self.attempt.node);
        if errors == 0 {
            match result {
                Ok(result) => return Some(End::Done(result)),
                Err(problem) => {
                    if let Err(end) = self.bad_result(&problem) {
                        return Some(end);
                    }
                    let _ = writeln!(
                        told,
                        "\nThe blocks are done. {problem}. Send the result as JSON."
                    );
                }
            }
        } else {
            self.malformed += 1;
            if self.malformed >= MAX_MALFORMED {
                return Some(invalid(format!("blocks cannot be applied: {told}")));
            }
            told.push_str("\nSend corrected blocks for what failed, then the result again.");
        }
        self.history.user(&told);
        None
    }

    fn finish_text(&mut self, text: &str) -> Option<End> {
        match result::parse_output(text, &self.attempt.node) {
            Ok(result) => Some(End::Done(result)),
            Err(problem) => Some(invalid(problem.to_string())),
        }
    }

    fn note(&mut self, who: &str, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            tracing::trace!(who, "{text}");
            let _ = writeln!(self.log, "{who}: {}", prompt::cut(text, 2_000));
        }
    }
}
