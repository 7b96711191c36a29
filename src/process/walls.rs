//! What the kernel keeps a child from doing.
//!
//! Walls must be put up in the child itself, between fork and exec, where only async-signal-safe
//! code may run. So the child is this very program first, twice: `overhaul __sandbox --parent=<id>
//! <walls> -- <argv>` is the warden ([`super::warden`]), which starts `overhaul __sandbox <walls>
//! -- <argv>`, which puts up its walls and then becomes the command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

use super::reach::Reach;
use super::{sandbox, warden};

/// The hidden subcommand: what comes between us and a child.
pub const SANDBOX_SUBCOMMAND: &str = "__sandbox";

/// Exit code of a child that could not be walled in or started, as `env` and shells use it.
const CANNOT_START: u8 = 126;

/// What the kernel, and we, keep a child from doing. The default is no wall at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walls {
    /// This program, which comes between; without it there are no walls but the watched ones.
    pub helper: Option<PathBuf>,
    /// Largest file it may write, bytes (`RLIMIT_FSIZE`).
    pub file_size: Option<u64>,
    /// Open files of each process (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
    /// Processor time of each process, seconds (`RLIMIT_CPU`).
    pub cpu_seconds: Option<u64>,
    /// Resident memory of the child and all that it started, bytes. Watched: limits of the address
    /// space break the runtimes that reserve more than they use.
    pub memory: Option<u64>,
    /// Processes and threads of the child and all that it started. Watched: the kernel's own limit
    /// (`RLIMIT_NPROC`) counts all processes of a user, and so holds only for a user of the child's own.
    pub tasks: Option<u64>,
    /// Files, network, privileges.
    pub sandbox: Option<Sandbox>,
}

/// What a child may reach. It gains no privileges and keeps none, can't trace or signal what is
/// outside, and dies first when memory runs out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// Files and folders that it may read, and run; what is not there is passed over.
    pub read: Vec<PathBuf>,
    /// Files and folders that it may do everything with.
    pub write: Vec<PathBuf>,
    /// The only TCP ports that it may connect to, and no other sockets of the internet; any where
    /// absent.
    pub connect: Option<Vec<u16>>,
    /// May it open the machine's own sockets, such as Docker's?
    pub any_sockets: bool,
    /// Rather not start than do without the walls around files and sockets.
    pub required: bool,
    /// Finds what a named program needs.
    pub reach: Reach,
}

impl Walls {
    /// The same walls, around these folders of the child's own as well.
    #[must_use]
    pub fn around(&self, own: &[&Path]) -> Self {
        let mut walls = self.clone();
        if let Some(sandbox) = &mut walls.sandbox {
            sandbox.write.extend(own.iter().map(|folder| folder.to_path_buf()));
        }
        walls
    }

    /// The same walls, with the only ports that it may connect to; any where absent.
    #[must_use]
    pub fn connecting(&self, ports: Option<Vec<u16>>) -> Self {
        let mut walls = self.clone();
        if let Some(sandbox) = &mut walls.sandbox {
            sandbox.connect = ports;
        }
        walls
    }

    /// The same walls, with the files within reach that a configured command names by absolute
    /// paths.
    #[must_use]
    pub fn naming(&self, argv: &[String]) -> Self {
        let mut walls = self.clone();
        if let Some(sandbox) = &mut walls.sandbox {
            let named = argv.iter().map(Path::new).filter(|path| path.is_absolute());
            sandbox
                .read
                .extend(named.filter(|p| p.is_file()).flat_map(|p| sandbox.reach.program(p)));
        }
        walls
    }

    /// The walls as options, as [`enter`] reads them.
    fn options(&self) -> Vec<OsString> {
        let mut options: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: &OsStr| {
            let mut option = OsString::from(format!("--{name}="));
            option.push(value);
            options.push(option);
        };
        for (name, value) in [
            ("file-size", self.file_size),
            ("open-files", self.open_files),
            ("cpu-seconds", self.cpu_seconds),
            ("tasks", self.tasks),
        ] {
            if let Some(value) = value {
                add(name, value.to_string().as_ref());
            }
        }
        if let Some(sandbox) = &self.sandbox {
            add("sandbox", if sandbox.required { "required" } else { "best-effort" }.as_ref());
            sandbox.read.iter().for_each(|path| add("read", path.as_os_str()));
            sandbox.write.iter().for_each(|path| add("write", path.as_os_str()));
            if sandbox.any_sockets {
                add("unix-sockets", "any".as_ref());
            }
            if let Some(ports) = &sandbox.connect {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                add("connect", ports.join(",").as_ref());
            }
        }
        options
    }

    /// `argv` as it must be started.
    pub(super) fn wrap(&self, argv: &[OsString]) -> Vec<OsString> {
        let Some(helper) = &self.helper else { return argv.to_vec() };
        let mut wrapped = vec![helper.clone().into_os_string(), SANDBOX_SUBCOMMAND.into()];
        wrapped.push(format!("{PARENT}{}", std::process::id()).into());
        wrapped.extend(self.options());
        wrapped.push("--".into());
        wrapped.extend(argv.iter().cloned());
        wrapped
    }
}

/// The option that makes a warden.
const PARENT: &str = "--parent=";

