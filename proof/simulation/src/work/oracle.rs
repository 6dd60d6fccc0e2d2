//! What a provider may hand out and to whom, from nothing but what it was asked and has answered.

use std::collections::BTreeMap;
use std::time::Duration;

use coordination::{FencingToken, Materialised, OwnerToken, Tenure, Timestamp};

use super::desk::{Handed, Item, TICK_SECONDS};
use super::plan::Kind;
use crate::outcome::{Promise, Violation};

type Kept = Result<(), Violation>;

#[derive(Default)]
pub(super) struct Oracle {
    items: BTreeMap<Item, ItemFacts>,
    leases: BTreeMap<usize, LeaseFacts>,
    /// The greatest token under which runs were made, by resource.
    fences: BTreeMap<usize, FencingToken>,
    /// When runs were last made, and how many so far.
    runs_made_at: Option<Timestamp>,
    runs_made: usize,
}

struct ItemFacts {
    identity: Option<u128>,
    due_at: Timestamp,
    state: State,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Ready,
    Held { owner: OwnerToken, until: Timestamp },
    Finished,
}

#[derive(Default)]
struct LeaseFacts {
    last_token: u64,
    held: Option<Held>,
}

/// A lease that somebody has: whoever knows a token of this tenure, its first or a later one.
struct Held {
    owner: OwnerToken,
    since: FencingToken,
    until: Timestamp,
}

fn violation<T>(promise: Promise, detail: String) -> Result<T, Violation> {
    Err(Violation { promise, detail })
}

impl Oracle {
    pub(super) fn knows(&self, item: Item) -> bool {
        self.items.contains_key(&item)
    }

    pub(super) fn added(&mut self, item: Item, due_at: Timestamp) {
        let facts = ItemFacts { identity: None, due_at, state: State::Ready };
        self.items.entry(item).or_insert(facts);
    }

    /// Items were handed out to `owner`, at `now` at the latest.
    pub(super) fn claimed(
        &mut self,
        owner: &OwnerToken,
        lease: Duration,
        handed: &[Handed],
        now: Timestamp,
    ) -> Kept {
        for Handed { item, identity } in handed {
            if item.kind == Kind::Run {
                self.meet_run(*item)?;
            }
            let Some(facts) = self.items.get_mut(item) else {
                return violation(Promise::DeliveredAsOne, format!("nobody added {item:?}"));
            };
            if facts.identity.is_some_and(|known| known != *identity) {
                let detail = format!("{item:?} is handed out as two");
                return violation(Promise::DeliveredAsOne, detail);
            }
            facts.identity = Some(*identity);
            match &facts.state {
                State::Ready => {}
                State::Held { owner: other, .. } => {
                    let detail = format!("{item:?} is handed to {owner} while {other} has it");
                    return violation(Promise::HeldByOne, detail);
                }
                State::Finished => {
                    let detail = format!("{item:?} is handed to {owner} and was finished");
                    return violation(Promise::DeliveredAsOne, detail);
                }
            }
            if facts.due_at > now {
                let detail = format!("{item:?} is due at {}, it is {now}", facts.due_at);
                return violation(Promise::NotBeforeItsTime, detail);
            }
            facts.state = State::Held { owner: owner.clone(), until: now.after(lease) };
        }
        Ok(())
    }

    /// A run is there because its moment had come when runs were made.
    fn meet_run(&mut self, item: Item) -> Kept {
        let micros = i64::try_from(item.number * 1_000_000).expect("it is a moment");
        let at = Timestamp::from_unix_micros(micros).expect("it is a moment");
        let is_due = self.runs_made_at.is_some_and(|made_at| at <= made_at);
        if !is_due || !item.number.is_multiple_of(TICK_SECONDS) {
            let detail = format!("a run of {at}, which was not made");
            return violation(Promise::NotBeforeItsTime, detail);
        }
        self.added(item, at);
        Ok(())
    }

    /// Whether an owner has an item, as the provider should see it.
    pub(super) fn holds(&self, owner: &OwnerToken, item: Item) -> bool {
        let state = self.items.get(&item).map(|facts| &facts.state);
        matches!(state, Some(State::Held { owner: holder, .. }) if holder == owner)
    }

    /// Whether its claim has run out.
    pub(super) fn is_late(&self, item: Item, now: Timestamp) -> bool {
        let state = self.items.get(&item).map(|facts| &facts.state);
        matches!(state, Some(State::Held { until, .. }) if *until <= now)
    }

    /// An item was finished, or given back to be due at `due_again_at`, by whoever said so.
    pub(super) fn acted(
        &mut self,
        owner: &OwnerToken,
        item: Item,
        changed: usize,
        due_again_at: Option<Timestamp>,
    ) -> Kept {
        let is_owner = self.holds(owner, item);
        if changed != usize::from(is_owner) {
            let detail = format!("{owner} changed {changed} of {item:?}, it has it: {is_owner}");
            return violation(Promise::OnlyTheOwnerActs, detail);
        }
        if !is_owner {
            return Ok(());
        }
        let facts = self.items.get_mut(&item).expect("it is held");
        match due_again_at {
            Some(due_at) => (facts.state, facts.due_at) = (State::Ready, due_at),
            None => facts.state = State::Finished,
        }
        Ok(())
    }

