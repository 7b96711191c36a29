//! The files of the local forge: YAML front matter between `---` lines, then Markdown.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::forge::{ForgeError, State};

/// GitHub's own limit on bodies, characters: what fits here fits there.
pub(super) const BODY_LIMIT: usize = 65_536;
/// Largest file that is read, bytes.
const FILE_LIMIT: usize = 1024 * 1024;

/// A file: what the front matter says, and the text below it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Document<T> {
    /// Front matter.
    pub head: T,
    /// Markdown below it.
    pub body: String,
}

/// Front matter of `pulls/<number>.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct PullHead {
    pub number: u64,
    pub title: String,
    pub state: State,
    #[serde(default)]
    pub draft: bool,
    pub head: String,
    pub head_commit: String,
    pub base: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge_commit: Option<String>,
    #[serde(default)]
    pub labels: Vec<String>,
    #[serde(default)]
    pub reviewers: Vec<String>,
    #[serde(default)]
    pub marker: String,
}

/// Front matter of `issues/<number>.md`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct IssueHead {
    pub number: u64,
    pub title: String,
    pub state: State,
    #[serde(default)]
    pub labels: Vec<String>,
    #[serde(default)]
    pub marker: String,
}

/// Front matter of `comments/<any name>.md`; a person may leave all of it out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct CommentHead {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bot: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reactions: Vec<String>,
}

/// Reads a file whose front matter is required.
pub(super) fn parse<T: DeserializeOwned>(
    place: &str,
    text: &str,
) -> Result<Document<T>, ForgeError> {
    let invalid = |reason: String| ForgeError::Invalid(format!("{place}: {reason}"));
    let (front, body) = split(place, text)?;
    let front = front
        .ok_or_else(|| invalid("the front matter between two '---' lines is missing".to_owned()))?;
    let head = serde_yaml::from_str(&front).map_err(|e| invalid(e.to_string()))?;
    Ok(Document { head, body })
}

/// Reads a file that may have no front matter at all.
pub(super) fn parse_lenient<T: DeserializeOwned + Default>(
    place: &str,
    text: &str,
) -> Result<Document<T>, ForgeError> {
    match split(place, text)? {
        (None, body) => Ok(Document { head: T::default(), body }),
        (Some(_), _) => parse(place, text),
    }
}

/// Front matter and body. Line ends of any editor are read.
fn split(place: &str, text: &str) -> Result<(Option<String>, String), ForgeError> {
    if text.len() > FILE_LIMIT {
        return Err(ForgeError::Invalid(format!("{place}: larger than {FILE_LIMIT} bytes")));
    }
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let Some(rest) = text.strip_prefix("---\n") else { return Ok((None, text)) };
    let Some((front, body)) = rest.split_once("\n---\n") else {
        return match rest.strip_suffix("\n---") {
            Some(front) => Ok((Some(front.to_owned()), String::new())),
            None => Ok((None, text)),
        };
    };
    Ok((Some(front.to_owned()), body.strip_prefix('\n').unwrap_or(body).to_owned()))
}

/// Writes a file.
pub(super) fn render<T: Serialize>(document: &Document<T>) -> Result<String, ForgeError> {
    if document.body.chars().count() > BODY_LIMIT {
        return Err(ForgeError::Invalid(format!("body is longer than {BODY_LIMIT} characters")));
    }
    let front = serde_yaml::to_string(&document.head)
        .map_err(|e| ForgeError::Invalid(format!("front matter: {e}")))?;
    Ok(format!("---\n{front}---\n\n{}", document.body))
}

#[cfg(test)]
mod tests {
    use super::{CommentHead, Document, IssueHead, PullHead, parse, parse_lenient, render};
    use crate::forge::State;

    #[test]
    fn documents_round_trip_whatever_the_texts_hold() {
        let hostile = "a: b\n---\nstate: merged\n\u{85} \"quoted\" # x \u{1F600}";
        let head = PullHead {
            number: 1,
            title: hostile.to_owned(),
            state: State::Open,
            draft: true,
            head: "overhaul/r/n".to_owned(),
            head_commit: "0".repeat(40),
            base: "main".to_owned(),
            merge_commit: None,
            labels: vec!["- x".to_owned(), "null".to_owned()],
            reviewers: vec![],
            marker: "<!-- overhaul:x -->".to_owned(),
        };
        let document = Document { head, body: hostile.to_owned() };
        let text = render(&document).unwrap();
        assert_eq!(parse::<PullHead>("x", &text).unwrap(), document);
    }

    #[test]
    fn peoples_edits_are_read_and_their_slips_named() {
        let crlf = "---\r\nnumber: 3\r\ntitle: T\r\nstate: closed\r\n---\r\nbody\r\n";
        let document = parse::<IssueHead>("issues/0003.md", crlf).unwrap();
        assert_eq!((document.head.state, document.body.as_str()), (State::Closed, "body\n"));
        let slip = "---\nnumber: 3\ntitle: T\nsate: closed\n---\n";
        let error = parse::<IssueHead>("issues/0003.md", slip).unwrap_err().to_string();
        assert!(error.contains("issues/0003.md") && error.contains("sate"), "{error}");
        let bare = parse_lenient::<CommentHead>("c", "/overhaul status\n").unwrap();
        assert_eq!(bare.body, "/overhaul status\n");
        assert_eq!(bare.head, CommentHead::default());
        assert!(parse::<IssueHead>("x", "").is_err());
    }
}
