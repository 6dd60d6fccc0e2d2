//! The work items against a model without indices: a list that is searched from end to end.

use std::collections::BTreeSet;

use super::*;

/// What the model keeps of an item; its place in the list is its place in the order of creation.
#[derive(Debug, Clone)]
struct Modelled {
    key: u32,
    lane: u8,
    state: Simple,
    due_at: Timestamp,
    attempts: u32,
}

#[derive(Debug, Clone, PartialEq)]
enum Simple {
    Ready,
    Claimed { owner: OwnerToken, until: Timestamp },
    Done { at: Timestamp },
    Dead { at: Timestamp },
}

#[derive(Debug)]
struct Model {
    items: Vec<Modelled>,
}

impl Model {
    fn claim(
        &mut self,
        now: Timestamp,
        owner: &OwnerToken,
        span: Duration,
        max: usize,
        filter: &LaneFilter<'_, u8>,
    ) -> Vec<u32> {
        let due = |item: &&mut Modelled| {
            item.state == Simple::Ready && item.due_at <= now && filter.contains(&item.lane)
        };
        let mut claimed = Vec::new();
        for item in self.items.iter_mut().filter(due).take(max) {
            item.state = Simple::Claimed { owner: owner.clone(), until: now.after(span) };
            item.attempts += 1;
            claimed.push(item.key);
        }
        claimed
    }

    /// The item with this key, if it is in such a state.
    fn find(&mut self, key: u32, is: impl Fn(&Simple) -> bool) -> Option<&mut Modelled> {
        self.items.iter_mut().find(|item| item.key == key && is(&item.state))
    }

    fn reap(&mut self, now: Timestamp) -> Keys {
        let mut reaped = Keys::new();
        for item in &mut self.items {
            if matches!(&item.state, Simple::Claimed { until, .. } if *until <= now) {
                item.state = Simple::Ready;
                reaped.insert(item.key);
            }
        }
        reaped
    }

    fn purge(&mut self, now: Timestamp, filter: &LaneFilter<'_, u8>, keep: Retention) -> usize {
        let before = self.items.len();
        self.items.retain(|item| match item.state {
            _ if !filter.contains(&item.lane) => true,
            Simple::Done { at } => at > now.before(keep.done),
            Simple::Dead { at } => at > now.before(keep.dead),
            Simple::Ready | Simple::Claimed { .. } => true,
        });
        before - self.items.len()
    }

    fn next_due_at(&self, filter: &LaneFilter<'_, u8>) -> Option<Timestamp> {
        let ready = |item: &&Modelled| item.state == Simple::Ready && filter.contains(&item.lane);
        self.items.iter().filter(ready).map(|item| item.due_at).min()
    }
}

type Work = WorkItems<u32, (), u8>;
type Keys = std::collections::HashSet<u32>;

fn claimed_by(owner: &OwnerToken) -> impl Fn(&Simple) -> bool {
    move |state| matches!(state, Simple::Claimed { owner: claimer, .. } if claimer == owner)
}

/// Takes one random step in both and compares what they say.
fn step(random: &mut fastrand::Rng, now: Timestamp, work: &mut Work, model: &mut Model) {
    let owner = OwnerToken::new(["a", "b", "c"][random.usize(..3)]).unwrap();
    let key = random.u32(..60);
    let later = now.after(Duration::from_secs(random.u64(..20)));
    let lanes: BTreeSet<u8> = (0..random.u8(..4)).map(|_| random.u8(..5)).collect();
    let filter = [LaneFilter::All, LaneFilter::Only(&lanes), LaneFilter::Except(&lanes)];
    let filter = &filter[random.usize(..3)];
    match random.u8(..10) {
        0 | 1 => {
            if work.get(&key).is_none() {
                let (lane, state) = (random.u8(..5), Simple::Ready);
                work.add(lane, key, later, ());
                model.items.push(Modelled { key, lane, state, due_at: later, attempts: 0 });
            }
        }
        2 | 3 => {
            let (span, max) = (Duration::from_secs(random.u64(1..10)), random.u32(1..5));
            let (lease, batch) = (LeaseDuration::new(span).unwrap(), BatchSize::new(max).unwrap());
            let claimed =
                work.claim(now, &owner, lease, batch, filter, |key, item| (*key, item.attempts));
            let keys = model.claim(now, &owner, span, batch.as_usize(), filter);
            let attempts =
                |key: u32| model.items.iter().find(|item| item.key == key).unwrap().attempts;
            let expected: Vec<_> = keys.into_iter().map(|key| (key, attempts(key))).collect();
            assert_eq!(claimed, expected);
        }
        4 => {
            let done = random.bool();
            let outcome = if done { Outcome::Done } else { Outcome::Dead };
            let finished = work.finish(now, &owner, &key, outcome).is_some();
            let found = model.find(key, claimed_by(&owner));
            assert_eq!(finished, found.is_some());
            if let Some(item) = found {
                item.state = if done { Simple::Done { at: now } } else { Simple::Dead { at: now } };
            }
        }
        5 => {
            let given_back = work.give_back(&owner, &key, later).is_some();
            let found = model.find(key, claimed_by(&owner));
            assert_eq!(given_back, found.is_some());
            if let Some(item) = found {
                (item.state, item.due_at) = (Simple::Ready, later);
            }
        }
        _ => step_from_outside(random, now, filter, work, model),
    }
    assert_eq!(work.next_due_at(), model.next_due_at(&LaneFilter::All));
    let next_due_after = model.next_due_at(filter).map(|due_at| due_at.since(now));
    assert_eq!(work.next_due_after(now, filter), next_due_after);
    assert_eq!(work.items.len(), model.items.len());
}

