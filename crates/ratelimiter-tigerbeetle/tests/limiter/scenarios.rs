//! Scenarios with two or more limiters on one ledger.
//!
//! Each runs on the model in virtual time, and on a real server in real time.

pub mod anywhere;
pub mod calendar;
pub mod capacity;
pub mod complete;
pub mod once;
pub mod operate;
pub mod renew;
pub mod renew_waited;
pub mod replay;
pub mod shadow;
pub mod start;
pub mod templates;
pub mod wait;

/// Passes the table of scenarios to a macro that makes tests of them.
macro_rules! all {
    ($make_tests:ident) => {
        $make_tests! {
            replay::tb_05_an_allowed_lease_is_allowed_again_with_its_first_moment,
            replay::tb_05_a_denied_lease_stays_denied,
            replay::tb_05_a_lease_with_other_requirements_is_a_conflict,
            replay::tb_05_a_further_key_without_room_is_denied_for_that_key,
            replay::tb_05_an_ended_lease_is_never_allowed_again,
            replay::tb_05_an_allowed_lease_is_known_while_its_limit_decreases,
            replay::res_06_a_denied_lease_is_known_after_its_limit_changed,
            anywhere::com_07_another_limiter_completes_what_the_first_one_allowed,
            anywhere::com_07_a_lease_of_many_limits_is_completed_at_another_limiter,
            anywhere::com_07_completing_at_both_limiters_is_completing_once,
            anywhere::com_07_what_a_deleted_limit_holds_is_released_anywhere,
            anywhere::def_09_a_key_can_be_defined_again_while_old_leases_hold_it,
            complete::tb_06_one_expired_reservation_does_not_fail_the_others,
            complete::tb_06_a_reservation_shrinks_while_its_limit_decreases,
            complete::com_03_an_excess_that_is_refused_becomes_debt_once,
            complete::tb_15_a_lease_makes_no_transfer_that_it_does_not_need,
            once::com_05_a_stale_server_changes_nothing_after_another_has_completed,
            once::com_05_the_first_complete_stands_when_its_hold_would_have_expired,
            once::com_05_of_two_completes_at_once_one_counts_for_all_keys,
            once::com_05_a_lease_that_another_server_completed_takes_any_actuals,
            once::com_05_the_first_complete_stands_while_a_limit_decreases,
            operate::ops_01_another_limiter_releases_what_the_first_one_allowed,
            operate::ops_01_a_list_goes_on_after_a_lease_that_ended_anywhere,
            operate::ops_01_a_job_is_known_where_its_lease_was_allowed,
            operate::ops_01_a_lease_is_released_while_its_limit_decreases,
            operate::tb_22_of_several_servers_each_unit_is_forgiven_by_one,
            renew::tb_18_a_server_completes_what_another_has_renewed,
            renew::tb_18_a_server_completes_after_another_has_denied_a_renew,
            renew::com_05_a_complete_after_a_denied_renew_counts_once_when_the_holds_have_lapsed,
            renew::tb_18_numbers_are_the_same_at_every_server,
            renew::tb_18_a_lease_lives_while_another_server_renews_it,
            renew::tb_18_the_seconds_of_replacements_do_not_add_up,
            renew::tb_18_parts_are_joined_and_completed_anywhere,
            renew::tb_18_a_lease_is_renewed_while_its_limits_decrease,
            renew::tb_18_a_lease_that_was_renewed_often_is_read_in_pages,
            renew::tb_18_a_renewed_lease_is_released_anywhere,
            renew::tb_18_two_leases_with_one_id_and_many_limits_are_renewed,
            renew::ren_02_a_hold_of_a_deleted_limit_that_was_decreasing_is_renewed,
            renew::ren_03_a_lease_that_another_server_completed_is_not_denied_but_ended,
            renew_waited::tb_18_a_lease_of_a_later_attempt_is_renewed_anywhere,
            renew_waited::tb_18_a_lease_that_somebody_renews_is_not_returned,
            renew_waited::tb_18_a_lease_that_was_returned_is_not_renewed,
            renew_waited::tb_18_of_a_renew_and_a_return_at_once_one_succeeds,
            renew_waited::tb_18_a_withdrawn_attempt_is_no_part_of_a_renewed_lease,
            renew_waited::tb_18_what_a_renew_gives_back_admits_who_waits,
            calendar::tb_19_servers_agree_on_the_first_period_whatever_their_schedules,
            calendar::tb_19_a_period_goes_on_whatever_becomes_of_its_definition,
            calendar::tb_19_a_period_is_reconciled_at_another_limiter,
            calendar::tb_19_a_lease_of_a_period_is_listed_and_released,
            calendar::tb_19_a_key_can_be_defined_again_with_another_kind,
            capacity::tb_07_a_capacity_can_change_any_number_of_times,
            capacity::tb_07_a_decrease_can_be_cancelled_any_number_of_times,
            capacity::tb_07_a_server_that_did_not_take_the_put_denies_too,
            capacity::pause_01_a_server_that_did_not_take_the_put_denies_too,
            capacity::tb_07_racing_changes_end_at_one_of_the_targets,
            capacity::tb_07_the_end_of_an_older_decrease_leaves_newer_changes_alone,
            shadow::tb_20_servers_count_together_in_shadow_mode,
            shadow::tb_20_enforcing_closes_the_account_until_it_fits,
            shadow::tb_20_a_batch_names_the_limits_of_each_request,
            start::tb_08_missing_accounts_are_made_and_funded,
            start::tb_08_an_account_follows_the_definition_up_and_down,
            start::tb_08_a_decrease_is_resumed,
            start::tb_08_a_decrease_that_an_older_release_began_is_resumed,
            start::tb_08_a_decrease_that_was_not_kept_is_taken_back,
            start::tb_08_a_start_writes_nothing_when_nothing_has_changed,
            templates::tb_21_servers_that_make_an_instance_at_once_fund_it_once,
            templates::tb_21_a_forgotten_instance_follows_its_template_before_its_next_reserve,
            templates::tb_21_an_instance_in_use_is_not_forgotten,
            templates::tb_21_servers_that_learn_a_template_adjust_an_instance_once,
            templates::tb_21_a_decrease_of_an_instance_is_applied_by_the_tick,
            templates::tb_21_a_server_that_does_not_know_an_instance_renews_it_while_it_decreases,
            templates::ren_02_a_renew_that_names_a_hold_has_the_timeout_of_its_template,
            templates::tb_18_a_closing_transfer_is_told_from_a_lease_with_its_user_data,
            templates::tb_21_a_restarted_server_counts_what_is_reserved,
            templates::tb_21_a_definition_takes_over_an_instance_of_another_server,
            templates::tb_21_a_definition_of_another_kind_replaces_an_idle_instance,
            templates::tb_21_what_a_deleted_limit_holds_counts_for_the_instance,
            templates::tb_21_a_template_of_another_kind_counts_what_is_reserved,
            templates::tb_21_servers_share_the_period_of_a_calendar_instance,
            templates::tb_21_a_template_in_shadow_mode_is_enforced_by_a_decrease,
            wait::tb_17_a_lease_of_a_later_attempt_is_known_everywhere,
            wait::tb_17_giving_up_denies_a_lease_for_good,
            wait::tb_17_giving_up_too_late_returns_the_allow,
            wait::tb_17_a_lease_that_was_denied_for_another_limit_does_not_wait,
            wait::tb_17_a_repeat_of_an_admitted_lease_is_told_the_same,
            wait::tb_17_a_lease_that_is_denied_elsewhere_is_not_admitted,
            wait::tb_17_a_repeat_elsewhere_ends_a_wait,
            wait::tb_17_two_servers_that_wait_for_one_lease_admit_it_once,
            wait::tb_17_a_pause_and_a_decrease_are_waited_for,
            wait::tb_17_calendar_shadow_and_template_limits_are_waited_for,
            wait::tb_17_whoever_comes_behind_others_is_denied_and_a_known_lease_is_not,
            wait::tb_17_a_look_finds_the_limits_with_room,
            wait::tb_17_a_lease_is_returned_unless_somebody_else_was_told_of_it,
            wait::tb_17_of_two_leases_with_one_id_the_one_that_waits_is_refused,
            wait::tb_17_who_waits_on_a_new_cluster_can_give_up,
        }
    };
}

pub(crate) use all;
