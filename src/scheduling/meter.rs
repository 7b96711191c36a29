//! Meters: whose quota is used, how much of it, and when the next request fits.

use std::collections::HashMap;

use super::Millis;
use super::window::Window;
use crate::model::{Limits, MeterKey, Usage};

const MINUTE: Millis = 60_000;
const DAY: Millis = 24 * 60 * MINUTE;
/// A learned limit never grows beyond this; past it the pool behaves as unlimited anyway.
const LEARNED_MAX: u32 = 1_024;
/// Requests a minute below which no limit is learned: pauses with their backoff hold such a pool.
const LEARNED_MIN: u32 = 6;

/// What one request is expected to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Input tokens.
    pub input_tokens: u64,
    /// Output envelope, tokens.
    pub output_tokens: u64,
}

impl Estimate {
    /// Input and output together.
    #[must_use]
    pub fn total(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// Index of a meter in [`Meters`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeterIx(pub(super) usize);

impl MeterIx {
    /// Its place among the meters, from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// A place in the windows, to be settled by what was really used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    meter: MeterIx,
    seq: u64,
    estimate: Estimate,
    /// A request of a running attempt, under way now.
    request: bool,
}

impl Reservation {
    /// The meter that it was made on.
    #[must_use]
    pub fn meter(&self) -> MeterIx {
        self.meter
    }
}

/// The answer to one request for admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Go; the windows have been charged.
    Granted(Reservation),
    /// The windows have room at this time.
    WaitUntil(Millis),
    /// Every slot is in use; a finished attempt frees one.
    Busy,
    /// The request alone exceeds a window: waiting cannot help.
    Never,
}

/// A quota dimension as response headers name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    /// Requests; a reset more than ten minutes away speaks of the daily window.
    Requests,
    /// Input tokens.
    InputTokens,
    /// Output tokens.
    OutputTokens,
    /// Input and output tokens together; charged to the input window, or to that of a day as above.
    Tokens,
}

/// What one response said about one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitHint {
    /// Which dimension.
    pub dimension: Dimension,
    /// What is left.
    pub remaining: u64,
    /// Until when.
    pub reset_at: Millis,
}

/// Promises made before a request in the same look ahead.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ahead {
    pub(super) requests: u64,
    pub(super) input: u64,
    pub(super) output: u64,
}

#[derive(Debug, Clone, Default)]
struct Learned {
    concurrent: Option<u32>,
    requests_per_minute: Option<u32>,
    successes: u32,
    /// Time of the last halving; attempts started before it are no new evidence.
    stepped_at: Option<Millis>,
    raised_at: Millis,
}

/// One account's quota.
#[derive(Debug, Clone)]
pub(super) struct Meter {
    declared: Limits,
    learned: Learned,
    requests: Window,
    day: Window,
    /// Input and output tokens of a day.
    day_tokens: Window,
    input: Window,
    output: Window,
    /// Input and output tokens of a minute; only what a backend says limits them together.
    tokens: Window,
    in_flight: u32,
    /// Requests of running attempts that are under way.
    sending: u32,
    /// The tokens that these hold.
    under_way: u64,
    outstanding: Ahead,
    /// Requests of running attempts that wait for room: new attempts come behind them.
    queued: Ahead,
    seq: u64,
}

