//! An oracle of claims and leases, fed with calls and answers only.

use std::collections::BTreeMap;
use std::time::Duration;

use coordination::{FencingToken, Materialised, Timestamp};

use super::handlers::HandlerLog;
use super::observed::{Becomes, Item, Kind, Names, Observed, OwnTenure, Owner};
use super::settings::{ATTEMPTS_MAX, LOST_ATTEMPTS_MAX, TICK_SECONDS};
use crate::fault::{Fault, Faults};
use crate::outcome::{Invariant, Violation};

type Kept = Result<(), Violation>;

#[derive(Default)]
pub(super) struct Oracle {
    items: BTreeMap<Item, ItemFacts>,
    lease: LeaseFacts,
    /// The greatest token under which runs were made.
    fence: Option<FencingToken>,
    /// When runs were last made, and how many so far.
    runs_made_at: Option<Timestamp>,
    runs_made: usize,
    pub(super) names: Names,
}

struct ItemFacts {
    due_at: Timestamp,
    state: State,
    /// Attempts that failed, and attempts that began and never ended.
    failures: u32,
    lost: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Ready,
    Held { owner: Owner, until: Timestamp, has_begun: bool },
    Finished,
}

#[derive(Default)]
struct LeaseFacts {
    last_token: u64,
    held: Option<Held>,
}

/// A lease that somebody has: whoever knows a token of this tenure, its first or a later one.
struct Held {
    owner: Owner,
    since: FencingToken,
    until: Timestamp,
}

fn violation<T>(invariant: Invariant, detail: String) -> Result<T, Violation> {
    Err(Violation { invariant, detail })
}

impl Oracle {
    /// Holds an answer that was given at `now` against those before it.
    pub(super) fn check(
        &mut self,
        observed: Observed,
        now: Timestamp,
        handlers: &HandlerLog,
        faults: &mut Faults,
    ) -> Kept {
        match observed {
            Observed::Added { item, due_at } => {
                self.add(item, due_at.unwrap_or(now));
                Ok(())
            }
            Observed::Claimed { owner, lease, items } => {
                for item in items {
                    self.check_claimed(owner, now.after(lease), item, now)?;
                }
                Ok(())
            }
            Observed::Begun { owner, item, lease, changed } => {
                self.check_owner(owner, &[item], changed, faults)?;
                self.extend(owner, item, now.after(lease), true);
                Ok(())
            }
            Observed::Extended { owner, items, lease, changed } => {
                self.check_owner(owner, &items, changed, faults)?;
                for item in items {
                    self.extend(owner, item, now.after(lease), false);
                }
                Ok(())
            }
            Observed::Settled { owner, items, becomes, changed } => {
                self.check_owner(owner, &items, changed, faults)?;
                for item in items {
                    if self.holds(owner, item) {
                        self.check_settled(item, becomes, handlers, now)?;
                    }
                }
                Ok(())
            }
            Observed::Reaped { kind, .. } => {
                self.reaped(kind, now);
                Ok(())
            }
            Observed::RunsMade { token, made } => self.check_runs_made(token, made, now, faults),
            Observed::Acquired { owner, duration, token } => {
                self.lease.check_acquired(owner, token, now.after(duration), now)
            }
            Observed::Renewed { tenure, duration, token } => {
                self.lease.check_renewed(tenure, token, now.after(duration), now)
            }
            Observed::Released { tenure, changed } => {
                self.lease.check_released(tenure, changed, now)
            }
        }
    }

    fn add(&mut self, item: Item, due_at: Timestamp) {
        let state = State::Ready;
        let facts = ItemFacts { due_at, state, failures: 0, lost: 0 };
        self.items.entry(item).or_insert(facts);
    }

    fn check_claimed(
        &mut self,
        owner: Owner,
        until: Timestamp,
        item: Item,
        now: Timestamp,
    ) -> Kept {
        if item.kind == Kind::Run {
            self.check_run_was_made(item)?;
        }
        let Some(facts) = self.items.get_mut(&item) else {
            return violation(Invariant::DeliveredAsOne, format!("nobody added {item:?}"));
        };
        match &facts.state {
            State::Ready => {}
            State::Held { owner: other, .. } => {
                let detail = format!("{item:?} is handed to {owner:?} while {other:?} has it");
                return violation(Invariant::HeldByOne, detail);
            }
            State::Finished => {
                let detail = format!("{item:?} is handed to {owner:?} and was finished");
                return violation(Invariant::DeliveredAsOne, detail);
            }
        }
        if facts.due_at > now {
            let detail = format!("{item:?} is due at {}, it is {now}", facts.due_at);
            return violation(Invariant::NotBeforeItsTime, detail);
        }
        facts.state = State::Held { owner, until, has_begun: false };
        Ok(())
    }

