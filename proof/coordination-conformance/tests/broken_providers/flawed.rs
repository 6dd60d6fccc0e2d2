//! A memory provider with one thing wrong.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use coordination::{
    Clock, FakeClock, MessageId, NewOutboxMessage, OwnerToken, ResourceName, Timestamp, WallClock,
};
use coordination_conformance::{Fixture, MemoryFixture};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    AcksForTheWrongOwner,
    ReusesFencingTokens,
    IgnoresDueTimes,
    HandsOutTwice,
    ReapsFinishedMessages,
    NeverReaps,
    DeliversDuplicates,
    IgnoresFences,
    MakesUpForMissedTicks,
    ForgetsRetries,
    CountsJoinsByCalls,
    ClaimsNewestFirst,
    LetsTheSameOwnerIn,
    IgnoresTopics,
    ClaimsTopicByTopic,
    CountsPostponements,
    CountsEveryBegin,
    ExtendsInWordsOnly,
    ForgetsOutcomes,
    ShowsTheDeadAsReady,
    FailsInWordsOnly,
    FailsForTheWrongOwner,
    AsksTheMachinesClock,
    RenewsTheLost,
    PurgesForOthers,
    PurgesTheDeadEarly,
    BeginsWhatItHandsOut,
    ForgetsLostAttempts,
}

thread_local! {
    /// The flaw of the fixtures that this thread makes. The suite names its fixture by type, and a
    /// type for each flaw would compile every scenario once for each.
    static FLAW: Cell<Flaw> = const { Cell::new(Flaw::None) };
}

#[derive(Debug)]
pub(crate) struct FlawedFixture {
    memory: MemoryFixture,
    flawed: Flawed,
}

#[derive(Debug, Clone)]
pub(crate) struct Flawed {
    pub(crate) inner: coordination::MemoryProvider,
    pub(crate) flaw: Flaw,
    clock: FakeClock,
    notes: Arc<Mutex<Notes>>,
}

/// What the flaws need to remember.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) claimed_by: HashMap<String, OwnerToken>,
    pub(crate) enqueued: HashMap<MessageId, NewOutboxMessage>,
    pub(crate) finished: Vec<MessageId>,
    pub(crate) claimed: Vec<coordination::OutboxMessage>,
    pub(crate) calls: usize,
    pub(crate) tokens: HashMap<ResourceName, u64>,
    pub(crate) renewals: u64,
    pub(crate) copies: usize,
    pub(crate) begun: u32,
}

impl Flawed {
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().expect("no test panics while it holds the notes")
    }

    pub(crate) fn note_claim(&self, owner: &OwnerToken, ids: impl Iterator<Item = String>) {
        let mut notes = self.notes();
        notes.claimed_by.extend(ids.map(|id| (id, owner.clone())));
    }

    /// When a message is due by the provider's clock if the machine's is asked.
    pub(crate) fn due_at(&self, due_at: Option<Timestamp>) -> Option<Timestamp> {
        let (machine, provider) = (WallClock.now(), self.clock.now());
        match due_at {
            Some(due_at) if self.has(Flaw::AsksTheMachinesClock) => {
                Some(due_at.before(machine.since(provider)).after(provider.since(machine)))
            }
            due_at => due_at,
        }
    }

    /// The owner that a failure is noted for.
    pub(crate) fn owner_of_failure(&self, owner: &OwnerToken, id: &str) -> OwnerToken {
        let claimer = self.notes().claimed_by.get(id).cloned();
        claimer.filter(|_| self.has(Flaw::FailsForTheWrongOwner)).unwrap_or(owner.clone())
    }

    /// The owner that an acknowledgement is done for.
    pub(crate) fn owner_for(&self, owner: &OwnerToken, id: &str) -> OwnerToken {
        let claimer = self.notes().claimed_by.get(id).cloned();
        match claimer {
            Some(claimer) if self.has(Flaw::AcksForTheWrongOwner) => claimer,
            Some(_) | None => owner.clone(),
        }
    }
}

impl FlawedFixture {
    /// The fixtures that this thread makes from now on have the flaw.
    pub(crate) fn plant(flaw: Flaw) {
        FLAW.set(flaw);
    }
}

impl Fixture for FlawedFixture {
    const PROVIDER: &'static str = "FLAWED";
    type Outbox = Flawed;
    type Inbox = Flawed;
    type Scheduler = Flawed;
    type Leases = Flawed;

    async fn fresh() -> FlawedFixture {
        let memory = MemoryFixture::fresh().await;
        let inner = memory.provider().clone();
        let clock = memory.clock().clone();
        let flawed = Flawed { inner, flaw: FLAW.get(), clock, notes: Arc::default() };
        FlawedFixture { memory, flawed }
    }

    fn outbox(&self) -> &Flawed {
        &self.flawed
    }

    fn inbox(&self) -> &Flawed {
        &self.flawed
    }

    fn scheduler(&self) -> &Flawed {
        &self.flawed
    }

    fn leases(&self) -> &Flawed {
        &self.flawed
    }

    async fn now(&self) -> Timestamp {
        self.memory.now().await
    }

    async fn advance(&self, span: Duration) {
        self.memory.advance(span).await;
    }

    async fn while_ahead(&self, by: Duration, something: impl Future<Output = ()> + Send) {
        self.memory.while_ahead(by, something).await;
    }
}