fn stricter<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Meter {
    fn new(declared: Limits) -> Self {
        Self {
            declared,
            learned: Learned::default(),
            requests: Window::new(MINUTE),
            day: Window::new(DAY),
            day_tokens: Window::new(DAY),
            input: Window::new(MINUTE),
            output: Window::new(MINUTE),
            tokens: Window::new(MINUTE),
            in_flight: 0,
            sending: 0,
            under_way: 0,
            outstanding: Ahead::default(),
            queued: Ahead::default(),
            seq: 0,
        }
    }

    fn concurrent(&self) -> Option<u32> {
        stricter(self.declared.concurrent, self.learned.concurrent)
    }

    fn earliest(&mut self, now: Millis, e: Estimate, ahead: Ahead) -> Option<Millis> {
        let per_minute =
            stricter(self.declared.requests_per_minute, self.learned.requests_per_minute);
        let per_day = self.declared.requests_per_day;
        let (input, output) =
            (self.declared.input_tokens_per_minute, self.declared.output_tokens_per_minute);
        let a = self.requests.earliest(now, per_minute.map(u64::from), ahead.requests, 1)?;
        let b = self.day.earliest(now, per_day.map(u64::from), ahead.requests, 1)?;
        let c = self.input.earliest(now, input, ahead.input, e.input_tokens)?;
        let d = self.output.earliest(now, output, ahead.output, e.output_tokens)?;
        let promised = ahead.input.saturating_add(ahead.output);
        let f = self.day_tokens.earliest(now, self.declared.tokens_per_day, promised, e.total())?;
        let g = self.tokens.earliest(now, None, promised, e.total())?;
        Some(a.max(b).max(c).max(d).max(f).max(g))
    }

    /// Books into every window, also where nothing is declared: a backend may say at any time how
    /// much is left of one, and what is under way counts against that.
    fn book(&mut self, at: Millis, requests: u64, tokens: Estimate) {
        self.seq += 1;
        self.requests.push(self.seq, at, requests);
        self.day.push(self.seq, at, requests);
        self.day_tokens.push(self.seq, at, tokens.total());
        self.input.push(self.seq, at, tokens.input_tokens);
        self.output.push(self.seq, at, tokens.output_tokens);
        self.tokens.push(self.seq, at, tokens.total());
    }

    /// Has the day room for one more request?
    fn requests_fit(&mut self, now: Millis) -> bool {
        let limit = self.declared.requests_per_day.map(u64::from);
        self.day.earliest(now, limit, 0, 1).is_some_and(|at| at - now <= super::FAR)
    }

    fn charge(&mut self, now: Millis, estimate: Estimate) -> u64 {
        self.book(now, 1, estimate);
        let out = &mut self.outstanding;
        out.requests = out.requests.saturating_add(1);
        out.input = out.input.saturating_add(estimate.input_tokens);
        out.output = out.output.saturating_add(estimate.output_tokens);
        self.seq
    }
}

/// Every meter of a cycle, one per (backend, account).
#[derive(Debug, Clone, Default)]
pub struct Meters {
    meters: Vec<Meter>,
    index: HashMap<MeterKey, MeterIx>,
}

impl Meters {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a pool's declared limits; pools of one (backend, account) share one meter, where the
    /// strictest declaration holds.
    pub fn declare(&mut self, key: &MeterKey, limits: Limits) -> MeterIx {
        if let Some(&ix) = self.index.get(key) {
            let d = &mut self.meters[ix.0].declared;
            d.requests_per_minute = stricter(d.requests_per_minute, limits.requests_per_minute);
            d.requests_per_day = stricter(d.requests_per_day, limits.requests_per_day);
            d.input_tokens_per_minute =
                stricter(d.input_tokens_per_minute, limits.input_tokens_per_minute);
            d.output_tokens_per_minute =
                stricter(d.output_tokens_per_minute, limits.output_tokens_per_minute);
            d.tokens_per_day = stricter(d.tokens_per_day, limits.tokens_per_day);
            d.concurrent = stricter(d.concurrent, limits.concurrent);
            return ix;
        }
        let ix = MeterIx(self.meters.len());
        self.meters.push(Meter::new(limits));
        self.index.insert(key.clone(), ix);
        ix
    }

    /// Admits one request of a running attempt: room in the windows, and no more requests under
    /// way than the concurrency (an attempt may send several at once).
    ///
    /// `counted` is when the backend may count it at the latest; the windows keep it from then on.
    pub fn admit(
        &mut self,
        ix: MeterIx,
        now: Millis,
        counted: Millis,
        estimate: Estimate,
    ) -> Admission {
        let meter = &self.meters[ix.0];
        if meter.concurrent().is_some_and(|limit| meter.sending >= limit) {
            return Admission::Busy;
        }
        let admission = self.charge(ix, now, counted, estimate, Ahead::default(), true);
        if matches!(admission, Admission::Granted(_)) {
            let meter = &mut self.meters[ix.0];
            meter.sending += 1;
            meter.under_way = meter.under_way.saturating_add(estimate.total());
        }
        admission
    }