    /// A run is there because its moment had come when runs were made.
    fn check_run_was_made(&mut self, item: Item) -> Kept {
        let at = Timestamp::MIN.after(Duration::from_secs(item.number));
        let is_due = self.runs_made_at.is_some_and(|made_at| at <= made_at);
        if !is_due || !item.number.is_multiple_of(TICK_SECONDS) {
            let detail = format!("a run of {at}, which was not made");
            return violation(Invariant::NotBeforeItsTime, detail);
        }
        if self.names.runs_of(item.number) > 1 {
            return violation(Invariant::DeliveredAsOne, format!("there are two runs of {at}"));
        }
        self.add(item, at);
        Ok(())
    }

    /// Whether an owner has an item, as the provider should see it.
    fn holds(&self, owner: Owner, item: Item) -> bool {
        let state = self.items.get(&item).map(|facts| &facts.state);
        matches!(state, Some(State::Held { owner: holder, .. }) if *holder == owner)
    }

    /// A call changed those items that its caller has, and no others.
    fn check_owner(
        &self,
        owner: Owner,
        items: &[Item],
        changed: usize,
        faults: &mut Faults,
    ) -> Kept {
        let held = items.iter().filter(|item| self.holds(owner, **item)).count();
        if held < items.len() {
            faults.note(Fault::TooLate);
        }
        if changed != held {
            let detail = format!("{owner:?} changed {changed} of {items:?}, it has {held}");
            return violation(Invariant::OnlyTheOwnerActs, detail);
        }
        Ok(())
    }

    fn extend(&mut self, owner: Owner, item: Item, to: Timestamp, begins: bool) {
        let state = self.items.get_mut(&item).map(|facts| &mut facts.state);
        if let Some(State::Held { owner: holder, until, has_begun }) = state
            && *holder == owner
        {
            *until = to.max(*until);
            *has_begun |= begins;
        }
    }

    /// What a worker reports is what handlers did.
    fn check_settled(
        &mut self,
        item: Item,
        becomes: Becomes,
        handlers: &HandlerLog,
        now: Timestamp,
    ) -> Kept {
        let facts = self.items.get_mut(&item).expect("it is held");
        // Timers and runs become messages; only these have handlers.
        let is_handled = matches!(item.kind, Kind::Outbox | Kind::Inbox);
        let failed = handlers.failures(item.number);
        match becomes {
            Becomes::Done => {
                facts.state = State::Finished;
                if is_handled && !handlers.has_succeeded(item.number) {
                    let detail = format!("{item:?} is done, and no handler ended well");
                    return violation(Invariant::NeverLost, detail);
                }
            }
            Becomes::Ready { after, has_failed } => {
                facts.failures += u32::from(has_failed);
                if is_handled && failed < facts.failures {
                    let detail = format!("{item:?}: {} failures, {failed} seen", facts.failures);
                    return violation(Invariant::NoUnhandledDeath, detail);
                }
                if facts.failures >= ATTEMPTS_MAX {
                    let detail =
                        format!("{item:?} is tried again after {} failures", facts.failures);
                    return violation(Invariant::GivenUpInTheEnd, detail);
                }
                (facts.state, facts.due_at) = (State::Ready, now.after(after));
            }
            Becomes::Dead => {
                facts.state = State::Finished;
                let (failures, lost) = (facts.failures + 1, facts.lost);
                let has_failed = failures >= ATTEMPTS_MAX && (!is_handled || failed >= failures);
                if !has_failed && lost < LOST_ATTEMPTS_MAX {
                    let detail =
                        format!("{item:?}: {failures} failures, {failed} seen, {lost} never ended");
                    return violation(Invariant::NoUnhandledDeath, detail);
                }
            }
        }
        Ok(())
    }

