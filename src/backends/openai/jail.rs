//! File access confined to one worktree: every component is opened without following links, so
//! nothing that a model or a repository puts in the tree leads outside it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use crate::model::RepoPath;

/// Largest file that is read or written, in bytes.
pub(super) const MAX_FILE: usize = 1024 * 1024;

/// Why a file operation was refused. The texts are written for the model.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error("{0} does not exist")]
    NotFound(String),
    #[error("{0} exists already")]
    Exists(String),
    #[error("{0} is, or lies behind, a symbolic link; links are not followed")]
    Link(String),
    #[error("{0} is a folder or another special file, not a regular file")]
    NotAFile(String),
    #[error("{0} is not a folder")]
    NotAFolder(String),
    #[error("{0} has {1} bytes; at most {MAX_FILE} are allowed")]
    TooLarge(String, u64),
    #[error("{0} is binary (or not UTF-8); there is no text to work on")]
    Binary(String),
    #[error("{0} has several hard links and is not written")]
    SharedInode(String),
    #[error("{0}: {1}")]
    Io(String, String),
}

/// One worktree.
#[derive(Debug)]
pub(super) struct Jail {
    root: OwnedFd,
}

const FOLDER: OFlag =
    OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC).union(OFlag::O_RDONLY);

impl Jail {
    /// Opens the worktree's root, whose own path is ours and may hold links.
    pub(super) fn open(root: &Path) -> Result<Self, FileError> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        match open(root, flags, Mode::empty()) {
            Ok(root) => Ok(Self { root }),
            Err(e) => Err(FileError::Io("the working tree".to_owned(), e.desc().to_owned())),
        }
    }

    /// The folder that holds `path`, and its last component.
    fn parent<'a>(&self, path: &'a RepoPath, make: bool) -> Result<(OwnedFd, &'a str), FileError> {
        let text = path.as_str();
        let (folders, name) = text.rsplit_once('/').map_or((None, text), |(f, n)| (Some(f), n));
        let mut at = self.root.try_clone().map_err(|e| io(text, &e))?;
        for part in folders.into_iter().flat_map(|f| f.split('/')) {
            if make {
                match mkdirat(&at, part, Mode::from_bits_truncate(0o755)) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(e) => return Err(errno(text, e)),
                }
            }
            at = openat(&at, part, FOLDER, Mode::empty()).map_err(|e| match e {
                Errno::ENOTDIR if is_link(&at, part) => FileError::Link(text.to_owned()),
                Errno::ENOTDIR => FileError::NotAFolder(text.to_owned()),
                e => errno(text, e),
            })?;
        }
        Ok((at, name))
    }

    fn open_file(&self, path: &RepoPath, flags: OFlag) -> Result<File, FileError> {
        let (folder, name) = self.parent(path, false)?;
        // O_NONBLOCK: opening a pipe must not hang.
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let fd = openat(&folder, name, flags, Mode::empty()).map_err(|e| match e {
            Errno::EISDIR | Errno::ENXIO => FileError::NotAFile(path.to_string()),
            e => errno(path.as_str(), e),
        })?;
        let stat = fstat(&fd).map_err(|e| errno(path.as_str(), e))?;
        if SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
            return Err(FileError::NotAFile(path.to_string()));
        }
        if flags.contains(OFlag::O_WRONLY) && stat.st_nlink > 1 {
            return Err(FileError::SharedInode(path.to_string()));
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size > MAX_FILE as u64 {
            return Err(FileError::TooLarge(path.to_string(), size));
        }
        Ok(File::from(fd))
    }

    /// The text of a file.
    pub(super) fn read(&self, path: &RepoPath) -> Result<String, FileError> {
        let file = self.open_file(path, OFlag::O_RDONLY)?;
        let mut bytes = Vec::new();
        let read = file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|e| io(path.as_str(), &e))?;
        if bytes.len() > MAX_FILE {
            return Err(FileError::TooLarge(path.to_string(), bytes.len() as u64));
        }
        if bytes.contains(&0) {
            return Err(FileError::Binary(path.to_string()));
        }
        String::from_utf8(bytes).map_err(|_| FileError::Binary(path.to_string()))
    }

    /// Replaces the content of a file that exists; its mode stays.
    pub(super) fn overwrite(&self, path: &RepoPath, text: &str) -> Result<(), FileError> {
        size_of(path, text)?;
        let mut file = self.open_file(path, OFlag::O_WRONLY)?;
        file.set_len(0)
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(|e| io(path.as_str(), &e))
    }

    /// Creates a file, with its folders; refuses one that exists.
    pub(super) fn create(&self, path: &RepoPath, text: &str) -> Result<(), FileError> {
        size_of(path, text)?;
        let (folder, name) = self.parent(path, true)?;
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&folder, name, flags, Mode::from_bits_truncate(0o644))
            .map_err(|e| errno(path.as_str(), e))?;
        File::from(fd).write_all(text.as_bytes()).map_err(|e| io(path.as_str(), &e))
    }

    /// Removes a regular file or a link itself.
    pub(super) fn delete(&self, path: &RepoPath) -> Result<(), FileError> {
        let (folder, name) = self.parent(path, false)?;
        unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir).map_err(|e| match e {
            Errno::EISDIR => FileError::NotAFile(path.to_string()),
            e => errno(path.as_str(), e),
        })
    }

    /// Moves a regular file to a name that is free.
    pub(super) fn rename(&self, from: &RepoPath, to: &RepoPath) -> Result<(), FileError> {
        drop(self.open_file(from, OFlag::O_RDONLY)?);
        let (old, old_name) = self.parent(from, false)?;
        let (new, new_name) = self.parent(to, true)?;
        match fstatat(&new, new_name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Err(Errno::ENOENT) => {}
            Ok(_) => return Err(FileError::Exists(to.to_string())),
            Err(e) => return Err(errno(to.as_str(), e)),
        }
        renameat(&old, old_name, &new, new_name).map_err(|e| errno(to.as_str(), e))
    }

    /// Checks that `path` is a folder that is reached without links.
    pub(super) fn check_folder(&self, path: &RepoPath) -> Result<(), FileError> {
        let (folder, name) = self.parent(path, false)?;
        match openat(&folder, name, FOLDER, Mode::empty()) {
            Ok(_) => Ok(()),
            Err(Errno::ENOTDIR) if is_link(&folder, name) => Err(FileError::Link(path.to_string())),
            Err(Errno::ENOTDIR) => Err(FileError::NotAFolder(path.to_string())),
            Err(e) => Err(errno(path.as_str(), e)),
        }
    }
}

