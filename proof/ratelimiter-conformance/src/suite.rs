//! The table of facts, and their execution.

use std::future::Future;

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use crate::context::TestContext;
use crate::facts;
use crate::fixture::{Capabilities, Capability, Fixture};
use crate::stderr::print_stderr;
use crate::world::{FixtureWorld, World};

/// One rule's test for every limiter.
#[derive(Debug, Clone, Copy)]
pub struct Fact {
    /// The rule's ID: `RES-01`.
    pub rule: &'static str,
    /// The fact's name, which begins with its rule: `res_01_a_denied_call_holds_nothing`.
    pub name: &'static str,
    /// The capabilities it needs.
    pub needs: &'static [Capability],
    play: for<'a> fn(&'a mut TestContext) -> LocalBoxFuture<'a, ()>,
}

impl Fact {
    /// The reason why the fact is skipped with these capabilities; `None` if it is not.
    pub fn skipped_with(&self, capabilities: &Capabilities) -> Option<&'static str> {
        self.needs.iter().find_map(|capability| capabilities.lacks(*capability))
    }
}

/// The facts that are skipped with these capabilities, each with the reason.
pub fn skipped(capabilities: &Capabilities) -> impl Iterator<Item = (&'static Fact, &'static str)> {
    let with_reason = |fact: &'static Fact| Some((fact, fact.skipped_with(capabilities)?));
    FACTS.iter().filter_map(with_reason)
}

/// Checks that the named facts are exactly those that the fixture skips.
pub fn the_skipped_facts_are<F: Fixture>(fixture: impl Future<Output = F>, named: &[&str]) {
    let capabilities = run_to_end(async { fixture.await.capabilities() }.boxed_local());
    let mut named = named.to_vec();
    named.sort_unstable();
    let mut skipped: Vec<_> = skipped(&capabilities).map(|(fact, _)| fact.name).collect();
    skipped.sort_unstable();
    assert_eq!(named, skipped, "the named facts, and those that are skipped");
}

/// Runs the fact of this name. Panics if it does not hold, or if there is no such fact.
pub fn play<F: Fixture + 'static>(name: &str, fixture: impl Future<Output = F>) {
    let world = async { Box::new(FixtureWorld::new(fixture.await).await) as Box<dyn World> };
    play_in(name, world.boxed_local());
}

fn play_in(name: &str, world: LocalBoxFuture<'_, Box<dyn World>>) {
    let fact = FACTS.iter().find(|fact| fact.name == name);
    let fact = fact.expect("a fact of the table");
    let played = async {
        let world = world.await;
        match fact.skipped_with(&world.capabilities()) {
            Some(reason) => print_stderr(&format!("skipped {}: {reason}", fact.name)),
            None => (fact.play)(&mut TestContext::new(fact.name, world)).await,
        }
    };
    run_to_end(played.boxed_local());
}

fn run_to_end<T>(future: LocalBoxFuture<'_, T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a machine that starts a thread").block_on(future)
}

macro_rules! table_of_facts {
    ($d:tt $($family:ident { $($fact:ident: $rule:literal $(needs $($capability:ident)+)?,)+ })+) => {
        /// Every fact, grouped by the rules' families.
        pub const FACTS: &[Fact] = &[$($(
            Fact {
                rule: $rule,
                name: stringify!($fact),
                needs: &[$($(Capability::$capability),+)?],
                play: |context| facts::$family::$fact(context).boxed_local(),
            },
        )+)+];

        /// Makes every fact a test, named after its rule.
        ///
        /// `fixture` is an expression that returns a [`Fixture`](crate::Fixture), and may await.
        /// `skips` lists the facts that this fixture cannot show, so that the test file documents
        /// them; one more test compares the list with the fixture's [`Capabilities`](crate::Capabilities).
        #[macro_export]
        macro_rules! conformance {
            (fixture: $d fixture:expr, skips: [$d($d skip:ident),* $d(,)?] $d(,)?) => {
                $($(
                    #[doc = $rule]
                    #[test]
                    fn $fact() {
                        $d crate::suite::play(stringify!($fact), async { $d fixture });
                    }
                )+)+

                #[test]
                fn the_skipped_facts_are_the_named_ones() {
                    let named = [$d(stringify!($d skip)),*];
                    $d crate::suite::the_skipped_facts_are(async { $d fixture }, &named);
                }
            };
        }
    };
}

