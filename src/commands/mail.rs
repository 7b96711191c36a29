//! Comments that come by mail carry what they answer to.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// The line with which mail clients introduce the answered text, in the languages of the larger
/// ones' defaults (Gmail, Outlook, Apple Mail, Thunderbird).
static INTRODUCTION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^ (?: (?:on|am|le|el|il|op|em|den|w\ dniu) \b .* \b
            (?: wrote | schrieb .* | a\ écrit | escribió | ha\ scritto | schreef .* | escreveu | skrev .* | napisał(?:a|\(a\))? )
            \s* : \s* $
          | -{2,} \s* (?: original\ message | forwarded\ message | ursprüngliche\ nachricht ) \s* -{2,} \s* $
          | _{20,} \s* $ )",
    )
    .ok()
});

/// Longest introduction over several lines, in characters.
const INTRODUCTION_LENGTH: usize = 300;

/// The first line (from 1) that is a signature or answered mail; beyond the end where there is none.
/// `shown` are the ascending byte ranges of code, quotes and HTML, which introduce nothing.
pub(super) fn quoted_from(text: &str, shown: &[Range<usize>]) -> usize {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut offset = 0;
    for (nth, line) in lines.iter().enumerate() {
        let content = offset + (line.len() - line.trim_start().len());
        offset += line.len() + 1;
        let before = shown.partition_point(|range| range.start <= content);
        if before > 0 && shown.get(before - 1).is_some_and(|range| range.contains(&content)) {
            continue;
        }
        // RFC 3676 §4.3: "-- " alone; many clients drop its blank. GitHub's own mails use a dash.
        if matches!(line.trim_end(), "--" | "\u{2014}") || introduces(&lines, nth) {
            return nth + 1;
        }
    }
    usize::MAX
}

/// Does an introduction begin on this line? It may be wrapped over three lines, and then holds a
/// date or an address.
fn introduces(lines: &[&str], nth: usize) -> bool {
    let Some(pattern) = INTRODUCTION.as_ref() else { return false };
    let mut joined = String::new();
    for (wrapped, line) in lines.iter().skip(nth).take(3).enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with(['/', '>']) {
            return false;
        }
        if wrapped > 0 {
            joined.push(' ');
        }
        joined.push_str(line.trim());
        if joined.chars().count() > INTRODUCTION_LENGTH {
            return false;
        }
        let dated = joined.bytes().any(|b| b.is_ascii_digit() || b == b'@');
        if pattern.is_match(&joined) && (wrapped == 0 || dated) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::quoted_from;

    #[test]
    fn introductions_and_signatures_are_found() {
        for text in [
            "x\nOn Mon, Jan 13, 2025, A <a@b.c> wrote:\n",
            "x\nOn Mon, Jan 13, 2025 at 5:00 PM A Person\n<a@b.c> wrote:\n",
            "x\nAm 13.01.2025 um 10:00 schrieb A. Person:\n",
            "x\nLe lun. 13 janv. 2025 à 10:00, A a écrit :\n",
            "x\n-----Original Message-----\n",
            "x\n-- \nA",
            "x\n\u{2014}\nReply to this email directly",
        ] {
            assert_eq!(quoted_from(text, &[]), 2, "{text}");
        }
        for text in ["x\nOn it.\n/overhaul resume\nhe wrote:", "x\n---\n", "x\nOn hold", "--x"] {
            assert_eq!(quoted_from(text, &[]), usize::MAX, "{text}");
        }
        assert_eq!(quoted_from("`\n-- \n`", std::slice::from_ref(&(2..5))), usize::MAX);
    }
}
