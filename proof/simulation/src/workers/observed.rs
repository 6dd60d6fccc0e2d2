//! Calls and answers in the terms of the oracle and the trace.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use coordination::{
    Delay, FencingToken, InboxKey, InboxMessage, JobRun, LeaseDuration, Materialised, MessageId,
    OutboxMessage, OwnerToken, Settlement, Source, SourceMessageId, Tenure, Timer, Timestamp, Ulid,
};
use testkit::coordination::Call;

/// The messages that runs become have numbers from here on.
const RUN_MESSAGES: u64 = 1 << 32;

/// Numbers for what has random names.
#[derive(Default)]
pub(super) struct Names {
    owners: BTreeMap<OwnerToken, usize>,
    /// The moments of runs, in seconds, by their IDs.
    runs: BTreeMap<Ulid, u64>,
}

/// Something that can be claimed. A run is known by its moment, in seconds; the others by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Outbox,
    Inbox,
    Timer,
    Run,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner(usize);

/// A call that matters here and what it was answered.
#[derive(Debug)]
pub(super) enum Observed {
    Added { item: Item, due_at: Option<Timestamp> },
    Claimed { owner: Owner, lease: Duration, items: Vec<Item> },
    Begun { owner: Owner, item: Item, lease: Duration, changed: usize },
    Extended { owner: Owner, items: Vec<Item>, lease: Duration, changed: usize },
    Settled { owner: Owner, items: Vec<Item>, becomes: Becomes, changed: usize },
    Reaped { kind: Kind, changed: usize },
    RunsMade { token: FencingToken, made: Materialised },
    Acquired { owner: Owner, duration: Duration, token: Option<FencingToken> },
    Renewed { tenure: OwnTenure, duration: Duration, token: Option<FencingToken> },
    Released { tenure: OwnTenure, changed: usize },
}

/// What becomes of a settled item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Becomes {
    Done,
    Dead,
    Ready { after: Duration, has_failed: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OwnTenure {
    pub(super) owner: Owner,
    pub(super) token: FencingToken,
}

/// An answer in its method's type.
fn of<T: Clone + 'static>(answer: &dyn Any) -> T {
    answer.downcast_ref::<T>().expect("an answer has its method's type").clone()
}

impl Names {
    /// The number of an outbox message or a timer.
    pub(super) fn number_of(&self, id: Ulid) -> u64 {
        match self.runs.get(&id) {
            Some(seconds) => RUN_MESSAGES + seconds,
            None => u64::try_from(id.random()).unwrap_or(u64::MAX),
        }
    }

    /// How many runs of a moment were seen.
    pub(super) fn runs_of(&self, seconds: u64) -> usize {
        self.runs.values().filter(|of| **of == seconds).count()
    }

    fn message(&self, id: MessageId) -> Item {
        Item { kind: Kind::Outbox, number: self.number_of(id.ulid()) }
    }

    fn timer(&self, id: Ulid) -> Item {
        Item { kind: Kind::Timer, number: self.number_of(id) }
    }

    fn run(&self, id: Ulid) -> Item {
        Item { kind: Kind::Run, number: self.runs.get(&id).copied().unwrap_or(u64::MAX) }
    }

    fn owner(&mut self, token: &OwnerToken) -> Owner {
        let next = self.owners.len();
        Owner(*self.owners.entry(token.clone()).or_insert(next))
    }

    fn tenure(&mut self, tenure: &Tenure) -> OwnTenure {
        OwnTenure { owner: self.owner(&tenure.owner), token: tenure.token }
    }