table_of_facts! { $
    definitions {
        def_01_any_valid_key_names_a_limit: "DEF-01",
        def_01_keys_that_differ_in_a_byte_are_two_limits: "DEF-01",
        def_02_the_shortest_and_the_longest_durations_are_kept: "DEF-02",
        def_03_all_of_a_definition_is_kept: "DEF-03",
        def_04_the_kind_of_a_limit_cannot_change: "DEF-04",
        def_05_an_equal_definition_changes_nothing: "DEF-05",
        ops_03_a_list_of_limits_is_defined_like_each_of_them: "OPS-03",
        def_05_an_equal_decrease_answers_like_the_first: "DEF-05",
        def_09_a_deleted_limit_is_unknown: "DEF-09",
        def_09_leases_of_a_deleted_limit_complete: "DEF-09",
        def_10_a_shorter_window_is_for_new_reservations: "DEF-10",
        def_10_a_longer_window_is_for_new_reservations: "DEF-10",
        def_10_a_timeout_is_for_new_holds: "DEF-10",
    }
    capacity {
        def_06_an_increase_holds_at_once: "DEF-06",
        def_06_an_increase_cancels_a_decrease: "DEF-06",
        def_06_a_capacity_goes_down_and_up_any_number_of_times: "DEF-06",
        def_06_a_decrease_in_use_can_be_repeated: "DEF-06",
        def_07_a_decrease_into_free_room_holds_at_once: "DEF-07",
        def_07_a_decreasing_limit_admits_nothing: "DEF-07",
        def_07_a_decrease_is_applied_when_enough_has_expired: "DEF-07",
        def_07_a_decrease_is_applied_when_enough_was_released: "DEF-07",
        def_07_a_reconciled_reservation_lets_a_decrease_through: "DEF-07",
        def_07_another_lower_capacity_replaces_the_target: "DEF-07",
        def_07_a_target_that_fits_ends_the_decrease: "DEF-07",
        def_07_only_the_capacity_of_a_decrease_waits: "DEF-07",
    }
    pause {
        pause_01_a_capacity_of_zero_denies_with_a_fixed_hint: "PAUSE-01, DEF-03, HINT-04",
        pause_01_a_lease_that_met_a_pause_goes_on_when_the_capacity_returns: "PAUSE-01",
        pause_01_a_limit_in_use_is_paused_from_the_put_on: "PAUSE-01, DEF-07",
        pause_01_a_pause_of_a_limit_in_use_ends_with_a_higher_capacity: "PAUSE-01, DEF-06",
        pause_01_leases_of_a_paused_limit_complete: "PAUSE-01, COM-03",
        pause_01_only_the_requests_of_a_batch_that_name_a_paused_limit_are_denied: "PAUSE-01",
        res_06_a_pause_comes_before_an_amount_over_capacity_and_a_decrease: "RES-06",
        res_06_a_known_lease_comes_before_a_pause: "RES-06",
        res_06_a_denied_lease_stays_denied_when_the_capacity_has_dropped: "RES-06, RES-05",
        def_08_a_pause_survives_a_restart: "DEF-08, PAUSE-01" needs KeepsDefinitions,
    }
    calendar {
        cal_01_all_units_return_at_the_reset: "CAL-01" needs VirtualTime,
        cal_01_a_period_is_an_hour_a_day_a_week_or_a_month: "CAL-01" needs VirtualTime,
        cal_01_the_next_reset_may_be_far: "CAL-01" needs VirtualTime,
        cal_01_periods_follow_each_other: "CAL-01" needs VirtualTime,
        cal_01_a_new_schedule_applies_from_the_next_reset: "CAL-01" needs VirtualTime,
        cal_01_an_unused_limit_keeps_its_schedule_until_the_next_reset: "CAL-01" needs VirtualTime,
        cal_01_use_is_reconciled_within_the_period: "CAL-01, COM-02, COM-03",
        cal_01_a_calendar_limit_stays_one: "CAL-01, DEF-04",
        cal_01_a_decrease_waits_for_the_reset: "CAL-01, DEF-07" needs VirtualTime,
        cal_01_a_capacity_changes_within_the_period: "CAL-01, DEF-06, DEF-07",
        cal_01_a_lease_has_ended_with_its_period: "CAL-01, RES-09" needs VirtualTime,
        cal_03_the_hint_is_the_time_to_the_reset: "CAL-03" needs VirtualTime ExactTime ExactHints,
        cal_03_a_hint_is_never_beyond_the_reset: "CAL-03" needs VirtualTime,
        cal_04_a_complete_after_the_period_changes_nothing: "CAL-04" needs VirtualTime,
        cal_04_an_excess_after_the_period_is_debt_while_the_lease_is_open: "CAL-04" needs VirtualTime,
        cal_04_an_excess_after_the_period_only_counts_if_the_overage_is_deny: "CAL-04" needs VirtualTime TellsUncovered,
        cal_04_an_excess_after_the_period_is_not_the_debt_of_another_limit: "CAL-04" needs VirtualTime,
        def_08_a_calendar_limit_survives_a_restart: "CAL-01, DEF-08" needs KeepsDefinitions,
        cal_01_a_period_survives_a_restart: "CAL-01, COM-07" needs KeepsLeases,
        cal_01_servers_share_a_period: "CAL-01, COM-07" needs SecondServer,
    }
    shadow {
        shd_01_a_shadow_limit_counts_and_never_denies: "SHD-01",
        shd_01_all_kinds_of_limits_can_be_in_shadow_mode: "SHD-01",
        shd_01_only_an_enforced_limit_denies: "SHD-01",
        shd_01_a_pause_in_shadow_mode_denies_nothing: "SHD-01, PAUSE-01",
        shd_01_a_lower_capacity_applies_at_once: "SHD-01, DEF-07",
        shd_01_a_repeated_reserve_is_named_once: "SHD-01, RES-04",
        shd_01_an_excess_is_counted_and_never_owed: "SHD-01, COM-03",
        shd_01_each_request_of_a_batch_counts: "SHD-01",
        shd_01_a_shadow_limit_counts_up_to_the_largest_capacity: "SHD-01, RES-07",
        shd_02_enforcing_a_limit_with_room_holds_at_once: "SHD-02",
        shd_02_enforcing_a_limit_over_its_capacity_is_a_decrease: "SHD-02, DEF-07",
        shd_02_a_decrease_ends_in_shadow_mode: "SHD-02, DEF-06",
        shd_02_shadow_mode_opens_a_full_limit: "SHD-02",
        def_08_the_mode_of_a_limit_survives_a_restart: "SHD-02, DEF-08" needs KeepsDefinitions,
        shd_02_enforcing_after_a_restart_counts_what_was_admitted: "SHD-02, COM-07" needs KeepsLeases,
    }
    templates {
        tpl_01_a_template_is_defined_and_deleted_like_any_limit: "TPL-01" needs Templates,
        tpl_01_a_wildcard_is_a_whole_segment: "TPL-01" needs Templates,
        tpl_02_each_key_that_a_template_matches_has_a_limit_of_its_own: "TPL-02" needs Templates,
        tpl_02_a_key_that_is_not_in_use_has_the_state_of_a_new_limit: "TPL-02" needs Templates,
        tpl_02_the_most_specific_template_wins: "TPL-02" needs Templates,
        tpl_02_a_call_that_is_not_admitted_makes_no_limit: "TPL-02, RES-01" needs Templates,
        tpl_02_the_first_unknown_key_is_named: "TPL-02, RES-06" needs Templates,
        tpl_02_the_limits_of_a_template_are_reconciled: "TPL-02, COM-01, COM-02, COM-03" needs Templates,
        tpl_02_leases_of_a_template_are_known: "TPL-02, RES-04, RES-05, RES-09" needs Templates,
        tpl_02_a_limit_has_the_mode_and_the_capacity_of_its_template: "TPL-02, SHD-01, PAUSE-01" needs Templates,
        tpl_02_a_template_may_be_a_calendar_limit: "TPL-02, CAL-01" needs Templates VirtualTime,
        tpl_02_a_limit_that_is_made_anew_has_the_schedule_of_its_template: "TPL-02, CAL-01" needs Templates ReplacesLimits VirtualTime,
        tpl_05_an_excess_after_the_period_is_owed_by_a_limit_that_has_gone: "TPL-05, CAL-04" needs Templates VirtualTime,
        tpl_03_a_definition_of_the_key_wins: "TPL-03" needs Templates,
        tpl_03_a_definition_takes_over_a_limit_in_use: "TPL-03" needs Templates,
        tpl_03_a_lower_definition_is_a_decrease: "TPL-03, DEF-07" needs Templates,
        tpl_03_the_kind_cannot_change_while_units_are_in_use: "TPL-03, DEF-04" needs Templates,
        tpl_03_a_key_whose_definition_is_deleted_is_left_to_the_template: "TPL-03, DEF-09" needs Templates ReplacesLimits,
        tpl_04_a_higher_capacity_holds_at_once_for_every_limit: "TPL-04, DEF-06" needs Templates,
        tpl_04_a_lower_capacity_holds_when_enough_was_returned: "TPL-04, DEF-07" needs Templates,
        tpl_04_a_window_is_for_new_reservations: "TPL-04, DEF-10" needs Templates,
        tpl_04_a_limit_that_has_gone_follows: "TPL-04" needs Templates,
        tpl_04_a_more_specific_template_takes_over: "TPL-04" needs Templates,
        tpl_04_a_template_of_another_kind_takes_over_with_a_new_limit: "TPL-04" needs Templates ReplacesLimits,
        tpl_04_a_deleted_template_leaves_its_keys_to_the_next: "TPL-04" needs Templates,
        tpl_04_without_another_template_its_keys_are_unknown: "TPL-04, DEF-09" needs Templates,
        tpl_05_a_limit_that_is_not_in_use_goes: "TPL-05" needs Templates,
        tpl_05_a_limit_that_owes_a_debt_stays_until_it_is_forgiven: "TPL-05, OPS-02" needs Templates,
        tpl_06_uncovered_use_is_counted_for_the_template: "TPL-06, COM-03" needs Templates TellsUncovered,
        def_08_a_template_survives_a_restart: "TPL-01, DEF-08" needs Templates KeepsDefinitions,
        tpl_06_the_limits_of_a_template_are_listed_page_by_page: "TPL-06" needs Templates,
        tpl_07_there_are_only_so_many_limits: "TPL-07" needs Templates InstancesAtMost,
        tpl_07_there_are_only_so_many_new_limits_in_a_second: "TPL-07" needs Templates NewInstancesPerSecond VirtualTime,
    }
    reserve {
        res_01_an_allowed_call_holds_all_that_it_needs: "RES-01",
        res_01_a_denied_call_holds_nothing: "RES-01",
        res_01_a_refused_call_holds_nothing: "RES-01",
        res_02_a_reservation_counts_for_its_window_and_returns: "RES-02",
        res_02_a_reservation_returns_at_the_end_of_its_window_exactly: "RES-02" needs ExactTime,
        res_02_a_reservation_outlives_its_call: "RES-02",
        res_02_each_reservation_returns_at_its_own_time: "RES-02",
        res_02_a_full_limit_admits_no_more: "RES-02",
        res_02_calls_at_the_same_time_share_the_room_exactly: "RES-02",
        res_03_a_hold_is_kept_until_complete: "RES-03",
        res_03_a_hold_takes_as_many_slots_as_its_amount: "RES-03",
        res_03_a_hold_ends_after_its_timeout: "RES-03",
        res_06_an_unknown_key_comes_before_an_amount_over_capacity: "RES-06",
        res_06_an_amount_over_capacity_comes_before_a_decrease: "RES-06",
        res_06_a_decrease_comes_before_the_lack_of_room: "RES-06",
        res_06_every_requirement_is_looked_at: "RES-06" needs NamesEveryDeniedKey,
        res_07_the_largest_capacity_can_be_reserved_whole: "RES-07",
        res_07_an_amount_near_the_largest_number_is_refused: "RES-07",
        res_08_a_denial_names_a_key_without_room_and_a_hint: "RES-08",
    }
    replay {
        res_04_a_repeated_reserve_counts_once: "RES-04",
        res_04_a_repeated_reserve_does_not_last_longer: "RES-04",
        res_04_a_lease_cannot_come_back_with_other_requirements: "RES-04",
        res_04_a_lease_cannot_come_back_with_other_keys_altogether: "RES-04" needs KnowsLeasesById,
        res_04_a_repeated_reserve_is_allowed_after_its_limit_changed: "RES-04, RES-06",
        res_06_an_unknown_key_comes_before_a_known_lease: "RES-06",
        res_05_a_denied_lease_stays_denied: "RES-05",
        res_05_a_denied_lease_stays_denied_whatever_it_asks_for: "RES-05" needs KnowsLeasesById,
        res_05_completing_a_denied_lease_changes_nothing: "RES-05",
        res_09_a_completed_lease_is_never_allowed_again: "RES-09",
        res_09_an_expired_lease_is_never_allowed_again: "RES-09",
        res_09_one_expired_reservation_ends_the_lease: "RES-09",
        res_09_complete_reconciles_what_is_live_of_an_ended_lease: "RES-09",
        res_09_an_ended_lease_stays_ended_whatever_it_asks_for: "RES-09" needs KnowsLeasesById,
        res_09_a_forgotten_lease_is_new_and_counts_in_full: "RES-09" needs ForgetsAfter,
        res_09_the_oldest_ended_leases_are_forgotten_first: "RES-09" needs RemembersAtMost,
    }
    hints {
        hint_01_the_hint_is_the_largest_over_the_keys_without_room: "HINT-01" needs ExactTime ExactHints NamesEveryDeniedKey,
        hint_01_a_backoff_and_an_exact_time_compare: "HINT-01" needs ExactTime ExactHints NamesEveryDeniedKey,
        hint_02_without_open_leases_the_hint_is_exact: "HINT-02" needs ExactTime ExactHints,
        hint_02_the_hint_waits_for_as_many_as_are_needed: "HINT-02" needs ExactTime ExactHints,
        hint_02_with_an_open_lease_the_hint_is_at_most_the_backoff: "HINT-02, HINT-03",
        hint_02_a_near_expiry_is_sooner_than_the_backoff: "HINT-02" needs ExactTime ExactHints,
        hint_03_a_concurrency_hint_doubles_until_an_allow: "HINT-03",
        hint_03_a_concurrency_hint_ends_at_two_seconds: "HINT-03",
        hint_03_a_concurrency_hint_is_never_beyond_the_timeout: "HINT-03",
        hint_03_a_rolling_hint_grows_by_half_until_an_allow: "HINT-03",
        hint_03_each_key_counts_its_own_denials: "HINT-03",
        hint_04_a_decrease_hints_at_ten_seconds_each_time: "HINT-04",
        hint_04_permanent_refusals_are_no_denials: "HINT-04",
    }
    complete {
        com_01_complete_releases_every_hold_at_once: "COM-01",
        com_01_complete_releases_only_the_lease_that_it_names: "COM-01",
        com_02_a_reservation_shrinks_to_the_actual: "COM-02",
        com_02_a_shrunk_reservation_keeps_its_expiry: "COM-02",
        com_02_an_actual_of_zero_frees_it_all: "COM-02",
        com_02_an_actual_equal_to_the_reservation_changes_nothing: "COM-02",
        com_04_a_rolling_key_without_an_actual_keeps_its_reservation: "COM-04",
        com_05_completing_an_unknown_lease_is_ok: "COM-05",
        com_05_completing_twice_is_completing_once: "COM-05",
        com_05_the_first_complete_stands_whatever_later_ones_say: "COM-05",
        com_05_overage_counts_once: "COM-05",
        com_05_completing_an_expired_lease_changes_nothing: "COM-05",
        com_06_an_actual_for_a_key_that_the_lease_does_not_hold: "COM-06",
        com_06_an_actual_for_a_concurrency_key: "COM-06",
    }
    overage {
        com_03_an_excess_is_reserved_where_there_is_room: "COM-03",
        com_03_an_excess_may_fill_the_limit: "COM-03",
        com_03_a_reserved_excess_returns_with_its_reservation: "COM-03",
        com_03_an_excess_without_room_is_debt_as_a_whole: "COM-03",
        com_03_debt_adds_up_and_takes_no_capacity: "COM-03",
        com_03_with_deny_an_excess_without_room_is_no_debt: "COM-03",
        com_03_with_deny_an_excess_is_reserved_where_there_is_room: "COM-03",
        com_03_uncovered_use_is_counted_whatever_the_policy: "COM-03" needs TellsUncovered,
        com_03_a_decreasing_limit_has_no_room_for_an_excess: "COM-03",
        com_03_each_key_is_reconciled_on_its_own: "COM-03",
        res_07_debt_of_the_largest_actuals_adds_up: "RES-07, COM-03",
    }
    batches {
        res_01_the_requests_of_a_batch_are_independent: "RES-01",
        res_02_a_batch_shares_the_room_in_order: "RES-02",
        res_02_a_batch_of_256_is_answered_in_order: "RES-02",
        res_04_a_lease_twice_in_a_batch_counts_once: "RES-04",
        res_05_a_lease_denied_in_a_batch_stays_denied: "RES-05",
        com_01_a_batch_completes_each_lease: "COM-01, COM-02",
        com_05_a_lease_twice_in_a_batch_completes_once: "COM-05",
        com_06_a_refused_complete_leaves_its_neighbours_alone: "COM-06",
    }
    durability {
        def_08_definitions_survive_a_restart: "DEF-08" needs KeepsDefinitions,
        def_08_a_decrease_survives_a_restart: "DEF-08" needs KeepsDefinitions,
        com_07_complete_after_a_restart_releases_and_reconciles: "COM-07" needs KeepsLeases,
        com_07_complete_at_another_server_releases_and_reconciles: "COM-07" needs SecondServer,
        com_05_the_first_complete_stands_at_another_server: "COM-05, COM-07" needs SecondServer,
        com_07_leases_are_known_after_a_restart: "COM-07, RES-04, RES-05, RES-09" needs KeepsLeases,
    }
    listing {
        admin_limits_are_listed_sorted_by_key: "Admin",
        admin_a_page_is_a_part_of_the_list: "Admin",
        admin_the_list_and_the_single_state_agree: "Admin",
    }
    renew {
        ren_01_shrinking_returns_units_at_once: "REN-01" needs Renews,
        ren_01_growing_takes_units: "REN-01" needs Renews,
        ren_01_growing_without_room_is_denied_and_changes_nothing: "REN-01" needs Renews,
        ren_01_an_amount_of_zero_gives_all_back: "REN-01" needs Renews,
        ren_01_a_key_that_the_lease_does_not_hold_is_refused: "REN-01" needs Renews,
        ren_01_more_than_the_capacity_is_refused: "REN-01, RES-07" needs Renews,
        ren_01_a_paused_limit_denies_growing_only: "REN-01, PAUSE-01, HINT-04" needs Renews,
        ren_01_a_decreasing_limit_denies_growing_only: "REN-01, DEF-07, HINT-04" needs Renews,
        ren_01_a_shadow_limit_never_denies: "REN-01, SHD-01" needs Renews,
        ren_01_a_limit_of_a_deleted_key_is_not_taken: "REN-01, DEF-09" needs Renews ReplacesLimits,
        ren_01_a_complete_reconciles_what_is_held_now: "REN-01, COM-02, COM-03" needs Renews,
        ren_01_what_has_lapsed_covers_use_so_that_it_counts_once: "REN-01, COM-02" needs Renews VirtualTime,
        ren_01_use_beyond_all_that_was_reserved_is_an_excess: "REN-01, COM-03" needs Renews VirtualTime,
        ren_01_an_excess_after_all_has_lapsed_is_debt_while_the_lease_is_open: "REN-01, REN-02" needs Renews VirtualTime,
        ren_01_a_lease_keeps_what_it_holds_now_without_an_actual: "REN-01, COM-04" needs Renews,
        ren_01_a_renewed_lease_is_listed_with_what_it_holds: "REN-01, OPS-01" needs Renews,
        ren_01_the_limit_of_a_template_is_renewed: "REN-01, TPL-02" needs Renews Templates,
        ren_01_what_would_lapse_first_is_given_back_first: "REN-01" needs Renews VirtualTime,
        ren_01_what_is_added_counts_for_a_full_window: "REN-01" needs Renews VirtualTime,
        ren_02_every_renew_begins_the_timeouts_of_holds_again: "REN-02" needs Renews VirtualTime,
        ren_02_rolling_reservations_keep_their_expiry: "REN-02" needs Renews VirtualTime,
        ren_02_a_lease_can_be_renewed_until_its_last_hold_has_lapsed: "REN-02" needs Renews VirtualTime,
        ren_02_without_holds_a_lease_can_be_renewed_until_its_last_reservation_has_lapsed: "REN-02" needs Renews VirtualTime,
        ren_02_what_has_lapsed_counts_zero: "REN-02" needs Renews VirtualTime,
        ren_03_a_repeated_number_answers_as_before: "REN-03" needs Renews,
        ren_03_a_repetition_begins_no_timeout_again: "REN-03, REN-02" needs Renews VirtualTime,
        ren_03_a_lower_number_is_superseded: "REN-03" needs Renews,
        ren_03_a_denied_number_stays_denied: "REN-03" needs Renews,
        ren_03_a_lease_that_is_not_open_cannot_be_renewed: "REN-03" needs Renews,
        ren_03_a_released_lease_cannot_be_renewed: "REN-03, OPS-01" needs Renews,
        ren_03_a_repeated_reserve_is_compared_with_the_first_requirements: "REN-03, RES-04" needs Renews,
    }
    waiting {
        wait_01_a_reserve_waits_until_there_is_room: "WAIT-01" needs Waits,
        wait_01_what_a_complete_returns_of_a_rolling_limit_is_waited_for: "WAIT-01, COM-02" needs Waits,
        wait_01_every_other_refusal_is_immediate: "WAIT-01, RES-04, RES-09" needs Waits,
        wait_01_the_end_of_a_pause_is_waited_for: "WAIT-01, PAUSE-01" needs Waits,
        wait_01_a_greater_capacity_is_waited_for: "WAIT-01, DEF-06" needs Waits,
        wait_01_without_room_it_is_denied_when_its_time_is_over: "WAIT-01, RES-05" needs Waits,
        wait_01_each_request_of_a_batch_waits_on_its_own: "WAIT-01" needs Waits,
        wait_03_a_waiter_delays_nobody_who_needs_another_limit: "WAIT-03" needs Waits,
        wait_04_a_repeated_lease_joins_the_same_wait: "WAIT-04, RES-04" needs Waits,
    }
    operate {
        ops_01_a_lease_is_listed_while_it_is_open: "OPS-01",
        ops_01_only_leases_of_the_key_are_listed: "OPS-01",
        ops_01_an_expired_part_of_a_lease_is_not_listed: "OPS-01",
        ops_01_a_deleted_limit_is_not_listed: "OPS-01, DEF-09",
        ops_01_a_denied_lease_is_not_listed: "OPS-01",
        ops_01_only_old_leases_are_listed: "OPS-01",
        ops_01_leases_are_listed_page_by_page: "OPS-01",
        ops_01_a_page_after_an_unknown_lease_is_refused: "OPS-01",
        ops_01_many_leases_are_all_listed_and_sorted: "OPS-01",
        ops_01_a_lease_is_listed_with_its_times_and_its_job: "OPS-01",
        ops_01_a_release_is_a_complete_without_actuals: "OPS-01, COM-01, COM-04, RES-09",
        ops_01_a_release_is_final: "OPS-01, COM-05",
        ops_01_only_an_open_lease_can_be_released: "OPS-01",
        ops_01_what_is_left_of_a_lease_can_be_released: "OPS-01",
        ops_01_a_lease_is_released_at_another_server: "OPS-01, COM-07" needs SecondServer,
        ops_02_a_debt_is_forgiven_and_returned_once: "OPS-02",
        ops_02_after_it_was_forgiven_a_debt_grows_again: "OPS-02",
        ops_02_only_the_debt_of_the_key_is_forgiven: "OPS-02",
        ops_02_the_debt_of_an_unknown_key_is_not_forgiven: "OPS-02",
        ops_02_of_several_at_once_each_unit_is_forgiven_by_one: "OPS-02",
        ops_02_the_largest_debts_are_forgiven_exactly: "OPS-02, RES-07",
        ops_02_a_debt_is_forgiven_at_another_server: "OPS-02" needs SecondServer,
    }
}
