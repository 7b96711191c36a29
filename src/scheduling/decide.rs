//! What one cycle does: the decision table.

/// What the ledger shows of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrontierView {
    /// Nodes that could be started: dependencies satisfied, not final, not claimed.
    pub ready: usize,
    /// Claims of other owners that still live.
    pub claims: usize,
    /// Pull requests that are open.
    pub open_pull_requests: usize,
    /// Every node is final (landed and merged or closed, failed, skipped, blocked).
    pub all_final: bool,
}

/// What the cycle does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CyclePlan {
    /// Everything in-process; then land.
    DriveAll,
    /// No pool can go on: a pause with `no_usable_pool` or `no_capable_pool`. Never a fallback that
    /// needs a person at a terminal.
    Pause,
    /// Partition; drive our share, grant the host's.
    Partition,
    /// Everything to the host.
    GrantHost,
    /// Other owners still work.
    WaitForClaims,
    /// Reviews are open; refresh stale branches.
    WaitForReviews,
    /// Nothing to start and nothing outstanding, but not everything is final: the next cycle looks
    /// again.
    WaitForNext,
    /// Everything is final.
    Close,
}

/// The decision table of one cycle.
#[must_use]
pub fn decide(host: bool, in_process_usable: bool, view: FrontierView) -> CyclePlan {
    match (host, in_process_usable) {
        _ if view.ready == 0 => {
            if view.claims > 0 {
                CyclePlan::WaitForClaims
            } else if view.open_pull_requests > 0 {
                CyclePlan::WaitForReviews
            } else if view.all_final {
                CyclePlan::Close
            } else {
                CyclePlan::WaitForNext
            }
        }
        (false, true) => CyclePlan::DriveAll,
        (false, false) => CyclePlan::Pause,
        (true, true) => CyclePlan::Partition,
        (true, false) => CyclePlan::GrantHost,
    }
}
