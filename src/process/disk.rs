//! Measuring folders.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Most entries that one measurement looks at: the watch must stay cheap beside its child.
const ENTRIES: usize = 500_000;

/// Allocated bytes below `folders`, links not followed; what can't be read counts nothing.
pub(super) fn usage(folders: &[PathBuf]) -> u64 {
    let mut total = 0_u64;
    let mut seen = 0_usize;
    let mut stack: Vec<PathBuf> = folders.to_vec();
    while let Some(folder) = stack.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            seen += 1;
            if seen > ENTRIES {
                return total;
            }
            let Ok(meta) = entry.metadata() else { continue };
            // Sparse files cost what they use (512-byte units, POSIX `st_blocks`).
            total = total.saturating_add(meta.blocks().saturating_mul(512));
            if meta.is_dir() {
                stack.push(entry.path());
            }
        }
    }
    total
}
