//! Kernel limits for a child.
//!
//! Limits must be set in the child itself, between fork and exec, where only async-signal-safe code
//! may run. So the child is this very program first: `overhaul __sandbox <limits> -- <argv>` limits
//! itself and then becomes the command.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The hidden subcommand that limits itself and becomes the command.
pub const SANDBOX_SUBCOMMAND: &str = "__sandbox";

/// Exit code of a child that could not be limited or started, as `env` and shells use it.
const CANNOT_START: u8 = 126;

/// What the kernel keeps a child from doing. The default is no wall at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walls {
    /// This program, which becomes the child; without it no limit can be set.
    pub helper: Option<PathBuf>,
    /// Largest file it may write, bytes (`RLIMIT_FSIZE`).
    pub file_size: Option<u64>,
    /// Address space of each process, bytes (`RLIMIT_AS`).
    pub memory: Option<u64>,
    /// Processes of this user in all (`RLIMIT_NPROC`; root is exempt by the kernel).
    pub processes: Option<u64>,
    /// Open files of each process (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
}

impl Walls {
    /// The limits as options, in the order that [`enter`] reads.
    fn options(&self) -> Vec<(&'static str, u64)> {
        [
            ("--file-size", self.file_size),
            ("--memory", self.memory),
            ("--processes", self.processes),
            ("--open-files", self.open_files),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }

    /// `argv` as it must be started to be limited.
    pub(super) fn wrap(&self, argv: &[OsString]) -> Vec<OsString> {
        let options = self.options();
        let (Some(helper), false) = (&self.helper, options.is_empty()) else {
            return argv.to_vec();
        };
        let mut wrapped = vec![helper.clone().into_os_string(), SANDBOX_SUBCOMMAND.into()];
        wrapped
            .extend(options.iter().map(|(name, value)| OsString::from(format!("{name}={value}"))));
        wrapped.push("--".into());
        wrapped.extend(argv.iter().cloned());
        wrapped
    }
}

/// The body of the hidden subcommand: `args` is what follows its name. Returns only on failure;
/// the message is for standard error.
#[must_use]
pub fn enter(args: impl Iterator<Item = OsString>) -> (ExitCode, String) {
    let fail = |message: String| (ExitCode::from(CANNOT_START), message);
    let mut args = args.peekable();
    while let Some(arg) = args.next_if(|arg| arg != OsStr::new("--")) {
        let text = arg.to_string_lossy().into_owned();
        let limit = text.split_once('=').and_then(|(name, value)| {
            let resource = match name {
                "--file-size" => Resource::RLIMIT_FSIZE,
                "--memory" => Resource::RLIMIT_AS,
                "--processes" => Resource::RLIMIT_NPROC,
                "--open-files" => Resource::RLIMIT_NOFILE,
                _ => return None,
            };
            Some((resource, value.parse::<u64>().ok()?))
        });
        let Some((resource, value)) = limit else {
            return fail(format!("unknown limit '{text}'"));
        };
        // Never above what we were given ourselves.
        let hard = getrlimit(resource).map_or(value, |(_, hard)| hard.min(value));
        if let Err(error) = setrlimit(resource, hard, hard) {
            return fail(format!("the limit {text} was refused: {error}"));
        }
    }
    let _ = args.next();
    let Some(program) = args.next() else { return fail("no program was named".to_owned()) };
    let error = Command::new(&program).args(args).exec();
    fail(format!("'{}' could not be started: {error}", program.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::Walls;

    #[test]
    fn no_limit_no_helper() {
        let argv = vec!["true".into()];
        assert_eq!(Walls { helper: Some("/o".into()), ..Walls::default() }.wrap(&argv), argv);
        let walls = Walls { helper: Some("/o".into()), file_size: Some(9), ..Walls::default() };
        assert_eq!(walls.wrap(&argv), ["/o", "__sandbox", "--file-size=9", "--", "true"]);
    }
}