    /// A call and its answer in the oracle's terms; none if it does not matter there.
    #[expect(clippy::too_many_lines, reason = "one arm for each call")]
    pub(super) fn observe(&mut self, call: &Call<'_>, answer: &dyn Any) -> Option<Observed> {
        Some(match *call {
            Call::OutboxEnqueue { message } => {
                Observed::Added { item: self.message(message.id), due_at: message.due_at }
            }
            Call::InboxEnqueue { message } => {
                Observed::Added { item: inbox_item(&message.key), due_at: message.due_at }
            }
            Call::ScheduleTimer { timer } => {
                Observed::Added { item: self.timer(timer.id.ulid()), due_at: Some(timer.due_at) }
            }
            Call::OutboxClaim { owner, lease } => {
                let item = |names: &mut Names, m: &OutboxMessage| names.message(m.id);
                self.claimed(owner, lease, answer, item)?
            }
            Call::InboxClaim { owner, lease } => {
                self.claimed(owner, lease, answer, |_, m: &InboxMessage| inbox_item(&m.key))?
            }
            Call::ClaimTimers { owner, lease } => {
                let item = |names: &mut Names, timer: &Timer| names.timer(timer.id.ulid());
                self.claimed(owner, lease, answer, item)?
            }
            Call::ClaimJobRuns { owner, lease } => {
                self.claimed(owner, lease, answer, Names::meet_run)?
            }
            Call::OutboxBegin { owner, id, lease } => {
                self.begun(owner, self.message(id), lease, of(answer))
            }
            Call::InboxBegin { owner, key, lease } => {
                self.begun(owner, inbox_item(key), lease, of(answer))
            }
            Call::OutboxExtend { owner, ids, lease } => {
                let items = ids.iter().map(|id| self.message(*id)).collect();
                let (owner, lease, changed) = (self.owner(owner), lease.get(), of(answer));
                Observed::Extended { owner, items, lease, changed }
            }
            Call::OutboxSettle { owner, ids, settlement } => {
                let items = ids.iter().map(|id| self.message(*id)).collect();
                self.settled(owner, items, Becomes::by(settlement), answer)
            }
            Call::InboxSettle { owner, keys, settlement } => {
                let items = keys.iter().map(inbox_item).collect();
                self.settled(owner, items, Becomes::by(settlement), answer)
            }
            Call::AckTimers { owner, ids } => {
                let items = ids.iter().map(|id| self.timer(id.ulid())).collect();
                self.settled(owner, items, Becomes::Done, answer)
            }
            Call::AckJobRuns { owner, ids } => {
                let items = ids.iter().map(|id| self.run(id.ulid())).collect();
                self.settled(owner, items, Becomes::Done, answer)
            }
            Call::AbandonTimers { owner, ids, delay } => {
                let items = ids.iter().map(|id| self.timer(id.ulid())).collect();
                self.settled(owner, items, Becomes::untried(delay), answer)
            }
            Call::AbandonJobRuns { owner, ids, delay } => {
                let items = ids.iter().map(|id| self.run(id.ulid())).collect();
                self.settled(owner, items, Becomes::untried(delay), answer)
            }
            Call::OutboxReap => Observed::Reaped { kind: Kind::Outbox, changed: of(answer) },
            Call::InboxReap => Observed::Reaped { kind: Kind::Inbox, changed: of(answer) },
            Call::ReapTimers => Observed::Reaped { kind: Kind::Timer, changed: of(answer) },
            Call::ReapJobRuns => Observed::Reaped { kind: Kind::Run, changed: of(answer) },
            Call::CreateJobRuns { fence } => {
                Observed::RunsMade { token: fence.token, made: of(answer) }
            }
            Call::Acquire { duration, owner, .. } => {
                let (owner, duration) = (self.owner(owner), duration.get());
                Observed::Acquired { owner, duration, token: of(answer) }
            }
            Call::Renew { tenure, duration } => {
                let (tenure, duration) = (self.tenure(tenure), duration.get());
                Observed::Renewed { tenure, duration, token: of(answer) }
            }
            Call::Release { tenure } => {
                Observed::Released { tenure: self.tenure(tenure), changed: of(answer) }
            }
            Call::Other => return None,
        })
    }

    fn claimed<T: Clone + 'static>(
        &mut self,
        owner: &OwnerToken,
        lease: LeaseDuration,
        answer: &dyn Any,
        item: impl Fn(&mut Names, &T) -> Item,
    ) -> Option<Observed> {
        let claimed: Vec<T> = of(answer);
        if claimed.is_empty() {
            return None;
        }
        let items = claimed.iter().map(|claimed| item(self, claimed)).collect();
        Some(Observed::Claimed { owner: self.owner(owner), lease: lease.get(), items })
    }

    fn meet_run(&mut self, run: &JobRun) -> Item {
        let seconds = run.scheduled_at.since(Timestamp::MIN).as_secs();
        self.runs.insert(run.id.ulid(), seconds);
        Item { kind: Kind::Run, number: seconds }
    }

    fn begun(
        &mut self,
        owner: &OwnerToken,
        item: Item,
        lease: LeaseDuration,
        attempts: Option<u32>,
    ) -> Observed {
        let changed = usize::from(attempts.is_some());
        Observed::Begun { owner: self.owner(owner), item, lease: lease.get(), changed }
    }

    fn settled(
        &mut self,
        owner: &OwnerToken,
        items: Vec<Item>,
        becomes: Becomes,
        answer: &dyn Any,
    ) -> Observed {
        Observed::Settled { owner: self.owner(owner), items, becomes, changed: of(answer) }
    }
}

impl Becomes {
    fn by(settlement: &Settlement) -> Becomes {
        match settlement {
            Settlement::Finish { .. } => Becomes::Done,
            Settlement::Fail { .. } => Becomes::Dead,
            Settlement::Retry { delay, .. } => {
                Becomes::Ready { after: delay.get(), has_failed: true }
            }
            Settlement::Postpone { delay, .. } => Becomes::untried(*delay),
        }
    }

    fn untried(delay: Delay) -> Becomes {
        Becomes::Ready { after: delay.get(), has_failed: false }
    }
}

impl Observed {
    /// Whether anything came of it that a trace should tell.
    pub(super) fn is_change(&self) -> bool {
        match self {
            Observed::Reaped { changed, .. } => *changed > 0,
            Observed::RunsMade { made, .. } => *made != Materialised::Runs(0),
            Observed::Acquired { token, .. } => token.is_some(),
            Observed::Added { .. }
            | Observed::Claimed { .. }
            | Observed::Begun { .. }
            | Observed::Extended { .. }
            | Observed::Settled { .. }
            | Observed::Renewed { .. }
            | Observed::Released { .. } => true,
        }
    }
}

fn inbox_item(key: &InboxKey) -> Item {
    Item { kind: Kind::Inbox, number: number_of_key(key) }
}

pub(super) fn number_of_key(key: &InboxKey) -> u64 {
    key.message_id.as_str().parse().expect("we have made it")
}

/// The identity of the message or timer with this number.
pub(super) fn ulid(number: u64) -> Ulid {
    Ulid::from_parts(1, u128::from(number))
}

pub(super) fn inbox_key(number: u64) -> InboxKey {
    InboxKey {
        source: Source::new("source").expect("it is a name"),
        message_id: SourceMessageId::new(number.to_string()).expect("it is a name"),
    }
}
