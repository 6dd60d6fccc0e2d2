//! Deliberate bugs, planted in the calls to the provider.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coordination::{
    Fence, FencingToken, Inbox, Materialised, MemoryProvider, MessageId, NewInboxMessage,
    NewOutboxMessage, NewTimer, Outbox, OutboxMessage, OwnerToken, Payload, Scheduler, Settlement,
    Timestamp, Ulid,
};
use testkit::coordination::Call;

use super::observed::inbox_key;
use super::settings::{HOLD_SECONDS, ROOMY};
use crate::flaw::Flaw;

/// Copies of a message have numbers above all others.
const COPIES: u64 = 1 << 40;

/// A slot's timeout that is after the end of every run.
const NEVER_SECONDS: u64 = 86_400;

/// The bug of a run, if it has one.
pub(super) struct Flawed {
    flaw: Option<Flaw>,
    provider: MemoryProvider,
    notes: Mutex<Notes>,
}

/// What the bugs need to remember.
#[derive(Default)]
struct Notes {
    claims: usize,
    handed: Option<OutboxMessage>,
    claimers: BTreeMap<MessageId, OwnerToken>,
    last_token: u64,
    is_released: bool,
    outcome: Option<Payload>,
    settled: usize,
}

/// What becomes of a call.
pub(super) enum Instead {
    /// It is made.
    Made,
    /// It is not made, and not answered.
    Unanswered,
    /// It is not made, and answered all the same.
    Answered(Box<dyn Any + Send>),
}

impl Flawed {
    pub(super) fn new(flaw: Option<Flaw>, provider: MemoryProvider) -> Flawed {
        Flawed { flaw, provider, notes: Mutex::default() }
    }

    pub(super) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the limiter holds a slot of a model. The tight one has too few to lose any: its jobs would not finish.
    pub(super) fn hold_seconds(&self, model: &str) -> u64 {
        if self.has(Flaw::KeepsDeadSlots) && model == ROOMY { NEVER_SECONDS } else { HOLD_SECONDS }
    }

    pub(super) fn instead(&self, call: &Call<'_>) -> Instead {
        let is_reap = matches!(
            call,
            Call::OutboxReap | Call::InboxReap | Call::ReapTimers | Call::ReapJobRuns
        );
        match (self.flaw, call) {
            (Some(Flaw::LosesReaped), _) if is_reap => Instead::Unanswered,
            (Some(Flaw::NeverBegins), Call::OutboxBegin { .. }) => {
                Instead::Answered(Box::new(Some(1_u32)))
            }
            (Some(Flaw::NeverExtends), Call::OutboxExtend { ids, .. }) => {
                Instead::Answered(Box::new(ids.len()))
            }
            _ => Instead::Made,
        }
    }

    /// Before a call is made.
    pub(super) async fn before(&self, call: &Call<'_>) {
        match (self.flaw, call) {
            (Some(Flaw::IgnoresDueTimes), Call::OutboxEnqueue { message }) => {
                let at_once = NewOutboxMessage { due_at: None, ..(*message).clone() };
                self.enqueue(at_once).await;
            }
            (Some(Flaw::IgnoresDueTimes), Call::InboxEnqueue { message }) => {
                let at_once = NewInboxMessage { due_at: None, ..(*message).clone() };
                self.enqueue_in_inbox(at_once).await;
            }
            (Some(Flaw::IgnoresDueTimes), Call::ScheduleTimer { timer }) => {
                let at_once = NewTimer { due_at: Timestamp::MIN, ..(*timer).clone() };
                self.provider.schedule_timer(at_once).await.expect("memory answers");
            }
            (Some(Flaw::DeliversDuplicates), Call::OutboxEnqueue { message }) => {
                let known = self.provider.record(message.id).await;
                if known.expect("memory answers").is_some() {
                    let ulid = message.id.ulid();
                    let copy =
                        Ulid::from_parts(ulid.timestamp_ms(), ulid.random() + u128::from(COPIES));
                    self.enqueue((*message).clone().with_id(MessageId::from_ulid(copy))).await;
                }
            }
            (Some(Flaw::DeliversDuplicates), Call::InboxEnqueue { message })
                if self.provider.get(&message.key).await.is_ok() =>
            {
                let copy = NewInboxMessage { key: inbox_key(COPIES), ..(*message).clone() };
                self.enqueue_in_inbox(copy).await;
            }
            (
                Some(Flaw::MixesUpResults),
                Call::OutboxSettle { owner, ids, settlement: Settlement::Finish { outcome } },
            ) if outcome.is_some() => {
                let outcome = std::mem::replace(&mut self.notes().outcome, outcome.clone());
                if outcome.is_some() {
                    let finish = Settlement::Finish { outcome };
                    let settled = Outbox::settle(&self.provider, owner, ids, &finish).await;
                    self.notes().settled = settled.expect("memory answers");
                }
            }
            (Some(Flaw::PanicsInClaim), Call::InboxClaim { .. }) => {
                // Unlike `panic!` it prints nothing.
                std::panic::resume_unwind(Box::new("as planned"));
            }
            _ => {}
        }
    }

