//! May this node write this path?

use globset::GlobBuilder;

use crate::model::{RepoPath, ScopeEntry};

/// Whether any entry covers the path.
pub(super) fn may_write(writes: &[ScopeEntry], path: &RepoPath) -> bool {
    writes.iter().any(|entry| match entry {
        ScopeEntry::Path(own) => own == path,
        ScopeEntry::Folder(folder) => {
            path.as_str().strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
        }
        ScopeEntry::Glob(glob) => GlobBuilder::new(glob)
            .literal_separator(true)
            .build()
            .is_ok_and(|g| g.compile_matcher().is_match(path.as_str())),
    })
}
