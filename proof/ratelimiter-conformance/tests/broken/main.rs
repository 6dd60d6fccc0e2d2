//! Mutation checks: the suite detects limiters with one flaw each.

#![allow(clippy::unwrap_used, reason = "a test that meets the unexpected stops there")]

mod fixture;
mod limiter;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ratelimiter_conformance::suite::{self, FACTS, Fact};

use fixture::FlawedFixture;
use limiter::Flaw;

thread_local! {
    static EXPECTS_PANICS: Cell<bool> = const { Cell::new(false) };
}

/// The facts that a limiter fails.
fn failures(fixture: impl Fn() -> FlawedFixture) -> Vec<&'static Fact> {
    silence_expected_panics();
    EXPECTS_PANICS.set(true);
    let holds = |fact: &&Fact| {
        let play = || suite::play(fact.name, async { fixture() });
        catch_unwind(AssertUnwindSafe(play)).is_ok()
    };
    let failures = FACTS.iter().filter(|fact| !holds(fact)).collect();
    EXPECTS_PANICS.set(false);
    failures
}

/// Hundreds of facts fail here as expected; only the panics of these tests themselves are printed.
fn silence_expected_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !EXPECTS_PANICS.get() {
                hook(panic);
            }
        }));
    });
}

fn names(facts: &[&Fact]) -> Vec<&'static str> {
    facts.iter().map(|fact| fact.name).collect()
}

#[test]
fn a_limiter_without_a_flaw_passes() {
    let none: [&str; 0] = [];
    assert_eq!(names(&failures(|| FlawedFixture::with(None))), none);
}

