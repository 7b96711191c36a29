//! Single requests of running attempts, as the gateway before a backend sees them.

use super::budget::{OverBudget, Spent, expected};
use super::meter::{Admission, LimitHint, MeterIx, Reservation};
use super::scheduler::Scheduler;
use super::{Estimate, Millis};
use crate::model::{NodeId, PoolId};

/// The farthest room in a window that a request waits for, milliseconds: twice the window of a
/// minute. What is farther away is a reset: a running attempt does not wait for it, and its node does
/// not ask this meter before.
pub const FAR: Millis = 120_000;

/// One admitted request, to be settled.
#[derive(Debug)]
pub struct Request {
    node: usize,
    pool: usize,
    reservation: Reservation,
    taken: Spent,
    /// Input tokens as they were estimated, at four bytes each.
    estimated: u64,
    /// The output that it was let through with.
    output: u64,
}

impl Request {
    /// The output that it was let through with: what it asks for, or less.
    #[must_use]
    pub fn output(&self) -> u64 {
        self.output
    }
}

/// How the input that a backend reports relates to our estimates of it, in this cycle.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Scale {
    estimated: f64,
    reported: f64,
}

impl Scale {
    /// Estimated tokens for which the scale that was known before counts.
    const PRIOR: f64 = 20_000.0;
    /// A pool that reports less, or more, for each token counts otherwise, and not in tokens.
    const BOUNDS: (f64, f64) = (0.5, 3.0);

    #[expect(clippy::cast_precision_loss, reason = "sums for an estimate")]
    fn add(&mut self, estimated: u64, reported: u64) {
        self.estimated += estimated as f64;
        self.reported += reported as f64;
    }

    fn after(self, known: f64) -> f64 {
        let scale = (self.reported + Self::PRIOR * known) / (self.estimated + Self::PRIOR);
        let (least, most) = Self::BOUNDS;
        if scale.is_finite() { scale.clamp(least, most) } else { known }
    }
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
    /// The request alone exceeds a window, also with this least output.
    Never(Estimate),
    /// A budget has too little left for it, also with this least output.
    OverBudget(OverBudget, Estimate),
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
    /// request. The input of the estimate is at four bytes a token. `counted`: see [`super::Meters::admit`].
    ///
    /// A request that sets more output than a window ever holds is let through with what is left there.
    /// Where it would be refused all the same it gets what the launch counted with, the node's
    /// output envelope: so what was launched for a request of this size is let through with it.
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
        }
        self.give_back(node, booked);
        let meter = self.meter_of[pool];
        let estimated = estimate.input_tokens;
        let estimate =
            Estimate { input_tokens: self.pools[pool].pool.weigh(estimated), ..estimate };
        let with = |output_tokens| Estimate { output_tokens, ..estimate };
        let envelope = self.specs[node].output_tokens.min(self.pools[pool].pool.output_tokens);
        let least = with(estimate.output_tokens.min(envelope));
        let most = self.meters.most_output(meter, now, estimate);
        let whole = with(estimate.output_tokens.min(most).max(least.output_tokens));
        let mut answer = self.ask((node, pool), (now, counted), estimated, whole);
        if refused(&answer, now) && least != whole {
            answer = self.ask((node, pool), (now, counted), estimated, least);
        }
        let mut promised = booked;
        match &answer {
            Asked::Granted(request) => {
                // What an attempt took before, the next one shall find.
                let known = self.specs[node].took != Spent::default();
                promised = if known { booked.less(request.taken) } else { Spent::default() };
            }
            Asked::OverBudget(over, _) => self.used_up(node, *over),
            // It opens as soon as what is under way has told how little it used.
            Asked::WaitUntil(at) if at - now > FAR && self.meters.opens(meter, now, least) => {
                answer = Asked::Busy;
            }
            _ => {}
        }
        self.promise(node, promised);
        answer
    }

    /// Takes again from the budgets what a running attempt was promised.
    fn promise(&mut self, node: usize, booked: Spent) {
        self.take(node, booked);
        if let Some(running) = self.nodes[node].running.as_mut() {
            running.booked = booked;
        }
    }

    fn ask(
        &mut self,
        (node, pool): (usize, usize),
        (now, counted): (Millis, Millis),
        estimated: u64,
        need: Estimate,
    ) -> Asked {
        let taken = expected(&self.pools[pool], need);
        if let Some(over) = self.lacks(node, taken) {
            return Asked::OverBudget(over, need);
        }
        match self.meters.admit(self.meter_of[pool], now, counted, need) {
            Admission::Granted(reservation) => {
                self.take(node, taken);
                let output = need.output_tokens;
                Asked::Granted(Request { node, pool, reservation, taken, estimated, output })
            }
            Admission::WaitUntil(at) => Asked::WaitUntil(at),
            Admission::Busy => Asked::Busy,
            Admission::Never => Asked::Never(need),
        }
    }

    /// More has been launched on a meter than it takes: others launched at the same time.
    pub fn is_overdrawn(&mut self, meter: MeterIx, now: Millis) -> bool {
        self.meters.is_overdrawn(meter, now)
    }

    /// An attempt that was launched and has sent nothing gives back what it reserved.
    pub fn never_began(&mut self, node: &NodeId) {
        self.room = None;
        let Some(ix) = self.node_ix(node) else { return };
        let Some(running) = self.nodes[ix as usize].running.as_mut() else { return };
        let booked = std::mem::take(&mut running.booked);
        if let Some(reserved) = running.reservation.take() {
            self.meters.withdraw(reserved);
        }
        self.give_back(ix as usize, booked);
    }

    /// What the ledger knows of a node that our own limits or budgets held back: the input of a
    /// request for this pool, and what an attempt had used with the request that was refused.
    pub fn needs(&mut self, node: &NodeId, asked: &[(PoolId, u64)], took: Spent) {
        let Some(ix) = self.node_ix(node) else { return };
        let spec = &mut std::sync::Arc::make_mut(&mut self.specs)[ix as usize];
        if spec.asked == asked && spec.took == took {
            return;
        }
        spec.asked = asked.to_vec();
        spec.took = took;
        self.room = None;
        self.leave_guide();
        self.reclassify(ix);
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
        let Request { node, pool, reservation, taken, estimated, .. } = request;
        self.meters.settle(reservation, used.tokens);
        for hint in hints {
            self.meters.correct(reservation.meter(), *hint, now);
        }
        if let Some(tokens) = used.tokens.filter(|t| t.input_tokens > 0) {
            self.weighed(pool, estimated, tokens.input_tokens);
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

    /// A backend reported so many tokens for an input that was estimated: what follows is estimated
    /// better.
    fn weighed(&mut self, pool: usize, estimated: u64, reported: u64) {
        let (scale, known) = &mut self.scales[pool];
        scale.add(estimated, reported);
        let scale = scale.after(*known);
        std::sync::Arc::make_mut(&mut self.pools)[pool].pool.input_scale = scale;
    }

    /// Input tokens that a pool's backend reports for each one that we estimate.
    #[must_use]
    pub fn input_scale(&self, pool: &PoolId) -> Option<f64> {
        self.pool_ix(pool).map(|ix| self.pools[ix].pool.input_scale)
    }
}

/// Would the attempt end here?
fn refused(answer: &Asked, now: Millis) -> bool {
    match answer {
        Asked::Never(_) | Asked::OverBudget(..) => true,
        Asked::WaitUntil(at) => at - now > FAR,
        _ => false,
    }
}
