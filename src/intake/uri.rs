//! From what a report calls a file to a path inside the checkout. Textual rules come first;
//! whether a file exists only decides between readings.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::absolute::Absolute;
use super::{IntakeContext, PathKind};
use crate::model::RepoPath;

/// How the report spells its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// A URI reference: percent-encoded, perhaps with a fragment.
    Uri,
    /// A plain path.
    Plain,
}

/// Where a path of a report lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Located {
    /// In the checkout.
    Inside(RepoPath),
    /// Absolute and below no known root: a container's view of the checkout, perhaps. Right unless
    /// the report's other files are in the checkout and this one is not.
    Guess(RepoPath),
    /// Elsewhere: never to be read or edited.
    Outside,
}

/// A base that relative paths start from.
pub(super) enum Base {
    /// The root of the checkout.
    Checkout,
    /// A folder below the root of the checkout, `/`-separated.
    Relative(String),
    /// An absolute folder.
    Absolute(Absolute),
}

/// Resolves the paths of one run of one report.
pub(super) struct Resolver<'a> {
    ctx: &'a IntakeContext<'a>,
    roots: Vec<Absolute>,
    spelling: Spelling,
}

/// Longest path that is looked at, bytes: more than any checkout can hold (`PATH_MAX`).
const MAX_PATH: usize = 4096;

/// First components of absolute paths that no container maps a checkout to.
const SYSTEM: [&str; 19] = [
    "bin", "boot", "dev", "etc", "home", "lib", "lib64", "nix", "opt", "private", "proc", "root",
    "run", "sbin", "sys", "tmp", "usr", "var", "Users",
];

impl<'a> Resolver<'a> {
    /// `more_roots` are what the report itself calls its source root.
    pub fn new(ctx: &'a IntakeContext<'a>, spelling: Spelling, more_roots: Vec<Absolute>) -> Self {
        let own = [&ctx.source_root, &ctx.checkout];
        let roots = own.into_iter().flatten().filter_map(|root| Absolute::of_root(root));
        Self { ctx, roots: roots.chain(more_roots).collect(), spelling }
    }

    /// The place of `text`, read from `base`.
    pub fn locate(&self, text: &str, base: &Base) -> Located {
        let text = text.trim();
        if text.len() > MAX_PATH || self.is_no_path(text) {
            return Located::Outside;
        }
        for reading in self.readings(text) {
            if self.exists_relative(&reading, base) {
                return self.relative(&reading, base);
            }
        }
        if let Some(path) = self.in_place_of_a_host(text) {
            return path;
        }
        let first = self.readings(text).into_iter().next().unwrap_or(Cow::Borrowed(text));
        if let Some(absolute) = Absolute::parse(text, self.spelling == Spelling::Uri) {
            return self.absolute(&absolute, has_dot_dot(&first));
        }
        if let Some((scheme, rest)) = scheme(text) {
            // `file:` with a relative path behind it.
            if scheme.eq_ignore_ascii_case("file") && !rest.starts_with("//") {
                return self.locate(rest, base);
            }
            return Located::Outside;
        }
        self.relative(&first, base)
    }

    /// `file://src/a.c`: a careless tool put a relative path where a host belongs. `.` is no host.
    fn in_place_of_a_host(&self, text: &str) -> Option<Located> {
        let (scheme, rest) = scheme(text)?;
        let path = rest.strip_prefix("//").filter(|_| scheme.eq_ignore_ascii_case("file"))?;
        let path = decode(without_fragment(path));
        let is_relative = path.starts_with("./") || self.exists_relative(&path, &Base::Checkout);
        is_relative.then(|| self.relative(&path, &Base::Checkout))
    }