/// What each bug breaks.
const BROKEN: &[(Flaw, &str)] = &[
    (Flaw::MixesUpCase, "def_01_keys_that_differ_in_a_byte_are_two_limits"),
    (Flaw::CutsWindows, "def_02_the_shortest_and_the_longest_durations_are_kept"),
    (Flaw::DropsDescriptions, "def_03_all_of_a_definition_is_kept"),
    (Flaw::ChangesKinds, "def_04_the_kind_of_a_limit_cannot_change"),
    (Flaw::StartsOver, "def_05_an_equal_definition_changes_nothing"),
    (Flaw::NeverIncreases, "def_06_an_increase_holds_at_once"),
    (Flaw::StartsOver, "def_07_a_decreasing_limit_admits_nothing"),
    (Flaw::NeverDeletes, "def_09_a_deleted_limit_is_unknown"),
    (Flaw::StartsOver, "def_10_a_shorter_window_is_for_new_reservations"),
    (Flaw::ResetsLate, "cal_01_all_units_return_at_the_reset"),
    (Flaw::ReschedulesAtOnce, "cal_01_a_new_schedule_applies_from_the_next_reset"),
    (Flaw::HintsOneSecond, "cal_03_the_hint_is_the_time_to_the_reset"),
    (Flaw::LosesDebt, "cal_04_an_excess_after_the_period_is_debt_while_the_lease_is_open"),
    (Flaw::EnforcesShadowLimits, "shd_01_a_shadow_limit_counts_and_never_denies"),
    (Flaw::NeverNamesShadowLimits, "shd_01_a_shadow_limit_counts_and_never_denies"),
    (Flaw::NeverEnforces, "shd_02_enforcing_a_limit_with_room_holds_at_once"),
    (Flaw::AdmitsOneUnchecked, "res_01_a_denied_call_holds_nothing"),
    (Flaw::ExpiresEarly, "res_02_a_reservation_counts_for_its_window_and_returns"),
    (Flaw::NeverExpires, "res_02_a_reservation_counts_for_its_window_and_returns"),
    (Flaw::KeepsHolds, "res_03_a_hold_is_kept_until_complete"),
    (Flaw::CountsReplays, "res_04_a_repeated_reserve_counts_once"),
    (Flaw::ForgetsDenials, "res_05_a_denied_lease_stays_denied"),
    (Flaw::LooksAtCapacityFirst, "res_06_an_unknown_key_comes_before_an_amount_over_capacity"),
    (Flaw::LooksAtCapacityFirst, "pause_01_a_capacity_of_zero_denies_with_a_fixed_hint"),
    (Flaw::HintsOneSecond, "pause_01_a_capacity_of_zero_denies_with_a_fixed_hint"),
    (Flaw::CutsAmounts, "res_07_an_amount_near_the_largest_number_is_refused"),
    (Flaw::NamesNoKeys, "res_08_a_denial_names_a_key_without_room_and_a_hint"),
    (Flaw::ForgetsEnds, "res_09_a_completed_lease_is_never_allowed_again"),
    (Flaw::HintsOneSecond, "hint_01_the_hint_is_the_largest_over_the_keys_without_room"),
    (Flaw::HintsOneSecond, "hint_02_without_open_leases_the_hint_is_exact"),
    (Flaw::HintsOneSecond, "hint_03_a_concurrency_hint_doubles_until_an_allow"),
    (Flaw::HintsOneSecond, "hint_04_a_decrease_hints_at_ten_seconds_each_time"),
    (Flaw::KeepsHolds, "com_01_complete_releases_every_hold_at_once"),
    (Flaw::IgnoresActuals, "com_02_a_reservation_shrinks_to_the_actual"),
    (Flaw::LosesDebt, "com_03_an_excess_without_room_is_debt_as_a_whole"),
    (Flaw::FreesWithoutActual, "com_04_a_rolling_key_without_an_actual_keeps_its_reservation"),
    (Flaw::CompletesAgain, "com_05_the_first_complete_stands_whatever_later_ones_say"),
    (Flaw::RefusesUnknownLeases, "com_05_completing_an_unknown_lease_is_ok"),
    (Flaw::TakesAnyActual, "com_06_an_actual_for_a_concurrency_key"),
    (Flaw::StopsBatches, "res_01_the_requests_of_a_batch_are_independent"),
    (Flaw::LosesAllAtRestart, "def_08_definitions_survive_a_restart"),
    (Flaw::LosesAllAtRestart, "com_07_complete_after_a_restart_releases_and_reconciles"),
    (Flaw::ListsNewestFirst, "ops_01_leases_are_listed_page_by_page"),
    (Flaw::ListsEverything, "ops_01_only_leases_of_the_key_are_listed"),
    (Flaw::ListsEverything, "ops_01_only_old_leases_are_listed"),
    (Flaw::BeginsAgain, "ops_01_a_page_after_an_unknown_lease_is_refused"),
    (Flaw::LosesJobs, "ops_01_a_lease_is_listed_with_its_times_and_its_job"),
    (Flaw::ReleasesNothing, "ops_01_a_release_is_a_complete_without_actuals"),
    (Flaw::ReleasesAll, "ops_01_a_release_is_a_complete_without_actuals"),
    (Flaw::ReleasesAnything, "ops_01_only_an_open_lease_can_be_released"),
    (Flaw::ForgivesNothing, "ops_02_a_debt_is_forgiven_and_returned_once"),
    (Flaw::ForgivesTwice, "ops_02_of_several_at_once_each_unit_is_forgiven_by_one"),
    (Flaw::ForgivesAnyKey, "ops_02_the_debt_of_an_unknown_key_is_not_forgiven"),
    (Flaw::TakesAnyKey, "tpl_01_a_wildcard_is_a_whole_segment"),
    (Flaw::NeverMatches, "tpl_02_each_key_that_a_template_matches_has_a_limit_of_its_own"),
    (Flaw::PrefersTemplates, "tpl_03_a_definition_takes_over_a_limit_in_use"),
    (Flaw::StartsOverAtDefinitions, "tpl_03_a_definition_takes_over_a_limit_in_use"),
    (Flaw::NeverFollowsTemplates, "tpl_04_a_higher_capacity_holds_at_once_for_every_limit"),
    (Flaw::LosesDebt, "tpl_05_a_limit_that_owes_a_debt_stays_until_it_is_forgiven"),
    (Flaw::ListsInstances, "tpl_06_the_limits_of_a_template_are_listed_page_by_page"),
    (Flaw::ForgetsKeysWithoutRoom, "tpl_07_there_are_only_so_many_limits"),
    (Flaw::ForgetsKeysWithoutRoom, "tpl_07_there_are_only_so_many_new_limits_in_a_second"),
    (Flaw::LosesAllAtRestart, "def_08_a_template_survives_a_restart"),
    (Flaw::RenewsNothing, "ren_01_growing_takes_units"),
    (Flaw::RenewsNothing, "ren_02_every_renew_begins_the_timeouts_of_holds_again"),
    (Flaw::RenewsEverything, "ren_02_rolling_reservations_keep_their_expiry"),
    (Flaw::RenewsAgain, "ren_03_a_repeated_number_answers_as_before"),
    (Flaw::RenewsAgain, "ren_03_a_denied_number_stays_denied"),
    (Flaw::NeverWaits, "wait_01_a_reserve_waits_until_there_is_room"),
    (Flaw::ForgetsDenials, "wait_01_without_room_it_is_denied_when_its_time_is_over"),
    (Flaw::LooksAtCapacityFirst, "wait_01_every_other_refusal_is_immediate"),
    (Flaw::CountsReplays, "wait_04_a_repeated_lease_joins_the_same_wait"),
];

#[test]
fn each_flaw_fails_the_facts_of_the_rule_that_it_breaks() {
    for &(flaw, expected) in BROKEN {
        let failed = names(&failures(|| FlawedFixture::with(Some(flaw))));
        assert!(failed.contains(&expected), "{flaw:?} fails only {failed:?}");
    }
}

/// Every fact of the table can fail.
#[test]
fn every_fact_is_failed_by_some_flaw() {
    let mut failed = BTreeSet::new();
    for flaw in Flaw::ALL {
        let failures = names(&failures(|| FlawedFixture::with(Some(flaw))));
        assert!(!failures.is_empty(), "{flaw:?} gets past every fact");
        failed.extend(failures);
    }
    let all = FACTS.iter().map(|fact| fact.name);
    let unfailed: Vec<_> = all.filter(|name| !failed.contains(name)).collect();
    let none: [&str; 0] = [];
    assert_eq!(unfailed, none);
}
