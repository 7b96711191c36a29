//! The ledger as a cycle uses it: one writer task that folds, filters by the merge rules, appends
//! with compare-and-swap, and on a conflict reads again and keeps what is still valid.

use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Clock;
use crate::ledger::{Applied, EVENT_VERSION, Event, EventKind, Run, fold};
use crate::model::{CycleId, RunId};
use crate::store::{Batch, Store, StoreError, Version};

/// How often a lost race is run again before giving up. Each loss means that somebody else won, so
/// the ledger as a whole makes progress.
const MAX_RACES: u32 = 60;

/// How long confirmations wait for an append that they can share: each one is a push.
const PATIENCE: Duration = Duration::from_secs(1);

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

/// What a caller wants written.
#[derive(Default)]
struct Ask {
    events: Vec<EventKind>,
    blobs: Vec<(String, Vec<u8>)>,
    keep: Vec<(String, String)>,
    /// When the first event is ignored, so are the others.
    led: bool,
    /// It goes with the next append, or makes one after [`PATIENCE`].
    patient: bool,
}

struct Request {
    ask: Ask,
    done: oneshot::Sender<Result<Written, JournalError>>,
}

/// Confirmations that are folded but not yet in the store.
#[derive(Default)]
struct Behind {
    asks: Vec<Ask>,
    /// What they came to, on the state as it is now.
    batch: Batch,
    /// When to append them on their own.
    due: Option<Instant>,
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
    behind: Behind,
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
            behind: Behind::default(),
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

    /// Confirms effects that the next cycle would find by itself: counts at once, and is in the store
    /// with the next append, at most a second later.
    ///
    /// # Errors
    /// When a newer version owns the run.
    pub async fn confirm(&self, events: Vec<EventKind>) -> Result<Written, JournalError> {
        self.request(Ask { events, patient: true, ..Ask::default() }).await
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
        self.request(Ask { events, blobs, keep, ..Ask::default() }).await
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
        self.request(Ask { events, blobs, keep, led: true, ..Ask::default() }).await
    }