    /// Ways to read a relative text, the likeliest first.
    fn readings<'t>(&self, text: &'t str) -> Vec<Cow<'t, str>> {
        let slashed = |t: Cow<'t, str>| -> Cow<'t, str> {
            if t.contains('\\') { Cow::Owned(t.replace('\\', "/")) } else { t }
        };
        let text = text
            .strip_prefix("%SRCROOT%/")
            .or_else(|| text.strip_prefix("%SRCROOT%\\"))
            .unwrap_or(text);
        let mut readings = Vec::with_capacity(3);
        if self.spelling == Spelling::Uri {
            readings.push(slashed(decode(without_fragment(text))));
        }
        readings.push(slashed(Cow::Borrowed(text)));
        readings.push(Cow::Borrowed(text));
        readings.dedup();
        readings
    }

    fn exists_relative(&self, text: &str, base: &Base) -> bool {
        !text.starts_with('/')
            && matches!(self.relative(text, base), Located::Inside(path) if self.exists(&path))
    }

    fn relative(&self, text: &str, base: &Base) -> Located {
        let joined = match base {
            Base::Checkout => text.to_owned(),
            Base::Relative(folder) => format!("{}/{text}", folder.trim_end_matches('/')),
            Base::Absolute(folder) => {
                let Some(absolute) = folder.join(text) else { return Located::Outside };
                let strict = self.absolute(&absolute, has_dot_dot(text));
                // A base that lies elsewhere, and a file that is here under its relative name.
                return match RepoPath::new(text) {
                    Ok(path) if !matches!(strict, Located::Inside(_)) && self.exists(&path) => {
                        Located::Inside(path)
                    }
                    _ => strict,
                };
            }
        };
        match RepoPath::new(joined.trim_start_matches("./")) {
            Ok(path) => Located::Inside(path),
            // `../repo/src/x` comes back in.
            Err(crate::model::PathError::Escapes(_)) => self
                .roots
                .iter()
                .find_map(|root| self.below(&root.join(&joined)?))
                .map_or(Located::Outside, Located::Inside),
            Err(_) => Located::Outside,
        }
    }

    fn absolute(&self, path: &Absolute, climbed: bool) -> Located {
        if let Some(path) = self.below(path) {
            return Located::Inside(path);
        }
        if climbed {
            return Located::Outside;
        }
        let whole = path.as_relative();
        if let Some(path) = whole.clone().filter(|p| self.exists(p)) {
            return Located::Inside(path);
        }
        if self.ctx.source_root.is_none() {
            // Nobody said where the tool ran: a tail of two or more names that is in the checkout.
            if let Some(path) = path.ci_tail().or_else(|| path.tails().find(|p| self.exists(p))) {
                return Located::Inside(path);
            }
        }
        match whole {
            Some(whole) if path.is_plain() && !SYSTEM.contains(&path.first()) => {
                Located::Guess(whole)
            }
            _ => Located::Outside,
        }
    }

    /// The path below the first root that holds it.
    fn below(&self, path: &Absolute) -> Option<RepoPath> {
        self.roots.iter().find_map(|root| path.strip(root))
    }

    fn exists(&self, path: &RepoPath) -> bool {
        (self.ctx.lookup)(path.as_str()) != PathKind::Missing
    }

    /// Placeholders and sentences that tools put where no file is meant.
    fn is_no_path(&self, text: &str) -> bool {
        let sentence = text.split_whitespace().count() >= 3
            && !text.contains(['/', '\\', '.', '%'])
            && (self.ctx.lookup)(text) == PathKind::Missing;
        let bracketed = text.starts_with('<') && text.ends_with('>');
        sentence
            || bracketed
            || [
                "",
                ".",
                "./",
                "/",
                "-",
                "unknown",
                "n/a",
                "none",
                "null",
                "no file associated with this alert",
            ]
            .iter()
            .any(|nothing| text.eq_ignore_ascii_case(nothing))
    }
}

/// Reads a base: `None` when it cannot be met (then the relative path stands alone).
pub(super) fn base_folder(uri: &str) -> Option<Base> {
    let uri = uri.trim();
    if let Some(absolute) = Absolute::parse(uri, true) {
        return Some(Base::Absolute(absolute));
    }
    // Web addresses, and things like `::::::/`.
    if uri.is_empty() || uri.split('/').next().is_some_and(|first| first.contains(':')) {
        return None;
    }
    Some(Base::Relative(decode(uri).replace('\\', "/")))
}

/// The scheme and what follows the colon. One letter is a drive, not a scheme.
pub(super) fn scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let legal = scheme.len() >= 2
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    legal.then_some((scheme, rest))
}

/// Percent-decodes; what would not be UTF-8 stays as it is.
pub(super) fn decode(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8().unwrap_or(Cow::Borrowed(text))
}

/// Without `?...` (dependency-check names the package there), and without `#...` unless a slash
/// follows: then a careless tool wrote a raw name.
pub(super) fn without_fragment(text: &str) -> &str {
    let text = match text.find('?') {
        Some(at) if at > 0 => &text[..at],
        _ => text,
    };
    match text.find('#') {
        Some(at) if at > 0 && !text[at..].contains(['/', '\\']) => &text[..at],
        _ => text,
    }
}