/// The body of the hidden subcommand: `args` is what follows its name. For a child it returns only
/// on failure; the message is for standard error.
#[must_use]
pub fn enter(args: impl Iterator<Item = OsString>) -> (ExitCode, Option<String>) {
    let args: Vec<OsString> = args.collect();
    let parent = args.first().and_then(|arg| arg.to_str()?.strip_prefix(PARENT)?.parse().ok());
    let ended = match parent {
        Some(parent) => warden::watch(parent, args.get(1..).unwrap_or_default()),
        None => Err(become_command(args)),
    };
    match ended {
        Ok(code) => (code, None),
        Err(message) => (ExitCode::from(CANNOT_START), Some(message)),
    }
}

/// Puts up the walls and becomes the command; gives why it could not.
fn become_command(args: Vec<OsString>) -> String {
    let mut args = args.into_iter().peekable();
    let mut walls = Walls::default();
    while let Some(arg) = args.next_if(|arg| arg != OsStr::new("--")) {
        if walls.read_option(&arg).is_none() {
            return format!("unknown wall '{}'", arg.to_string_lossy());
        }
    }
    let _ = args.next();
    let Some(program) = args.next() else { return "no program was named".to_owned() };
    if let Err(why) = walls.put_up() {
        return why;
    }
    let error = Command::new(&program).args(args).exec();
    format!("'{}' could not be started: {error}", program.to_string_lossy())
}

impl Walls {
    /// Takes one of [`Walls::options`]; `None` for anything else.
    fn read_option(&mut self, arg: &OsStr) -> Option<()> {
        let bytes = arg.as_bytes().strip_prefix(b"--")?;
        let at = bytes.iter().position(|b| *b == b'=')?;
        let (name, value) = (std::str::from_utf8(&bytes[..at]).ok()?, &bytes[at + 1..]);
        let text = || std::str::from_utf8(value).ok();
        let number = || text()?.parse::<u64>().ok();
        let path = || PathBuf::from(OsString::from_vec(value.to_vec()));
        match name {
            "file-size" => self.file_size = Some(number()?),
            "open-files" => self.open_files = Some(number()?),
            "cpu-seconds" => self.cpu_seconds = Some(number()?),
            "tasks" => self.tasks = Some(number()?),
            "sandbox" => {
                let required = text()? == "required";
                self.sandbox = Some(Sandbox { required, ..Sandbox::default() });
            }
            "read" => self.sandbox.as_mut()?.read.push(path()),
            "write" => self.sandbox.as_mut()?.write.push(path()),
            "unix-sockets" => self.sandbox.as_mut()?.any_sockets = text()? == "any",
            "connect" => {
                let ports = text()?.split(',').filter(|port| !port.is_empty());
                let ports: Result<Vec<u16>, _> = ports.map(str::parse).collect();
                self.sandbox.as_mut()?.connect = Some(ports.ok()?);
            }
            _ => return None,
        }
        Some(())
    }

    fn put_up(&self) -> Result<(), String> {
        for (name, resource, value) in [
            ("file-size", Resource::RLIMIT_FSIZE, self.file_size),
            ("open-files", Resource::RLIMIT_NOFILE, self.open_files),
            ("cpu-seconds", Resource::RLIMIT_CPU, self.cpu_seconds),
            // A picture of its memory would hold its key, and lie who knows where.
            ("core", Resource::RLIMIT_CORE, Some(0)),
        ] {
            let Some(value) = value else { continue };
            // Never above what we were given ourselves.
            let hard = getrlimit(resource).map_or(value, |(_, hard)| hard.min(value));
            setrlimit(resource, hard, hard)
                .map_err(|error| format!("the limit {name}={value} was refused: {error}"))?;
        }
        if let Some(it) = &self.sandbox {
            sandbox::put_up(it, self.tasks)?;
        }
        // The warden may be killed; then nobody would end us. Becoming another user forgets this.
        prctl::set_pdeathsig(Signal::SIGKILL)
            .map_err(|e| format!("ending with the parent was refused: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    use super::{Reach, Sandbox, Walls};

    #[test]
    fn options_are_read_as_they_are_written() {
        let odd = OsString::from_vec(b"/a=b \xff".to_vec());
        let walls = Walls {
            file_size: Some(9),
            open_files: Some(8),
            cpu_seconds: Some(7),
            sandbox: Some(Sandbox {
                read: vec!["/usr".into(), odd.into()],
                write: vec!["/tmp/w".into()],
                connect: Some(vec![80, 443]),
                any_sockets: true,
                required: true,
                reach: Reach::default(),
            }),
            ..Walls::default()
        };
        let mut again = Walls::default();
        for option in walls.options() {
            again.read_option(&option).unwrap();
        }
        assert_eq!(again, walls);
        for bad in ["--wall=1", "file-size=1", "--file-size=x", "--file-size"] {
            assert!(Walls::default().read_option(bad.as_ref()).is_none(), "{bad}");
        }
        assert!(Walls::default().read_option("--read=/".as_ref()).is_none(), "no sandbox, no rule");
    }

    #[test]
    fn no_helper_no_warden() {
        let argv = vec!["true".into()];
        assert_eq!(Walls { file_size: Some(9), ..Walls::default() }.wrap(&argv), argv);
        let walls = Walls { helper: Some("/o".into()), file_size: Some(9), ..Walls::default() };
        let parent = format!("--parent={}", std::process::id());
        assert_eq!(
            walls.wrap(&argv),
            ["/o", "__sandbox", parent.as_str(), "--file-size=9", "--", "true"]
        );
    }
}
