//! The ledger as a cycle uses it: one writer task that folds, filters by the merge rules, appends
//! with compare-and-swap, and on a conflict reads again and keeps what is still valid.

use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::Clock;
use crate::ledger::{Applied, EVENT_VERSION, Event, EventKind, Run, fold};
use crate::model::{CycleId, RunId};
use crate::store::{Batch, Store, StoreError, Version};

/// How often a lost race is run again before giving up. Each loss means that somebody else won, so
/// the ledger as a whole makes progress.
const MAX_RACES: u32 = 60;

/// Why the ledger could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
    /// A newer version of this program wrote to the run.
    #[error(
        "the run holds {0} events that this version does not know; it was written by a newer overhaul"
    )]
    Newer(usize),
    /// Lost too many races.
    #[error("other writers were faster {MAX_RACES} times in a row")]
    Contended,
    /// The writer task is gone.
    #[error("the ledger's writer has stopped")]
    Stopped,
}

/// What became of the events of one `write`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// One entry an event, in order.
    pub applied: Vec<Applied>,
}

impl Written {
    /// Whether every event counted.
    #[must_use]
    pub fn all(&self) -> bool {
        self.applied.iter().all(|a| *a == Applied::Yes)
    }
}

struct Request {
    events: Vec<EventKind>,
    blobs: Vec<(String, Vec<u8>)>,
    keep: Vec<(String, String)>,
    /// When the first event is ignored, so are the others.
    led: bool,
    done: oneshot::Sender<Result<Written, JournalError>>,
}

/// A handle to one run's ledger; clones share the writer.
#[derive(Clone)]
pub struct Journal {
    run: RunId,
    store: Arc<dyn Store>,
    state: Arc<RwLock<Run>>,
    own: Arc<RwLock<Vec<Event>>>,
    requests: mpsc::UnboundedSender<Request>,
}

struct Writer {
    run: RunId,
    store: Arc<dyn Store>,
    cycle: CycleId,
    clock: Clock,
    state: Arc<RwLock<Run>>,
    own: Arc<RwLock<Vec<Event>>>,
    version: Version,
}

impl Journal {
    /// Reads the run and starts its writer.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn open(
        store: Arc<dyn Store>,
        run: RunId,
        cycle: CycleId,
        clock: Clock,
    ) -> Result<Self, JournalError> {
        let state = Arc::new(RwLock::new(Run::default()));
        let own = Arc::new(RwLock::new(Vec::new()));
        let mut writer = Writer {
            run: run.clone(),
            store: store.clone(),
            cycle,
            clock,
            state: state.clone(),
            own: own.clone(),
            version: Version::default(),
        };
        writer.reload().await?;
        let (requests, inbox) = mpsc::unbounded_channel();
        tokio::spawn(writer.serve(inbox));
        Ok(Self { run, store, state, own, requests })
    }

    /// Which run.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.run
    }

    /// The state as of the last read or write. Hold it briefly and never across an await.
    pub fn state(&self) -> RwLockReadGuard<'_, Run> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What this cycle has written so far, oldest first.
    #[must_use]
    pub fn own_events(&self) -> Vec<Event> {
        self.own.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Every event of the run, read fresh.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn events(&self) -> Result<Vec<Event>, JournalError> {
        let (store, run) = (self.store.clone(), self.run.clone());
        Ok(blocking(move || store.load(&run)).await?.events)
    }

    /// Appends events; concurrent callers share one append. The events that the merge rules ignore
    /// are not written and are told.
    ///
    /// # Errors
    /// When the store fails, a newer version owns the run, or too many races were lost.
    pub async fn write(&self, events: Vec<EventKind>) -> Result<Written, JournalError> {
        self.write_batch(events, Vec::new(), Vec::new()).await
    }

    /// As [`Self::write`], with blobs and branches to keep in the same step.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn write_batch(
        &self,
        events: Vec<EventKind>,
        blobs: Vec<(String, Vec<u8>)>,
        keep: Vec<(String, String)>,
    ) -> Result<Written, JournalError> {
        self.request(events, blobs, keep, false).await
    }

    /// As [`Self::write`], but all or nothing by the first event: when that is ignored, the others
    /// are too. So an effect that stands behind its cause happens once, however many try.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn write_led(&self, events: Vec<EventKind>) -> Result<Written, JournalError> {
        self.write_led_batch(events, Vec::new(), Vec::new()).await
    }

    /// As [`Self::write_led`], with blobs and refs to keep in the same step.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn write_led_batch(
        &self,
        events: Vec<EventKind>,
        blobs: Vec<(String, Vec<u8>)>,
        keep: Vec<(String, String)>,
    ) -> Result<Written, JournalError> {
        self.request(events, blobs, keep, true).await
    }

    async fn request(
        &self,
        events: Vec<EventKind>,
        blobs: Vec<(String, Vec<u8>)>,
        keep: Vec<(String, String)>,
        led: bool,
    ) -> Result<Written, JournalError> {
        let (done, answer) = oneshot::channel();
        self.requests
            .send(Request { events, blobs, keep, led, done })
            .map_err(|_| JournalError::Stopped)?;
        answer.await.map_err(|_| JournalError::Stopped)?
    }

    /// Reads a blob of the run.
    ///
    /// # Errors
    /// When the store can't be read.
    pub async fn blob(&self, name: &str) -> Result<Option<Vec<u8>>, JournalError> {
        let (store, run, name) = (self.store.clone(), self.run.clone(), name.to_owned());
        blocking(move || store.blob(&run, &name)).await
    }
}

