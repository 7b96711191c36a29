//! A script that really fixes simple findings, through the tools alone: it reads the files that the
//! task names, edits the lines, runs the checks and finishes. What it knows no fix for, it blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

use super::{Answer, Reply, Request};

/// One finding as the task's text shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Task {
    id: String,
    rule: String,
    path: String,
    line: usize,
    text: String,
}

/// What was done so far, read from the conversation.
#[derive(Debug, Default)]
struct Done {
    /// The result of the first `read_file` by path.
    read: BTreeMap<String, String>,
    /// Paths whose edit was tried.
    edited: BTreeSet<String>,
    /// Paths whose edit failed.
    failed: BTreeSet<String>,
    /// Checks that were run.
    verified: BTreeSet<String>,
}

/// Answers one request of the tool loop.
#[must_use]
pub fn fixer(request: &Request, _number: usize) -> Reply {
    let messages =
        request.body.get("messages").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let task = messages.iter().find(|m| m["role"] == "user");
    let tasks = tasks(task.and_then(|m| m["content"].as_str()).unwrap_or_default());
    let done = done(messages);
    let mut answer = next(&tasks, &done, &checks(request));
    let size = request.body.to_string().len() as u64 / 4;
    let output: usize = answer.calls.iter().map(|(_, a)| a.len()).sum();
    answer.usage = Some((size, output as u64 / 4 + 5));
    Reply::Answer(answer)
}

fn next(tasks: &[Task], done: &Done, checks: &[String]) -> Answer {
    let mut paths: Vec<&str> =
        tasks.iter().map(|t| t.path.as_str()).filter(|p| !p.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let (mut resolved, mut blocked, mut lines) = (Vec::new(), Vec::new(), 0);
    for path in &paths {
        let Some(read) = done.read.get(*path) else {
            return Answer::calls([("read_file", json!({ "path": path }))]);
        };
        let own: Vec<&Task> = tasks.iter().filter(|t| t.path == *path).collect();
        let (edits, fixed) = edits(read, &own);
        if !edits.is_empty() && !done.edited.contains(*path) {
            let hash = field(read, "hash");
            return Answer::calls([(
                "edit_file",
                json!({"path": path, "hash": hash, "edits": edits}),
            )]);
        }
        let failed = done.failed.contains(*path);
        for task in own {
            if fixed.contains(&task.id) && !failed {
                resolved.push(task.id.clone());
            } else {
                blocked.push(json!({"finding": task.id, "reason": why_not(task, failed)}));
            }
        }
        lines += if failed { 0 } else { edits.len() };
    }
    for task in tasks.iter().filter(|t| t.path.is_empty()) {
        blocked.push(json!({"finding": task.id, "reason": why_not(task, false)}));
    }
    if let Some(check) = checks.iter().find(|c| !resolved.is_empty() && !done.verified.contains(*c))
    {
        return Answer::calls([("run_verify", json!({ "name": check }))]);
    }
    let summary = format!(
        "scripted fixer: {lines} edit(s) in {} file(s). This is a script, not a model.",
        done.edited.len() - done.failed.len()
    );
    Answer::calls([(
        "finish",
        json!({"resolved": resolved, "blocked": blocked, "summary": summary}),
    )])
}

fn why_not(task: &Task, failed: bool) -> String {
    if failed {
        "the edit was refused".to_owned()
    } else {
        format!("the scripted fixer knows no fix for rule '{}' there", task.rule)
    }
}

/// The findings of the task's text, as the prompt writes them.
fn tasks(prompt: &str) -> Vec<Task> {
    let mut out: Vec<Task> = Vec::new();
    let part = prompt.split("\n## Findings to resolve").nth(1).unwrap_or_default();
    for line in part.split("\n## Write scope").next().unwrap_or_default().lines() {
        if let Some(id) = line.strip_prefix("### ") {
            out.push(Task {
                id: id.trim().to_owned(),
                rule: String::new(),
                path: String::new(),
                line: 0,
                text: String::new(),
            });
        }
        let Some(task) = out.last_mut() else { continue };
        if let Some(rule) = line.strip_prefix("rule: ") {
            rule.clone_into(&mut task.rule);
        } else if let Some(place) = line.strip_prefix("place: ")
            && task.path.is_empty()
        {
            let (path, rest) = place.split_once(", line").unwrap_or((place, ""));
            path.clone_into(&mut task.path);
            let digits = rest.trim_start_matches('s').trim_start();
            let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
            task.line = digits.parse().unwrap_or(0);
        }
        task.text.push_str(line);
        task.text.push('\n');
    }
    out
}

fn checks(request: &Request) -> Vec<String> {
    let tools = request.body.get("tools").and_then(Value::as_array);
    let verify = tools.into_iter().flatten().find(|t| t["function"]["name"] == "run_verify");
    let names =
        verify.and_then(|t| t["function"]["parameters"]["properties"]["name"]["enum"].as_array());
    names.into_iter().flatten().filter_map(|n| n.as_str().map(str::to_owned)).collect()
}

fn done(messages: &[Value]) -> Done {
    let mut done = Done::default();
    let mut calls: BTreeMap<&str, (&str, Value)> = BTreeMap::new();
    for message in messages {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let args = call["function"]["arguments"].as_str().unwrap_or_default();
            let args = serde_json::from_str(args).unwrap_or(Value::Null);
            let name = call["function"]["name"].as_str().unwrap_or_default();
            calls.insert(call["id"].as_str().unwrap_or_default(), (name, args));
        }
        if message["role"] != "tool" {
            continue;
        }
        let text = message["content"].as_str().unwrap_or_default();
        let Some((name, args)) = calls.get(message["tool_call_id"].as_str().unwrap_or_default())
        else {
            continue;
        };
        let of = |key: &str| args[key].as_str().unwrap_or_default().to_owned();
        match *name {
            "read_file" => {
                done.read.entry(of("path")).or_insert_with(|| text.to_owned());
            }
            "edit_file" => {
                if text.starts_with("error:") {
                    done.failed.insert(of("path"));
                }
                done.edited.insert(of("path"));
            }
            "run_verify" => {
                done.verified.insert(of("name"));
            }
            _ => {}
        }
    }
    done
}

