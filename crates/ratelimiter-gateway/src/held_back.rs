//! How much of our limits is held back, because a provider has less (`GW-07`).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ratelimiter::LimitKey;

use crate::observer::Observer;
use crate::own_rates::OwnRate;

/// Beyond so many leases on one limit, smaller amounts than this part of its capacity are left out.
const LEASES_MAX: usize = 128;

/// What is held back of each limit.
#[derive(Debug, Default)]
pub(crate) struct HeldBack {
    limits: Mutex<HashMap<LimitKey, Held>>,
}

/// What is held back of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Held {
    amount: u64,
    /// Waits for room.
    pending: u64,
    leases: usize,
}

/// What came of an amount that is held back, or was to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeldChange {
    Reserved,
    NotReserved,
    Returned,
}

impl Held {
    /// How much more to hold back of a limit of which others have used an amount.
    fn missing(&self, own: &OwnRate, of_others: u64) -> u64 {
        let missing = of_others.saturating_sub(self.amount + self.pending);
        let is_small = missing < own.capacity / LEASES_MAX as u64;
        if is_small && self.leases >= LEASES_MAX { 0 } else { missing }
    }
}

impl HeldBack {
    fn lock(&self) -> MutexGuard<'_, HashMap<LimitKey, Held>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is held back of a limit.
    pub(crate) fn amount(&self, key: &LimitKey) -> u64 {
        self.lock().get(key).map_or(0, |held| held.amount)
    }

    /// The amount to hold back, which is pending from now on.
    pub(crate) fn begin(&self, own: &OwnRate, of_others: u64) -> u64 {
        let mut limits = self.lock();
        let held = limits.get(&own.key).copied().unwrap_or_default();
        let missing = held.missing(own, of_others);
        if missing > 0 {
            let (pending, leases) = (held.pending + missing, held.leases + 1);
            limits.insert(own.key.clone(), Held { pending, leases, ..held });
        }
        missing
    }

    /// Notes what came of an amount that was begun.
    pub(crate) fn change(
        &self,
        key: &LimitKey,
        amount: u64,
        change: HeldChange,
        observer: &dyn Observer,
    ) {
        let mut limits = self.lock();
        let held = limits.get_mut(key).expect("kept while it has leases");
        match change {
            HeldChange::Reserved => {
                held.pending -= amount;
                held.amount += amount;
            }
            HeldChange::NotReserved => {
                held.pending -= amount;
                held.leases -= 1;
            }
            HeldChange::Returned => {
                held.amount -= amount;
                held.leases -= 1;
            }
        }
        if change != HeldChange::NotReserved {
            observer.held_back(key, held.amount);
        }
        if held.leases == 0 {
            limits.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::rate_figures::Counted;

    fn own() -> OwnRate {
        let key = LimitKey::new("global:llm:p:m:tpm").unwrap();
        let window = Duration::from_mins(1);
        OwnRate { key, counted: Counted::Tokens, capacity: 1_280, window, room: 1_000 }
    }

    #[derive(Debug, Default)]
    struct Gauge(Mutex<Vec<u64>>);

    impl Observer for Gauge {
        fn call_ended(&self, _report: &crate::CallReport<'_>) {}

        fn call_limited(&self, _provider: &str, _model: Option<&str>) {}

        fn limit_compared(&self, _key: &LimitKey, _capacity: u64, _provider_capacity: u64) {}

        fn held_back(&self, _key: &LimitKey, amount: u64) {
            self.0.lock().unwrap().push(amount);
        }
    }

    /// GW-07
    #[test]
    fn gw_07_what_the_provider_has_less_is_held_back_once() {
        let held = HeldBack::default();
        assert_eq!(held.begin(&own(), 0), 0);
        assert_eq!(held.begin(&own(), 300), 300);
        assert_eq!(held.begin(&own(), 300), 0, "it waits for room already");
        let gauge = Gauge::default();
        held.change(&own().key, 300, HeldChange::Reserved, &gauge);
        assert_eq!(held.begin(&own(), 350), 50);
        assert_eq!(held.amount(&own().key), 300, "50 wait for room");
        held.change(&own().key, 50, HeldChange::NotReserved, &gauge);
        held.change(&own().key, 300, HeldChange::Returned, &gauge);
        assert_eq!(*gauge.0.lock().unwrap(), [300, 0]);
        assert!(held.lock().is_empty());
    }

    #[test]
    fn small_amounts_do_not_take_any_number_of_leases() {
        let held = HeldBack::default();
        for number in 1..=LEASES_MAX as u64 {
            assert_eq!(held.begin(&own(), number), 1);
            held.change(&own().key, 1, HeldChange::Reserved, &Gauge::default());
        }
        assert_eq!(held.begin(&own(), LEASES_MAX as u64 + 1), 0);
        assert_eq!(held.begin(&own(), LEASES_MAX as u64 + 10), 10);
    }
}
