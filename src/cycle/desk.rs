//! The scheduling core of a running cycle, shared: the driver starts and ends attempts on it, and
//! the gateways of running attempts have every single request admitted by it. Who waits sleeps
//! until the time that the core names, or until something changed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use super::Clock;
use crate::backends::gateway::{Admission, Lack, Permit, Refused, Seen, limit_hints};
use crate::ledger::Evidence;
use crate::model::{Classification, NodeId, Pool};
use crate::scheduling::{Asked, Estimate, MeterIx, Millis, Request, Scheduler, Used, timestamp};

/// The farthest room in a window that a request waits for, milliseconds: twice the window of a
/// minute. What is farther away is a reset, for which the node waits, not a running attempt.
const FAR: Millis = 120_000;
/// Longest wait of one request in its line; clients give up after five minutes.
const LONGEST_WAIT: Duration = Duration::from_secs(280);
/// The longest that a request may be on its way before its backend counts it, milliseconds. Our
/// windows stay full that much longer, or for as long as it took until the backend answered.
const ARRIVAL: Millis = 2_000;

/// The core and who waits for it.
#[derive(Debug)]
pub struct Desk {
    core: Mutex<Scheduler>,
    /// One line of waiting requests per meter, first come first served.
    lines: Vec<tokio::sync::Mutex<()>>,
    changed: Notify,
    clock: Clock,
}

impl Desk {
    /// Takes the core of a cycle.
    #[must_use]
    pub fn new(core: Scheduler, clock: Clock) -> Arc<Self> {
        let lines = (0..core.meters().len()).map(|_| tokio::sync::Mutex::default()).collect();
        Arc::new(Self { core: Mutex::new(core), lines, changed: Notify::new(), clock })
    }

    /// The core, for a moment: never held across a wait.
    pub fn core(&self) -> MutexGuard<'_, Scheduler> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the core makes of `change`; who waits looks again.
    pub fn change<T>(&self, change: impl FnOnce(&mut Scheduler) -> T) -> T {
        let made = change(&mut self.core());
        self.changed.notify_waiters();
        made
    }

    /// Ends with the next change after the call.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.changed.notified()
    }

    /// The place at which the requests of a running attempt are admitted.
    #[must_use]
    pub fn seat(self: &Arc<Self>, node: &NodeId, meter: MeterIx) -> Arc<Seat> {
        let (desk, node) = (Arc::clone(self), node.clone());
        Arc::new(Seat { desk, node, meter, seen: Arc::default() })
    }

    fn now(&self) -> Millis {
        self.clock.now().as_millisecond()
    }
}

/// One running attempt before the meters.
#[derive(Debug)]
pub struct Seat {
    desk: Arc<Desk>,
    node: NodeId,
    meter: MeterIx,
    seen: Arc<Mutex<Notes>>,
}

/// What became of an attempt's requests.
#[derive(Debug, Default)]
struct Notes {
    refused: Option<(Refused, Timestamp)>,
    requests: u32,
    failures: u32,
    /// The last failure that no success followed.
    last: Option<(Option<u16>, Classification)>,
}

impl Seat {
    /// The refusal that ended the attempt, and when to ask again: it says nothing about the pool or
    /// the node.
    pub fn held_back(&self) -> Option<(Refused, Timestamp)> {
        self.notes().refused.clone()
    }

    /// The last failure of the backend that no success followed, as the gateway saw it.
    pub fn evidence(&self) -> Option<Evidence> {
        let notes = self.notes();
        let (status, reading) = notes.last.as_ref()?;
        Some(Evidence {
            status: *status,
            rule: reading.rule.clone(),
            text: reading.evidence.clone(),
            reset_seconds: reading.reset_seconds,
            requests: notes.requests,
            failures: notes.failures,
        })
    }

