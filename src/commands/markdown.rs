//! The lines of a comment that its author says: text of top-level paragraphs, as CommonMark reads
//! it. Code, quotes, lists, tables, links, HTML, folded sections and quoted mail are not said, they
//! are shown.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// One said line.
#[derive(Debug)]
pub(super) struct Line<'t> {
    /// Number in the comment, from 1.
    pub(super) number: usize,
    /// The source from the line's first visible character to its end.
    pub(super) source: &'t str,
    /// As it is rendered: no emphasis marks, code marks, escapes or entities.
    pub(super) rendered: String,
}

/// HTML elements whose content is shown, not said. The first two live on after a blank line; the
/// others end with their paragraph at the latest.
const BLOCK_SHOWS: [&str; 2] = ["details", "blockquote"];
const INLINE_SHOWS: [&str; 8] = ["del", "s", "strike", "code", "pre", "samp", "kbd", "q"];
/// The first of [`INLINE_SHOWS`] strike their content out.
const STRIKES: usize = 3;

/// Characters without a glyph that editors and keyboards leave at the start of a line. The
/// overriding ones (U+202A to U+202E) are not among them: what they hide must not act.
pub(super) fn is_invisible(c: char) -> bool {
    matches!(c, '\u{feff}' | '\u{200b}'..='\u{200f}' | '\u{2060}')
}

/// The start of our own comments, as `report` writes it.
const MARKER: &str = "<!-- overhaul";

/// The said lines; `None` when the comment carries our own marker.
pub(super) fn said(text: &str) -> Option<Vec<Line<'_>>> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_GFM
        | Options::ENABLE_MATH;
    let mut reader = Reader { text, ..Reader::default() };
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        // One container: the HTML block itself. In a quote somebody answers to a comment of ours.
        if matches!(event, Event::Html(_))
            && reader.containers == 1
            && text.get(range.start..).is_some_and(|html| html.trim_start().starts_with(MARKER))
        {
            return None;
        }
        reader.event(event, range.start);
    }
    let end = super::mail::quoted_from(text, &reader.shown);
    let starts = line_starts(text);
    let lines = reader.lines.into_iter().filter_map(|(start, rendered)| {
        let number = starts.partition_point(|s| *s <= start);
        let source = text.get(start..)?.lines().next()?;
        (number < end).then_some(Line { number, source, rendered })
    });
    Some(lines.collect())
}

fn line_starts(text: &str) -> Vec<usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

#[derive(Default)]
struct Reader<'t> {
    text: &'t str,
    /// Open quotes, lists, tables, code and HTML blocks, footnotes.
    containers: usize,
    /// Open emphasis, links, images.
    marks: usize,
    /// Open strikethroughs: what they hold is taken back.
    strikes: usize,
    /// Open HTML elements that show their content.
    blocks: [usize; BLOCK_SHOWS.len()],
    inlines: [usize; INLINE_SHOWS.len()],
    /// The current line: its start, if it is said, and its text.
    start: Option<usize>,
    fresh: bool,
    rendered: String,
    /// Said lines: start in the source, text.
    lines: Vec<(usize, String)>,
    /// Byte ranges of what stands in containers, ascending.
    shown: Vec<std::ops::Range<usize>>,
}

