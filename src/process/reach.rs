//! What a program needs to be read besides itself, from where it lies.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// System folders that hold programs and what they read, but nobody's own files.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt",
    "/nix",
    "/snap",
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/run/systemd/resolve",
    "/run/resolvconf",
];

/// Finds folders to allow, none of which holds anything that must stay closed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    closed: Vec<PathBuf>,
}

impl Reach {
    /// `closed` are places that no folder to be read may hold: homes, checkouts, work folders.
    #[must_use]
    pub fn new(closed: impl IntoIterator<Item = PathBuf>) -> Self {
        let closed = closed.into_iter().flat_map(|path| {
            let real = path.canonicalize().unwrap_or_else(|_| path.clone());
            [path, real]
        });
        Self { closed: closed.filter(|path| path.parent().is_some()).collect() }
    }

    fn open(&self, folder: &Path) -> bool {
        folder.parent().is_some() && !self.closed.iter().any(|closed| closed.starts_with(folder))
    }

    /// The system's own. Of `/etc` what every user may read: a child of root is no better.
    #[must_use]
    pub fn system(&self) -> Vec<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;
        let etc = std::fs::read_dir("/etc").into_iter().flatten().flatten();
        let public = etc.map(|entry| entry.path()).filter(|path| {
            std::fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o004 != 0)
        });
        SYSTEM.iter().flat_map(|folder| self.around(Path::new(folder))).chain(public).collect()
    }

    /// The folder, or as much of it as holds nothing that is closed.
    fn around(&self, folder: &Path) -> Vec<PathBuf> {
        if self.open(folder) {
            return vec![folder.to_path_buf()];
        }
        if self.closed.iter().any(|closed| folder.starts_with(closed)) {
            return Vec::new();
        }
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.flat_map(|entry| self.around(&entry.path())).collect()
    }

    /// The folders of a search path, with what belongs to them.
    #[must_use]
    pub fn search_path(&self, path: &OsStr) -> Vec<PathBuf> {
        let folders =
            path.as_bytes().split(|b| *b == b':').map(|f| Path::new(OsStr::from_bytes(f)));
        folders.filter(|f| f.is_absolute()).flat_map(|folder| self.programs(folder)).collect()
    }

    /// A program with what belongs to it, links followed.
    #[must_use]
    pub fn program(&self, program: &Path) -> Vec<PathBuf> {
        let real = program.canonicalize().unwrap_or_else(|_| program.to_path_buf());
        let folders = [program, &real].map(|p| p.parent().map(|f| self.programs(f)));
        folders.into_iter().flatten().flatten().chain([program.to_path_buf(), real]).collect()
    }

    /// A folder of tools that a variable names. Of cargo's, all but its credentials.
    #[must_use]
    pub fn tools(&self, folder: &Path) -> Vec<PathBuf> {
        if !folder.is_absolute() || !self.open(folder) {
            return Vec::new();
        }
        if !folder.join("registry").is_dir() && !folder.join("bin/cargo").exists() {
            return vec![folder.to_path_buf()];
        }
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let secret = |name: &OsStr| name.as_bytes().starts_with(b"credentials");
        entries.filter(|entry| !secret(&entry.file_name())).map(|entry| entry.path()).collect()
    }

    /// A folder of programs. `X/bin` belongs to `X`, unless that holds more than tools.
    fn programs(&self, folder: &Path) -> Vec<PathBuf> {
        if !self.open(folder) {
            return Vec::new();
        }
        let mut found = vec![folder.to_path_buf()];
        let of_tools = ["bin", "sbin", "shims"].iter().any(|name| folder.ends_with(name));
        if let Some(above) = folder.parent().filter(|above| of_tools && !above.ends_with(".local"))
        {
            found.extend(self.tools(above));
            // A virtual environment runs the Python that it was made with.
            let made_with = std::fs::read_to_string(above.join("pyvenv.cfg")).unwrap_or_default();
            let home = made_with.lines().find_map(|line| line.strip_prefix("home = "));
            if let Some(home) = home.map(Path::new).filter(|home| *home != folder) {
                found.extend(self.programs(home));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::Reach;

    #[test]
    fn tools_are_opened_and_homes_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        for name in [
            ".cargo/bin",
            ".cargo/registry",
            ".pyenv/shims",
            ".pyenv/versions/3/bin",
            ".local/bin",
            "venv/bin",
            "bin",
        ] {
            std::fs::create_dir_all(home.join(name)).unwrap();
        }
        std::fs::write(home.join(".cargo/credentials.toml"), "secret").unwrap();
        std::fs::write(home.join(".cargo/config.toml"), "").unwrap();
        let python = home.join(".pyenv/versions/3/bin");
        std::fs::write(home.join("venv/pyvenv.cfg"), format!("home = {}\n", python.display()))
            .unwrap();
        let reach = Reach::new([home.clone()]);
        let at = |name: &str| home.join(name);
        let of = |name: &str| {
            let mut found = reach.search_path(at(name).as_os_str());
            found.sort();
            found
        };
        assert_eq!(of("bin"), [at("bin")], "not the home above it");
        assert_eq!(of(".local/bin"), [at(".local/bin")]);
        assert_eq!(of(".pyenv/shims"), [at(".pyenv"), at(".pyenv/shims")]);
        let (bin, config) = (at(".cargo/bin"), at(".cargo/config.toml"));
        assert_eq!(of(".cargo/bin"), [bin.clone(), bin, config, at(".cargo/registry")]);
        assert_eq!(of("venv/bin"), [at(".pyenv/versions/3"), python, at("venv"), at("venv/bin")]);
        assert!(reach.search_path("relative/bin:".as_ref()).is_empty());
        assert!(reach.tools(&home).is_empty() && reach.tools(dir.path()).is_empty());
    }

    #[test]
    fn the_system_is_open_but_for_its_secrets() {
        let found = Reach::new([PathBuf::from("/root"), "/usr/src/app".into()]).system();
        let has = |path: &str| found.contains(&PathBuf::from(path));
        assert!(has("/opt") && !has("/usr") && has("/usr/bin"), "{found:?}");
        assert!(!found.iter().any(|path| path.starts_with("/usr/src/app")), "{found:?}");
        assert!(!found.contains(&"/etc".into()) && !found.contains(&"/etc/shadow".into()));
        assert!(found.contains(&"/etc/passwd".into()), "{found:?}");
    }
}