    /// A pool as this desk knows it by now.
    pub fn known(&self, pool: &Pool) -> Pool {
        let input_scale = self.desk.core().input_scale(&pool.id).unwrap_or(pool.input_scale);
        Pool { input_scale, ..pool.clone() }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn wait(&self, estimate: Estimate) -> Result<Request, Refused> {
        let desk = &*self.desk;
        let _waiting = Waiting::new(self, estimate);
        let _turn = match desk.lines.get(self.meter.index()) {
            Some(line) => Some(line.lock().await),
            None => None,
        };
        loop {
            let changed = desk.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            let now = desk.now();
            let answer = desk.core().admit(&self.node, now, now + ARRIVAL, estimate);
            match answer {
                Asked::Granted(request) => return Ok(request),
                Asked::WaitUntil(at) if at - now > FAR => {
                    return Err(Refused {
                        lack: Lack::Room,
                        retry_after: Some(length(at - now)),
                        reason: format!("its windows are full until {}", timestamp(at)),
                    });
                }
                Asked::WaitUntil(at) => {
                    tokio::select! {
                        () = desk.clock.sleep_until(timestamp(at)) => {}
                        () = changed => {}
                    }
                }
                Asked::Busy => changed.await,
                Asked::Never => {
                    let Estimate { input_tokens, output_tokens } = estimate;
                    return Err(Refused {
                        lack: Lack::Fit,
                        retry_after: None,
                        reason: format!(
                            "{input_tokens} tokens in and {output_tokens} out exceed what it \
                             allows in a minute"
                        ),
                    });
                }
                Asked::OverBudget(over) => {
                    return Err(Refused {
                        lack: Lack::Budget,
                        retry_after: None,
                        reason: over.text().to_owned(),
                    });
                }
                Asked::NotRunning => {
                    return Err(Refused {
                        lack: Lack::Room,
                        retry_after: None,
                        reason: "the attempt is over".to_owned(),
                    });
                }
            }
        }
    }
}

/// Keeps new attempts behind the requests that wait already.
struct Waiting<'a> {
    seat: &'a Seat,
    estimate: Estimate,
}

impl<'a> Waiting<'a> {
    fn new(seat: &'a Seat, estimate: Estimate) -> Self {
        seat.desk.core().queue(seat.meter, estimate, true);
        Self { seat, estimate }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.seat.desk.core().queue(self.seat.meter, self.estimate, false);
    }
}

fn length(ms: Millis) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[async_trait]
impl Admission for Seat {
    async fn admit(&self, input: u64, output: u64) -> Result<Box<dyn Permit>, Refused> {
        let estimate = Estimate { input_tokens: input, output_tokens: output };
        let answer = self.desk.clock.timeout(LONGEST_WAIT, self.wait(estimate)).await;
        let answer = answer.unwrap_or_else(|| {
            Err(Refused {
                lack: Lack::Room,
                retry_after: Some(length(FAR / 2)),
                reason: "too many requests wait for its windows".to_owned(),
            })
        });
        match answer {
            Ok(request) => {
                let desk = Arc::clone(&self.desk);
                Ok(Box::new(Ticket { desk, seen: Arc::clone(&self.seen), request: Some(request) }))
            }
            Err(refused) => {
                let wait = refused.retry_after.unwrap_or(Duration::ZERO);
                let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::ZERO);
                let now = self.desk.clock.now();
                let until = now.checked_add(wait).unwrap_or(now);
                self.notes().refused = Some((refused.clone(), until));
                Err(refused)
            }
        }
    }
}

/// The room of one request under way.
struct Ticket {
    desk: Arc<Desk>,
    seen: Arc<Mutex<Notes>>,
    request: Option<Request>,
}

impl Ticket {
    fn note(&self, seen: &Seen) {
        let mut notes = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        notes.requests += 1;
        match &seen.failure {
            Some(reading) => {
                notes.failures += 1;
                notes.last = Some((seen.status, reading.clone()));
            }
            None => notes.last = None,
        }
    }
}

impl Permit for Ticket {
    fn answered(&self) {
        if let Some(request) = &self.request {
            let now = self.desk.now();
            self.desk.change(|core| core.answered(request, now));
        }
    }

    fn settle(mut self: Box<Self>, seen: &Seen) {
        let Some(request) = self.request.take() else { return };
        self.note(seen);
        let now = self.desk.now();
        let tokens = seen
            .usage
            .map(|(input, output)| Estimate { input_tokens: input, output_tokens: output });
        // A refusal that reports nothing has used nothing of a budget; the windows may know better.
        let used = Used { tokens, usd: seen.cost_usd, refused: seen.failure.is_some() };
        let hints = limit_hints(seen, now);
        self.desk.change(|core| core.settle_request(request, used, &hints, now));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(request) = self.request.take() {
            let now = self.desk.now();
            self.desk.change(|core| core.settle_request(request, Used::default(), &[], now));
        }
    }
}
