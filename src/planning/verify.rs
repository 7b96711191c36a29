//! Which commands prove a node: the repository's rules, else its build files, else a reason why
//! there are none.

use std::collections::HashMap;

use super::estimate::Checkout;
use super::scope::{GlobError, Scope, fixed_folder, overlaps};
use super::{BuildFile, PlanContext, PlanPolicy};
use crate::model::{ScopeEntry, VerifyCommand};

/// Wall clock of a detected command, seconds.
pub const VERIFY_TIMEOUT_SECONDS: u64 = 900;

/// What a build system that we know how to ask is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Language {
    Rust,
    Go,
    Python,
    Node,
}

const LANGUAGES: [Language; 4] = [Language::Rust, Language::Go, Language::Python, Language::Node];

/// Scripts of a `package.json` that check and end, in the order in which they are run.
pub(super) const SCRIPTS: [&str; 5] = ["typecheck", "check", "lint", "build", "test"];

impl Language {
    /// What a build file is for, by its name.
    pub fn of_build_file(path: &str) -> Option<Self> {
        Some(match path.rsplit('/').next()? {
            "Cargo.toml" => Self::Rust,
            "go.mod" => Self::Go,
            "pyproject.toml" | "setup.py" | "setup.cfg" | "requirements.txt" => Self::Python,
            "package.json" => Self::Node,
            _ => return None,
        })
    }

    /// The language whose build a change of this file can break.
    pub fn of(path: &str) -> Option<Self> {
        if let Some(language) = Self::of_build_file(path) {
            return Some(language);
        }
        Some(match path.rsplit('/').next()?.rsplit_once('.')?.1 {
            "rs" => Self::Rust,
            "go" => Self::Go,
            "py" | "pyi" => Self::Python,
            "js" | "jsx" | "mjs" | "cjs" | "ts" | "tsx" | "mts" | "cts" | "vue" | "svelte" => {
                Self::Node
            }
            _ => return None,
        })
    }
}

/// Compiled rules and the build files by folder.
pub(super) struct Verifier<'a> {
    rules: Vec<Rule<'a>>,
    builds: HashMap<(&'a str, Language), &'a BuildFile>,
}

struct Rule<'a> {
    globs: Vec<ScopeEntry>,
    scope: Scope,
    commands: &'a [VerifyCommand],
}

impl<'a> Verifier<'a> {
    pub fn new(ctx: &'a PlanContext, policy: &'a PlanPolicy) -> Result<Self, GlobError> {
        let rules = policy.verify.iter().map(|rule| {
            let globs: Vec<ScopeEntry> = rule.paths.iter().cloned().map(ScopeEntry::Glob).collect();
            Ok(Rule { scope: Scope::new(&globs)?, globs, commands: &rule.commands })
        });
        let mut builds = HashMap::new();
        for build in &ctx.build_files {
            if let Some(language) = Language::of_build_file(build.path.as_str()) {
                builds.entry((parent(build.path.as_str()), language)).or_insert(build);
            }
        }
        Ok(Self { rules: rules.collect::<Result<_, GlobError>>()?, builds })
    }

    /// The commands for a scope, or why there are none.
    pub fn of(
        &self,
        writes: &[ScopeEntry],
        checkout: &Checkout,
    ) -> (Vec<VerifyCommand>, Option<String>) {
        let mut commands = Vec::new();
        let fitting: Vec<&Rule> = self.rules.iter().filter(|rule| rule.fits(writes)).collect();
        for command in fitting.iter().flat_map(|rule| rule.commands) {
            push(&mut commands, command.clone());
        }
        if !fitting.is_empty() {
            let waived = commands
                .is_empty()
                .then(|| "a verify rule says that these paths need no check".to_owned());
            return (commands, waived);
        }
        for entry in writes {
            for language in LANGUAGES.into_iter().filter(|l| checkout.reaches(entry, *l)) {
                if let Some(build) = self.nearest(entry, language) {
                    for command in detected(language, build, checkout) {
                        push(&mut commands, command);
                    }
                }
            }
        }
        let waived = commands.is_empty().then(|| {
            let place = writes.first().map_or("", fixed_folder);
            let place = if place.is_empty() { "the repository" } else { place };
            format!("no verify rule fits, and no build file that is understood covers {place}")
        });
        (commands, waived)
    }

