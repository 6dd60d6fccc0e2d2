//! The suite asks no more than a limiter on a real clock can show.
//!
//! The limiter here behaves as one behind a network and a database would: time goes on during every call, what expires
//! is seen late, and a denial names one key. It passes all facts but those that it skips by name, on a fake clock, so
//! that nobody waits.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Backend, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, DenialReason,
    Limit, LimitKey, LimitState, LimitStatus, Limiter, MemoryLimiter, Page, ReserveError,
    ReserveRequest, StateError,
};
use ratelimiter_conformance::{Fixture, Powers};

/// How long every call takes.
const CALL: Duration = Duration::from_millis(7);
/// How much less time seems to have passed after each wait than was waited for.
const LATE: Duration = Duration::from_millis(90);

struct OnAClockThatRuns {
    clock: Arc<FakeClock>,
}

#[derive(Debug)]
struct Approximate {
    clock: Arc<FakeClock>,
    inner: MemoryLimiter,
}

impl OnAClockThatRuns {
    fn new() -> Self {
        Self { clock: Arc::new(FakeClock::new()) }
    }
}

impl Fixture for OnAClockThatRuns {
    type Limiter = Approximate;

    fn powers(&self) -> Powers {
        Powers {
            expiry_lag: Duration::from_millis(300),
            reconciled_expiry_lag: Duration::from_secs(1),
            exact_time: Err("calls take time"),
            exact_hints: Err("hints are backoffs"),
            names_every_denied_key: Err("a denial names one key"),
            tells_uncovered: Err("only debt is kept"),
            knows_leases_by_id: Err("a lease is found by its keys"),
            forgets_after: Err("nothing is forgotten"),
            remembers_at_most: Err("nothing is forgotten"),
            keeps_definitions: Err("nothing is written down"),
            keeps_leases: Err("nothing is written down"),
            second_server: Err("there is one"),
        }
    }

    async fn limiter(&self) -> Approximate {
        let clock = self.clock.clone();
        let inner = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
        Approximate { clock, inner }
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by.saturating_sub(LATE));
    }
}

impl Limiter for Approximate {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        self.clock.advance(CALL);
        let mut decision = self.inner.reserve_now(request)?;
        if let Decision::Denied(denial) = &mut decision
            && let DenialReason::NoRoom { keys } = &mut denial.reason
        {
            keys.sort();
            keys.truncate(1);
        }
        Ok(decision)
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.clock.advance(CALL);
        self.inner.complete_now(request)
    }
}

impl Backend for Approximate {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        self.clock.advance(CALL);
        self.inner.define_now(limit)
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        self.clock.advance(CALL);
        self.inner.delete_now(key)
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        self.clock.advance(CALL);
        let hide_uncovered = |mut state: LimitState| {
            state.usage.uncovered = 0;
            state
        };
        Ok(self.inner.state_now(key).map(hide_uncovered))
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        self.clock.advance(CALL);
        Ok(self.inner.states_now(page))
    }
}

mod conformance {
    use super::OnAClockThatRuns;

    ratelimiter_conformance::conformance! {
        fixture: OnAClockThatRuns::new(),
        skips: [
            def_08_definitions_survive_a_restart,
            def_08_a_decrease_survives_a_restart,
            def_08_a_pause_survives_a_restart,
            res_02_a_reservation_returns_at_the_end_of_its_window_exactly,
            res_04_a_lease_cannot_come_back_with_other_keys_altogether,
            res_05_a_denied_lease_stays_denied_whatever_it_asks_for,
            res_06_every_requirement_is_looked_at,
            res_09_a_forgotten_lease_is_new_and_counts_in_full,
            res_09_an_ended_lease_stays_ended_whatever_it_asks_for,
            res_09_the_oldest_ended_leases_are_forgotten_first,
            hint_01_a_backoff_and_an_exact_time_compare,
            hint_01_the_hint_is_the_largest_over_the_keys_without_room,
            hint_02_a_near_expiry_is_sooner_than_the_backoff,
            hint_02_the_hint_waits_for_as_many_as_are_needed,
            hint_02_without_open_leases_the_hint_is_exact,
            com_03_uncovered_use_is_counted_whatever_the_policy,
            com_07_complete_after_a_restart_releases_and_reconciles,
            com_05_the_first_complete_stands_at_another_server,
            com_07_complete_at_another_server_releases_and_reconciles,
            com_07_leases_are_known_after_a_restart,
        ],
    }
}
