//! Removing what a worker left, however it is protected. Links are never followed.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::WorkspaceError;

/// Removes a file, link or whole folder; nothing there is fine.
pub(super) fn remove(path: &Path) -> Result<(), WorkspaceError> {
    let failed = |source| WorkspaceError::io(path, source);
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let first =
        if meta.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
    match first {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(_) if meta.is_dir() => {
            open_up(path);
            std::fs::remove_dir_all(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Makes every folder below `folder` writable for us, as far as possible.
pub(super) fn open_up(folder: &Path) {
    let mut stack = vec![folder.to_path_buf()];
    while let Some(folder) = stack.pop() {
        let _ = std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700));
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let folders = entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()));
        stack.extend(folders.map(|entry| entry.path()));
    }
}

/// Gives a folder that we keep the rights that we need in it.
pub(super) fn ensure_writable(folder: &Path) -> Result<(), WorkspaceError> {
    let failed = |source| WorkspaceError::io(folder, source);
    let mode = std::fs::symlink_metadata(folder).map_err(failed)?.permissions().mode();
    if mode & 0o700 != 0o700 {
        let open = std::fs::Permissions::from_mode(mode | 0o755);
        std::fs::set_permissions(folder, open).map_err(failed)?;
    }
    Ok(())
}

/// Creates a folder with its parents.
pub(super) fn make_dir(path: &Path) -> Result<(), WorkspaceError> {
    std::fs::create_dir_all(path).map_err(|source| WorkspaceError::io(path, source))
}

/// Writes a file.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), WorkspaceError> {
    std::fs::write(path, bytes).map_err(|source| WorkspaceError::io(path, source))
}
