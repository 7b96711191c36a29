//! Workflow commands on standard output. The runner reads commands from every line of every step,
//! so whatever came from a model, a tool or a file is printed between `::stop-commands::` and a
//! token that its author could not know.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::token_not_in;

/// Annotations of one kind that a step may make; the runner drops the rest.
const PER_KIND: usize = 10;
/// Longest message of an annotation, characters; the runner cuts what is longer.
const MESSAGE_LIMIT: usize = 4_096;

/// Kinds of annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Good to know.
    Notice,
    /// Look at it.
    Warning,
    /// Broken.
    Error,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A message with its place in the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Annotation {
    /// File inside the repository.
    pub file: Option<String>,
    /// Line, from 1.
    pub line: Option<u32>,
    /// A few words.
    pub title: Option<String>,
    /// The message; may have several lines.
    pub message: String,
}

/// The log of the step: plain text off Actions, workflow commands on it.
#[derive(Debug)]
pub struct Log<W> {
    out: W,
    on_actions: bool,
    made: [usize; 3],
}

impl<W: Write> Log<W> {
    /// A log that writes to `out`.
    pub fn new(out: W, on_actions: bool) -> Self {
        Self { out, on_actions, made: [0; 3] }
    }

    /// A line of our own. Parts of it may have come from outside: it never becomes a command.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        for line in text.lines() {
            writeln!(self.out, "{}", harmless(line))?;
        }
        Ok(())
    }

    /// Begins a group of lines that people can fold.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn group(&mut self, title: &str) -> io::Result<()> {
        if self.on_actions {
            writeln!(self.out, "::group::{}", escape_data(title))
        } else {
            self.line(title)
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn end_group(&mut self) -> io::Result<()> {
        if self.on_actions { writeln!(self.out, "::endgroup::") } else { Ok(()) }
    }

    /// Has the runner replace a secret by `***` in everything that follows; each line of it also,
    /// since the runner matches within lines only.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn mask(&mut self, secret: &str) -> io::Result<()> {
        if !self.on_actions {
            return Ok(());
        }
        let whole = Some(secret).filter(|s| s.lines().count() > 1);
        for part in secret.lines().chain(whole) {
            // Masking one or two characters would blank out the whole log.
            if part.trim().len() > 3 {
                writeln!(self.out, "::add-mask::{}", escape_data(part))?;
            }
        }
        Ok(())
    }

    /// Marks a place. Beyond the runner's limit it is an ordinary line.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn annotate(&mut self, level: Level, it: &Annotation) -> io::Result<()> {
        let slot = &mut self.made[level as usize];
        if self.on_actions && *slot < PER_KIND {
            *slot += 1;
            return writeln!(self.out, "{}", annotation(level, it));
        }
        let place = match (&it.file, it.line) {
            (Some(file), Some(line)) => format!("{file}:{line}: "),
            (Some(file), None) => format!("{file}: "),
            (None, _) => String::new(),
        };
        let title = it.title.as_ref().map(|t| format!("{t}: ")).unwrap_or_default();
        self.line(&format!("{}: {place}{title}{}", level.word(), it.message))
    }

    /// Text of a model, a tool or a file, which must stay text.
    ///
    /// # Errors
    /// When the output can't be written.
    pub fn untrusted(&mut self, text: &str) -> io::Result<()> {
        if !self.on_actions {
            return self.line(text);
        }
        let token = token_not_in(text);
        writeln!(self.out, "::stop-commands::{token}")?;
        self.line(text)?;
        writeln!(self.out, "::{token}::")
    }

    /// Gives the writer back.
    pub fn into_inner(self) -> W {
        self.out
    }
}

fn annotation(level: Level, it: &Annotation) -> String {
    let mut properties = Vec::new();
    if let Some(file) = &it.file {
        properties.push(format!("file={}", escape_property(file)));
        if let Some(line) = it.line {
            properties.push(format!("line={line}"));
        }
    }
    if let Some(title) = &it.title {
        properties.push(format!("title={}", escape_property(title)));
    }
    let space = if properties.is_empty() { "" } else { " " };
    let message: String = if it.message.chars().count() > MESSAGE_LIMIT {
        it.message.chars().take(MESSAGE_LIMIT - 1).chain(['…']).collect()
    } else {
        it.message.clone()
    };
    format!("::{}{space}{}::{}", level.word(), properties.join(","), escape_data(&message))
}

