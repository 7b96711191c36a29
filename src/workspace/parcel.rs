//! A change between two trees as plain content: what a job of its own hands in.
//!
//! Deliberately not a pack and not an archive. Reading one of those from a hostile sender means to
//! inflate, to resolve deltas and to walk trees that may be endless; and an archive is unpacked by
//! path. Here every byte lies open: a list of paths with their blobs' ids, and the blobs one after
//! the other. Nothing is written to a path. The blobs are hashed, the tree is made here from the base,
//! and it must be the tree that the sender named.

use std::collections::BTreeSet;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};

use super::{TakeLimits, WorkspaceError};
use crate::git::{Edit, Mode, Oid, Repo, parse_oid};

/// Longest path, bytes (Linux's `PATH_MAX`).
const MAX_PATH: usize = 4_096;

/// What a path escapes, so that it stands in JSON whatever its bytes are.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// What became of one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PieceKind {
    /// A file.
    File,
    /// A file that can be run.
    Executable,
    /// A symbolic link; its content is its target.
    Symlink,
    /// Gone.
    Removed,
}

/// One path of a parcel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Piece {
    /// From the root, `/`-separated; control characters, bytes beyond ASCII and `%` as `%XX`.
    pub path: String,
    /// What became of it.
    pub kind: PieceKind,
    /// Id of its blob; empty when it is gone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Size of its blob, bytes.
    #[serde(default)]
    pub bytes: u64,
}

/// Why a parcel can't be taken.
#[derive(Debug, thiserror::Error)]
pub enum ParcelError {
    /// What the sender handed in.
    #[error("{0}")]
    Refused(String),
    /// Our own side.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl From<crate::git::GitError> for ParcelError {
    fn from(error: crate::git::GitError) -> Self {
        Self::Workspace(error.into())
    }
}

fn refused<T>(why: impl Into<String>) -> Result<T, ParcelError> {
    Err(ParcelError::Refused(why.into()))
}

/// What differs between `base` and `tree`: the list and the content.
///
/// # Errors
/// When the trees can't be read, or differ in a submodule.
pub fn pack(repo: &Repo, base: Oid, tree: Oid) -> Result<(Vec<Piece>, Vec<u8>), ParcelError> {
    let mut pieces = Vec::new();
    let mut content = Vec::new();
    for change in repo.diff(base, tree)? {
        let path = percent_encode(&change.path, ESCAPED).to_string();
        let Some((mode, id)) = change.new else {
            pieces.push(Piece { path, kind: PieceKind::Removed, id: String::new(), bytes: 0 });
            continue;
        };
        let kind = match mode {
            Mode::File => PieceKind::File,
            Mode::Executable => PieceKind::Executable,
            Mode::Symlink => PieceKind::Symlink,
            Mode::Submodule => return refused(format!("'{path}' is a submodule")),
        };
        let blob = repo.blob(id)?;
        pieces.push(Piece { path, kind, id: id.to_string(), bytes: blob.len() as u64 });
        content.extend_from_slice(&blob);
    }
    Ok((pieces, content))
}

/// Makes the tree: `base` with the pieces in it.
///
/// # Errors
/// [`ParcelError::Refused`] when anything in it is not as it must be.
pub fn unpack(
    repo: &Repo,
    base: Oid,
    tree: &str,
    pieces: &[Piece],
    content: &[u8],
    limits: &TakeLimits,
) -> Result<Oid, ParcelError> {
    if pieces.len() > limits.files {
        return refused(format!("{} files changed; {} are allowed", pieces.len(), limits.files));
    }
    let total = pieces.iter().fold(0_u64, |sum, p| sum.saturating_add(p.bytes));
    if total != content.len() as u64 || total > limits.total_bytes {
        return refused(format!("{total} bytes are listed and {} are there", content.len()));
    }
    let mut seen = BTreeSet::new();
    let (mut edits, mut put) = (Vec::new(), Vec::new());
    let mut rest = content;
    for piece in pieces {
        let path = decode(&piece.path)?;
        if !seen.insert(path.clone()) {
            return refused(format!("'{}' is listed twice", path.escape_ascii()));
        }
        let mode = match piece.kind {
            PieceKind::File => Mode::File,
            PieceKind::Executable => Mode::Executable,
            PieceKind::Symlink => Mode::Symlink,
            PieceKind::Removed if piece.bytes == 0 => {
                edits.push(Edit::Remove(path));
                continue;
            }
            PieceKind::Removed => return refused("what is gone has no content"),
        };
        if piece.bytes > limits.file_bytes {
            return refused(format!(
                "'{}' is too large ({} bytes)",
                path.escape_ascii(),
                piece.bytes
            ));
        }
        let length = usize::try_from(piece.bytes).unwrap_or(usize::MAX);
        let Some((blob, after)) = rest.split_at_checked(length) else {
            return refused("its content is cut off");
        };
        rest = after;
        let id = repo.write_blob(blob)?;
        if parse_oid(&piece.id).ok() != Some(id) {
            return refused(format!("'{}' is not the blob {}", path.escape_ascii(), piece.id));
        }
        put.push(Edit::Put(path, mode, id));
    }
    // Removals first: what was a file may be a folder now, and the reverse.
    edits.extend(put);
    let made = if edits.is_empty() {
        base
    } else {
        repo.edit_tree(Some(base), &edits)
            .map_err(|e| ParcelError::Refused(format!("its paths make no tree: {e}")))?
    };
    if parse_oid(tree).ok() != Some(made) {
        return refused(format!("it makes the tree {made}, not {tree}"));
    }
    Ok(made)
}

