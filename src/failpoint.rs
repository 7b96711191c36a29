//! Crash points for the crash matrix.
//!
//! Every externally visible effect (ledger append, ref update, branch push, forge write) reports
//! itself here once it has taken effect. A debug build can log them (`OVERHAUL_EFFECTS_LOG=file`)
//! and die right after the n-th (`OVERHAUL_CRASH_AFTER=n`), so that the list of effects is derived
//! from a run and not kept by hand. Release builds do nothing.

/// An attempt at a node begins. A debug build can panic here (`OVERHAUL_PANIC_NODE=id`), as a defect
/// of ours would, to show whom that harms.
#[cfg(not(debug_assertions))]
pub fn attempt(_node: &str) {}

/// An attempt at a node begins. A debug build can panic here (`OVERHAUL_PANIC_NODE=id`), as a defect
/// of ours would, to show whom that harms.
#[cfg(debug_assertions)]
#[expect(clippy::panic, reason = "panicking is its purpose, in debug builds only")]
pub fn attempt(node: &str) {
    if std::env::var("OVERHAUL_PANIC_NODE").is_ok_and(|id| id == node) {
        panic!("asked to panic at {node}");
    }
}

/// An effect has just become visible outside this process.
#[cfg(not(debug_assertions))]
pub fn reached(_effect: &str) {}

/// An effect has just become visible outside this process.
#[cfg(debug_assertions)]
pub fn reached(effect: &str) {
    use std::io::Write as _;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static LOG: LazyLock<Option<std::ffi::OsString>> =
        LazyLock::new(|| std::env::var_os("OVERHAUL_EFFECTS_LOG"));
    static CRASH: LazyLock<Option<u64>> =
        LazyLock::new(|| std::env::var("OVERHAUL_CRASH_AFTER").ok()?.parse().ok());
    static COUNT: AtomicU64 = AtomicU64::new(0);

    let n = COUNT.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(path) = &*LOG
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
    {
        let _ = writeln!(file, "{n} {effect}");
    }
    if *CRASH == Some(n) {
        // As kill -9: no destructors, no flushing.
        std::process::abort();
    }
}