/// The runner's own decoding, backwards (`ActionCommand.EscapeData`).
fn escape_data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// As above for what stands between `::` and `::`.
fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}

/// A line that neither the runner (`::x::` at the start, the older `##[x]` anywhere) nor a terminal
/// (control characters) takes for a command.
fn harmless(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    for c in line.chars() {
        if c.is_control() && c != '\t' {
            let _ = write!(clean, "{}", c.escape_default());
        } else {
            clean.push(c);
        }
    }
    if clean.trim_start().starts_with("::") {
        clean.insert(0, '.');
    }
    clean.replace("##[", "## [")
}

#[cfg(test)]
mod tests {
    use super::{Annotation, Level, Log};

    fn written(on_actions: bool, act: impl FnOnce(&mut Log<Vec<u8>>)) -> String {
        let mut log = Log::new(Vec::new(), on_actions);
        act(&mut log);
        String::from_utf8(log.into_inner()).unwrap()
    }

    #[test]
    fn properties_and_messages_are_escaped() {
        let it = Annotation {
            file: Some("a,b:c.rs".to_owned()),
            line: Some(3),
            title: Some("100%".to_owned()),
            message: "one\r\n::error::two".to_owned(),
        };
        assert_eq!(
            written(true, |l| l.annotate(Level::Warning, &it).unwrap()),
            "::warning file=a%2Cb%3Ac.rs,line=3,title=100%25::one%0D%0A::error::two\n"
        );
        assert_eq!(
            written(false, |l| l.annotate(Level::Warning, &it).unwrap()),
            "warning: a,b:c.rs:3: 100%: one\n.::error::two\n"
        );
    }

    #[test]
    fn the_eleventh_of_a_kind_is_a_plain_line() {
        let it = Annotation { message: "x".repeat(5_000), ..Annotation::default() };
        let text = written(true, |l| {
            for _ in 0..12 {
                l.annotate(Level::Error, &it).unwrap();
            }
            l.annotate(Level::Notice, &it).unwrap();
        });
        assert_eq!(text.matches("::error::").count(), 10);
        assert_eq!(text.matches("\nerror: ").count(), 2);
        let first = text.lines().next().unwrap();
        assert_eq!(first.chars().count(), "::error::".len() + 4_096);
    }

    #[test]
    fn untrusted_text_is_fenced_by_an_unguessable_token() {
        let text =
            written(true, |l| l.untrusted("::set-env name=X::1\n##[error]x\u{1b}[2J").unwrap());
        let lines: Vec<_> = text.lines().collect();
        let token = lines[0].strip_prefix("::stop-commands::").unwrap();
        assert!(token.len() > 32);
        assert_eq!(lines[3], format!("::{token}::"));
        assert_eq!(lines[1], ".::set-env name=X::1");
        assert_eq!(lines[2], "## [error]x\\u{1b}[2J");
    }

    #[test]
    fn secrets_are_masked_line_by_line() {
        let text = written(true, |l| l.mask("-----BEGIN\nkey%data\n}\n").unwrap());
        assert_eq!(
            text,
            "::add-mask::-----BEGIN\n::add-mask::key%25data\n\
             ::add-mask::-----BEGIN%0Akey%25data%0A}%0A\n"
        );
        assert_eq!(written(false, |l| l.mask("secret").unwrap()), "");
    }

    #[test]
    fn groups_fold() {
        let act = |l: &mut Log<Vec<u8>>| {
            l.group("node\nN-001").unwrap();
            l.line("::debug::x").unwrap();
            l.end_group().unwrap();
        };
        assert_eq!(written(true, act), "::group::node%0AN-001\n.::debug::x\n::endgroup::\n");
        assert_eq!(written(false, act), "node\nN-001\n.::debug::x\n");
    }
}