/// A path that stays below the root.
fn decode(text: &str) -> Result<Vec<u8>, ParcelError> {
    let path: Vec<u8> = percent_decode_str(text).collect();
    let strange = |part: &[u8]| {
        part.is_empty() || part == b"." || part == b".." || part.eq_ignore_ascii_case(b".git")
    };
    if path.len() > MAX_PATH || path.contains(&0) || path.split(|b| *b == b'/').any(strange) {
        let shown: String = text.chars().take(200).collect();
        return refused(format!("'{}' is no path inside the tree", shown.escape_default()));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::{ParcelError, Piece, PieceKind, pack, unpack};
    use crate::git::{Edit, Mode, Repo};
    use crate::workspace::TakeLimits;

    fn repo() -> (tempfile::TempDir, Repo) {
        let dir = tempfile::tempdir().unwrap();
        let repo = Repo::create(&dir.path().join("r.git"), None).unwrap();
        (dir, repo)
    }

    #[test]
    fn a_change_arrives_as_it_was_sent() {
        let (_a, from) = repo();
        let (_b, to) = repo();
        let files = [("a", "1"), ("b/c", "2"), ("gone", "3")];
        let base = from.edit_files(None, files).unwrap();
        assert_eq!(to.edit_files(None, files).unwrap(), base);
        let blob = |text: &[u8]| from.write_blob(text).unwrap();
        let tree = from
            .edit_tree(
                Some(base),
                &[
                    Edit::Remove(b"gone".to_vec()),
                    Edit::Remove(b"b/c".to_vec()),
                    Edit::Put(b"b".to_vec(), Mode::Symlink, blob(b"a")),
                    Edit::Put(b"gone/\xff%\n".to_vec(), Mode::Executable, blob(b"\0x")),
                    Edit::Put(b"empty".to_vec(), Mode::File, blob(b"")),
                ],
            )
            .unwrap();
        let (pieces, content) = pack(&from, base, tree).unwrap();
        let limits = TakeLimits::default();
        let made = unpack(&to, base, &tree.to_string(), &pieces, &content, &limits).unwrap();
        assert_eq!(made, tree);
    }

    #[test]
    fn what_is_not_as_it_must_be_is_refused() {
        let (_a, repo) = repo();
        let base = repo.edit_files(None, [("a", "1")]).unwrap();
        let id = repo.write_blob(b"xy").unwrap();
        let tree = |path: &str| match repo.edit_files(Some(base), [(path, "xy")]) {
            Ok(tree) => tree.to_string(),
            Err(_) => base.to_string(),
        };
        let piece = |path: &str| Piece {
            path: path.to_owned(),
            kind: PieceKind::File,
            id: id.to_string(),
            bytes: 2,
        };
        let limits = TakeLimits { files: 3, ..TakeLimits::default() };
        let say = |pieces: &[Piece], content: &[u8], tree: &str| match unpack(
            &repo, base, tree, pieces, content, &limits,
        ) {
            Err(ParcelError::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        for path in ["../x", "/etc/x", "x/../../y", ".git/hooks/x", "x/.GIT/y", "", "x//y", "./x"] {
            assert!(say(&[piece(path)], b"xy", &tree(path)).contains("no path"), "{path}");
        }
        assert!(say(&[piece("%2e%2e/x")], b"xy", &tree("x")).contains("no path"));
        assert!(say(&[piece(&"a/".repeat(3_000))], b"xy", "t").contains("no path"));
        let fine = piece("new");
        let one = std::slice::from_ref(&fine);
        assert!(unpack(&repo, base, &tree("new"), one, b"xy", &limits).is_ok());
        assert!(say(one, b"xz", &tree("new")).contains("not the blob"));
        assert!(say(one, b"x", &tree("new")).contains("2 bytes are listed"));
        assert!(say(one, b"xy", &tree("other")).contains("makes the tree"));
        assert!(say(&[fine.clone(), fine.clone()], b"xyxy", "t").contains("twice"));
        let many: Vec<Piece> = (0..4).map(|n| piece(&n.to_string())).collect();
        assert!(say(&many, b"xyxyxyxy", "t").contains("4 files"));
        let huge = Piece { bytes: 1 << 40, ..fine };
        assert!(say(&[huge], b"xy", "t").contains("bytes are listed"));
    }
}