    /// Admits an attempt with its first request: a slot and room in the windows, behind the
    /// requests that wait already.
    pub fn launch(&mut self, ix: MeterIx, now: Millis, estimate: Estimate) -> Admission {
        if self.free_slots(ix) == Some(0) {
            return Admission::Busy;
        }
        let queued = self.meters[ix.0].queued;
        let admission = self.charge(ix, now, now, estimate, queued, false);
        if matches!(admission, Admission::Granted(_)) {
            self.meters[ix.0].in_flight += 1;
        }
        admission
    }

    fn charge(
        &mut self,
        ix: MeterIx,
        now: Millis,
        counted: Millis,
        estimate: Estimate,
        ahead: Ahead,
        request: bool,
    ) -> Admission {
        let meter = &mut self.meters[ix.0];
        match meter.earliest(now, estimate, ahead) {
            None => Admission::Never,
            Some(at) if at > now => Admission::WaitUntil(at),
            Some(_) => {
                let seq = meter.charge(counted, estimate);
                Admission::Granted(Reservation { meter: ix, seq, estimate, request })
            }
        }
    }

    /// Are there more attempts or requests than the meter takes?
    pub fn is_overdrawn(&mut self, ix: MeterIx, now: Millis) -> bool {
        let limits = self.limits(ix);
        let meter = &mut self.meters[ix.0];
        let over = |window: &mut Window, limit: Option<u32>| {
            limit.is_some_and(|limit| window.used(now) > u64::from(limit))
        };
        limits.concurrent.is_some_and(|limit| meter.in_flight > limit)
            || over(&mut meter.requests, limits.requests_per_minute)
            || over(&mut meter.day, limits.requests_per_day)
    }

    /// The most output that a request may have now, where the whole that it asks for is more than
    /// ever fits a window.
    pub fn most_output(&mut self, ix: MeterIx, now: Millis, asked: Estimate) -> u64 {
        let meter = &mut self.meters[ix.0];
        let Limits { output_tokens_per_minute, tokens_per_day, .. } = meter.declared;
        let minute = output_tokens_per_minute
            .filter(|limit| asked.output_tokens > *limit)
            .map(|limit| limit.saturating_sub(meter.output.used(now)));
        let day = tokens_per_day.filter(|limit| asked.total() > *limit).map(|limit| {
            let used = meter.day_tokens.used(now).saturating_add(asked.input_tokens);
            limit.saturating_sub(used)
        });
        stricter(minute, day).unwrap_or(u64::MAX)
    }

    /// Is the day's allowance of tokens full only of what requests under way hold and may give back?
    pub fn opens(&mut self, ix: MeterIx, now: Millis, estimate: Estimate) -> bool {
        let meter = &mut self.meters[ix.0];
        let Some(limit) = meter.declared.tokens_per_day else { return false };
        let used = meter.day_tokens.used(now).saturating_sub(meter.under_way);
        meter.under_way > 0
            && !meter.day_tokens.is_told()
            && meter.requests_fit(now)
            && used.saturating_add(estimate.total()) <= limit
    }

    /// A request of a running attempt waits for room (or, `false`, no longer does).
    pub fn queue(&mut self, ix: MeterIx, estimate: Estimate, waits: bool) {
        let queued = &mut self.meters[ix.0].queued;
        let step = |have: &mut u64, by: u64| {
            *have = if waits { have.saturating_add(by) } else { have.saturating_sub(by) };
        };
        step(&mut queued.requests, 1);
        step(&mut queued.input, estimate.input_tokens);
        step(&mut queued.output, estimate.output_tokens);
    }

    /// Takes a reservation back as if it had never been made.
    pub fn withdraw(&mut self, reservation: Reservation) {
        let none = Estimate::default();
        self.settle(reservation, Some(none));
        let meter = &mut self.meters[reservation.meter.0];
        meter.requests.adjust(reservation.seq, 0);
        meter.day.adjust(reservation.seq, 0);
    }

    /// Books an attempt that was launched elsewhere at `at`, whether or not there is room for it.
    pub fn adopt(&mut self, ix: MeterIx, at: Millis, estimate: Estimate) -> Reservation {
        let meter = &mut self.meters[ix.0];
        meter.in_flight += 1;
        Reservation { meter: ix, seq: meter.charge(at, estimate), estimate, request: false }
    }

