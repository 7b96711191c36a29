//! A stateful GitHub on loopback: issues, pull requests, comments, permissions, runs, limits, and
//! a real git repository behind real smart HTTP. Every request and answer is checked against
//! GitHub's published OpenAPI description; a mismatch fails the test that made it.
//!
//! `docs/testing.md` shows how to use it from a test and from a shell.
#![allow(dead_code, reason = "each user of the rig uses a part of it")]
#![allow(missing_docs, reason = "test support")]

pub mod artifacts;
pub mod clock;
pub mod contract;
pub mod faults;
pub mod git;
mod issues;
mod pulls;
mod render;
mod reply;
mod repository;
mod server;
pub mod world;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use overhaul::forge::github::{Credentials, GitHub, GitHubSettings};
use tokio::net::TcpListener;

pub use self::clock::RigClock;
pub use self::faults::Fault;
use self::git::BareGit;
use self::server::{Bases, Shared};
pub use self::world::World;

/// How to start it.
pub struct RigOptions {
    pub clock: RigClock,
    /// `/api/v3` for a GHES.
    pub prefix: &'static str,
    pub port: u16,
}

impl Default for RigOptions {
    fn default() -> Self {
        Self { clock: RigClock::virtual_from("2026-11-30T10:00:00Z"), prefix: "", port: 0 }
    }
}

/// A running one. Stops when dropped, and then fails the test if the contract was broken.
pub struct Rig {
    shared: Arc<Shared>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    _folder: tempfile::TempDir,
}

impl Rig {
    /// One repository `octo/hello` on a free port.
    pub fn start() -> Self {
        Self::start_with(RigOptions::default())
    }

    /// Serves from a thread of its own, so that a test may block.
    pub fn start_with(options: RigOptions) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let repositories = folder.path().to_owned();
        let git = BareGit::init(&repositories.join("octo/hello.git"), "main");
        let world = World::new("octo", "hello", git, options.clock);
        let address = SocketAddr::from(([127, 0, 0, 1], options.port));
        let listener = std::net::TcpListener::bind(address).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        let api = format!("{server}{}", options.prefix);
        let shared = Arc::new(Shared {
            world: Mutex::new(world),
            faults: Mutex::default(),
            violations: Mutex::default(),
            bases: Bases { server, api },
            prefix: options.prefix,
            repositories,
        });
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let router = server::router(Arc::clone(&shared));
        let thread = std::thread::spawn(move || serve(listener, router, stopped));
        Self { shared, stop: Some(stop), thread: Some(thread), _folder: folder }
    }

    /// The world, to look at and to act in as people do.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world()
    }

    /// The bare repository.
    pub fn git(&self) -> BareGit {
        self.world().git.clone()
    }

    /// `http://127.0.0.1:PORT`.
    pub fn server_url(&self) -> &str {
        &self.shared.bases.server
    }

    /// The REST root.
    pub fn api_url(&self) -> &str {
        &self.shared.bases.api
    }

    /// For git: with the token as the password of any user.
    pub fn git_url(&self) -> String {
        format!("{}/{}.git", self.server_url(), self.world().slug())
    }

    /// Schedules a fault.
    pub fn fail(&self, fault: Fault) {
        self.shared.faults.lock().expect("no poison").push(fault);
    }

    /// Forgets the faults that met no request.
    pub fn clear_faults(&self) {
        self.shared.faults.lock().expect("no poison").clear();
    }

    /// Faults that met no request.
    pub fn faults_left(&self) -> usize {
        self.shared.faults.lock().expect("no poison").len()
    }

    /// Settings of the product's client for this GitHub and its clock.
    pub fn settings(&self, credentials: Credentials) -> GitHubSettings {
        let world = self.world();
        let mut settings = GitHubSettings::new(&world.slug(), credentials)
            .and_then(|settings| {
                settings.addresses(|name| match name {
                    "GITHUB_API_URL" => Some(self.api_url().to_owned()),
                    "GITHUB_SERVER_URL" => Some(self.server_url().to_owned()),
                    _ => None,
                })
            })
            .expect("settings");
        settings.time = Arc::new(world.clock.clone());
        settings
    }

    /// A client with the job's token.
    pub fn client(&self) -> GitHub {
        self.client_with(Credentials::Workflow("ghs_workflow".into()))
    }

    pub fn client_with(&self, credentials: Credentials) -> GitHub {
        GitHub::connect(self.settings(credentials)).expect("a client")
    }

    /// `METHOD path-with-query status` of each request so far, without `/repos/OWNER/NAME`.
    pub fn requests(&self) -> Vec<String> {
        let world = self.world();
        let root = format!("/repos/{}", world.slug());
        let shown = |logged: &world::Logged| {
            let target = logged.target.strip_prefix(&root).unwrap_or(&logged.target);
            format!("{} {target} {}", logged.method, logged.status)
        };
        world.log.iter().map(shown).collect()
    }

    /// What broke the contract so far.
    pub fn violations(&self) -> Vec<String> {
        self.shared.violations.lock().expect("no poison").clone()
    }

    /// Forgets what broke the contract: for tests that break it on purpose.
    pub fn forgive(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.violations.lock().expect("no poison"))
    }
}

/// Serves until told to stop.
fn serve(
    listener: std::net::TcpListener,
    router: axum::Router,
    stopped: tokio::sync::oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async move {
        let listener = TcpListener::from_std(listener).expect("a listener");
        tokio::select! {
            _ = axum::serve(listener, router) => {}
            _ = stopped => {}
        }
    });
    runtime.shutdown_background();
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let violations = self.violations();
        if !std::thread::panicking() {
            assert!(violations.is_empty(), "the contract was broken:\n{}", violations.join("\n"));
        }
    }
}
