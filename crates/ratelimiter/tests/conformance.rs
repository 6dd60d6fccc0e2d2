//! The conformance suite on the memory backend, with a fake clock.

use std::sync::Arc;
use std::time::Duration;

use ratelimiter::MemoryLimiter;
use ratelimiter::clock::FakeClock;
use ratelimiter::memory::MemoryOptions;
use ratelimiter_conformance::{Capabilities, Fixture};

const REMEMBER_MAX: usize = 100;
const INSTANCES_MAX: usize = 20;
const NEW_INSTANCES_MAX: usize = 10;
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// A memory limiter on a fake clock.
struct InMemory {
    clock: Arc<FakeClock>,
    limiter: MemoryLimiter,
    /// Whether `advance` sweeps as the background thread would. Sweeping must not change any answer.
    sweeps: bool,
}

impl InMemory {
    fn new(sweeps: bool) -> Self {
        let clock = Arc::new(FakeClock::new());
        let options = MemoryOptions {
            remember_max: REMEMBER_MAX,
            instances_max: INSTANCES_MAX,
            new_instances_per_second_max: NEW_INSTANCES_MAX,
            ..MemoryOptions::for_tests(clock.clone())
        };
        let limiter = MemoryLimiter::with_options(options);
        Self { clock, limiter, sweeps }
    }
}

impl Fixture for InMemory {
    type Limiter = MemoryLimiter;

    fn capabilities(&self) -> Capabilities {
        let remember_for = MemoryOptions::default().remember_for;
        let (forgets_after, instances_at_most) = match self.sweeps {
            true => (Ok(remember_for), Ok(INSTANCES_MAX)),
            false => (
                Err("expired leases end at a sweep, and nothing sweeps here"),
                Err("limits that are not in use go at a sweep, and nothing sweeps here"),
            ),
        };
        Capabilities {
            expiry_lag: Duration::ZERO,
            reconciled_expiry_lag: Duration::ZERO,
            capacity_max: ratelimiter::CAPACITY_MAX,
            exact_time: Ok(()),
            virtual_time: Ok(()),
            exact_hints: Ok(()),
            names_every_denied_key: Ok(()),
            tells_uncovered: Ok(()),
            knows_leases_by_id: Ok(()),
            forgets_after,
            remembers_at_most: Ok(REMEMBER_MAX),
            renews: Ok(()),
            waits: Err("a server lets requests wait, around its backend"),
            templates: Ok(()),
            replaces_limits: Ok(()),
            instances_at_most,
            new_instances_per_second: Ok(NEW_INSTANCES_MAX),
            keeps_definitions: Err("the state ends with the process"),
            keeps_leases: Err("the state ends with the process"),
            second_server: Err("the state is in one process"),
        }
    }

    async fn limiter(&self) -> MemoryLimiter {
        self.limiter.clone()
    }

    async fn advance(&self, by: Duration) {
        if !self.sweeps {
            self.clock.advance(by);
            return;
        }
        let mut left = by;
        while !left.is_zero() {
            let step = left.min(SWEEP_EVERY);
            self.clock.advance(step);
            self.limiter.sweep();
            left -= step;
        }
    }
}

mod swept {
    use super::InMemory;

    ratelimiter_conformance::conformance! {
        fixture: InMemory::new(true),
        skips: [
            def_08_definitions_survive_a_restart,
            cal_01_a_period_survives_a_restart,
            cal_01_servers_share_a_period,
            def_08_a_calendar_limit_survives_a_restart,
            def_08_the_mode_of_a_limit_survives_a_restart,
            def_08_a_template_survives_a_restart,
            shd_02_enforcing_after_a_restart_counts_what_was_admitted,
            def_08_a_decrease_survives_a_restart,
            def_08_a_pause_survives_a_restart,
            com_07_complete_after_a_restart_releases_and_reconciles,
            com_05_the_first_complete_stands_at_another_server,
            com_07_complete_at_another_server_releases_and_reconciles,
            ops_01_a_lease_is_released_at_another_server,
            ops_02_a_debt_is_forgiven_at_another_server,
            com_07_leases_are_known_after_a_restart,
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

mod unswept {
    use super::InMemory;

    ratelimiter_conformance::conformance! {
        fixture: InMemory::new(false),
        skips: [
            res_09_a_forgotten_lease_is_new_and_counts_in_full,
            tpl_07_there_are_only_so_many_limits,
            def_08_definitions_survive_a_restart,
            cal_01_a_period_survives_a_restart,
            cal_01_servers_share_a_period,
            def_08_a_calendar_limit_survives_a_restart,
            def_08_the_mode_of_a_limit_survives_a_restart,
            def_08_a_template_survives_a_restart,
            shd_02_enforcing_after_a_restart_counts_what_was_admitted,
            def_08_a_decrease_survives_a_restart,
            def_08_a_pause_survives_a_restart,
            com_07_complete_after_a_restart_releases_and_reconciles,
            com_05_the_first_complete_stands_at_another_server,
            com_07_complete_at_another_server_releases_and_reconciles,
            ops_01_a_lease_is_released_at_another_server,
            ops_02_a_debt_is_forgiven_at_another_server,
            com_07_leases_are_known_after_a_restart,
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