    /// What had run out by `now` is ready again.
    fn reaped(&mut self, kind: Kind, now: Timestamp) {
        for (item, facts) in &mut self.items {
            let State::Held { until, has_begun, .. } = facts.state else {
                continue;
            };
            if item.kind == kind && until <= now {
                facts.lost += u32::from(has_begun);
                facts.state = State::Ready;
            }
        }
    }

    fn check_runs_made(
        &mut self,
        token: FencingToken,
        made: Materialised,
        now: Timestamp,
        faults: &mut Faults,
    ) -> Kept {
        let is_stale = self.fence.is_some_and(|recorded| token < recorded);
        if is_stale {
            faults.note(Fault::StaleFence);
        }
        match made {
            Materialised::StaleFence { .. } if is_stale => Ok(()),
            Materialised::Runs(count) if !is_stale => {
                self.fence = Some(token);
                self.runs_made_at = Some(now);
                self.runs_made += count;
                Ok(())
            }
            Materialised::StaleFence { .. }
            | Materialised::Runs(_)
            | Materialised::Partly { .. } => {
                let detail = format!("under {token:?}, after {:?}: {made:?}", self.fence);
                violation(Invariant::StaleFenceChangesNothing, detail)
            }
        }
    }

    /// Whether everything was claimed and finished to the end.
    pub(super) fn check_all_finished(&self) -> Kept {
        let open = self.items.iter().find(|(_, facts)| facts.state != State::Finished);
        if let Some((item, facts)) = open {
            let detail = format!("{item:?} is {:?} and is not handed out", facts.state);
            return violation(Invariant::NeverLost, detail);
        }
        let runs = self.items.keys().filter(|item| item.kind == Kind::Run).count();
        if runs != self.runs_made {
            let detail = format!("{} runs were made, {runs} were handed out", self.runs_made);
            return violation(Invariant::NeverLost, detail);
        }
        Ok(())
    }
}

impl LeaseFacts {
    fn check_acquired(
        &mut self,
        owner: Owner,
        token: Option<FencingToken>,
        until: Timestamp,
        now: Timestamp,
    ) -> Kept {
        let holder = self.held.as_ref().filter(|held| held.until > now);
        match (token, holder) {
            (None, None) => {
                violation(Invariant::NeverLost, format!("the lease is free, {owner:?} is refused"))
            }
            (None, Some(_)) => Ok(()),
            (Some(_), Some(held)) => {
                let detail = format!("{owner:?} gets the lease, {:?} has it", held.owner);
                violation(Invariant::HeldByOne, detail)
            }
            (Some(token), None) => {
                self.held = Some(Held { owner, since: token, until });
                self.check_token(token)
            }
        }
    }

    fn check_renewed(
        &mut self,
        tenure: OwnTenure,
        token: Option<FencingToken>,
        until: Timestamp,
        now: Timestamp,
    ) -> Kept {
        let held = self.held.as_mut().filter(|held| held.is(tenure, now));
        match (token, held) {
            (Some(token), Some(held)) => {
                held.until = until;
                self.check_token(token)
            }
            (None, None) => Ok(()),
            (Some(_), None) | (None, Some(_)) => {
                let detail = format!("{tenure:?} is renewed: {token:?}");
                violation(Invariant::OnlyTheOwnerActs, detail)
            }
        }
    }

    fn check_released(&mut self, tenure: OwnTenure, changed: usize, now: Timestamp) -> Kept {
        let is_holder = self.held.as_ref().is_some_and(|held| held.is(tenure, now));
        if changed != usize::from(is_holder) {
            let detail = format!("{tenure:?} released {changed} leases");
            return violation(Invariant::OnlyTheOwnerActs, detail);
        }
        if is_holder {
            self.held = None;
        }
        Ok(())
    }

    fn check_token(&mut self, token: FencingToken) -> Kept {
        let last = std::mem::replace(&mut self.last_token, token.get());
        if token.get() <= last {
            let detail = format!("the lease had {last} and now has {token:?}");
            return violation(Invariant::FencingGrows, detail);
        }
        Ok(())
    }
}

impl Held {
    fn is(&self, tenure: OwnTenure, now: Timestamp) -> bool {
        self.owner == tenure.owner && self.since <= tenure.token && self.until > now
    }
}