impl Reader<'_> {
    fn event(&mut self, event: Event<'_>, at: usize) {
        match event {
            Event::Start(Tag::Paragraph | Tag::Heading { .. }) => self.begin_line(),
            Event::End(TagEnd::Paragraph | TagEnd::Heading(_)) => {
                self.end_line();
                self.inlines = [0; INLINE_SHOWS.len()];
            }
            Event::Start(Tag::Strikethrough) => self.strikes += 1,
            Event::End(TagEnd::Strikethrough) => self.strikes = self.strikes.saturating_sub(1),
            Event::Start(tag) if is_mark(&tag) => self.marks += 1,
            Event::End(
                TagEnd::Emphasis
                | TagEnd::Strong
                | TagEnd::Superscript
                | TagEnd::Subscript
                | TagEnd::Link
                | TagEnd::Image,
            ) => self.marks = self.marks.saturating_sub(1),
            Event::Start(_) => self.containers += 1,
            Event::End(_) => self.containers = self.containers.saturating_sub(1),
            Event::Text(text) => self.piece(&text, at, self.marks + self.strikes == 0),
            Event::Code(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.piece(&text, at, false);
            }
            Event::InlineHtml(html) => {
                let before = self.rendered.len();
                self.html(&html);
                self.piece(&html, at, false);
                if is_unseen(&html) {
                    self.rendered.truncate(before);
                }
            }
            Event::Html(html) => {
                self.html(&html);
                self.shown.push(at..at + html.len());
            }
            Event::SoftBreak | Event::HardBreak => {
                self.end_line();
                self.begin_line();
            }
            Event::FootnoteReference(name) => self.piece(&name, at, false),
            Event::TaskListMarker(_) | Event::Rule => {}
        }
    }

    fn begin_line(&mut self) {
        (self.start, self.fresh) = (None, true);
        self.rendered.clear();
    }

    fn end_line(&mut self) {
        if let Some(start) = self.start.take() {
            self.lines.push((start, std::mem::take(&mut self.rendered)));
        }
        self.rendered.clear();
    }

    /// A piece of a line. The line is said when its first piece is plain text that stands at the
    /// start of its source line (an escape, an entity or a heading's `#` stands before others).
    fn piece(&mut self, text: &str, at: usize, plain: bool) {
        if self.containers > 0 {
            self.shown.push(at..at + text.len());
            return;
        }
        if std::mem::take(&mut self.fresh) {
            let before = self.text.get(..at).unwrap_or("");
            let indent = before.rsplit('\n').next().unwrap_or("");
            let hidden = self.blocks.iter().chain(&self.inlines).any(|open| *open > 0);
            let blank = |c: char| c.is_whitespace() || is_invisible(c);
            if plain && !hidden && indent.chars().all(blank) {
                let from = self.text.get(at..).unwrap_or("");
                self.start = Some(at + (from.len() - from.trim_start_matches(blank).len()));
            }
        }
        let struck = self.strikes > 0 || self.inlines.iter().take(STRIKES).any(|open| *open > 0);
        if !struck {
            self.rendered.push_str(text);
        }
    }

    /// Counts the opening and closing tags of elements that show.
    fn html(&mut self, html: &str) {
        let mut rest = html;
        while let Some(open) = rest.find('<') {
            rest = rest.get(open + 1..).unwrap_or("");
            if let Some(comment) = rest.strip_prefix("!--") {
                rest = comment.split_once("-->").map_or("", |(_, after)| after);
                continue;
            }
            let (closing, name) = match rest.strip_prefix('/') {
                Some(name) => (true, name),
                None => (false, rest),
            };
            let length = name.bytes().take_while(u8::is_ascii_alphanumeric).count();
            let name = name.get(..length).unwrap_or("");
            let counts = BLOCK_SHOWS
                .iter()
                .zip(&mut self.blocks)
                .chain(INLINE_SHOWS.iter().zip(&mut self.inlines));
            for (element, count) in counts {
                if element.eq_ignore_ascii_case(name) {
                    *count = if closing { count.saturating_sub(1) } else { *count + 1 };
                }
            }
        }
    }
}

/// Comments and the tags that strike out: nobody sees them. Other tags may be words in brackets.
fn is_unseen(html: &str) -> bool {
    let name = html.trim_start_matches(['<', '/']).trim_end_matches('>').trim();
    html.starts_with("<!--")
        || INLINE_SHOWS.iter().take(STRIKES).any(|strike| strike.eq_ignore_ascii_case(name))
}

fn is_mark(tag: &Tag<'_>) -> bool {
    matches!(
        tag,
        Tag::Emphasis
            | Tag::Strong
            | Tag::Superscript
            | Tag::Subscript
            | Tag::Link { .. }
            | Tag::Image { .. }
    )
}