fn is_link(folder: &OwnedFd, name: &str) -> bool {
    fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFLNK)
}

fn size_of(path: &RepoPath, text: &str) -> Result<(), FileError> {
    if text.len() > MAX_FILE {
        return Err(FileError::TooLarge(path.to_string(), text.len() as u64));
    }
    if text.contains('\0') { Err(FileError::Binary(path.to_string())) } else { Ok(()) }
}

fn errno(path: &str, error: Errno) -> FileError {
    let path = path.to_owned();
    match error {
        Errno::ENOENT => FileError::NotFound(path),
        Errno::EEXIST => FileError::Exists(path),
        Errno::ELOOP => FileError::Link(path),
        Errno::ENOTDIR => FileError::NotAFolder(path),
        other => FileError::Io(path, other.desc().to_owned()),
    }
}

fn io(path: &str, error: &std::io::Error) -> FileError {
    FileError::Io(path.to_owned(), error.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::{FileError, Jail};
    use crate::model::RepoPath;

    fn path(text: &str) -> RepoPath {
        RepoPath::new(text).unwrap()
    }

    #[test]
    fn reads_and_writes_inside() {
        let tree = tempfile::tempdir().unwrap();
        let jail = Jail::open(tree.path()).unwrap();
        jail.create(&path("a/b/c.txt"), "one\n").unwrap();
        assert!(matches!(jail.create(&path("a/b/c.txt"), ""), Err(FileError::Exists(_))));
        let file = tree.path().join("a/b/c.txt");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        jail.overwrite(&path("a/b/c.txt"), "two").unwrap();
        assert_eq!(jail.read(&path("a/b/c.txt")).unwrap(), "two");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        jail.rename(&path("a/b/c.txt"), &path("d/e.txt")).unwrap();
        assert!(matches!(jail.read(&path("a/b/c.txt")), Err(FileError::NotFound(_))));
        jail.delete(&path("d/e.txt")).unwrap();
        assert!(matches!(jail.delete(&path("d")), Err(FileError::NotAFile(_))));
        assert!(matches!(jail.read(&path("d")), Err(FileError::NotAFile(_))));
    }

    #[test]
    fn no_link_leads_out() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let tree = tempfile::tempdir().unwrap();
        symlink(outside.path(), tree.path().join("dir")).unwrap();
        symlink(outside.path().join("secret"), tree.path().join("file")).unwrap();
        let jail = Jail::open(tree.path()).unwrap();
        for text in ["dir/secret", "file"] {
            assert!(matches!(jail.read(&path(text)), Err(FileError::Link(_))), "{text}");
            assert!(matches!(jail.overwrite(&path(text), "x"), Err(FileError::Link(_))), "{text}");
        }
        assert!(matches!(jail.create(&path("dir/new"), "x"), Err(FileError::Link(_))));
        assert!(matches!(jail.create(&path("file"), "x"), Err(FileError::Exists(_))));
        assert!(matches!(jail.delete(&path("dir/secret")), Err(FileError::Link(_))));
        assert!(jail.rename(&path("file"), &path("x")).is_err());
        assert!(jail.check_folder(&path("dir")).is_err());
        jail.delete(&path("file")).unwrap();
        assert_eq!(std::fs::read_to_string(outside.path().join("secret")).unwrap(), "s");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_text_is_refused() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("bin"), b"a\0b").unwrap();
        std::fs::write(tree.path().join("latin"), b"\xe9t\xe9").unwrap();
        std::fs::write(tree.path().join("big"), vec![b'a'; super::MAX_FILE + 1]).unwrap();
        std::fs::write(tree.path().join("one"), "x").unwrap();
        std::fs::hard_link(tree.path().join("one"), tree.path().join("two")).unwrap();
        nix::unistd::mkfifo(&tree.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let jail = Jail::open(tree.path()).unwrap();
        assert!(matches!(jail.read(&path("bin")), Err(FileError::Binary(_))));
        assert!(matches!(jail.read(&path("latin")), Err(FileError::Binary(_))));
        assert!(matches!(jail.read(&path("big")), Err(FileError::TooLarge(..))));
        assert!(matches!(jail.read(&path("pipe")), Err(FileError::NotAFile(_))));
        assert!(matches!(jail.overwrite(&path("pipe"), "x"), Err(FileError::NotAFile(_))));
        assert!(matches!(jail.overwrite(&path("two"), "x"), Err(FileError::SharedInode(_))));
    }
}
