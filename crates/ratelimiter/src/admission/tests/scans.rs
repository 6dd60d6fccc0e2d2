//! Many waiters of one room: few of them are checked at a time, and none is forgotten.

use super::*;

/// Limits with real units, and waiters that ask for them.
struct World {
    admission: Admission<()>,
    now: Timestamp,
    limits: Vec<(LimitKey, u64)>,
    /// What each waiter needs, by the number of the limit.
    needs: BTreeMap<WaiterId, Vec<(usize, u64)>>,
    running: Vec<WaiterId>,
    admitted: Vec<WaiterId>,
    /// Interrupted scans that went on.
    pauses: usize,
}

impl World {
    fn new(capacities: &[u64]) -> Self {
        let key = |at| LimitKey::new(format!("limit-{at}")).unwrap();
        Self {
            admission: Admission::new(usize::MAX, STARVING_AFTER),
            now: START,
            limits: capacities.iter().enumerate().map(|(at, free)| (key(at), *free)).collect(),
            needs: BTreeMap::new(),
            running: Vec::new(),
            admitted: Vec::new(),
            pauses: 0,
        }
    }

    fn add(&mut self, lane: &str, needs: &[(usize, u64)]) -> WaiterId {
        let pairs = needs.iter().map(|(at, amount)| (self.limits[*at].0.clone(), *amount));
        let id = self.admission.add("", lane, &Requirements::of(pairs).unwrap(), ());
        self.needs.insert(id, needs.to_vec());
        id
    }

    /// Lets waiters ask as long as they may. The hint of a denial is far away, so that only events and scans wake them.
    fn ask_all(&mut self) {
        let mut asks = 0;
        while let Some(id) = self.admission.next(self.now) {
            asks += 1;
            assert!(asks <= 10_000, "waiters that are denied ask for ever");
            let needs = &self.needs[&id];
            let lacks = |(at, amount): &&(usize, u64)| self.limits[*at].1 < *amount;
            let denied: Vec<_> =
                needs.iter().filter(lacks).map(|(at, _)| self.limits[*at].0.clone()).collect();
            if denied.is_empty() {
                needs.iter().for_each(|(at, amount)| self.limits[*at].1 -= amount);
                drop(self.admission.allowed(id));
                self.admission.ended();
                self.running.push(id);
                self.admitted.push(id);
            } else {
                self.admission.denied(self.now, id, &denied, WAIT_MAX);
            }
        }
    }

    /// Goes on with what was interrupted, until only events or hints are left.
    fn finish_scans(&mut self) {
        self.ask_all();
        while let Some(at) = self.admission.wake_at()
            && at <= self.now.after(SCAN_PAUSE)
        {
            self.pauses += 1;
            assert!(self.pauses <= 10_000, "scans go on for ever");
            self.now = at.max(self.now);
            self.ask_all();
        }
    }

    fn complete(&mut self, id: WaiterId) {
        self.running.retain(|running| *running != id);
        let needs = &self.needs[&id];
        needs.iter().for_each(|(at, amount)| self.limits[*at].1 += amount);
        let keys: Vec<_> = needs.iter().map(|(at, _)| self.limits[*at].0.clone()).collect();
        self.admission.released(&keys);
    }

    /// Waiters in the room of a limit's gate.
    fn in_room(&self, limit: usize) -> usize {
        let gate = self.admission.gates.find(&self.limits[limit].0);
        let is_there = |waiter: &&Waiter<()>| matches!(waiter.state, WaiterState::InRoom { held_up_by: Some(by), .. } if Some(by.gate) == gate);
        self.admission.waiters.values().filter(is_there).count()
    }
}

/// WAIT-05: a wake-up moves few waiters, however many wait for both limits.
#[test]
fn wait_05_limits_that_have_room_in_turn_move_few_waiters() {
    const WAITERS: usize = 1_000;
    let mut world = World::new(&[1, 1]);
    let [first, second] = [0, 1].map(|limit| world.add("", &[(limit, 1)]));
    world.ask_all();
    for _ in 0..WAITERS {
        world.add("", &[(0, 1), (1, 1)]);
        world.ask_all();
    }
    assert_eq!(world.in_room(0), WAITERS);
    for (freed, other, lease) in [(0, 1, first), (1, 0, second)] {
        let before = world.in_room(other);
        world.complete(lease);
        // Another server takes the unit of the other limit.
        world.limits[other].1 = 0;
        world.ask_all();
        let moved = world.in_room(other) - before;
        assert!((1..=2 * CHECKS_MAX).contains(&moved), "{moved} wait for the other limit");
        world.limits[freed].1 = 0;
        assert_eq!(world.in_room(0) + world.in_room(1), WAITERS);
    }
}

/// WAIT-02: first come is first served, also where a scan was interrupted.
#[test]
fn wait_02_an_interrupted_scan_keeps_the_order_of_a_queue() {
    let mut world = World::new(&[1, 1]);
    let [first, second] = [0, 1].map(|limit| world.add("", &[(limit, 1)]));
    world.ask_all();
    let mut waiting: Vec<_> = (0..100).map(|_| world.add("", &[(0, 1), (1, 1)])).collect();
    world.finish_scans();
    world.complete(first);
    world.ask_all();
    world.complete(second);
    world.ask_all();
    while let Some(running) = world.running.first().copied() {
        world.complete(running);
        world.ask_all();
    }
    let admitted = world.admitted.split_off(2);
    waiting.truncate(admitted.len());
    assert_eq!(admitted, waiting);
    assert_eq!(admitted.len(), 100);
}

/// WAIT-03: one that lacks nothing is found behind many that do.
#[test]
fn wait_03_who_lacks_nothing_is_found_behind_many_who_do() {
    let mut world = World::new(&[1, 0]);
    let first = world.add("", &[(0, 1)]);
    world.ask_all();
    for lane in 0..500 {
        world.add(&lane.to_string(), &[(0, 1), (1, 1)]);
    }
    let last = world.add("last", &[(0, 1)]);
    world.finish_scans();
    assert_eq!(world.in_room(0) + world.in_room(1), 501);
    world.complete(first);
    world.finish_scans();
    assert_eq!(world.admitted, [first, last]);
}

/// WAIT-06: whatever the limits and amounts, completes alone let all waiters be admitted.
#[test]
fn wait_06_no_waiter_is_forgotten() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let capacity = random.u64(1..=6);
        let mut world = World::new(&[capacity; 4]);
        let lanes = random.usize(1..=40);
        for _ in 0..random.usize(1..=150) {
            let mut limits = [0, 1, 2, 3];
            random.shuffle(&mut limits);
            let needs: Vec<_> = limits[..random.usize(1..=3)]
                .iter()
                .map(|at| (*at, random.u64(1..=capacity)))
                .collect();
            world.add(&random.usize(..lanes).to_string(), &needs);
            if random.bool() {
                world.ask_all();
            }
        }
        loop {
            if random.bool() {
                world.finish_scans();
            } else {
                world.ask_all();
            }
            if world.running.is_empty() {
                world.finish_scans();
            }
            if world.running.is_empty() {
                break;
            }
            let next = world.running[random.usize(..world.running.len())];
            world.complete(next);
        }
        assert_eq!(world.admitted.len(), world.needs.len(), "seed {seed}");
        assert!(world.admission.rooms.is_empty() && world.admission.gates.is_empty());
    }
}
