//! The runner's file commands: outputs and the step summary.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use super::{ActionsError, OUTPUTS, Runtime, token_not_in};

/// Largest step summary, bytes; the runner drops a larger one whole.
pub const SUMMARY_LIMIT: u64 = 1024 * 1024;
/// Largest output value, bytes; a job's outputs together may have 1 MB.
const OUTPUT_LIMIT: usize = 1_000_000;
/// Said where a summary was cut.
const CUT: &str = "\n\n… cut: the step summary is full.\n";

impl Runtime {
    /// Sets an output; nothing happens outside Actions.
    ///
    /// # Errors
    /// When the output is not one of `action.yml`, too large, or its file can't be written.
    pub fn set_output(&self, name: &str, value: &str) -> Result<(), ActionsError> {
        let refuse = |reason: String| Err(ActionsError::Output { name: name.to_owned(), reason });
        if !OUTPUTS.contains(&name) {
            return refuse("action.yml does not declare it".to_owned());
        }
        if value.len() > OUTPUT_LIMIT {
            return refuse(format!("{} bytes are more than {OUTPUT_LIMIT}", value.len()));
        }
        let Some(path) = &self.output_file else { return Ok(()) };
        let token = token_not_in(value);
        append("the output file", path, &format!("{name}<<{token}\n{value}\n{token}\n"))
    }

    /// Appends to the step summary what fits; nothing happens outside Actions.
    ///
    /// # Errors
    /// When its file can't be written.
    pub fn append_summary(&self, markdown: &str) -> Result<(), ActionsError> {
        let Some(path) = &self.summary_file else { return Ok(()) };
        let there = std::fs::metadata(path).map_or(0, |m| m.len());
        let room = usize::try_from(SUMMARY_LIMIT.saturating_sub(there)).unwrap_or(0);
        if markdown.len() <= room {
            return append("the summary file", path, markdown);
        }
        let Some(room) = room.checked_sub(CUT.len()) else { return Ok(()) };
        let head = &markdown[..markdown.floor_char_boundary(room)];
        let head = head.rfind('\n').map_or("", |end| &head[..end]);
        append("the summary file", path, &format!("{head}{CUT}"))
    }
}

fn append(what: &'static str, path: &Path, text: &str) -> Result<(), ActionsError> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| ActionsError::File { what, path: path.display().to_string(), source })
}

#[cfg(test)]
mod tests {
    use crate::actions::Runtime;

    #[test]
    fn outputs_can_not_be_broken_out_of() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out");
        let it = Runtime { output_file: Some(file.clone()), ..Runtime::default() };
        it.set_output("status", "paused\nEOF\nmatrix<<x\n").unwrap();
        it.set_output("nodes", "{}").unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        let token = text.lines().next().unwrap().strip_prefix("status<<").unwrap();
        assert!(text.contains(&format!("matrix<<x\n\n{token}\nnodes<<")), "{text}");
        assert!(it.set_output("evil\nname", "x").is_err());
        assert!(it.set_output("nodes", &"x".repeat(2_000_000)).is_err());
        assert!(Runtime::default().set_output("nodes", "x").is_ok());
    }

    #[test]
    fn a_summary_never_grows_beyond_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("summary");
        let it = Runtime { summary_file: Some(file.clone()), ..Runtime::default() };
        it.append_summary("# first\n").unwrap();
        it.append_summary(&"line \u{e9}\u{1F600}\n".repeat(200_000)).unwrap();
        it.append_summary(&"more\n".repeat(200_000)).unwrap();
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.starts_with("# first\nline") && text.contains("… cut"));
        assert!(text.len() as u64 <= super::SUMMARY_LIMIT);
    }
}