/// Takes one random step that is not part of an owner's ordinary work.
fn step_from_outside(
    random: &mut fastrand::Rng,
    now: Timestamp,
    filter: &LaneFilter<'_, u8>,
    work: &mut Work,
    model: &mut Model,
) {
    let owner = OwnerToken::new(["a", "b", "c"][random.usize(..3)]).unwrap();
    let key = random.u32(..60);
    let later = now.after(Duration::from_secs(random.u64(..20)));
    match random.u8(..4) {
        0 => {
            let cancelled = work.cancel(now, &key).is_some();
            let found = model.find(key, |state| *state == Simple::Ready);
            assert_eq!(cancelled, found.is_some());
            if let Some(item) = found {
                item.state = Simple::Dead { at: now };
            }
        }
        1 => {
            let revived = work.revive(&key, later).is_some();
            let found = model.find(key, |state| matches!(state, Simple::Dead { .. }));
            assert_eq!(revived, found.is_some());
            if let Some(item) = found {
                (item.state, item.due_at) = (Simple::Ready, later);
            }
        }
        2 => {
            let extended = work.extend(&owner, &key, later).is_some();
            let found = model.find(key, claimed_by(&owner));
            assert_eq!(extended, found.is_some());
            if let Some(Modelled { state: Simple::Claimed { until, .. }, .. }) = found {
                *until = later.max(*until);
            }
        }
        _ => {
            assert_eq!(work.reap(now).into_iter().collect::<Keys>(), model.reap(now));
            let [done, dead] = [30, 60].map(|max| Duration::from_secs(random.u64(..max)));
            let keep = Retention { done, dead };
            let purged = work.purge(now, filter, keep, |_, ()| {});
            assert_eq!(purged, model.purge(now, filter, keep));
        }
    }
}

/// Every item is listed where its state says, and nowhere else.
fn check_lists(work: &Work) {
    let count = |is: fn(&State) -> bool| work.items.values().filter(|item| is(&item.state)).count();
    work.ready.check();
    assert_eq!(work.ready.len(), count(|state| matches!(state, State::Ready)));
    assert_eq!(work.claimed.len(), count(|state| matches!(state, State::Claimed { .. })));
    let finished: usize = work.finished.values().map(BTreeMap::len).sum();
    assert_eq!(finished, count(|state| matches!(state, State::Finished { .. })));
    assert!(work.finished.values().all(|listed| !listed.is_empty()), "no empty list is kept");
}

#[test]
fn the_indexed_items_do_what_a_searched_list_does() {
    let own = testkit::RunSeed::for_command("cargo test -p coordination --lib searched_list");
    for seed in (0..200).chain(own.seeds(50)) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let (mut work, mut model) = (Work::default(), Model { items: Vec::new() });
        for _ in 0..300 {
            // Now and then a clock is set back.
            let span = Duration::from_secs(random.u64(..4));
            now = if random.u8(..20) == 0 { now.before(span) } else { now.after(span) };
            step(&mut random, now, &mut work, &mut model);
            check_lists(&work);
        }
    }
}