    /// After a call was made, before anybody sees its answer.
    pub(super) async fn after(&self, call: &Call<'_>, answer: &mut (dyn Any + Send)) {
        match (self.flaw, *call) {
            (_, Call::OutboxClaim { owner, .. }) => self.change_claim(owner, changeable(answer)),
            (Some(Flaw::AcksForAnyone), Call::OutboxSettle { ids, settlement, .. }) => {
                self.settle_for_claimers(ids, settlement, changeable(answer)).await;
            }
            (Some(Flaw::MixesUpResults), Call::OutboxSettle { .. }) => {
                let count: &mut usize = changeable(answer);
                *count += std::mem::take(&mut self.notes().settled);
            }
            (Some(Flaw::IgnoresFences), Call::CreateJobRuns { fence }) => {
                let made: &mut Materialised = changeable(answer);
                if let Materialised::StaleFence { recorded } = *made {
                    let fence = Fence { token: recorded, ..fence.clone() };
                    let again = self.provider.create_job_runs_from_due_jobs(&fence).await;
                    *made = again.expect("memory answers");
                }
            }
            (_, Call::Acquire { .. }) => self.change_acquired(changeable(answer)),
            (_, Call::Renew { .. }) => {
                let token: &mut Option<FencingToken> = changeable(answer);
                let mut notes = self.notes();
                notes.last_token = token.map_or(notes.last_token, FencingToken::get);
            }
            (_, Call::Release { .. }) => {
                let count: &mut usize = changeable(answer);
                self.notes().is_released |= *count > 0;
            }
            _ => {}
        }
    }

    fn change_claim(&self, owner: &OwnerToken, claimed: &mut Vec<OutboxMessage>) {
        let mut notes = self.notes();
        notes.claimers.extend(claimed.iter().map(|message| (message.id, owner.clone())));
        if self.has(Flaw::CountsLostTwice) {
            for message in &mut *claimed {
                message.attempts += message.lost_attempts();
            }
        }
        if self.has(Flaw::HandsOutTwice) {
            notes.claims += 1;
            let earlier = notes.handed.clone().filter(|_| notes.claims.is_multiple_of(3));
            notes.handed = claimed.first().cloned().or(notes.handed.take());
            claimed.extend(earlier);
        }
    }

    async fn settle_for_claimers(
        &self,
        ids: &[MessageId],
        settlement: &Settlement,
        count: &mut usize,
    ) {
        for id in ids {
            let claimer = self.notes().claimers.get(id).cloned();
            if let (0, Some(claimer)) = (*count, claimer) {
                let settled = Outbox::settle(&self.provider, &claimer, &[*id], settlement).await;
                *count += settled.expect("memory answers");
            }
        }
    }

    fn change_acquired(&self, token: &mut Option<FencingToken>) {
        let mut notes = self.notes();
        if self.has(Flaw::LeasesTwice) && token.is_none() {
            *token = Some(FencingToken::new(notes.last_token + 1));
        }
        if self.has(Flaw::ResetsFencing) && token.is_some() && notes.is_released {
            *token = Some(FencingToken::new(1));
        }
        notes.last_token = token.map_or(notes.last_token, FencingToken::get);
    }

    async fn enqueue(&self, message: NewOutboxMessage) {
        Outbox::enqueue(&self.provider, message).await.expect("memory answers");
    }

    async fn enqueue_in_inbox(&self, message: NewInboxMessage) {
        let _added = Inbox::enqueue(&self.provider, message).await.expect("memory answers");
    }
}

fn changeable<T: 'static>(answer: &mut (dyn Any + Send)) -> &mut T {
    answer.downcast_mut().expect("an answer has its method's type")
}
