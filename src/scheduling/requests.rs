//! Single requests of running attempts, as the gateway before a backend sees them.

use super::meter::{Admission, LimitHint, MeterIx, Reservation};
use super::scheduler::Scheduler;
use super::{Estimate, Millis};
use crate::model::NodeId;

impl Scheduler {
    /// Admits one request of a running attempt; `None` when the node does not run. The first one
    /// takes the place of what the launch reserved, so that nothing is booked twice; from then on
    /// the attempt is booked request by request. `counted`: see [`super::Meters::admit`].
    pub fn admit(
        &mut self,
        node: &NodeId,
        now: Millis,
        counted: Millis,
        estimate: Estimate,
    ) -> Option<Admission> {
        self.room = None;
        let ix = self.node_ix(node)?;
        let running = self.nodes[ix as usize].running.as_mut()?;
        let meter = self.meter_of[running.pool];
        if let Some(reserved) = running.reservation.take() {
            self.meters.withdraw(reserved);
        }
        Some(self.meters.admit(meter, now, counted, estimate))
    }

    /// A request of a running attempt begins to wait for room, or (`false`) no longer waits.
    pub fn queue(&mut self, meter: MeterIx, estimate: Estimate, waits: bool) {
        self.room = None;
        self.meters.queue(meter, estimate, waits);
    }

    /// A request is over: what it really used, where that was reported, and what its answer said of
    /// the limits.
    pub fn settle_request(
        &mut self,
        request: Reservation,
        used: Option<Estimate>,
        hints: &[LimitHint],
        now: Millis,
    ) {
        self.room = None;
        self.meters.settle(request, used);
        for hint in hints {
            self.meters.correct(request.meter(), *hint, now);
        }
    }
}
