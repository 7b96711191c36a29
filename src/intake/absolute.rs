//! Absolute paths of any system, taken apart without asking this one.

use super::uri::{decode, scheme, without_fragment};
use crate::model::RepoPath;

/// An absolute path: a volume (`""` on Unix, `d:`, or `//server/share`) and its names, with `.` and
/// `..` resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Absolute {
    volume: String,
    parts: Vec<String>,
}

impl Absolute {
    /// An absolute path or `file:` URI, `None` for anything relative or of another scheme.
    pub fn parse(text: &str, encoded: bool) -> Option<Self> {
        let text = text.trim();
        let (rest, is_file) = match scheme(text) {
            Some((name, rest)) if name.eq_ignore_ascii_case("file") => (rest, true),
            Some(_) => return None,
            None => (text, false),
        };
        let cleaned = if encoded && (is_file || text.starts_with('/')) {
            decode(without_fragment(rest)).into_owned()
        } else {
            rest.to_owned()
        };
        let path =
            if is_file || looks_windows(&cleaned) { cleaned.replace('\\', "/") } else { cleaned };
        if !is_file {
            return Self::of_path(&path);
        }
        match path.bytes().take_while(|b| *b == b'/').count() {
            0 => drive(&path).map(|(drive, rest)| Self::new(drive, rest)),
            1 | 3 => Self::rooted(&path),
            2 => Self::with_host(&path[2..]),
            // `file:////home/...` is a doubled root far more often than a server called `home`.
            _ => Self::rooted(&path),
        }
    }

    /// A root that somebody gave us: a path or a `file:` URI.
    pub fn of_root(text: &str) -> Option<Self> {
        Self::parse(text, scheme(text).is_some())
    }

    fn of_path(path: &str) -> Option<Self> {
        if let Some((drive, rest)) = drive(path) {
            return rest.starts_with('/').then(|| Self::new(drive, rest));
        }
        match path.strip_prefix("//") {
            Some(unc) if !unc.starts_with('/') => Self::unc(unc),
            _ => path.starts_with('/').then(|| Self::rooted(path)).flatten(),
        }
    }

    /// Behind one or more slashes: a drive or a Unix path.
    fn rooted(path: &str) -> Option<Self> {
        let inner = path.trim_start_matches('/');
        Some(match drive(inner) {
            Some((drive, rest)) => Self::new(drive, rest),
            None => Self::new(String::new(), inner),
        })
    }

    /// Behind `file://`: a host, or what a careless tool wrote there.
    fn with_host(text: &str) -> Option<Self> {
        if let Some((drive, rest)) = drive(text) {
            return Some(Self::new(drive, rest));
        }
        match text.split_once('/') {
            Some((host, rest)) if host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" => {
                Self::rooted(rest)
            }
            _ => Self::unc(text),
        }
    }

    fn unc(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let (server, share) = (parts.next()?, parts.next()?);
        let volume = format!("//{server}/{share}").to_ascii_lowercase();
        Some(Self::new(volume, parts.next().unwrap_or_default()))
    }

    fn new(volume: String, rest: &str) -> Self {
        let mut path = Self { volume, parts: Vec::new() };
        path.push(rest);
        path
    }

    /// Appends names. `..` at the root stays there, as systems do.
    fn push(&mut self, rest: &str) {
        for part in rest.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    self.parts.pop();
                }
                name => self.parts.push(name.to_owned()),
            }
        }
    }

    /// This folder and a relative path; `None` when it has control characters.
    pub fn join(&self, relative: &str) -> Option<Self> {
        if relative.contains('\0') {
            return None;
        }
        let mut joined = self.clone();
        joined.push(&relative.replace('\\', "/"));
        Some(joined)
    }

    /// The path below `root`, `None` when it is not below.
    pub fn strip(&self, root: &Self) -> Option<RepoPath> {
        if self.volume.is_empty() && root.volume.starts_with("//") && self.parts.len() > 2 {
            // `file:////server/share/x` against a root on that share.
            return Self::unc(&self.parts.join("/"))?.strip(root);
        }
        if let Some(native) = self.native(&root.volume) {
            return native.strip(root);
        }
        if self.volume != root.volume || self.parts.len() <= root.parts.len() {
            return None;
        }
        let windows = !self.volume.is_empty();
        let same = |a: &str, b: &str| if windows { a.eq_ignore_ascii_case(b) } else { a == b };
        let (head, tail) = self.parts.split_at(root.parts.len());
        let below = head.iter().zip(&root.parts).all(|(a, b)| same(a, b));
        if below { RepoPath::new(&tail.join("/")).ok() } else { None }
    }

    /// How Git Bash, WSL and Cygwin write a path of this drive: `/d/x`, `/mnt/d/x`, `/cygdrive/d/x`.
    fn native(&self, drive: &str) -> Option<Self> {
        let letter = drive.strip_suffix(':').filter(|_| self.volume.is_empty())?;
        let at = usize::from(["mnt", "cygdrive"].contains(&self.first()));
        let (name, rest) = self.parts.get(at..)?.split_first()?;
        name.eq_ignore_ascii_case(letter)
            .then(|| Self { volume: drive.to_owned(), parts: rest.to_vec() })
    }

    /// All names as if the root of the file system were the checkout; only for plain Unix paths.
    pub fn as_relative(&self) -> Option<RepoPath> {
        if self.is_plain() { RepoPath::new(&self.parts.join("/")).ok() } else { None }
    }

    /// True for a Unix path.
    pub fn is_plain(&self) -> bool {
        self.volume.is_empty()
    }

    /// True for `/` itself.
    pub fn is_file_system_root(&self) -> bool {
        self.is_plain() && self.parts.is_empty()
    }

    /// The first name.
    pub fn first(&self) -> &str {
        self.parts.first().map_or("", String::as_str)
    }

    /// Tails of at least two names, the longest first.
    pub fn tails(&self) -> impl Iterator<Item = RepoPath> + '_ {
        let last = self.parts.len().saturating_sub(1);
        // A path this deep is no file of ours; the bound keeps hostile reports linear.
        (1..last.min(40)).filter_map(|from| RepoPath::new(&self.parts[from..].join("/")).ok())
    }

    /// The path below where hosted runners put a checkout.
    pub fn ci_tail(&self) -> Option<RepoPath> {
        let parts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        let skip = match (self.volume.as_str(), parts.as_slice()) {
            ("", ["home", "runner", "work", outer, inner, ..]) if outer == inner => 5,
            ("", ["github", "workspace", ..]) => 2,
            ("", ["__w", outer, inner, ..]) if outer == inner => 3,
            (volume, ["a", outer, inner, ..]) if volume.len() == 2 && outer == inner => 3,
            _ => return None,
        };
        RepoPath::new(&parts[skip..].join("/")).ok()
    }

    /// The folder that holds this one, `None` at the root.
    pub fn parent(&self) -> Option<Self> {
        let mut parent = self.clone();
        parent.parts.pop().map(|_| parent)
    }
}

/// Splits off a drive, in lower case with its colon.
fn drive(text: &str) -> Option<(String, &str)> {
    let bytes = text.as_bytes();
    let is_drive = matches!(bytes, [letter, b':' | b'|', ..] if letter.is_ascii_alphabetic())
        && matches!(bytes.get(2), None | Some(b'/' | b'\\'));
    is_drive.then(|| (format!("{}:", text[..1].to_ascii_lowercase()), &text[2..]))
}

fn looks_windows(text: &str) -> bool {
    drive(text).is_some() || text.starts_with("\\\\")
}