impl Writer {
    async fn serve(mut self, mut inbox: mpsc::UnboundedReceiver<Request>) {
        while let Some(first) = inbox.recv().await {
            let mut group = vec![first];
            while let Ok(more) = inbox.try_recv() {
                group.push(more);
            }
            let outcome = self.append(&group).await;
            for (request, index) in group.into_iter().zip(0..) {
                let answer = match &outcome {
                    Ok(all) => Ok(all.get(index).cloned().unwrap_or(Written { applied: vec![] })),
                    Err(error) => Err(error.clone()),
                };
                let _ = request.done.send(answer);
            }
        }
    }

    async fn append(&mut self, group: &[Request]) -> Result<Vec<Written>, JournalError> {
        for race in 0..MAX_RACES {
            if race > 0 {
                self.reload().await?;
            }
            let (batch, written) = self.prepare(group)?;
            if batch == Batch::default() {
                return Ok(written);
            }
            let (store, run, version) =
                (self.store.clone(), self.run.clone(), self.version.clone());
            let events = batch.events.clone();
            let appended = blocking_raw(move || store.append(&run, &version, &batch)).await?;
            match appended {
                Ok(version) => {
                    self.version = version;
                    let mut own =
                        self.own.write().unwrap_or_else(std::sync::PoisonError::into_inner);
                    own.extend(events);
                    return Ok(written);
                }
                Err(StoreError::Conflict) => {
                    let ceiling = 20u64 << race.min(6);
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=ceiling))).await;
                }
                Err(error) => {
                    // The fold ran ahead of the store: read again before anyone looks.
                    let error = JournalError::Store(Arc::new(error));
                    return Err(self.reload().await.err().unwrap_or(error));
                }
            }
        }
        self.reload().await?;
        Err(JournalError::Contended)
    }

    /// Folds the requests into the state and makes the batch of what counted.
    fn prepare(&mut self, group: &[Request]) -> Result<(Batch, Vec<Written>), JournalError> {
        let at = self.clock.now();
        let mut batch = Batch::default();
        let mut written = Vec::with_capacity(group.len());
        let mut state = self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.unknown_events > 0 {
            return Err(JournalError::Newer(state.unknown_events));
        }
        for request in group {
            let mut applied = Vec::with_capacity(request.events.len());
            for kind in &request.events {
                if request.led
                    && let Some(first @ Applied::No(_)) = applied.first().copied()
                {
                    applied.push(first);
                    continue;
                }
                let event =
                    Event { v: EVENT_VERSION, at, cycle: self.cycle.clone(), kind: kind.clone() };
                let result = state.apply(&event);
                match result {
                    Applied::Yes => batch.events.push(event),
                    Applied::No(_) => state.events -= 1,
                }
                applied.push(result);
            }
            if request.events.is_empty() || applied.contains(&Applied::Yes) {
                batch.blobs.extend(request.blobs.iter().cloned());
                batch.keep.extend(request.keep.iter().cloned());
            }
            written.push(Written { applied });
        }
        Ok((batch, written))
    }

    async fn reload(&mut self) -> Result<(), JournalError> {
        let (store, run) = (self.store.clone(), self.run.clone());
        let loaded = blocking(move || store.load(&run)).await?;
        let folded = fold(&loaded.events);
        *self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner) = folded;
        self.version = loaded.version;
        Ok(())
    }
}

async fn blocking_raw<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JournalError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| JournalError::Stopped)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, JournalError> {
    Ok(blocking_raw(work).await?.map_err(Arc::new)?)
}
