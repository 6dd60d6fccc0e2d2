//! One narrow way to all primitives of a provider, and around it the deliberate bugs.

use std::collections::BTreeMap;
use std::time::Duration;

use coordination::{
    BatchSize, CronSchedule, Delay, ErrorText, Fence, FencingToken, Inbox, InboxKey, JobDefinition,
    JobName, LeaseDuration, Leases, Materialised, MessageId, NewInboxMessage, NewOutboxMessage,
    NewTimer, Outbox, OwnerToken, Payload, ProviderError, ResourceName, RunId, Scheduler, Source,
    SourceMessageId, Tenure, TimerId, Timestamp, Topic, Ulid,
};
use coordination_conformance::Fixture;

use super::plan::Kind;
use crate::flaw::Flaw;

/// What the job's ticks are apart.
pub(super) const TICK_SECONDS: u64 = 2;
const JOB: &str = "job";

/// A thing that can be claimed. A run is known by its moment, in seconds; the others by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) number: u64,
}

/// An item that was handed out, with the identity that the provider has for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Handed {
    pub(super) item: Item,
    pub(super) identity: u128,
}

/// All primitives of a provider, with a bug around them or none.
pub(super) struct Desk<F> {
    fixture: F,
    flaw: Option<Flaw>,
    started_at: Timestamp,
    runs: BTreeMap<u64, RunId>,
    notes: Notes,
}

/// What the bugs need to remember.
#[derive(Default)]
struct Notes {
    calls: usize,
    copies: u64,
    handed: Vec<Handed>,
    claimers: BTreeMap<Item, OwnerToken>,
    recorded: Option<FencingToken>,
    last_token: u64,
    released_at: u64,
}

/// Copies of a message have numbers above all others.
const COPIES: u64 = 1 << 40;