    /// Replaces the reserved amounts by the used ones; `None` keeps the estimate (nothing was
    /// reported).
    pub fn settle(&mut self, reservation: Reservation, used: Option<Estimate>) {
        let meter = &mut self.meters[reservation.meter.0];
        let e = reservation.estimate;
        if reservation.request {
            meter.sending = meter.sending.saturating_sub(1);
            meter.under_way = meter.under_way.saturating_sub(e.total());
        }
        let out = &mut meter.outstanding;
        out.requests = out.requests.saturating_sub(1);
        out.input = out.input.saturating_sub(e.input_tokens);
        out.output = out.output.saturating_sub(e.output_tokens);
        if let Some(used) = used {
            meter.day_tokens.adjust(reservation.seq, used.total());
            meter.input.adjust(reservation.seq, used.input_tokens);
            meter.output.adjust(reservation.seq, used.output_tokens);
            meter.tokens.adjust(reservation.seq, used.total());
        }
    }

    /// Books requests that were sent without being admitted here; their tokens come with their
    /// attempt's reservation.
    pub fn sent(&mut self, ix: MeterIx, now: Millis, requests: u64) {
        if requests == 0 {
            return;
        }
        self.meters[ix.0].book(now, requests, Estimate::default());
    }

    /// The backend answers: it has counted the request by now.
    pub fn counted(&mut self, reservation: Reservation, now: Millis) {
        let meter = &mut self.meters[reservation.meter.0];
        let days = [&mut meter.day, &mut meter.day_tokens];
        let minutes = [&mut meter.requests, &mut meter.input, &mut meter.output, &mut meter.tokens];
        for window in minutes.into_iter().chain(days) {
            window.counted(reservation.seq, now);
        }
    }

    /// Gives an attempt's slot back.
    pub fn release(&mut self, ix: MeterIx) {
        let meter = &mut self.meters[ix.0];
        meter.in_flight = meter.in_flight.saturating_sub(1);
    }

    /// Applies what a response said. The answered request should be settled first.
    pub fn correct(&mut self, ix: MeterIx, hint: LimitHint, now: Millis) {
        if hint.reset_at <= now {
            return;
        }
        let meter = &mut self.meters[ix.0];
        let out = meter.outstanding;
        match hint.dimension {
            Dimension::Requests if hint.reset_at - now > 10 * MINUTE => {
                meter.day.correct(hint.remaining, out.requests, hint.reset_at);
            }
            Dimension::Requests => {
                meter.requests.correct(hint.remaining, out.requests, hint.reset_at);
            }
            Dimension::InputTokens => {
                meter.input.correct(hint.remaining, out.input, hint.reset_at);
            }
            Dimension::OutputTokens => {
                meter.output.correct(hint.remaining, out.output, hint.reset_at);
            }
            Dimension::Tokens if hint.reset_at - now > 10 * MINUTE => {
                let outstanding = out.input.saturating_add(out.output);
                meter.day_tokens.correct(hint.remaining, outstanding, hint.reset_at);
            }
            Dimension::Tokens => {
                let outstanding = out.input.saturating_add(out.output);
                meter.tokens.correct(hint.remaining, outstanding, hint.reset_at);
            }
        }
    }

    /// A limit was hit: halves what was learned, once per pause window. An attempt that started
    /// before the last step, or while the pause runs, says nothing new. Declared limits stay.
    /// Returns the learned limits when they changed.
    pub fn limit_hit(
        &mut self,
        ix: MeterIx,
        started_at: Millis,
        now: Millis,
        reset_known: bool,
    ) -> Option<Limits> {
        let meter = &mut self.meters[ix.0];
        if meter.learned.stepped_at.is_some_and(|step| started_at <= step) {
            return None;
        }
        let before = (meter.learned.concurrent, meter.learned.requests_per_minute);
        meter.learned.stepped_at = Some(now);
        meter.learned.successes = 0;
        meter.learned.raised_at = now;
        let d = meter.declared;
        if d.concurrent.is_none() {
            // The attempt that hit the limit still holds its slot here.
            let current = meter.learned.concurrent.unwrap_or(meter.in_flight.max(1));
            meter.learned.concurrent = Some((current / 2).max(1));
        }
        let undeclared = d.requests_per_minute.is_none() && d.input_tokens_per_minute.is_none();
        if undeclared && !reset_known {
            let recent = u32::try_from(meter.requests.used(now)).unwrap_or(LEARNED_MAX);
            let current = meter.learned.requests_per_minute.unwrap_or(recent);
            if current > LEARNED_MIN {
                meter.learned.requests_per_minute = Some((current / 2).max(LEARNED_MIN));
            }
        }
        (before != (meter.learned.concurrent, meter.learned.requests_per_minute))
            .then(|| self.learned(ix))
    }

