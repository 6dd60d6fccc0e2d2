//! The suite passes for a limiter on a real clock.
//!
//! The limiter here behaves like one behind a network and a database: time passes during every
//! call, expiries become visible late, and a denial names one key. It passes all facts except those
//! that it skips by name, on a fake clock, so that no test sleeps; also if every call takes a
//! second. If calls are quick, a limiter that ends leases too early fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::{Clock, FakeClock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Backend, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, DenialReason,
    ForgiveError, LeaseId, LeasePage, LeasesError, Limit, LimitKey, LimitState, LimitStatus,
    Limiter, MemoryLimiter, OpenLease, Page, ReleaseError, RenewError, RenewRequest, Renewal,
    ReserveError, ReserveRequest, StateError,
};
use ratelimiter_conformance::suite::{self, FACTS};
use ratelimiter_conformance::{Capabilities, Fixture};

/// Duration of every call.
const CALL: Duration = Duration::from_millis(7);
/// Time that is missing on the limiter's clock after each wait.
const LATE: Duration = Duration::from_millis(90);

#[derive(Debug, Clone)]
struct RunningClockFixture {
    /// The true time.
    clock: Arc<FakeClock>,
    /// The limiter's clock.
    limiter_clock: Arc<FakeClock>,
    /// How much faster the limiter's clock runs.
    limiter_speed: u32,
    call: Duration,
}

#[derive(Debug)]
struct ApproximateLimiter {
    time: RunningClockFixture,
    inner: MemoryLimiter,
}

impl RunningClockFixture {
    fn new() -> Self {
        Self { clock: Arc::default(), limiter_clock: Arc::default(), limiter_speed: 1, call: CALL }
    }

    fn pass(&self, by: Duration) {
        self.clock.advance(by);
        self.limiter_clock.advance(by * self.limiter_speed);
    }

    /// The facts that fail.
    fn failures(&self) -> Vec<&'static str> {
        let capabilities = self.capabilities();
        let shown = FACTS.iter().filter(|fact| fact.skipped_with(&capabilities).is_none());
        let fresh = || Self { limiter_speed: self.limiter_speed, call: self.call, ..Self::new() };
        let fails = |name: &&str| {
            let play = || suite::play(name, async { fresh() });
            catch_unwind(AssertUnwindSafe(play)).is_err()
        };
        shown.map(|fact| fact.name).filter(fails).collect()
    }
}

/// CRD-19: a slow machine is no failure.
#[test]
fn facts_hold_however_long_a_call_takes() {
    for ms in [100, 400, 700, 1_000, 1_500] {
        let slow =
            RunningClockFixture { call: Duration::from_millis(ms), ..RunningClockFixture::new() };
        assert_eq!(slow.failures(), [""; 0], "{ms} ms");
    }
}

/// CRD-19: a limiter that ends leases too early fails, where there is time to see it.
#[test]
fn a_limiter_whose_clock_runs_too_fast_is_found_out() {
    let fast = RunningClockFixture { limiter_speed: 3, ..RunningClockFixture::new() };
    let failures = fast.failures();
    for expected in [
        "def_07_a_decrease_is_applied_when_enough_has_expired",
        "def_10_a_shorter_window_is_for_new_reservations",
        "def_10_a_longer_window_is_for_new_reservations",
        "def_10_a_timeout_is_for_new_holds",
        "res_02_a_reservation_counts_for_its_window_and_returns",
        "res_02_each_reservation_returns_at_its_own_time",
        "res_03_a_hold_ends_after_its_timeout",
        "res_04_a_repeated_reserve_does_not_last_longer",
        "com_02_a_shrunk_reservation_keeps_its_expiry",
        "com_03_a_reserved_excess_returns_with_its_reservation",
        "com_04_a_rolling_key_without_an_actual_keeps_its_reservation",
    ] {
        assert!(failures.contains(&expected), "{expected} holds; only {failures:?} do not");
    }
}

impl Fixture for RunningClockFixture {
    type Limiter = ApproximateLimiter;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            expiry_lag: Duration::from_millis(300),
            reconciled_expiry_lag: Duration::from_secs(1),
            capacity_max: ratelimiter::CAPACITY_MAX,
            exact_time: Err("calls take time"),
            virtual_time: Err("calls take time"),
            exact_hints: Err("hints are backoffs"),
            names_every_denied_key: Err("a denial names one key"),
            tells_uncovered: Err("only debt is kept"),
            knows_leases_by_id: Err("a lease is found by its keys"),
            forgets_after: Err("nothing is forgotten"),
            remembers_at_most: Err("nothing is forgotten"),
            renews: Ok(()),
            waits: Err("each call is answered at once"),
            templates: Ok(()),
            replaces_limits: Ok(()),
            instances_at_most: Err("the bound of a million is not worth reaching here"),
            new_instances_per_second: Err("a thousand a second is not worth reaching here"),
            keeps_definitions: Err("nothing is written down"),
            keeps_leases: Err("nothing is written down"),
            second_server: Err("there is one"),
        }
    }

    async fn limiter(&self) -> ApproximateLimiter {
        let options = MemoryOptions::for_tests(self.limiter_clock.clone());
        ApproximateLimiter { time: self.clone(), inner: MemoryLimiter::with_options(options) }
    }

    async fn advance(&self, by: Duration) {
        self.pass(by.saturating_sub(LATE));
    }

    fn now(&self) -> Option<Timestamp> {
        Some(self.clock.now())
    }
}

