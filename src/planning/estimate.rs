//! What the checkout holds, and how many tokens a node will take.

use std::collections::HashMap;

use super::PlanContext;
use super::scope::fixed_folder;
use super::verify::Language;
use crate::model::{Finding, ScopeEntry};

/// Instructions, contract and tool descriptions of a prompt, tokens.
const OVERHEAD_TOKENS: u64 = 1_500;
/// A worker reads a folder or a glob piece by piece; it never holds more of it than this, tokens.
const FOLDER_TOKENS: u64 = 16_000;
/// Bytes of code or prose in one token, on average.
const BYTES_PER_TOKEN: u64 = 4;

/// The tracked files by path, and what each folder holds.
pub(super) struct Checkout<'a> {
    known: bool,
    files: HashMap<&'a str, u64>,
    /// The empty key is the repository.
    folders: HashMap<&'a str, Below>,
}

/// What lies below a folder.
#[derive(Debug, Clone, Default)]
struct Below {
    files: usize,
    bytes: u64,
    languages: Vec<Language>,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Folder,
    Missing,
    /// No checkout is at hand.
    Unknown,
}

impl<'a> Checkout<'a> {
    pub fn new(ctx: &'a PlanContext) -> Self {
        let list = ctx.files.as_deref().unwrap_or_default();
        let mut files = HashMap::with_capacity(list.len());
        let mut folders: HashMap<&str, Below> = HashMap::new();
        for file in list {
            let path = file.path.as_str();
            files.insert(path, file.bytes);
            let language = Language::of(path);
            let ends = path.match_indices('/').map(|(end, _)| end).chain([0]);
            for end in ends {
                let folder = folders.entry(&path[..end]).or_default();
                folder.files += 1;
                folder.bytes = folder.bytes.saturating_add(file.bytes);
                if let Some(language) = language
                    && !folder.languages.contains(&language)
                {
                    folder.languages.push(language);
                }
            }
        }
        Self { known: ctx.files.is_some(), files, folders }
    }

    pub fn kind(&self, path: &str) -> Kind {
        if self.files.contains_key(path) {
            Kind::File
        } else if self.folders.contains_key(path) {
            Kind::Folder
        } else if self.known {
            Kind::Missing
        } else {
            Kind::Unknown
        }
    }

    pub fn has_file(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// True when the entry reaches a file of this language.
    pub fn reaches(&self, entry: &ScopeEntry, language: Language) -> bool {
        match entry {
            ScopeEntry::Path(path) => Language::of(path.as_str()) == Some(language),
            other => {
                let below = self.folders.get(fixed_folder(other));
                below.is_some_and(|below| below.languages.contains(&language))
            }
        }
    }

    /// How many files an entry reaches; at least one.
    pub fn width(&self, entry: &ScopeEntry) -> usize {
        match entry {
            ScopeEntry::Path(_) => 1,
            ScopeEntry::Folder(path) => {
                self.folders.get(path.as_str()).map_or(1, |below| below.files)
            }
            ScopeEntry::Glob(_) => {
                self.folders.get(fixed_folder(entry)).map_or(usize::MAX, |below| below.files)
            }
        }
    }

    /// Tokens of the files that an entry reaches.
    fn entry_tokens(&self, entry: &ScopeEntry) -> u64 {
        match entry {
            ScopeEntry::Path(path) => tokens(self.files.get(path.as_str()).copied().unwrap_or(0)),
            ScopeEntry::Folder(_) | ScopeEntry::Glob(_) => {
                let bytes = self.folders.get(fixed_folder(entry)).map_or(0, |below| below.bytes);
                tokens(bytes).min(FOLDER_TOKENS)
            }
        }
    }

    /// Tokens of a prompt for these entries without its findings.
    pub fn scope_tokens(&self, writes: &[ScopeEntry]) -> u64 {
        let files = writes.iter().map(|entry| self.entry_tokens(entry));
        files.fold(OVERHEAD_TOKENS, u64::saturating_add)
    }
}

/// Tokens of what a finding says.
pub(super) fn finding_tokens(finding: &Finding) -> u64 {
    let places = finding.places.iter().map(|place| {
        let snippet = place.snippet.as_ref().map_or(0, String::len);
        let symbol = place.symbol.as_ref().map_or(0, String::len);
        place.path.as_str().len() + snippet + symbol + 16
    });
    let evidence = finding.evidence.iter().map(String::len);
    let bytes: usize = finding.title.len()
        + finding.detail.len()
        + finding.rule.as_ref().map_or(0, String::len)
        + places.chain(evidence).sum::<usize>();
    tokens(bytes as u64)
}

fn tokens(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Output envelope: an opening, and edits per finding. Eight findings fit the 4 096 tokens of a
/// pool that declares no limit.
pub(super) fn output_tokens(findings: usize) -> u64 {
    1_024 + 384 * findings as u64
}
