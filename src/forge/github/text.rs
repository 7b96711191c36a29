//! Bodies: their bound, and the markers by which objects are found again.

/// GitHub's limit of a body, in characters; a longer one is refused with 422.
pub(super) const LONGEST_BODY: usize = 65_536;
const CUT: &str = "\n\n(cut: too long for GitHub)\n";
/// Characters kept for markers of the part that is cut.
const LONGEST_MARKERS: usize = 2_000;

/// Whether a line of `body` is `marker` and nothing else. Lines end in CRLF when somebody edited
/// the body in a browser.
pub(super) fn has_marker(body: &str, marker: &str) -> bool {
    !marker.is_empty() && body.lines().any(|line| line.trim_end() == marker)
}

/// `body` with the marker at its end unless it is there, within GitHub's limit.
pub(super) fn marked(body: &str, marker: &str) -> String {
    if marker.is_empty() || has_marker(body, marker) {
        return bounded(body);
    }
    bounded(&format!("{}\n\n{marker}\n", body.trim_end()))
}

/// `body` within GitHub's limit. Rendering keeps well below it; this is the last guard. Hidden
/// lines of the part that is cut stay, or the object would not be found again.
pub(super) fn bounded(body: &str) -> String {
    if body.chars().count() <= LONGEST_BODY {
        return body.to_owned();
    }
    let room = LONGEST_BODY - CUT.chars().count() - LONGEST_MARKERS;
    let end = body.char_indices().nth(room).map_or(body.len(), |(index, _)| index);
    // Back to the end of a line, if one is near, so that no marker is cut in two.
    let end = body[..end].rfind('\n').unwrap_or(end);
    let (kept, rest) = body.split_at(end);
    let mut short = format!("{kept}{CUT}");
    let mut markers = 0;
    for line in rest.lines().map(str::trim) {
        let length = line.chars().count() + 1;
        let hidden = line.starts_with("<!--") && line.ends_with("-->");
        if hidden && markers + length <= LONGEST_MARKERS {
            markers += length;
            short.push_str(line);
            short.push('\n');
        }
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_a_whole_line() {
        let marker = "<!-- overhaul:run=a -->";
        assert!(has_marker("text\r\n<!-- overhaul:run=a -->\r\n", marker));
        for body in [
            "> <!-- overhaul:run=a -->",
            "`<!-- overhaul:run=a -->`",
            "<!-- overhaul:run=ab -->",
            "",
        ] {
            assert!(!has_marker(body, marker), "{body}");
        }
        assert!(!has_marker("\n\n", ""));
        assert_eq!(marked("text\n", marker), format!("text\n\n{marker}\n"));
        assert_eq!(marked(&format!("{marker}\ntext"), marker), format!("{marker}\ntext"));
    }

    #[test]
    fn a_body_is_bounded_in_characters_and_keeps_its_markers() {
        let marker = "<!-- overhaul:run=a -->";
        let exact = "ä".repeat(LONGEST_BODY);
        assert_eq!(bounded(&exact), exact);
        for text in ["ä".repeat(LONGEST_BODY + 1), "line ä\n".repeat(20_000), "x".repeat(1_000_000)]
        {
            let short = marked(&text, marker);
            assert!(short.chars().count() <= LONGEST_BODY);
            assert!(has_marker(&short, marker));
            assert!(short.contains("cut: too long"));
        }
        let many = format!("{}{}", "x".repeat(70_000), "\n<!-- m -->".repeat(5_000));
        assert!(bounded(&many).chars().count() <= LONGEST_BODY);
    }
}
