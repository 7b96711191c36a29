//! The tools of the loop: what the model is told of them, and what each does.

use std::path::PathBuf;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::edit::{Edit, apply, hash};
use super::jail::{FileError, Jail};
use super::tree::Walk;
use crate::backends::prompt;
use crate::model::{Node, RepoPath};
use crate::planning::scope;

/// Longest text that a tool gives back, in bytes.
pub(super) const MAX_OUTPUT: usize = 24 * 1024;
/// Lines that one `read_file` gives back at most.
const MAX_LINES: usize = 800;

/// The file tools of one attempt.
#[derive(Debug)]
pub(super) struct Tools {
    root: PathBuf,
    jail: Jail,
    node: Node,
}

/// A refusal that is told to the model.
#[derive(Debug)]
pub(super) enum Refusal {
    /// The call itself is malformed: unknown tool, bad arguments.
    Malformed(String),
    /// The call is well formed but may not, or cannot, be done.
    Refused(String),
}

impl From<FileError> for Refusal {
    fn from(error: FileError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl Refusal {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Malformed(text) | Self::Refused(text) => text,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    path: String,
    #[serde(default)]
    start_line: Option<usize>,
    #[serde(default)]
    end_line: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    glob: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    pattern: String,
    #[serde(default)]
    regex: bool,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    glob: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EditFile {
    path: String,
    hash: String,
    edits: Vec<Edit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateFile {
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeleteFile {
    path: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RenameFile {
    from: String,
    to: String,
}

impl Tools {
    pub(super) fn new(root: PathBuf, node: Node) -> Result<Self, FileError> {
        Ok(Self { jail: Jail::open(&root)?, root, node })
    }

    /// Does one file tool. `run_verify` and `finish` are the loop's own.
    pub(super) fn run(&self, name: &str, arguments: &Value) -> Result<String, Refusal> {
        let text = match name {
            "read_file" => self.read(&parse(arguments)?),
            "list_files" => {
                let args: List = parse(arguments)?;
                self.walk(args.path.as_deref(), args.glob.as_deref())?
                    .list()
                    .map_err(Refusal::Refused)
            }
            "search" => {
                let args: Search = parse(arguments)?;
                let walk = self.walk(args.path.as_deref(), args.glob.as_deref())?;
                walk.search(&args.pattern, args.regex).map_err(Refusal::Refused)
            }
            "edit_file" => self.edit(&parse(arguments)?),
            "create_file" => {
                let args: CreateFile = parse(arguments)?;
                let path = self.writable(&args.path)?;
                self.jail.create(&path, &args.content)?;
                Ok(format!("created {path}\nhash: {}", hash(&args.content)))
            }
            "delete_file" => {
                let path = self.writable(&parse::<DeleteFile>(arguments)?.path)?;
                self.jail.delete(&path)?;
                Ok(format!("deleted {path}"))
            }
            "rename_file" => {
                let args: RenameFile = parse(arguments)?;
                let (from, to) = (self.writable(&args.from)?, self.writable(&args.to)?);
                self.jail.rename(&from, &to)?;
                Ok(format!("renamed {from} to {to}"))
            }
            other => Err(Refusal::Malformed(format!(
                "there is no tool '{}'; the tools are read_file, list_files, search, edit_file, \
                 create_file, delete_file, rename_file, run_verify and finish",
                other.chars().take(60).collect::<String>()
            ))),
        }?;
        Ok(bounded(&text, MAX_OUTPUT))
    }

    /// Replaces or creates a whole file, for endpoints that only write plain text.
    pub(super) fn write_whole(&self, path: &str, content: &str) -> Result<String, Refusal> {
        let path = self.writable(path)?;
        match self.jail.read(&path) {
            Ok(_) => self.jail.overwrite(&path, content)?,
            Err(FileError::NotFound(_)) => self.jail.create(&path, content)?,
            Err(e) => return Err(e.into()),
        }
        Ok(format!("wrote {path}"))
    }

    /// Edits a file in its current state, for endpoints that only write plain text.
    pub(super) fn edit_current(&self, path: &str, edits: &[Edit]) -> Result<String, Refusal> {
        let path = self.writable(path)?;
        let text = self.jail.read(&path)?;
        let new = apply(&text, edits).map_err(Refusal::Refused)?;
        self.jail.overwrite(&path, &new)?;
        Ok(format!("edited {path}"))
    }

    /// The text of a file, where it is one.
    pub(super) fn text(&self, path: &RepoPath) -> Option<String> {
        self.jail.read(path).ok()
    }

    fn read(&self, args: &Read) -> Result<String, Refusal> {
        let path = repo_path(&args.path)?;
        let text = self.jail.read(&path)?;
        let total = text.lines().count();
        let first = args.start_line.unwrap_or(1).max(1);
        let wanted = args.end_line.unwrap_or(usize::MAX).min(total);
        if total > 0 && (first > total || wanted < first) {
            return Err(Refusal::Refused(format!(
                "{path} has {total} lines; there is no such range"
            )));
        }
        let mut body = String::new();
        let mut last = first.saturating_sub(1);
        for line in
            text.split_inclusive('\n').skip(first - 1).take(wanted + 1 - first.min(wanted + 1))
        {
            if last + 1 - first >= MAX_LINES || body.len() + line.len() > MAX_OUTPUT - 512 {
                break;
            }
            body.push_str(line);
            last += 1;
        }
        let more = if last < wanted { ", cut: read on from the next line" } else { "" };
        let range = if total == 0 {
            "empty".to_owned()
        } else {
            format!("{first}-{last} of {total}{more}")
        };
        if last < first && total > 0 {
            // One line alone is too long to show: show its start, so that the model knows.
            body = bounded(text.lines().nth(first - 1).unwrap_or(""), MAX_OUTPUT - 512);
        }
        Ok(format!("path: {path}\nhash: {}\nlines: {range}\n---\n{body}", hash(&text)))
    }

    fn edit(&self, args: &EditFile) -> Result<String, Refusal> {
        let path = self.writable(&args.path)?;
        let text = self.jail.read(&path)?;
        let current = hash(&text);
        if args.hash.trim() != current {
            let hint = args.edits.first().map_or("", |e| e.search.as_str());
            return Err(Refusal::Refused(format!(
                "stale hash: {path} is not what you read (its hash is now {current}). Nothing was \
                 changed. Its text now, around your edit:\n{}",
                prompt::fence("data", &around(&text, hint))
            )));
        }
        let new = apply(&text, &args.edits).map_err(Refusal::Refused)?;
        self.jail.overwrite(&path, &new)?;
        Ok(format!("edited {path}\nhash: {}", hash(&new)))
    }

    fn walk<'a>(&'a self, path: Option<&str>, glob: Option<&'a str>) -> Result<Walk<'a>, Refusal> {
        let folder = match path.map(str::trim) {
            None | Some("" | "." | "./" | "/") => None,
            Some(text) => Some(repo_path(text)?),
        };
        Ok(Walk { root: &self.root, jail: &self.jail, folder, glob })
    }

    fn writable(&self, text: &str) -> Result<RepoPath, Refusal> {
        let path = repo_path(text)?;
        if scope::matches(&self.node.writes, path.as_str().as_bytes()) {
            return Ok(path);
        }
        Err(Refusal::Refused(format!(
            "{path} is outside this task's write scope; nothing was changed. You may write only:\n{}",
            prompt::scope_list(&self.node.writes)
        )))
    }
}

fn repo_path(text: &str) -> Result<RepoPath, Refusal> {
    if text.len() > 4_096 {
        return Err(Refusal::Refused("the path is too long".to_owned()));
    }
    if text.split('/').any(|part| part == "..") {
        return Err(Refusal::Refused(
            "paths are relative to the root of the tree, without '..'".to_owned(),
        ));
    }
    RepoPath::new(text).map_err(|e| Refusal::Refused(e.to_string()))
}

fn parse<T: DeserializeOwned>(arguments: &Value) -> Result<T, Refusal> {
    serde_json::from_value(arguments.clone())
        .map_err(|e| Refusal::Malformed(format!("bad arguments: {e}")))
}

/// At most 40 lines around the first line of `hint`, or the head of the text.
fn around(text: &str, hint: &str) -> String {
    let wanted = hint.lines().map(str::trim).find(|l| !l.is_empty());
    let at = wanted.and_then(|w| text.lines().position(|l| l.trim() == w)).unwrap_or(0);
    let lines: Vec<&str> = text.lines().skip(at.saturating_sub(20)).take(40).collect();
    bounded(&lines.join("\n"), 4 * 1024)
}

/// Cuts the middle out of a long text.
pub(super) fn bounded(text: &str, max: usize) -> String {
    if text.len() <= max { text.to_owned() } else { prompt::cut(text, max / 4 * 3) }
}

/// The tools as the protocol describes them.
pub(super) fn definitions(verify: &[String]) -> Vec<Value> {
    let text = json!({"type": "string"});
    let line = json!({"type": "integer", "minimum": 1});
    let mut tools = vec![
        tool(
            "read_file",
            "Read a text file, whole or a range of lines. Gives its hash, which edit_file needs.",
            &json!({"path": text, "start_line": line, "end_line": line}),
            &["path"],
        ),
        tool(
            "list_files",
            "List files, of the whole tree or below a folder, filtered by a glob.",
            &json!({"path": text, "glob": text}),
            &[],
        ),
        tool(
            "search",
            "Find lines that contain a text, or match a regular expression.",
            &json!({"pattern": text, "regex": {"type": "boolean"}, "path": text, "glob": text}),
            &["pattern"],
        ),
        tool(
            "edit_file",
            "Replace parts of a file. `hash` is the one read_file gave. Each `search` must occur exactly \
             once; copy it exactly, with enough lines around it to be unique.",
            &json!({"path": text, "hash": text, "edits": {"type": "array", "minItems": 1, "items": {
                "type": "object", "properties": {"search": text, "replace": text},
                "required": ["search", "replace"]}}}),
            &["path", "hash", "edits"],
        ),
        tool(
            "create_file",
            "Create a file.",
            &json!({"path": text, "content": text}),
            &["path", "content"],
        ),
        tool("delete_file", "Delete a file.", &json!({"path": text}), &["path"]),
        tool(
            "rename_file",
            "Move a file to a free name.",
            &json!({"from": text, "to": text}),
            &["from", "to"],
        ),
    ];
    if !verify.is_empty() {
        tools.push(tool(
            "run_verify",
            "Run one of the task's checks on the tree as it is now.",
            &json!({"name": {"type": "string", "enum": verify}}),
            &["name"],
        ));
    }
    tools.push(tool(
        "finish",
        "Hand in the result. Ends the task.",
        &json!({
            "resolved": {"type": "array", "items": text},
            "blocked": {"type": "array", "items": {"type": "object",
                "properties": {"finding": text, "reason": text}, "required": ["finding", "reason"]}},
            "summary": text
        }),
        &["resolved", "summary"],
    ));
    tools
}

fn tool(name: &str, description: &str, properties: &Value, required: &[&str]) -> Value {
    json!({"type": "function", "function": {"name": name, "description": description, "parameters":
        {"type": "object", "properties": properties, "required": required}}})
}
