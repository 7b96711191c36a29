//! The house stands: imports run downward only, and the core touches nothing of the world.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Storeys from the ground up, as `src/lib.rs` tells them. A module imports lower storeys only;
/// modules of one storey do not import each other, except edges through each other's traits.
const STOREYS: &[&[&str]] = &[
    &["model"],
    &["config", "ledger"],
    &["intake", "commands"],
    &["planning"],
    &["scheduling"],
    &["process", "failpoint"],
    &["git"],
    EDGES,
    &["cycle"],
    &["cli"],
];

const EDGES: &[&str] = &["backends", "workspace", "forge", "store", "actions", "report"];

/// Modules of the pure core.
const CORE: &[&str] =
    &["model", "config", "ledger", "intake", "commands", "planning", "scheduling"];

/// Where an edge's traits are: the only files whose items another edge may name.
const TRAITS: &[(&str, &str)] =
    &[("forge", "forge/mod.rs"), ("store", "store/mod.rs"), ("backends", "backends/worker.rs")];

/// What the core does not touch: disk, environment, network, processes, clocks, chance, runtimes.
const WORLD: &[&str] = &[
    "std::fs",
    "std::env",
    "std::net",
    "std::process",
    "std::thread",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "fastrand",
    "tokio",
    "reqwest",
    "octocrab",
    "tempfile",
    "gix",
    "nix::",
];

#[test]
fn imports_run_downward_only() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let faults = faults(&source);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn an_upward_arrow_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib.rs", "pub mod model;\npub mod forge;\npub mod strange;\n");
    write("model/mod.rs", "// use crate::cycle::Comment;\nuse crate::ledger::Event;\n");
    write("ledger.rs", "use crate::model::{Node, Plan};\nfn now() { std::fs::read(\"x\"); }\n");
    write("config/mod.rs", "use crate::ledger::Run;\n");
    write("forge/mod.rs", "mod local;\npub trait Forge {}\npub use local::Local;\n");
    write("forge/local.rs", "use super::Forge;\nuse crate::{model::Node, cli};\n");
    write(
        "report/mod.rs",
        "use crate::forge::{Forge, Local};\nuse crate::forge::local::Deep;\n\
         use crate::{\n    actions::Log,\n    model::{a, b},\n};\n\
         #[cfg(test)]\nmod tests {\n    use crate::cli::Cli;\n}\n",
    );
    write("cycle/mod.rs", "use crate::{forge::Local, git, store::*};\n");
    let faults = faults(folder.path());
    assert_eq!(
        faults,
        [
            "config/mod.rs: config must not import ledger (ledger::Run)",
            "forge/local.rs: forge must not import cli (cli)",
            "ledger.rs: the core touches the world: std::fs",
            "model/mod.rs: model must not import ledger (ledger::Event)",
            "report/mod.rs: report may name only traits of forge, not forge::Local",
            "report/mod.rs: report may name only traits of forge, not forge::local::Deep",
            "report/mod.rs: report must not import actions (actions::Log)",
            "strange: in no storey; put it into STOREYS",
        ]
    );
}

/// Every fault of a source tree, sorted.
fn faults(source: &Path) -> Vec<String> {
    let mut found = BTreeSet::new();
    for file in rust_files(source) {
        let relative = file.strip_prefix(source).unwrap();
        let name = relative.display().to_string();
        let text = own_code(&fs::read_to_string(&file).unwrap());
        if name == "lib.rs" {
            found.extend(unknown_modules(&text));
        }
        let first = relative.iter().next().unwrap().to_str().unwrap();
        let module = first.strip_suffix(".rs").unwrap_or(first);
        let Some(height) = height(module) else { continue };
        for path in crate_paths(&text) {
            let target = path.split("::").next().unwrap().to_owned();
            if target == module {
                continue;
            }
            let Some(other) = self::height(&target) else { continue };
            if other == height
                && EDGES.contains(&module)
                && let Some(traits) = trait_items(source, &target)
            {
                if !path.split("::").nth(1).is_some_and(|item| traits.contains(item)) {
                    found.insert(format!(
                        "{name}: {module} may name only traits of {target}, not {path}"
                    ));
                }
                continue;
            }
            if other >= height {
                found.insert(format!("{name}: {module} must not import {target} ({path})"));
            }
        }
        if CORE.contains(&module) {
            for thing in WORLD.iter().filter(|thing| has_word(&text, thing)) {
                found.insert(format!("{name}: the core touches the world: {thing}"));
            }
        }
    }
    found.into_iter().collect()
}

/// `nix::` is not in `unix::`.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn height(module: &str) -> Option<usize> {
    STOREYS.iter().position(|storey| storey.contains(&module))
}

fn unknown_modules(lib: &str) -> Vec<String> {
    let declared = lib.lines().filter_map(|line| {
        line.trim().strip_prefix("pub mod ").or(line.trim().strip_prefix("mod "))?.strip_suffix(';')
    });
    declared
        .filter(|module| height(module).is_none())
        .map(|module| format!("{module}: in no storey; put it into STOREYS"))
        .collect()
}

/// Public items that an edge's trait module defines itself; `None` for an edge without traits.
fn trait_items(source: &Path, edge: &str) -> Option<BTreeSet<String>> {
    let (_, file) = TRAITS.iter().find(|(name, _)| *name == edge)?;
    let text = own_code(&fs::read_to_string(source.join(file)).unwrap_or_default());
    let items = text.lines().filter_map(|line| {
        let (kind, rest) = line.strip_prefix("pub ")?.split_once(' ')?;
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        ["trait", "struct", "enum", "type", "const"].contains(&kind).then(|| name.to_owned())
    });
    Some(items.collect())
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The code without comments and without the test module at its end.
fn own_code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let lines = text[..end].lines().map(|line| line.split("//").next().unwrap_or(""));
    lines.collect::<Vec<_>>().join("\n")
}

/// Every path that begins with `crate::`, groups unfolded one level: `crate::{a::B, c}` is `a::B`
/// and `c`; `crate::a::{B, c::D}` is `a::B` and `a::c::D`.
fn crate_paths(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let macro_path = text[..at].ends_with('$');
        if !macro_path {
            unfold("", &text[at + "crate::".len()..], &mut paths);
        }
    }
    paths
}

fn unfold(prefix: &str, text: &str, paths: &mut Vec<String>) {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        for item in group_items(group) {
            unfold(prefix, &item, paths);
        }
        return;
    }
    let end =
        text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '*').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return;
    }
    let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}::{name}") };
    match rest.strip_prefix("::") {
        Some(rest) if path.matches("::").count() < 2 => unfold(&path, rest, paths),
        _ => paths.push(path),
    }
}

/// The items of a group whose opening brace was read, split at its own commas.
fn group_items(group: &str) -> Vec<String> {
    let (mut depth, mut items, mut item) = (0, Vec::new(), String::new());
    for c in group.chars() {
        match c {
            '}' if depth == 0 => break,
            ',' if depth == 0 => items.push(std::mem::take(&mut item)),
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                item.push(c);
            }
        }
    }
    items.push(item);
    items
}
