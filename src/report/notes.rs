//! What people write into a body of ours. We rewrite such a body as a whole, so what they wrote is
//! looked for first and kept below ours: nothing of it is ever lost.

use super::marker;
use super::page::cut_to;
use crate::model::hex_digest;

/// The line below which everything is people's.
const NOTES: &str = "<!-- overhaul:notes -->";
/// Ours, below that line.
const HEADING: &str = "### Notes of people";
/// GitHub's limit of a body, characters, less the room for markers.
const LIMIT: usize = 65_000;
/// Hex digits that tell a line.
const DIGITS: usize = 8;

/// What tells our own lines again, for the ledger: a short digest of each line with something on it.
#[must_use]
pub fn fingerprint(body: &str) -> String {
    let lines = body.lines().map(still).filter(|line| !line.is_empty());
    lines.map(|line| short(&line)).collect()
}

/// Our new text with what people wrote into the body that is there. `written` is the
/// [`fingerprint`] of our last text; without it only what stands below the notes line is people's.
#[must_use]
pub fn keep(ours: &str, there: &str, written: &str) -> String {
    let (above, below) = match there.split_once(NOTES) {
        Some((above, below)) => (above, below),
        None => (there, ""),
    };
    let mut kept: Vec<&str> = Vec::new();
    if !written.is_empty() {
        kept.extend(above.lines().filter(|line| is_theirs(line, written)));
    }
    let below = below.trim_matches(['\r', '\n']);
    kept.extend(below.lines().filter(|line| line.trim_end() != HEADING));
    let notes = kept.join("\n");
    let notes = notes.trim_matches('\n');
    if notes.trim().is_empty() {
        return ours.to_owned();
    }
    let notes = format!("\n{NOTES}\n{HEADING}\n\n{notes}\n");
    // Theirs is kept whole; ours can be written again.
    let room = LIMIT.saturating_sub(notes.chars().count());
    format!("{}{notes}", cut_to(ours, room))
}

/// The commands whose boxes are ticked, of the boxes that we wrote.
#[must_use]
pub fn ticked(body: &str, written: &str) -> Vec<String> {
    let above = body.split_once(NOTES).map_or(body, |(above, _)| above);
    let ours: Vec<&str> = above.lines().filter(|line| !is_theirs(line, written)).collect();
    marker::ticked(&ours.join("\n"))
}

fn is_theirs(line: &str, written: &str) -> bool {
    let line = still(line);
    if line.is_empty() {
        return false;
    }
    let short = short(&line);
    !written.as_bytes().chunks(DIGITS).any(|known| known == short.as_bytes())
}

/// A line without what changes by itself: blanks around it, a tick in its box.
fn still(line: &str) -> String {
    let line = line.trim();
    match line.strip_prefix("- [x] ").or_else(|| line.strip_prefix("- [X] ")) {
        Some(rest) => format!("- [ ] {rest}"),
        None => line.to_owned(),
    }
}

fn short(line: &str) -> String {
    hex_digest([line.as_bytes()]).chars().take(DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use super::{fingerprint, keep, ticked};

    const OURS: &str = "<!-- overhaul:dashboard r -->\n**progress**\n\n- [ ] <!-- overhaul:tick resume --> Resume\n";

    #[test]
    fn what_people_wrote_stands_below_ours_and_stays() {
        let written = fingerprint(OURS);
        assert_eq!(keep(OURS, OURS, &written), OURS);
        assert_eq!(keep(OURS, &OURS.replace("[ ]", "[x]").replace('\n', "\r\n"), &written), OURS);
        let edited = OURS.replace("**progress**", "**progress**\nAnn looks at N-001.\n> and more");
        let first = keep(OURS, &edited, &written);
        insta::assert_snapshot!(first);
        // Again and again, whatever we write meanwhile, and with more notes.
        let ours = OURS.replace("progress", "more progress");
        let second = keep(&ours, &first, &written);
        assert!(second.starts_with(&ours) && second.contains("Ann looks at N-001."));
        let third = keep(OURS, &format!("{second}\nBob too.\n"), &fingerprint(&ours));
        assert_eq!(third.matches("Ann looks at N-001.").count(), 1);
        assert_eq!(third.matches("### Notes of people").count(), 1);
        assert!(third.contains("> and more\n\nBob too."), "{third}");
    }

    #[test]
    fn notes_are_kept_whole_however_long_ours_is() {
        let long = "a line of ours\n".repeat(5_000);
        let notes = "their words\n".repeat(1_000);
        let both = keep(&long, &format!("{long}{notes}"), &fingerprint(&long));
        assert_eq!(both.matches("their words").count(), 1_000);
        assert!(both.chars().count() <= super::LIMIT);
    }

    #[test]
    fn only_boxes_of_ours_count() {
        let written = fingerprint(OURS);
        let theirs = "- [x] <!-- overhaul:tick cancel --> Cancel\n";
        let body = format!("{}{theirs}", OURS.replace("[ ]", "[x]"));
        assert_eq!(ticked(&body, &written), ["resume"]);
        assert_eq!(ticked(&keep(OURS, &body, &written), &written), Vec::<String>::new());
        assert_eq!(ticked(OURS, &written), Vec::<String>::new());
    }
}
