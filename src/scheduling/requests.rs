//! Single requests of running attempts, as the gateway before a backend sees them.

use super::budget::{OverBudget, Spent, expected};
use super::meter::{Admission, LimitHint, MeterIx, Reservation};
use super::scheduler::Scheduler;
use super::{Estimate, Millis};
use crate::model::NodeId;

/// One admitted request, to be settled.
#[derive(Debug)]
pub struct Request {
    node: usize,
    pool: usize,
    reservation: Reservation,
    taken: Spent,
}

/// The answer to one request of a running attempt.
#[derive(Debug)]
pub enum Asked {
    /// Go; windows and budgets have been charged.
    Granted(Request),
    /// The windows have room at this time.
    WaitUntil(Millis),
    /// As many requests are under way as the pool takes.
    Busy,
    /// The request alone exceeds a window.
    Never,
    /// A budget has too little left.
    OverBudget(OverBudget),
    /// The node does not run.
    NotRunning,
}

/// What a request came to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Used {
    /// Reported tokens.
    pub tokens: Option<Estimate>,
    /// What the backend says that it charged, US dollars.
    pub usd: Option<f64>,
    /// It failed: where nothing was reported, nothing was consumed.
    pub refused: bool,
}

impl Scheduler {
    /// Admits one request of a running attempt. The first one takes the place of what the launch
    /// reserved, so that nothing is booked twice; from then on the attempt is booked request by
    /// request. `counted`: see [`super::Meters::admit`].
    pub fn admit(
        &mut self,
        node: &NodeId,
        now: Millis,
        counted: Millis,
        estimate: Estimate,
    ) -> Asked {
        self.room = None;
        let Some(ix) = self.node_ix(node) else { return Asked::NotRunning };
        let node = ix as usize;
        let Some(running) = self.nodes[node].running.as_mut() else { return Asked::NotRunning };
        let (pool, launched) = (running.pool, running.reservation.take());
        let booked = std::mem::take(&mut running.booked);
        if let Some(reserved) = launched {
            self.meters.withdraw(reserved);
            self.give_back(node, booked);
        }
        let taken = expected(&self.pools[pool], estimate);
        if let Err(over) = self.take_request(node, taken) {
            return Asked::OverBudget(over);
        }
        let answer = match self.meters.admit(self.meter_of[pool], now, counted, estimate) {
            Admission::Granted(reservation) => {
                return Asked::Granted(Request { node, pool, reservation, taken });
            }
            Admission::WaitUntil(at) => Asked::WaitUntil(at),
            Admission::Busy => Asked::Busy,
            Admission::Never => Asked::Never,
        };
        self.give_back(node, taken);
        answer
    }

    /// A request of a running attempt begins to wait for room, or (`false`) no longer waits.
    pub fn queue(&mut self, meter: MeterIx, estimate: Estimate, waits: bool) {
        self.room = None;
        self.meters.queue(meter, estimate, waits);
    }

    /// A request is answered; see [`super::Meters::counted`].
    pub fn answered(&mut self, request: &Request, now: Millis) {
        self.room = None;
        self.meters.counted(request.reservation, now);
    }

    /// A request is over: what it really used, where that was reported, and what its answer said of
    /// the limits.
    pub fn settle_request(
        &mut self,
        request: Request,
        used: Used,
        hints: &[LimitHint],
        now: Millis,
    ) {
        self.answered(&request, now);
        let Request { node, pool, reservation, taken } = request;
        self.meters.settle(reservation, used.tokens);
        for hint in hints {
            self.meters.correct(reservation.meter(), *hint, now);
        }
        let nothing = Some(Estimate::default()).filter(|_| used.refused);
        if let Some(tokens) = used.tokens.or(nothing) {
            let mut real = expected(&self.pools[pool], tokens);
            if let Some(usd) = used.usd {
                real.usd = usd;
                self.charges(pool, real.tokens, usd);
            }
            self.give_back(node, taken);
            self.take(node, real);
        }
    }
}
