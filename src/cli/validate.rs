//! `validate`: the configuration, with positions.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{Failure, print};
use crate::config::{Config, ConfigErrors, DEFAULT_PATH, MAX_CONFIG_BYTES, known_model};
use crate::cycle::counted;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The configuration file [default: .github/overhaul.yml].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The same, as the other commands name it.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let file = args.file.or(args.config).unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
    let name = file.display().to_string();
    if !args.json {
        return print(&as_text(&load(Some(&file))?, &name));
    }
    match Config::load(&read(&file)?, &name) {
        Ok(config) => print(&as_json(&config, &name)),
        Err(errors) => {
            let report = json!({ "valid": false, "file": name, "errors": errors.errors,
                "more-may-follow": errors.more_may_follow });
            print(&format!("{report:#}\n"))?;
            Err(failure(&name, &errors))
        }
    }
}

/// Reads and checks the configuration for the commands that need one.
///
/// # Errors
/// Exit 2 with every error, or with how to get a file where there is none.
pub(crate) fn load(file: Option<&Path>) -> Result<Config, Failure> {
    let file = file.unwrap_or_else(|| Path::new(DEFAULT_PATH));
    let name = file.display().to_string();
    parse(&read(file)?, &name)
}

/// Checks the text of a configuration; `name` is where it came from.
///
/// # Errors
/// Exit 2 with every error.
pub(crate) fn parse(text: &str, name: &str) -> Result<Config, Failure> {
    Config::load(text, name).map_err(|errors| failure(name, &errors))
}

fn failure(name: &str, errors: &ConfigErrors) -> Failure {
    let count = errors.errors.len();
    let more = if errors.more_may_follow {
        ": a section is read on once the form of what is in it is right, so more may follow"
    } else {
        ""
    };
    Failure::usage(format!("{name} has {count} error{}", if count == 1 { "" } else { "s" }))
        .because(format!("\n\n{errors}\n"))
        .remedy(format!(
            "mend the file and run `overhaul validate` again{more}; `overhaul schema` prints every \
             setting"
        ))
}

fn read(file: &Path) -> Result<String, Failure> {
    use std::io::Read as _;
    let name = file.display();
    let open = std::fs::File::open(file).map_err(|error| {
        let failure = Failure::usage(format!("cannot read {name}")).because(&error);
        if error.kind() == std::io::ErrorKind::NotFound {
            failure.remedy(how_to_get_one())
        } else {
            failure.remedy("make the file readable, or name another one")
        }
    })?;
    // One byte more than is allowed, so that the loader sees and names the excess.
    let mut bytes = Vec::new();
    open.take(MAX_CONFIG_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("cannot read {name}")).because(error))?;
    text_of(bytes, &name.to_string())
}

/// Where the page about the configuration is: an installed program has no `docs` beside it.
const DOCS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/configuration.md");

/// What to do where there is no configuration.
pub(crate) fn how_to_get_one() -> String {
    format!(
        "write {DEFAULT_PATH} ({DOCS} shows how, `overhaul schema` prints every setting), or name \
         another file with --config"
    )
}

/// The text of a configuration, as far as it can be one; `name` is where it came from.
///
/// # Errors
/// Exit 2 when it is too large or no text.
pub(crate) fn text_of(bytes: Vec<u8>, name: &str) -> Result<String, Failure> {
    if bytes.len() > MAX_CONFIG_BYTES {
        return Err(Failure::usage(format!("{name} is larger than {MAX_CONFIG_BYTES} bytes"))
            .remedy("keep findings and prompts in files of their own and name them here"));
    }
    String::from_utf8(bytes).map_err(|error| {
        Failure::usage(format!("{name} is not UTF-8"))
            .because(error.utf8_error())
            .remedy("save the file as UTF-8")
    })
}

fn as_json(config: &Config, name: &str) -> String {
    let pools: Vec<_> = config
        .pools()
        .iter()
        .map(|pool| {
            let excluded = config.exclusions().iter().any(|e| e.matches(pool));
            let mut value = json!(pool.to_pool());
            value["excluded"] = excluded.into();
            value
        })
        .collect();
    let report = json!({
        "valid": true,
        "file": name,
        "pools": pools,
        "warnings": config.warnings(),
        "config": config,
    });
    format!("{report:#}\n")
}

fn as_text(config: &Config, name: &str) -> String {
    let mut text = format!("{name} is valid\n\npools\n");
    let exclusions = config.exclusions();
    for declared in config.pools() {
        let pool = declared.to_pool();
        let known = known_model(&declared.model).is_some();
        let by = |given: bool| match (given, known) {
            (true, _) => "",
            (false, true) => " (known model)",
            (false, false) => " (default)",
        };
        let excluded =
            if exclusions.iter().any(|e| e.matches(declared)) { ", excluded" } else { "" };
        let _ = writeln!(
            text,
            "  {}  meter {}#{}, context {}{}, output {}{}{excluded}",
            pool.id,
            pool.meter.backend,
            pool.meter.account,
            pool.context_tokens,
            by(declared.context_tokens.is_some()),
            pool.output_tokens,
            by(declared.output_tokens.is_some()),
        );
    }
    let dispatch = &config.dispatch;
    let _ = writeln!(
        text,
        "\nruns\n  base {}, {} at once, {} per attempt, lease {}, attempts {} + {}\n  \
         findings from {}, {}{}, state in a {}",
        config.base.as_deref().unwrap_or("the default branch"),
        dispatch.concurrent,
        dispatch.attempt_timeout,
        dispatch.lease,
        dispatch.max_attempts.contract,
        dispatch.max_attempts.infrastructure,
        counted(config.findings.len(), "source"),
        counted(config.verify.commands.len(), "verify command"),
        if config.verify.detect { " + detected ones" } else { "" },
        match config.state.store {
            crate::config::StateStore::Branch => format!("branch ({})", config.state.branch),
            crate::config::StateStore::Artifact => "workflow artifact".to_owned(),
            crate::config::StateStore::Directory =>
                format!("directory ({})", config.state.path.as_deref().unwrap_or("")),
        },
    );
    for warning in config.warnings() {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}