    /// What had run out by `now` may be ready again.
    pub(super) fn reaped(&mut self, kind: Kind, now: Timestamp) {
        for (item, facts) in &mut self.items {
            let State::Held { until, .. } = &facts.state else {
                continue;
            };
            if item.kind == kind && *until <= now {
                facts.state = State::Ready;
            }
        }
    }

    /// Whether runs were made under a greater token.
    pub(super) fn is_stale(&self, resource: usize, token: FencingToken) -> bool {
        self.fences.get(&resource).is_some_and(|recorded| token < *recorded)
    }

    pub(super) fn runs_made(
        &mut self,
        resource: usize,
        token: FencingToken,
        made: &Materialised,
        now: Timestamp,
    ) -> Kept {
        let recorded = self.fences.get(&resource).copied();
        let is_stale = self.is_stale(resource, token);
        match made {
            Materialised::StaleFence { .. } if is_stale => Ok(()),
            Materialised::Runs(count) if !is_stale => {
                self.fences.insert(resource, token);
                self.runs_made_at = Some(now);
                self.runs_made += count;
                Ok(())
            }
            Materialised::StaleFence { .. }
            | Materialised::Runs(_)
            | Materialised::Partly { .. } => {
                let detail = format!("under {token:?}, after {recorded:?}: {made:?}");
                violation(Promise::StaleFenceChangesNothing, detail)
            }
        }
    }

    pub(super) fn acquired(
        &mut self,
        resource: usize,
        owner: &OwnerToken,
        token: Option<FencingToken>,
        until: Timestamp,
        now: Timestamp,
    ) -> Kept {
        let facts = self.leases.entry(resource).or_default();
        let holder = facts.held.as_ref().filter(|held| held.until > now);
        match (token, holder) {
            (None, None) => {
                let detail = format!("resource {resource} is free and {owner} does not get it");
                violation(Promise::NeverLost, detail)
            }
            (None, Some(_)) => Ok(()),
            (Some(_), Some(held)) => {
                let detail = format!("{owner} gets resource {resource}, {} has it", held.owner);
                violation(Promise::HeldByOne, detail)
            }
            (Some(token), None) => {
                facts.held = Some(Held { owner: owner.clone(), since: token, until });
                facts.grow(resource, token)
            }
        }
    }

    pub(super) fn renewed(
        &mut self,
        resource: usize,
        tenure: &Tenure,
        token: Option<FencingToken>,
        until: Timestamp,
        now: Timestamp,
    ) -> Kept {
        let facts = self.leases.entry(resource).or_default();
        let held = facts.held.as_mut().filter(|held| held.is(tenure, now));
        match (token, held) {
            (Some(token), Some(held)) => {
                held.until = until;
                facts.grow(resource, token)
            }
            (None, None) => Ok(()),
            (Some(_), None) | (None, Some(_)) => {
                let detail = format!("{} renews resource {resource}: {token:?}", tenure.owner);
                violation(Promise::OnlyTheOwnerActs, detail)
            }
        }
    }

    pub(super) fn released(
        &mut self,
        resource: usize,
        tenure: &Tenure,
        changed: usize,
        now: Timestamp,
    ) -> Kept {
        let facts = self.leases.entry(resource).or_default();
        let is_holder = facts.held.as_ref().is_some_and(|held| held.is(tenure, now));
        if changed != usize::from(is_holder) {
            let detail = format!("{} released {changed} of resource {resource}", tenure.owner);
            return violation(Promise::OnlyTheOwnerActs, detail);
        }
        if is_holder {
            facts.held = None;
        }
        Ok(())
    }

    /// Everything was claimed and finished to the end.
    pub(super) fn all_is_finished(&self) -> Kept {
        let open = self.items.iter().find(|(_, facts)| facts.state != State::Finished);
        if let Some((item, facts)) = open {
            let detail = format!("{item:?} is {:?} and is not handed out", facts.state);
            return violation(Promise::NeverLost, detail);
        }
        let runs = self.items.keys().filter(|item| item.kind == Kind::Run).count();
        if runs != self.runs_made {
            let detail = format!("{} runs were made, {runs} were handed out", self.runs_made);
            return violation(Promise::NeverLost, detail);
        }
        Ok(())
    }
}

impl Held {
    fn is(&self, tenure: &Tenure, now: Timestamp) -> bool {
        self.owner == tenure.owner && self.since <= tenure.token && self.until > now
    }
}

impl LeaseFacts {
    fn grow(&mut self, resource: usize, token: FencingToken) -> Kept {
        let last = std::mem::replace(&mut self.last_token, token.get());
        if token.get() <= last {
            let detail = format!("resource {resource} had {last} and now has {token:?}");
            return violation(Promise::FencingGrows, detail);
        }
        Ok(())
    }
}
