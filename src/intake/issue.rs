//! An issue of the forge as a finding: its text says what to change, the tracked files that it
//! names are its places.

use super::{IntakeContext, IntakeError, PathKind, finding_id, text};
use crate::model::{Finding, Place, RepoPath, Severity};

/// The `source` of findings made of issues.
pub const ISSUE_SOURCE: &str = "issue";

/// Most files that one issue can name; more is a list of files, not a place.
const MAX_PLACES: usize = 20;
/// Most words that are looked at.
const MAX_WORDS: usize = 5_000;
/// Longest word that can be a path, bytes.
const MAX_WORD: usize = 500;

/// An issue as the forge tells it. Title and body are anybody's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedIssue {
    /// Its number.
    pub number: u64,
    /// Address for people.
    pub url: String,
    /// Title.
    pub title: String,
    /// Body, Markdown.
    pub body: String,
    /// Login of the author.
    pub author: String,
    /// What the forge says the author is to the repository, e.g. `CONTRIBUTOR`. Recorded for
    /// people; no permission follows from it.
    pub association: String,
}

/// Reads one issue. An issue that names no tracked file is about the whole repository, as a
/// sentence of intent is.
///
/// # Errors
/// Never in practice: the provisional id is valid.
pub fn issue(reported: &ReportedIssue, ctx: &IntakeContext) -> Result<Finding, IntakeError> {
    let title = text::title(&reported.title);
    let title = if title.is_empty() { format!("Issue {}", reported.number) } else { title };
    let body = text::long(&reported.body);
    let detail = if body.is_empty() { title.clone() } else { format!("{title}\n\n{body}") };
    let places = places(&detail, ctx);
    let mut extra = serde_json::Map::new();
    extra.insert(Finding::ISSUE.to_owned(), reported.number.into());
    for (key, value) in
        [("author", &reported.author), ("author-association", &reported.association)]
    {
        if !value.is_empty() {
            extra.insert(key.to_owned(), text::title(value).into());
        }
    }
    Ok(Finding {
        id: finding_id(1)?,
        source_id: Some(format!("#{}", reported.number)),
        source: ISSUE_SOURCE.to_owned(),
        rule: None,
        title,
        detail,
        severity: Severity::Medium,
        level: None,
        places,
        suppressed: false,
        evidence: vec![text::title(&reported.url)],
        fingerprint: String::new(),
        dropped: None,
        extra,
    })
}

/// The tracked files that a text names, each once, in its order.
fn places(detail: &str, ctx: &IntakeContext) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let breaks = |c: char| c.is_whitespace() || "`'\"()[]<>{}|*,;".contains(c);
    let words = detail.split(breaks).filter(|word| !word.is_empty() && word.len() <= MAX_WORD);
    for word in words.take(MAX_WORDS) {
        let Some(place) = place(word, ctx) else { continue };
        if places.iter().any(|known| (&known.path, known.line) == (&place.path, place.line)) {
            continue;
        }
        places.push(place);
        if places.len() == MAX_PLACES {
            break;
        }
    }
    places
}

/// `src/a.rs`, `src/a.rs:12`, `src/a.rs:12:3`, `src/a.rs#L12-L15`, or a link to a blob.
fn place(word: &str, ctx: &IntakeContext) -> Option<Place> {
    let word = word.trim_end_matches(['.', ':', '!', '?']);
    let word = match word.split_once("/blob/") {
        // After the ref, whose own slashes can't be told from the path's: one segment, as commits
        // and most branches are.
        Some((_, rest)) => rest.split_once('/')?.1,
        None => word.trim_start_matches("./"),
    };
    let (path, lines) = match word.split_once("#L") {
        Some((path, lines)) => (path, Some(lines)),
        None => match word.split_once(':') {
            Some((path, lines)) => (path, Some(lines)),
            None => (word, None),
        },
    };
    let path = RepoPath::new(path).ok()?;
    if (ctx.lookup)(path.as_str()) != PathKind::File {
        return None;
    }
    let mut numbers = lines
        .unwrap_or_default()
        .split('-')
        .map(|text| text.trim_start_matches('L').split(':').next().unwrap_or_default())
        .map(|text| text.parse::<u32>().ok().filter(|line| *line > 0));
    let line = numbers.next().flatten();
    let end_line = numbers.next().flatten().filter(|end| Some(*end) >= line).or(line);
    Some(Place { path, line, end_line, snippet: None, symbol: None })
}

#[cfg(test)]
mod tests {
    use super::{ReportedIssue, issue};
    use crate::intake::{IntakeContext, PathKind};

    #[test]
    fn the_tracked_files_that_a_text_names_are_its_places() {
        let lookup = |path: &str| match path {
            "src/a.rs" | "b.txt" | "README.md" => PathKind::File,
            "src" => PathKind::Folder,
            _ => PathKind::Missing,
        };
        let ctx = IntakeContext { lookup: &lookup, ..IntakeContext::blind() };
        let found = |body: &str| {
            let reported = ReportedIssue {
                number: 7,
                title: "Fix it".to_owned(),
                body: body.to_owned(),
                association: "NONE".to_owned(),
                ..ReportedIssue::default()
            };
            let finding = issue(&reported, &ctx).unwrap();
            assert_eq!(finding.extra["issue"], 7);
            assert_eq!(finding.extra["author-association"], "NONE");
            let shown =
                |p: &crate::model::Place| format!("{} {:?} {:?}", p.path, p.line, p.end_line);
            finding.places.iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(
            found("In `src/a.rs:12` and (b.txt)."),
            ["src/a.rs Some(12) Some(12)", "b.txt None None"]
        );
        assert_eq!(found("src/a.rs#L3-L5, ./src/a.rs:3:9 again"), ["src/a.rs Some(3) Some(5)"]);
        assert_eq!(
            found("https://github.com/o/r/blob/0a1b2c/src/a.rs#L4"),
            ["src/a.rs Some(4) Some(4)"]
        );
        for nothing in ["", "src", "../../etc/passwd", "/etc/passwd", "src/z.rs", "https://x/b.txt"]
        {
            assert_eq!(found(nothing), Vec::<String>::new(), "{nothing}");
        }
    }
}