impl<F: Fixture> Desk<F> {
    pub(super) async fn open(flaw: Option<Flaw>) -> Self {
        let fixture = F::fresh().await;
        let started_at = fixture.now().await;
        let line = format!("*/{TICK_SECONDS} * * * * *");
        let schedule = CronSchedule::parse(&line, "UTC").expect("the line is valid");
        let job = JobDefinition::new(name(), topic(), schedule);
        let saved = fixture.scheduler().create_or_update_job(job).await;
        saved.expect("the provider answers");
        Self { fixture, flaw, started_at, runs: BTreeMap::new(), notes: Notes::default() }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(super) async fn now(&self) -> Timestamp {
        self.fixture.now().await
    }

    pub(super) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub(super) async fn pass(&self, by: Duration) {
        self.fixture.advance(by).await;
    }

    /// Adds an item, or adds it again.
    pub(super) async fn add(
        &mut self,
        item: Item,
        due_at: Timestamp,
        is_again: bool,
    ) -> Result<(), ProviderError> {
        let due_at = if self.has(Flaw::IgnoresDueTimes) { self.started_at } else { due_at };
        let mut number = item.number;
        if is_again && self.has(Flaw::DeliversDuplicates) {
            self.notes.copies += 1;
            number += COPIES * self.notes.copies;
        }
        match item.kind {
            Kind::Outbox => {
                let message = NewOutboxMessage::new(topic(), Payload::empty());
                let message = message.with_id(MessageId::from_ulid(ulid(number))).due_at(due_at);
                self.fixture.outbox().enqueue(message).await?;
            }
            Kind::Inbox => {
                let message = NewInboxMessage::new(inbox_key(number), topic(), Payload::empty());
                // Whether it was a duplicate shows in what is handed out later.
                let _added = self.fixture.inbox().enqueue(message.due_at(due_at)).await?;
            }
            Kind::Timer => {
                let id = TimerId::from_ulid(ulid(number));
                let timer = NewTimer { id, ..NewTimer::new(topic(), Payload::empty(), due_at) };
                self.fixture.scheduler().schedule_timer(timer).await?;
            }
            Kind::Run => unreachable!("runs are made by the provider"),
        }
        Ok(())
    }

    pub(super) async fn claim(
        &mut self,
        kind: Kind,
        owner: &OwnerToken,
        lease: Duration,
        max: u32,
    ) -> Result<Vec<Handed>, ProviderError> {
        let lease = LeaseDuration::new(lease).expect("plans are valid");
        let max = BatchSize::new(max).expect("plans are valid");
        let mut handed: Vec<Handed> = match kind {
            Kind::Outbox => {
                let messages = self.fixture.outbox().claim_due(owner, lease, max).await?;
                messages.iter().map(|message| of_ulid(kind, message.id.ulid())).collect()
            }
            Kind::Inbox => {
                let messages = self.fixture.inbox().claim(owner, lease, max).await?;
                messages.iter().map(|message| of_key(&message.key)).collect()
            }
            Kind::Timer => {
                let timers = self.fixture.scheduler().claim_timers(owner, lease, max).await?;
                timers.iter().map(|timer| of_ulid(kind, timer.id.ulid())).collect()
            }
            Kind::Run => {
                let runs = self.fixture.scheduler().claim_job_runs(owner, lease, max).await?;
                let mut handed = Vec::new();
                for run in runs {
                    let number = run.scheduled_at.unix_micros().unsigned_abs() / 1_000_000;
                    self.runs.insert(number, run.id);
                    handed.push(Handed {
                        item: Item { kind, number },
                        identity: run.id.ulid().into(),
                    });
                }
                handed
            }
        };
        self.notes.calls += 1;
        if self.has(Flaw::HandsOutTwice) && self.notes.calls.is_multiple_of(3) {
            let earlier = self.notes.handed.iter().find(|earlier| earlier.item.kind == kind);
            handed.extend(earlier.copied());
        }
        self.notes.handed.extend(&handed);
        let claimers = handed.iter().map(|handed| (handed.item, owner.clone()));
        self.notes.claimers.extend(claimers);
        Ok(handed)
    }

    pub(super) async fn finish(
        &self,
        owner: &OwnerToken,
        item: Item,
    ) -> Result<usize, ProviderError> {
        let claimer = self.notes.claimers.get(&item).filter(|_| self.has(Flaw::AcksForAnyone));
        let owner = claimer.unwrap_or(owner);
        let scheduler = self.fixture.scheduler();
        match item.kind {
            Kind::Outbox => self.fixture.outbox().mark_dispatched(owner, &[message_id(item)]).await,
            Kind::Inbox => self.fixture.inbox().ack(owner, &[inbox_key(item.number)]).await,
            Kind::Timer => scheduler.ack_timers(owner, &[timer_id(item)]).await,
            Kind::Run => scheduler.ack_job_runs(owner, &[self.run_id(item)]).await,
        }
    }

    pub(super) async fn give_back(
        &self,
        owner: &OwnerToken,
        item: Item,
        delay: Duration,
    ) -> Result<usize, ProviderError> {
        let delay = Delay::new(delay).expect("plans are valid");
        let error = ErrorText::default();
        let scheduler = self.fixture.scheduler();
        match item.kind {
            Kind::Outbox => {
                self.fixture.outbox().reschedule(owner, &[message_id(item)], delay, &error).await
            }
            Kind::Inbox => {
                self.fixture.inbox().abandon(owner, &[inbox_key(item.number)], &error, delay).await
            }
            Kind::Timer => scheduler.abandon_timers(owner, &[timer_id(item)], delay).await,
            Kind::Run => scheduler.abandon_job_runs(owner, &[self.run_id(item)], delay).await,
        }
    }

    /// Ends an item as failed, where the primitive knows that; finishes it elsewhere.
    pub(super) async fn fail(
        &self,
        owner: &OwnerToken,
        item: Item,
    ) -> Result<usize, ProviderError> {
        let error = ErrorText::default();
        match item.kind {
            Kind::Outbox => self.fixture.outbox().fail(owner, &[message_id(item)], &error).await,
            Kind::Inbox => {
                self.fixture.inbox().fail(owner, &[inbox_key(item.number)], &error).await
            }
            Kind::Timer | Kind::Run => self.finish(owner, item).await,
        }
    }

    pub(super) async fn reap(&self, kind: Kind) -> Result<usize, ProviderError> {
        if self.has(Flaw::LosesReaped) {
            return Ok(0);
        }
        match kind {
            Kind::Outbox => self.fixture.outbox().reap().await,
            Kind::Inbox => self.fixture.inbox().reap().await,
            Kind::Timer => self.fixture.scheduler().reap_timers().await,
            Kind::Run => self.fixture.scheduler().reap_job_runs().await,
        }
    }

    pub(super) async fn make_runs(
        &mut self,
        resource: usize,
        token: FencingToken,
    ) -> Result<Materialised, ProviderError> {
        let mut token = token;
        if self.has(Flaw::IgnoresFences) {
            token = token.max(self.notes.recorded.unwrap_or(token));
        }
        self.notes.recorded = Some(token);
        let fence = Fence { resource: resource_name(resource), token };
        self.fixture.scheduler().create_job_runs_from_due_jobs(&fence).await
    }

    pub(super) async fn acquire(
        &mut self,
        resource: usize,
        owner: &OwnerToken,
        duration: Duration,
    ) -> Result<Option<FencingToken>, ProviderError> {
        let duration = LeaseDuration::new(duration).expect("plans are valid");
        let resource = resource_name(resource);
        let acquired = self.fixture.leases().try_acquire(&resource, duration, owner).await?;
        let token = match acquired {
            Some(token) => token.get(),
            None if self.has(Flaw::LeasesTwice) => self.notes.last_token + 1,
            None => return Ok(None),
        };
        self.notes.last_token = token;
        Ok(Some(FencingToken::new(token - self.notes.released_at)))
    }

    pub(super) async fn renew(
        &mut self,
        tenure: &Tenure,
        duration: Duration,
    ) -> Result<Option<FencingToken>, ProviderError> {
        let duration = LeaseDuration::new(duration).expect("plans are valid");
        let token = self.fixture.leases().try_renew(&self.real(tenure), duration).await?;
        self.notes.last_token = token.map_or(self.notes.last_token, FencingToken::get);
        Ok(token.map(|token| FencingToken::new(token.get() - self.notes.released_at)))
    }

    pub(super) async fn release(&mut self, tenure: &Tenure) -> Result<usize, ProviderError> {
        let released = self.fixture.leases().release(&self.real(tenure)).await?;
        if self.has(Flaw::ResetsFencing) && released > 0 {
            self.notes.released_at = self.notes.last_token;
        }
        Ok(released)
    }

    /// The tenure as the provider knows it.
    fn real(&self, tenure: &Tenure) -> Tenure {
        let token = FencingToken::new(tenure.token.get() + self.notes.released_at);
        Tenure { token, ..tenure.clone() }
    }

    fn run_id(&self, item: Item) -> RunId {
        self.runs.get(&item.number).copied().unwrap_or(RunId::from_ulid(ulid(item.number)))
    }
}

pub(super) fn resource_name(resource: usize) -> ResourceName {
    ResourceName::new(format!("resource-{resource}")).expect("it is a name")
}

fn name() -> JobName {
    JobName::new(JOB).expect("it is a name")
}

fn topic() -> Topic {
    Topic::new("topic").expect("it is a name")
}

/// An identity with the number in it, which a copy has too.
fn ulid(number: u64) -> Ulid {
    Ulid::from_parts(1, u128::from(number))
}

fn message_id(item: Item) -> MessageId {
    MessageId::from_ulid(ulid(item.number))
}

fn timer_id(item: Item) -> TimerId {
    TimerId::from_ulid(ulid(item.number))
}

fn of_ulid(kind: Kind, ulid: Ulid) -> Handed {
    let identity = u128::from(ulid);
    let number = u64::try_from(identity & u128::from(COPIES - 1)).expect("it has few bits");
    Handed { item: Item { kind, number }, identity }
}

fn inbox_key(number: u64) -> InboxKey {
    InboxKey {
        source: Source::new("source").expect("it is a name"),
        message_id: SourceMessageId::new(format!("{number}")).expect("it is a name"),
    }
}

fn of_key(key: &InboxKey) -> Handed {
    let identity: u64 = key.message_id.as_str().parse().expect("we have made it");
    let item = Item { kind: Kind::Inbox, number: identity & (COPIES - 1) };
    Handed { item, identity: identity.into() }
}
