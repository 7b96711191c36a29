//! What keeps a program that works on a node to its attempt.

use crate::process::{DiskWatch, Spec, Walls};

use super::Attempt;
use super::gateway::Gateway;

/// Limits of a worker's program.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    /// Kernel limits.
    pub walls: Walls,
    /// It reaches its gateway only, or nothing where it has none.
    pub closed_network: bool,
    /// Bytes that worktree and home may grow.
    pub disk_growth: Option<u64>,
}

impl Confinement {
    /// Keeps a program to the attempt's folders, time and network. Its cancel token is its own: a
    /// gateway whose budget is used up ends this program, not the cycle.
    pub(super) fn confine(&self, spec: &mut Spec, attempt: &Attempt, gateway: Option<&Gateway>) {
        spec.deadline = attempt.deadline;
        spec.cancel = attempt.cancel.child_token();
        spec.walls = self.walls.around(&[&attempt.workdir, &attempt.home]);
        if self.closed_network {
            let port = gateway.map(Gateway::port);
            spec.walls = spec.walls.connecting(Some(port.into_iter().collect()));
        }
        let folders = vec![attempt.workdir.clone(), attempt.home.clone()];
        spec.disk = self.disk_growth.map(|growth| DiskWatch { folders, growth });
    }
}