    async fn request(&self, ask: Ask) -> Result<Written, JournalError> {
        let (done, answer) = oneshot::channel();
        self.requests.send(Request { ask, done }).map_err(|_| JournalError::Stopped)?;
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
        loop {
            let due = self.behind.due;
            let first = tokio::select! {
                first = inbox.recv() => first,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.append_confirmations().await;
                    continue;
                }
            };
            let Some(first) = first else { break };
            let mut group = vec![first];
            while let Ok(more) = inbox.try_recv() {
                group.push(more);
            }
            let (patient, group): (Vec<_>, Vec<_>) =
                group.into_iter().partition(|request| request.ask.patient);
            for Request { ask, done } in patient {
                let _ = done.send(self.confirm(ask));
            }
            if !group.is_empty() {
                self.answer(group).await;
            }
        }
        self.append_confirmations().await;
    }

    async fn answer(&mut self, group: Vec<Request>) {
        let (asks, done): (Vec<_>, Vec<_>) = group.into_iter().map(|r| (r.ask, r.done)).unzip();
        let outcome = self.append(&asks).await;
        for (done, index) in done.into_iter().zip(0..) {
            let answer = match &outcome {
                Ok(all) => Ok(all.get(index).cloned().unwrap_or(Written { applied: vec![] })),
                Err(error) => Err(error.clone()),
            };
            let _ = done.send(answer);
        }
    }

    fn confirm(&mut self, ask: Ask) -> Result<Written, JournalError> {
        let (batch, mut written) = self.prepare(std::slice::from_ref(&ask))?;
        self.behind.batch.extend(batch);
        self.behind.asks.push(ask);
        self.behind.due.get_or_insert_with(|| Instant::now() + PATIENCE);
        Ok(written.pop().unwrap_or(Written { applied: vec![] }))
    }

    async fn append_confirmations(&mut self) {
        if let Err(error) = self.append(&[]).await {
            tracing::warn!(%error, "what was done is not in the ledger; the next cycle finds it");
            self.behind = Behind::default();
        }
    }

    async fn append(&mut self, asks: &[Ask]) -> Result<Vec<Written>, JournalError> {
        for race in 0..MAX_RACES {
            if race > 0 {
                self.reload().await?;
            }
            let (new, written) = self.prepare(asks)?;
            let mut batch = self.behind.batch.clone();
            batch.extend(new);
            if batch == Batch::default() {
                self.behind = Behind::default();
                return Ok(written);
            }
            let (store, run, version) =
                (self.store.clone(), self.run.clone(), self.version.clone());
            let events = batch.events.clone();
            let appended = blocking_raw(move || store.append(&run, &version, &batch)).await?;
            match appended {
                Ok(version) => {
                    self.version = version;
                    self.behind = Behind::default();
                    super::progress::tell(&events);
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
                    self.behind = Behind::default();
                    let error = JournalError::Store(Arc::new(error));
                    return Err(self.reload().await.err().unwrap_or(error));
                }
            }
        }
        self.reload().await?;
        Err(JournalError::Contended)
    }

    /// Folds what is asked into the state and makes the batch of what counted.
    fn prepare(&self, asks: &[Ask]) -> Result<(Batch, Vec<Written>), JournalError> {
        let at = self.clock.now();
        let mut batch = Batch::default();
        let mut written = Vec::with_capacity(asks.len());
        let mut state = self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if state.unknown_events > 0 {
            return Err(JournalError::Newer(state.unknown_events));
        }
        for ask in asks {
            let mut applied = Vec::with_capacity(ask.events.len());
            for kind in &ask.events {
                if ask.led
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
            if ask.events.is_empty() || applied.contains(&Applied::Yes) {
                batch.blobs.extend(ask.blobs.iter().cloned());
                batch.keep.extend(ask.keep.iter().cloned());
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
        let behind = std::mem::take(&mut self.behind);
        let (batch, _) = self.prepare(&behind.asks)?;
        self.behind = Behind { batch, ..behind };
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Journal, PATIENCE};
    use crate::cycle::Clock;
    use crate::ledger::EventKind;
    use crate::model::{CycleId, NodeId, RunId};
    use crate::store::{DirectoryStore, Store as _};

    const RUN: &str = "r-0001-aaaa";

    struct Ledger {
        store: Arc<DirectoryStore>,
        dir: tempfile::TempDir,
    }

    impl Ledger {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { store: Arc::new(DirectoryStore::new(dir.path())), dir }
        }

        async fn journal(&self, cycle: &str) -> Journal {
            let run = RunId::new(RUN).unwrap();
            let clock = Clock::starting_at(jiff::Timestamp::UNIX_EPOCH);
            Journal::open(self.store.clone(), run, CycleId::new(cycle).unwrap(), clock)
                .await
                .unwrap()
        }

        /// Each append is one segment.
        fn appends(&self) -> usize {
            let segments = std::fs::read_dir(self.dir.path().join(RUN).join("events"));
            segments.map_or(0, Iterator::count)
        }
    }

    fn node_id(id: &str) -> NodeId {
        NodeId::new(id).unwrap()
    }

    fn pushed(node: &str) -> Vec<EventKind> {
        let (branch, commit) = (node.to_owned(), "1".repeat(40));
        vec![EventKind::BranchPushed { node: node_id(node), branch, commit }]
    }

    fn resumed() -> Vec<EventKind> {
        vec![EventKind::Resumed { by: "anyone".to_owned() }]
    }

    #[tokio::test]
    async fn confirmations_count_at_once_and_share_the_next_append() {
        let ledger = Ledger::new();
        let journal = ledger.journal("c1").await;
        for node in ["n1", "n2"] {
            assert!(journal.confirm(pushed(node)).await.unwrap().all());
            assert!(journal.state().nodes[&node_id(node)].pushed.is_some());
        }
        assert_eq!(ledger.appends(), 0);
        journal.write(resumed()).await.unwrap();
        assert_eq!((ledger.appends(), journal.events().await.unwrap().len()), (1, 3));
    }

    #[tokio::test]
    async fn without_company_confirmations_are_written_after_a_moment() {
        let ledger = Ledger::new();
        let journal = ledger.journal("c1").await;
        journal.confirm(pushed("n1")).await.unwrap();
        tokio::time::pause();
        tokio::time::sleep(PATIENCE * 2).await;
        tokio::time::resume();
        // Whoever asks next stands behind the append that has begun.
        journal.write(Vec::new()).await.unwrap();
        assert_eq!((ledger.appends(), journal.events().await.unwrap().len()), (1, 1));
    }

    #[tokio::test]
    async fn confirmations_outlive_a_lost_race_and_the_last_handle() {
        let ledger = Ledger::new();
        let (one, other) = (ledger.journal("c1").await, ledger.journal("c2").await);
        one.confirm(pushed("n1")).await.unwrap();
        other.write(resumed()).await.unwrap();
        one.write(resumed()).await.unwrap();
        assert_eq!(one.events().await.unwrap().len(), 3);
        assert!(one.state().nodes[&node_id("n1")].pushed.is_some());
        one.confirm(pushed("n2")).await.unwrap();
        let (store, run) = (ledger.store.clone(), one.run_id().clone());
        drop(one);
        while store.load(&run).unwrap().events.len() < 4 {
            tokio::task::yield_now().await;
        }
    }
}