fn has_dot_dot(text: &str) -> bool {
    text.split(['/', '\\']).any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str, root: Option<&str>, files: &[&str]) -> String {
        let lookup = |p: &str| if files.contains(&p) { PathKind::File } else { PathKind::Missing };
        let ctx =
            IntakeContext { source_root: root.map(Into::into), checkout: None, lookup: &lookup };
        match Resolver::new(&ctx, Spelling::Uri, Vec::new()).locate(text, &Base::Checkout) {
            Located::Inside(path) => path.to_string(),
            Located::Guess(path) => format!("? {path}"),
            Located::Outside => "-".to_owned(),
        }
    }

    #[test]
    fn every_spelling_of_a_file() {
        let unix = Some("/home/runner/work/app/app");
        let windows = Some("D:\\a\\app\\app");
        for (text, root, files, expected) in [
            ("src/a.c", unix, &[][..], "src/a.c"),
            ("./src//a.c", unix, &[], "src/a.c"),
            ("file:///home/runner/work/app/app/src/a%20b.c", unix, &[], "src/a b.c"),
            ("FILE:/home/runner/work/app/app/x.c", unix, &[], "x.c"),
            ("file://localhost/home/runner/work/app/app/x.c", unix, &[], "x.c"),
            ("file:////home/runner/work/app/app/x.c", unix, &[], "x.c"),
            ("/home/runner/work/app/app/x.c", unix, &[], "x.c"),
            ("/home/runner/work/app/app2/x.c", unix, &[], "-"),
            ("file:///d%3A/A/app/APP/x.ts", windows, &[], "x.ts"),
            ("file:///D|/a/app/app/x.ts", windows, &[], "x.ts"),
            ("file://D:/a/app/app/x.ts", windows, &[], "x.ts"),
            ("d:\\a\\app\\app\\src\\x.ts", windows, &[], "src/x.ts"),
            ("D:/a/app/app/x.ts", windows, &[], "x.ts"),
            ("file:D:/a/app/app/x.ts", windows, &[], "x.ts"),
            ("C:\\a\\app\\app\\x.ts", windows, &[], "-"),
            ("file://server/share/app/x.ts", Some("\\\\server\\share\\app"), &[], "x.ts"),
            ("\\\\SERVER\\share\\app\\x.ts", Some("\\\\server\\share\\app"), &[], "x.ts"),
            ("file://server/share/app/x.ts", unix, &[], "-"),
            ("../app/x.c", unix, &[], "x.c"),
            ("../app2/x.c", unix, &[], "-"),
            ("a%2e%2e/x", unix, &[], "a../x"),
            ("%2e%2e/x", unix, &[], "-"),
            ("a/%2e%2e/%2e%2e/x", unix, &[], "-"),
            ("a%00b", unix, &[], "-"),
            (".git/config", unix, &[], "-"),
            ("https://example.invalid/a.c", unix, &[], "-"),
            ("jar:file:///x!/y", unix, &[], "-"),
            ("weird:name.tf", unix, &[], "-"),
            ("weird:name.tf", unix, &["weird:name.tf"], "weird:name.tf"),
            ("src/a.c#L3", unix, &[], "src/a.c"),
            ("src/a.lock?/left-pad:1.0", unix, &[], "src/a.lock"),
            ("file:///home/runner/work/app/app/pom.xml?pkg:maven/x@1", unix, &[], "pom.xml"),
            ("file://./src/a.c", unix, &[], "src/a.c"),
            ("file://src/a.c", unix, &["src/a.c"], "src/a.c"),
            ("file://src/a.c", unix, &[], "-"),
            ("/d/a/app/app/src/x.ts", windows, &[], "src/x.ts"),
            ("/mnt/d/a/app/app/src/x.ts", windows, &[], "src/x.ts"),
            ("/cygdrive/D/a/app/app/x.ts", windows, &[], "x.ts"),
            ("src/c#/a.c", unix, &[], "src/c#/a.c"),
            ("100%.txt", unix, &[], "100%.txt"),
            ("a%20b.txt", unix, &["a%20b.txt"], "a%20b.txt"),
            ("/src/index.js", unix, &[], "? src/index.js"),
            ("/src/index.js", unix, &["src/index.js"], "src/index.js"),
            ("/etc/passwd", unix, &[], "-"),
            ("/builds/g/p/src/a.c", None, &["src/a.c"], "src/a.c"),
            ("/github/workspace/src/a.c", None, &[], "src/a.c"),
            ("%SRCROOT%/src/a.c", unix, &[], "src/a.c"),
            ("<stdin>", unix, &[], "-"),
        ] {
            assert_eq!(show(text, root, files), expected, "{text}");
        }
    }
}