impl Limiter for ApproximateLimiter {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        self.time.pass(self.time.call);
        let mut decision = self.inner.reserve_now(request)?;
        if let Decision::Denied(denial) = &mut decision
            && let DenialReason::NoRoom { keys } = &mut denial.reason
        {
            keys.sort();
            keys.truncate(1);
        }
        Ok(decision)
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        self.time.pass(self.time.call);
        let mut renewal = self.inner.renew_now(request)?;
        if let Renewal::Denied(denial) = &mut renewal
            && let DenialReason::NoRoom { keys } = &mut denial.reason
        {
            keys.sort();
            keys.truncate(1);
        }
        Ok(renewal)
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.time.pass(self.time.call);
        self.inner.complete_now(request)
    }
}

impl Backend for ApproximateLimiter {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        self.time.pass(self.time.call);
        self.inner.define_now(limit)
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        self.time.pass(self.time.call);
        self.inner.delete_now(key)
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        self.time.pass(self.time.call);
        let hide_uncovered = |mut state: LimitState| {
            state.usage.uncovered = 0;
            state
        };
        Ok(self.inner.state_now(key).map(hide_uncovered))
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        self.time.pass(self.time.call);
        Ok(self.inner.states_now(page))
    }

    async fn leases(&self, page: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        self.time.pass(self.time.call);
        self.inner.leases(page).await
    }

    async fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        self.time.pass(self.time.call);
        self.inner.release_now(lease)
    }

    async fn forgive(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        self.time.pass(self.time.call);
        self.inner.forgive_now(key)
    }
}

mod conformance {
    use super::RunningClockFixture;

    ratelimiter_conformance::conformance! {
        fixture: RunningClockFixture::new(),
        skips: [
            cal_01_a_decrease_waits_for_the_reset,
            cal_01_a_lease_has_ended_with_its_period,
            cal_01_a_new_schedule_applies_from_the_next_reset,
            cal_01_a_period_is_an_hour_a_day_a_week_or_a_month,
            cal_01_a_period_survives_a_restart,
            cal_01_all_units_return_at_the_reset,
            cal_01_an_unused_limit_keeps_its_schedule_until_the_next_reset,
            cal_01_periods_follow_each_other,
            cal_01_servers_share_a_period,
            cal_01_the_next_reset_may_be_far,
            cal_03_a_hint_is_never_beyond_the_reset,
            cal_03_the_hint_is_the_time_to_the_reset,
            cal_04_a_complete_after_the_period_changes_nothing,
            cal_04_an_excess_after_the_period_is_debt_while_the_lease_is_open,
            cal_04_an_excess_after_the_period_only_counts_if_the_overage_is_deny,
            cal_04_an_excess_after_the_period_is_not_the_debt_of_another_limit,
            def_08_a_calendar_limit_survives_a_restart,
            def_08_the_mode_of_a_limit_survives_a_restart,
            shd_02_enforcing_after_a_restart_counts_what_was_admitted,
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
            def_08_a_template_survives_a_restart,
            tpl_02_a_limit_that_is_made_anew_has_the_schedule_of_its_template,
            tpl_02_a_template_may_be_a_calendar_limit,
            tpl_05_an_excess_after_the_period_is_owed_by_a_limit_that_has_gone,
            tpl_06_uncovered_use_is_counted_for_the_template,
            tpl_07_there_are_only_so_many_limits,
            tpl_07_there_are_only_so_many_new_limits_in_a_second,
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
            ops_01_a_lease_is_released_at_another_server,
            ops_02_a_debt_is_forgiven_at_another_server,
            ren_01_what_would_lapse_first_is_given_back_first,
            ren_01_an_excess_after_all_has_lapsed_is_debt_while_the_lease_is_open,
            ren_01_use_beyond_all_that_was_reserved_is_an_excess,
            ren_01_what_has_lapsed_covers_use_so_that_it_counts_once,
            ren_01_what_is_added_counts_for_a_full_window,
            ren_02_every_renew_begins_the_timeouts_of_holds_again,
            ren_02_rolling_reservations_keep_their_expiry,
            ren_02_a_lease_can_be_renewed_until_its_last_hold_has_lapsed,
            ren_02_without_holds_a_lease_can_be_renewed_until_its_last_reservation_has_lapsed,
            ren_02_what_has_lapsed_counts_zero,
            ren_03_a_repetition_begins_no_timeout_again,
            wait_01_a_reserve_waits_until_there_is_room,
            wait_01_what_a_complete_returns_of_a_rolling_limit_is_waited_for,
            wait_01_every_other_refusal_is_immediate,
            wait_01_the_end_of_a_pause_is_waited_for,
            wait_01_a_greater_capacity_is_waited_for,
            wait_01_without_room_it_is_denied_when_its_time_is_over,
            wait_01_each_request_of_a_batch_waits_on_its_own,
            wait_03_a_waiter_delays_nobody_who_needs_another_limit,
            wait_04_a_repeated_lease_joins_the_same_wait,
        ],
    }
}
