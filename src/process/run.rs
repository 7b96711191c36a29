//! One child from start to end.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::capture::{HeadTail, read};
use super::group::{Family, MARKER};
use super::{Captured, DiskWatch, Ended, ProcessError, Spec, Status, Walls, disk, table};

/// How long output is still awaited after the child has ended: what it wrote is in the pipe, and
/// only a process that it left behind can keep the pipe open.
const DRAIN: Duration = Duration::from_millis(250);

/// How often the watched folders are measured.
const DISK_INTERVAL: Duration = Duration::from_millis(500);

/// How often memory and tasks are counted: a loop that forks or allocates gets no further than the
/// machine bears.
const FAMILY_INTERVAL: Duration = Duration::from_millis(200);

/// How long a warden gets to end its family, or the kernel to end a child.
const END_GRACE: Duration = Duration::from_secs(10);

/// Runs a child to its end, whatever ends it. When the future is dropped the child and all that it
/// started are killed.
///
/// # Errors
/// Only when the child can't be started; every end of a started child is an [`Ended`].
pub async fn run(spec: Spec) -> Result<Ended, ProcessError> {
    let started = Instant::now();
    let marker = format!("{:016x}", fastrand::u64(..));
    let mut child = start(&spec, &marker)?;
    let warden = spec.walls.helper.is_some();
    let mut family = Family::new(child.id().unwrap_or(u32::MAX), warden, &marker);

    if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), spec.stdin) {
        tokio::spawn(async move {
            // A child that does not read its input is fine.
            let _ = pipe.write_all(&bytes).await;
        });
    }
    let stdout = Stream::of(child.stdout.take(), spec.output_cap);
    let stderr = Stream::of(child.stderr.take(), spec.output_cap);

    let ended = tokio::select! {
        status = child.wait() => Ok(status),
        () = tokio::time::sleep(spec.deadline) => Err(Status::TimedOut),
        () = spec.cancel.cancelled() => Err(Status::Cancelled),
        () = over_disk(spec.disk) => Err(Status::OverDisk),
        over = over_family(&spec.walls, family.leader()) => Err(over),
    };
    // A warden that ends by itself leaves nothing behind; one that was killed could not look.
    let watched = warden && matches!(&ended, Ok(Ok(status)) if status.code().is_some());
    let status = match ended {
        Ok(status) => status.map_or(Status::Exited(-1), status_of),
        Err(status) => {
            // Who takes too much gets no time to take more.
            if matches!(status, Status::TimedOut | Status::Cancelled) {
                family.ask();
                let _ = tokio::time::timeout(spec.grace, child.wait()).await;
            }
            family.end();
            let _ = tokio::time::timeout(END_GRACE, child.wait()).await;
            status
        }
    };
    // First the output, then the sweep: a healthy child has closed its streams by now.
    let quiet = tokio::time::timeout(DRAIN, async {
        stdout.ended().await;
        stderr.ended().await;
    });
    let _ = quiet.await;
    if watched {
        family.is_gone();
    } else {
        let swept = tokio::task::spawn_blocking(move || {
            let mut family = family;
            family.sweep();
        });
        let _ = swept.await;
    }
    Ok(Ended {
        status,
        stdout: stdout.finish().await,
        stderr: stderr.finish().await,
        elapsed: started.elapsed(),
    })
}

fn start(spec: &Spec, marker: &str) -> Result<Child, ProcessError> {
    let argv = spec.walls.wrap(&spec.argv);
    let (program, args) = argv.split_first().ok_or(ProcessError::Empty)?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(&spec.env)
        .env(MARKER, marker)
        .current_dir(&spec.cwd)
        .stdin(if spec.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command.spawn().map_err(|source| {
        let program =
            spec.argv.first().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
        let path = spec.env.get(std::ffi::OsStr::new("PATH"));
        if source.kind() == std::io::ErrorKind::NotFound && spec.cwd.is_dir() {
            let path = path.map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
            ProcessError::NotFound { program, path }
        } else {
            ProcessError::Spawn { program, source }
        }
    })
}

fn status_of(status: ExitStatus) -> Status {
    match (status.code(), status.signal()) {
        (Some(code), _) => Status::Exited(code),
        (None, signal) => Status::Signalled(signal.unwrap_or(0)),
    }
}

/// Returns when the watched folders have outgrown their cap; never without a watch.
async fn over_disk(watch: Option<DiskWatch>) {
    let Some(DiskWatch { folders, growth }) = watch else {
        return std::future::pending().await;
    };
    let folders = Arc::new(folders);
    let measure = || {
        let folders = Arc::clone(&folders);
        async move { tokio::task::spawn_blocking(move || disk::usage(&folders)).await.unwrap_or(0) }
    };
    let cap = measure().await.saturating_add(growth);
    loop {
        tokio::time::sleep(DISK_INTERVAL).await;
        if measure().await > cap {
            return;
        }
    }
}

/// Returns when the child and what it started use too much; never without a limit.
async fn over_family(walls: &Walls, leader: i32) -> Status {
    if walls.memory.is_none() && walls.tasks.is_none() {
        return std::future::pending().await;
    }
    let over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used > limit);
    loop {
        tokio::time::sleep(FAMILY_INTERVAL).await;
        let weighed = tokio::task::spawn_blocking(move || table::weight(leader)).await;
        let (tasks, bytes) = weighed.unwrap_or_default();
        if over(walls.tasks, tasks) {
            return Status::OverTasks;
        }
        if over(walls.memory, bytes) {
            return Status::OverMemory;
        }
    }
}

/// One output stream being read.
struct Stream {
    kept: Arc<Mutex<HeadTail>>,
    task: JoinHandle<()>,
}

impl Stream {
    fn of(pipe: Option<impl tokio::io::AsyncRead + Unpin + Send + 'static>, cap: usize) -> Self {
        let kept = Arc::new(Mutex::new(HeadTail::new(cap)));
        let into = Arc::clone(&kept);
        let task = tokio::spawn(async move {
            if let Some(pipe) = pipe {
                read(pipe, into).await;
            }
        });
        Self { kept, task }
    }

    async fn ended(&self) {
        while !self.task.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// What there is. A reader that still waits (for a process that could not be killed) is left.
    async fn finish(mut self) -> Captured {
        if tokio::time::timeout(DRAIN, &mut self.task).await.is_err() {
            self.task.abort();
        }
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.task.abort();
    }
}
