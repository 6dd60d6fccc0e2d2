//! The batcher on the memory limiter. CLI-02

use std::sync::Arc;
use std::time::Duration;

use ratelimiter_client::clock::FakeClock;
use ratelimiter_client::memory::MemoryOptions;
use ratelimiter_client::{Batcher, MemoryLimiter};
use ratelimiter_conformance::{Capabilities, Fixture};

use crate::hosted::capabilities_in_memory;

struct BatchedInProcess {
    clock: Arc<FakeClock>,
    memory: MemoryLimiter,
}

impl BatchedInProcess {
    fn new() -> Self {
        let clock = Arc::new(FakeClock::new());
        let memory = MemoryLimiter::with_options(MemoryOptions::for_tests(clock.clone()));
        Self { clock, memory }
    }
}

impl Fixture for BatchedInProcess {
    type Limiter = Batcher<MemoryLimiter>;

    fn capabilities(&self) -> Capabilities {
        capabilities_in_memory()
    }

    async fn limiter(&self) -> Batcher<MemoryLimiter> {
        Batcher::new(self.memory.clone())
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.memory.sweep();
    }
}

ratelimiter_conformance::conformance! {
    fixture: BatchedInProcess::new(),
    skips: [
        cal_01_a_period_survives_a_restart,
        cal_01_servers_share_a_period,
        shd_02_enforcing_after_a_restart_counts_what_was_admitted,
        def_08_a_calendar_limit_survives_a_restart,
        def_08_the_mode_of_a_limit_survives_a_restart,
        res_09_the_oldest_ended_leases_are_forgotten_first,
        tpl_07_there_are_only_so_many_limits,
        tpl_07_there_are_only_so_many_new_limits_in_a_second,
        def_08_a_template_survives_a_restart,
        def_08_definitions_survive_a_restart,
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
