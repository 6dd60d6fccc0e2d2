//! The conformance suite on the model, in virtual time.

use crate::fixture::OnLedger;
use crate::on_model::on_model;

ratelimiter_conformance::conformance! {
    fixture: OnLedger::new(on_model()),
    skips: [
        cal_03_the_hint_is_the_time_to_the_reset,
        res_02_a_reservation_returns_at_the_end_of_its_window_exactly,
        res_04_a_lease_cannot_come_back_with_other_keys_altogether,
        res_05_a_denied_lease_stays_denied_whatever_it_asks_for,
        res_06_every_requirement_is_looked_at,
        res_09_a_forgotten_lease_is_new_and_counts_in_full,
        res_09_an_ended_lease_stays_ended_whatever_it_asks_for,
        res_09_the_oldest_ended_leases_are_forgotten_first,
        tpl_02_a_limit_that_is_made_anew_has_the_schedule_of_its_template,
        tpl_03_a_key_whose_definition_is_deleted_is_left_to_the_template,
        tpl_04_a_template_of_another_kind_takes_over_with_a_new_limit,
        hint_01_the_hint_is_the_largest_over_the_keys_without_room,
        hint_01_a_backoff_and_an_exact_time_compare,
        hint_02_without_open_leases_the_hint_is_exact,
        hint_02_the_hint_waits_for_as_many_as_are_needed,
        hint_02_a_near_expiry_is_sooner_than_the_backoff,
        ren_01_a_limit_of_a_deleted_key_is_not_taken,
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
