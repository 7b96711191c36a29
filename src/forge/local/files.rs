//! Files of the local forge: one lock for writers, whole files for readers.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::forge::ForgeError;

/// Temporary files start with this; readers pass over every hidden file.
const TEMPORARY: &str = ".tmp-";

/// Held while numbers are given out and files changed; freed with the process.
pub(super) struct Lock(#[expect(dead_code, reason = "dropping the file frees the lock")] File);

/// Takes the writers' lock of a forge folder.
pub(super) fn lock(root: &Path) -> Result<Lock, ForgeError> {
    fs::create_dir_all(root).map_err(|e| trouble(root, &e))?;
    let path = root.join(".lock");
    let file = File::create(&path).map_err(|e| trouble(&path, &e))?;
    file.lock().map_err(|e| trouble(&path, &e))?;
    Ok(Lock(file))
}

/// One Markdown file.
pub(super) struct Entry {
    /// Where it is.
    pub path: PathBuf,
    /// Its name without `.md`.
    pub stem: String,
}

/// The Markdown files of a folder by name; a folder that is not there is empty. Hidden files
/// (editors' swap files, our temporary ones) and names that are not UTF-8 are not the forge's.
pub(super) fn entries(folder: &Path) -> Result<Vec<Entry>, ForgeError> {
    let listing = match fs::read_dir(folder) {
        Ok(listing) => listing,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(trouble(folder, &e)),
    };
    let mut found = Vec::new();
    for entry in listing {
        let path = entry.map_err(|e| trouble(folder, &e))?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if let Some(stem) = name.strip_suffix(".md").filter(|s| !s.starts_with('.')) {
            found.push(Entry { stem: stem.to_owned(), path });
        }
    }
    found.sort_by(|a, b| a.stem.cmp(&b.stem));
    Ok(found)
}

/// The file of a number.
pub(super) fn numbered(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:04}.md"))
}

/// The highest number used as a file name in the folder.
pub(super) fn highest(folder: &Path) -> Result<u64, ForgeError> {
    Ok(entries(folder)?.iter().filter_map(|e| e.stem.parse().ok()).max().unwrap_or(0))
}

/// Reads a text file and the time of its last change; `None` when it is not there.
pub(super) fn read(path: &Path) -> Result<Option<(String, SystemTime)>, ForgeError> {
    let reading = || -> io::Result<(String, SystemTime)> {
        let changed = fs::metadata(path)?.modified()?;
        Ok((fs::read_to_string(path)?, changed))
    };
    match reading() {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == ErrorKind::InvalidData => {
            Err(ForgeError::Invalid(format!("{}: not UTF-8 text", path.display())))
        }
        Err(e) => Err(trouble(path, &e)),
    }
}

/// What [`write`] does with a file that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The number must be free.
    Create,
    /// Put in place of the old content, now.
    Replace,
    /// The same, keeping this time of change.
    Keep(SystemTime),
}

/// Writes a file whole or not at all.
pub(super) fn write(path: &Path, text: &str, mode: Mode) -> Result<(), ForgeError> {
    let writing = || -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder)?;
        file.write_all(text.as_bytes())?;
        if let Mode::Keep(time) = mode {
            file.as_file().set_modified(time)?;
        }
        match mode {
            Mode::Create => file.persist_noclobber(path),
            Mode::Replace | Mode::Keep(_) => file.persist(path),
        }
        .map(drop)
        .map_err(|e| e.error)
    };
    writing().map_err(|e| trouble(path, &e))
}

fn trouble(path: &Path, error: &io::Error) -> ForgeError {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => ForgeError::Forbidden {
            action: format!("write {}", path.display()),
            message: error.to_string(),
            remedy: "make the folder writable for this user".to_owned(),
        },
        _ => ForgeError::Unavailable(format!("{}: {error}", path.display())),
    }
}
