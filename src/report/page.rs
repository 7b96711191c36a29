//! Rendering to a budget: the most important first, and an honest word about the rest.

/// Characters of a pull request body, issue or comment. GitHub refuses more than 65 536.
pub const BODY_BUDGET: usize = 60_000;
/// Bytes of a step summary. GitHub drops one of more than 1 MiB.
pub const SUMMARY_BUDGET: usize = 900 * 1024;
/// Kept free for the word about the rest.
const REST: usize = 120;

/// A page that never grows beyond its budget.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
    left: usize,
    bytes: bool,
}

impl Page {
    /// A body, counted in characters.
    pub(super) fn body() -> Self {
        Self { text: String::new(), left: BODY_BUDGET - REST, bytes: false }
    }

    /// A step summary, counted in bytes.
    pub(super) fn summary() -> Self {
        Self { text: String::new(), left: SUMMARY_BUDGET - REST, bytes: true }
    }

    fn size(&self, text: &str) -> usize {
        if self.bytes { text.len() } else { text.chars().count() }
    }

    /// Adds a block whole, or not at all.
    pub(super) fn add(&mut self, block: &str) -> bool {
        self.add_reserving(block, 0)
    }

    fn add_reserving(&mut self, block: &str, reserve: usize) -> bool {
        let size = self.size(block);
        if size + reserve > self.left {
            return false;
        }
        self.left -= size;
        self.text.push_str(block);
        true
    }

    /// Adds `head` and as many lines as fit into `share` of what is left (0 to 100 per cent), then
    /// how many are missing. `what` is the plural of one line.
    pub(super) fn add_lines(
        &mut self,
        head: &str,
        lines: impl IntoIterator<Item = String>,
        what: &str,
        share: usize,
    ) {
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_none() || !self.add_reserving(head, REST) {
            return;
        }
        let floor = self.left - self.left * share.min(100) / 100;
        let mut missing = 0;
        for line in lines {
            if missing > 0 || !self.add_reserving(&line, floor.max(REST)) {
                missing += 1;
            }
        }
        if missing > 0 {
            self.add(&format!("\n… and {missing} more {what}\n"));
        }
        self.add("\n");
    }

    /// The text.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// The whole lines of a text that fit into so many characters.
pub(super) fn cut_to(text: &str, characters: usize) -> &str {
    match text.char_indices().nth(characters) {
        None => text,
        Some((end, _)) => {
            let kept = text.get(..end).unwrap_or_default();
            kept.get(..kept.rfind('\n').map_or(end, |at| at + 1)).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BODY_BUDGET, Page};

    #[test]
    fn a_page_counts_what_is_missing_and_keeps_room_for_what_follows() {
        let mut page = Page::body();
        let lines = (0..10_000).map(|i| format!("- line {i} é\n"));
        page.add_lines("## Lines\n\n", lines, "lines", 50);
        assert!(page.add("## After\n"));
        page.add_lines("", (0..9_000).map(|i| format!("- {i} xxxxxxxx\n")), "others", 100);
        let text = page.finish();
        assert!(text.chars().count() <= BODY_BUDGET, "{}", text.chars().count());
        let shown = text.matches("- line ").count();
        assert!(text.contains(&format!("… and {} more lines\n", 10_000 - shown)));
        assert!(text.contains("more others"));
    }
}