    /// The language's build file in the closest folder above.
    fn nearest(&self, entry: &ScopeEntry, language: Language) -> Option<&'a BuildFile> {
        let mut folder = match entry {
            ScopeEntry::Path(path) => parent(path.as_str()),
            ScopeEntry::Folder(_) | ScopeEntry::Glob(_) => fixed_folder(entry),
        };
        loop {
            if let Some(build) = self.builds.get(&(folder, language)) {
                return Some(build);
            }
            if folder.is_empty() {
                return None;
            }
            folder = parent(folder);
        }
    }
}

impl Rule<'_> {
    fn fits(&self, writes: &[ScopeEntry]) -> bool {
        writes.iter().any(|entry| match entry {
            ScopeEntry::Path(path) => self.scope.matches(path.as_str().as_bytes()),
            other => overlaps(&self.globs, std::slice::from_ref(other)),
        })
    }
}

fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |end| &path[..end])
}

fn push(commands: &mut Vec<VerifyCommand>, command: VerifyCommand) {
    if !commands.iter().any(|known| known.argv == command.argv) {
        commands.push(command);
    }
}

/// The commands of a build file. Folders get a leading `./`, so that none reads as an option.
fn detected(language: Language, build: &BuildFile, checkout: &Checkout) -> Vec<VerifyCommand> {
    let path = build.path.as_str();
    let folder = parent(path);
    let inner = if folder.is_empty() { None } else { Some(format!("./{folder}")) };
    let command = |name: &str, argv: Vec<String>| VerifyCommand {
        name: if folder.is_empty() { name.to_owned() } else { format!("{name} ({folder})") },
        argv,
        timeout_seconds: VERIFY_TIMEOUT_SECONDS,
    };
    match (language, &inner) {
        (Language::Rust, None) => vec![command("cargo check", argv(&["cargo", "check"]))],
        (Language::Rust, Some(_)) => {
            let manifest = format!("./{path}");
            vec![command("cargo check", argv(&["cargo", "check", "--manifest-path", &manifest]))]
        }
        (Language::Go, None) => vec![
            command("go build", argv(&["go", "build", "./..."])),
            command("go vet", argv(&["go", "vet", "./..."])),
        ],
        (Language::Go, Some(inner)) => vec![
            command("go build", argv(&["go", "-C", inner, "build", "./..."])),
            command("go vet", argv(&["go", "-C", inner, "vet", "./..."])),
        ],
        (Language::Python, inner) => {
            let place = inner.as_deref().unwrap_or(".");
            vec![command("python compiles", argv(&["python3", "-m", "compileall", "-q", place]))]
        }
        (Language::Node, inner) => {
            let runner = runner(folder, checkout);
            let known = SCRIPTS.iter().filter(|name| build.scripts.iter().any(|s| s == *name));
            known
                .map(|script| {
                    let words = match (runner, inner) {
                        (runner, None) => argv(&[runner, "run", script]),
                        ("yarn", Some(inner)) => argv(&["yarn", "--cwd", inner, "run", script]),
                        ("pnpm", Some(inner)) => argv(&["pnpm", "-C", inner, "run", script]),
                        ("bun", Some(inner)) => argv(&["bun", "--cwd", inner, "run", script]),
                        (runner, Some(inner)) => argv(&[runner, "--prefix", inner, "run", script]),
                    };
                    command(&format!("{runner} run {script}"), words)
                })
                .collect()
        }
    }
}

/// The package manager by its lockfile, in the package's folder or at the root.
fn runner(folder: &str, checkout: &Checkout) -> &'static str {
    const LOCKS: [(&str, &str); 4] = [
        ("pnpm-lock.yaml", "pnpm"),
        ("yarn.lock", "yarn"),
        ("bun.lock", "bun"),
        ("bun.lockb", "bun"),
    ];
    let has = |lock: &str| {
        checkout.has_file(lock)
            || (!folder.is_empty() && checkout.has_file(&format!("{folder}/{lock}")))
    };
    LOCKS.iter().find(|(lock, _)| has(lock)).map_or("npm", |(_, runner)| runner)
}

fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
