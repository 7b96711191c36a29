//! Search/replace edits: all of a list, or none.

use serde::Deserialize;

use crate::model::hex_digest;

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// Must occur exactly once.
    pub(super) search: String,
    /// What takes its place.
    pub(super) replace: String,
}

/// The fingerprint of a text that `edit_file` compares: 16 hex digits.
pub(super) fn hash(text: &str) -> String {
    let mut hex = hex_digest([text.as_bytes()]);
    hex.truncate(16);
    hex
}

/// Applies the edits in order, each on what the earlier ones left.
pub(super) fn apply(text: &str, edits: &[Edit]) -> Result<String, String> {
    if edits.is_empty() {
        return Err("the list of edits is empty".to_owned());
    }
    // Models write LF; a file with CRLF throughout keeps its line ends.
    let crlf = text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count();
    let ends = |part: &str| {
        if crlf { part.replace("\r\n", "\n").replace('\n', "\r\n") } else { part.to_owned() }
    };
    let mut out = text.to_owned();
    for (number, edit) in edits.iter().enumerate() {
        let number = number + 1;
        let (search, replace) = (ends(&edit.search), ends(&edit.replace));
        if search.is_empty() {
            return Err(format!("edit {number}: `search` is empty; nothing was changed"));
        }
        let mut found = out.match_indices(&search);
        let Some((at, _)) = found.next() else {
            return Err(format!(
                "edit {number}: `search` does not occur in the file; copy it exactly, white space \
                 included. Nothing was changed"
            ));
        };
        if found.next().is_some() || overlaps(&out, at, &search) {
            return Err(format!(
                "edit {number}: `search` occurs more than once; add lines around it until it is \
                 unique. Nothing was changed"
            ));
        }
        out.replace_range(at..at + search.len(), &replace);
    }
    if out == text {
        return Err("the edits change nothing".to_owned());
    }
    Ok(out)
}

/// Whether the text occurs again, overlapping its first occurrence.
fn overlaps(text: &str, at: usize, search: &str) -> bool {
    let step = text[at..].chars().next().map_or(1, char::len_utf8);
    text[at + step..].contains(search)
}

#[cfg(test)]
mod tests {
    use super::{Edit, apply};

    fn edits(list: &[(&str, &str)]) -> Vec<Edit> {
        list.iter()
            .map(|(s, r)| Edit { search: (*s).to_owned(), replace: (*r).to_owned() })
            .collect()
    }

    #[test]
    fn exactly_once_or_not_at_all() {
        assert_eq!(apply("a b c", &edits(&[("b", "x"), ("x c", "y")])).unwrap(), "a y");
        assert!(apply("a b b", &edits(&[("b", "x")])).unwrap_err().contains("more than once"));
        assert!(apply("aaa", &edits(&[("aa", "x")])).unwrap_err().contains("more than once"));
        assert!(apply("a", &edits(&[("z", "x")])).unwrap_err().contains("does not occur"));
        assert!(apply("a", &edits(&[("", "x")])).is_err());
        assert!(apply("a", &edits(&[("a", "a")])).is_err());
        assert!(apply("a", &[]).is_err());
    }

    #[test]
    fn line_ends_are_kept() {
        assert_eq!(
            apply("a\r\nb\r\nc\r\n", &edits(&[("a\nb", "x\ny\nz")])).unwrap(),
            "x\r\ny\r\nz\r\nc\r\n"
        );
        assert_eq!(apply("a\nb\r\n", &edits(&[("a\n", "x\n")])).unwrap(), "x\nb\r\n");
    }
}