    /// A success: learned limits grow by one after as many successes as the limit, never shrink.
    pub fn succeeded(&mut self, ix: MeterIx, started_at: Millis, now: Millis) {
        let learned = &mut self.meters[ix.0].learned;
        if learned.stepped_at.is_some_and(|step| started_at <= step) {
            return;
        }
        if let Some(limit) = &mut learned.concurrent {
            learned.successes += 1;
            if learned.successes >= *limit {
                *limit = (*limit + 1).min(LEARNED_MAX);
                learned.successes = 0;
            }
        }
        if let Some(limit) = &mut learned.requests_per_minute
            && now - learned.raised_at >= MINUTE
        {
            *limit = (*limit + 1).min(LEARNED_MAX);
            learned.raised_at = now;
        }
    }

    /// Limits that were learned, not declared.
    #[must_use]
    pub fn learned(&self, ix: MeterIx) -> Limits {
        let learned = &self.meters[ix.0].learned;
        Limits {
            concurrent: learned.concurrent,
            requests_per_minute: learned.requests_per_minute,
            ..Limits::default()
        }
    }

    /// Takes over what earlier jobs learned.
    pub fn relearn(&mut self, ix: MeterIx, learned: Limits) {
        let meter = &mut self.meters[ix.0];
        meter.learned.concurrent = learned.concurrent.map(|n| n.max(1));
        meter.learned.requests_per_minute = learned.requests_per_minute.map(|n| n.max(1));
    }

    /// Books what an earlier job used; in the order of time.
    pub fn remember(&mut self, ix: MeterIx, at: Millis, used: &Usage) {
        let tokens =
            Estimate { input_tokens: used.input_tokens, output_tokens: used.output_tokens };
        self.meters[ix.0].book(at, u64::from(used.requests), tokens);
    }

    /// The limits that hold now: declared, tightened by learned ones.
    #[must_use]
    pub fn limits(&self, ix: MeterIx) -> Limits {
        let meter = &self.meters[ix.0];
        Limits {
            concurrent: meter.concurrent(),
            requests_per_minute: stricter(
                meter.declared.requests_per_minute,
                meter.learned.requests_per_minute,
            ),
            ..meter.declared
        }
    }

    /// Free slots; `None` = no limit.
    #[must_use]
    pub fn free_slots(&self, ix: MeterIx) -> Option<u32> {
        let meter = &self.meters[ix.0];
        meter.concurrent().map(|limit| limit.saturating_sub(meter.in_flight))
    }

    /// Attempts in flight.
    #[must_use]
    pub fn in_flight(&self, ix: MeterIx) -> u32 {
        self.meters[ix.0].in_flight
    }

    /// When the windows have room for a new attempt's first request; `None` = never.
    pub fn earliest(&mut self, ix: MeterIx, now: Millis, estimate: Estimate) -> Option<Millis> {
        self.earliest_behind(ix, now, estimate, Ahead::default())
    }

    pub(super) fn earliest_behind(
        &mut self,
        ix: MeterIx,
        now: Millis,
        estimate: Estimate,
        mut ahead: Ahead,
    ) -> Option<Millis> {
        let meter = &mut self.meters[ix.0];
        ahead.requests = ahead.requests.saturating_add(meter.queued.requests);
        ahead.input = ahead.input.saturating_add(meter.queued.input);
        ahead.output = ahead.output.saturating_add(meter.queued.output);
        meter.earliest(now, estimate, ahead)
    }

    /// True when a window of a day is what makes this meter wait.
    pub(super) fn day_is_full(&mut self, ix: MeterIx, now: Millis, need: Estimate) -> bool {
        let meter = &mut self.meters[ix.0];
        let (requests, tokens) = (meter.declared.requests_per_day, meter.declared.tokens_per_day);
        let requests = meter.day.earliest(now, requests.map(u64::from), 0, 1);
        let tokens = meter.day_tokens.earliest(now, tokens, 0, need.total());
        requests.max(tokens).is_some_and(|at| at > now)
    }

    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.meters.is_empty()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.meters.len()
    }
}