/// The edits for one file, and the findings that they fix.
fn edits(read: &str, tasks: &[&Task]) -> (Vec<Value>, BTreeSet<String>) {
    let mut edits = Vec::new();
    let mut fixed = BTreeSet::new();
    let Some((_, body)) = read.split_once("\n---\n") else { return (edits, fixed) };
    let lines: Vec<&str> = body.split_inclusive('\n').collect();
    let mut by_line: BTreeMap<usize, Option<String>> = BTreeMap::new();
    for task in tasks {
        let Some(at) = task.line.checked_sub(1).filter(|at| *at < lines.len()) else { continue };
        let current = by_line.get(&at).cloned().unwrap_or_else(|| Some(lines[at].to_owned()));
        let Some(current) = current else {
            fixed.insert(task.id.clone());
            continue;
        };
        if let Some(new) = fix(task, &current) {
            by_line.insert(at, new);
            fixed.insert(task.id.clone());
        }
    }
    // Each line with as many lines below it as make the text unique; what overlaps is one edit.
    let mut windows: Vec<(usize, usize)> = Vec::new();
    for &at in by_line.keys() {
        let mut end = at + 1;
        while end < lines.len() && body.matches(&lines[at..end].concat()).count() > 1 {
            end += 1;
        }
        match windows.last_mut() {
            Some(last) if last.1 > at => last.1 = last.1.max(end),
            _ => windows.push((at, end)),
        }
    }
    for (start, end) in windows {
        let new = (start..end).map(|at| match by_line.get(&at) {
            Some(new) => new.clone().unwrap_or_default(),
            None => lines[at].to_owned(),
        });
        edits.push(
            json!({"search": lines[start..end].concat(), "replace": new.collect::<String>()}),
        );
    }
    (edits, fixed)
}

#[expect(clippy::expect_used, reason = "a constant pattern, compiled in a test")]
static REPLACE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\breplace `([^`\n]+)` (?:with|by) `([^`\n]*)`").expect("the pattern is valid")
});

/// The new line; `Some(None)` deletes it; `None` is no idea.
fn fix(task: &Task, line: &str) -> Option<Option<String>> {
    let changed = |new: String| (new != line).then_some(Some(new));
    if let Some(found) = REPLACE.captures(&task.text) {
        return changed(line.replacen(&found[1], &found[2], 1));
    }
    match task.rule.as_str() {
        "E711" => changed(line.replace("!= None", "is not None").replace("== None", "is None")),
        "E712" => changed(line.replace(" == True", "")),
        "W291" | "trailing-whitespace" => {
            let end = if line.ends_with('\n') { "\n" } else { "" };
            changed(format!("{}{end}", line.trim_end()))
        }
        "F401" | "todo-fix" => Some(None),
        _ => None,
    }
}

fn field<'a>(read: &'a str, name: &str) -> &'a str {
    let found = read.lines().take(5).find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{edits, tasks};
    use crate::backends::prompt::{Finish, render};
    use crate::backends::testing;

    #[test]
    fn it_reads_the_prompt_that_we_write() {
        let prompt = render(&testing::attempt("/t", "/h"), &Finish::Tool);
        let tasks = tasks(&prompt.task);
        assert_eq!(tasks.len(), 2);
        let first = &tasks[0];
        assert_eq!((first.id.as_str(), first.rule.as_str()), ("F-1", "E711"));
        assert_eq!((first.path.as_str(), first.line), ("src/a.py", 3));
    }

    #[test]
    fn edits_are_unique() {
        let prompt = render(&testing::attempt("/t", "/h"), &Finish::Tool);
        let mut tasks = tasks(&prompt.task);
        tasks[1].path = "src/a.py".to_owned();
        tasks[1].line = 1;
        let read = "path: src/a.py\nhash: x\nlines: 1-4 of 4\n---\nif x == None:\n  a\nif x == None:\n  b\n";
        let (edits, fixed) = edits(read, &tasks.iter().collect::<Vec<_>>());
        assert_eq!(fixed.len(), 2);
        assert_eq!(edits[0]["search"], "if x == None:\n  a\n");
        assert_eq!(edits[1]["search"], "if x == None:\n  b\n");
    }
}
