//! Every deliberate bug is found within its number of seeds, and the trace names the invariant that it violates.

use simulation::flaw::{Flaw, Place};
use simulation::report::find;
use simulation::run::{Failure, explain};
use simulation::worlds::{CoordinationWorld, MemoryWorld, TigerBeetleWorld};

fn is_found(flaw: Flaw) {
    let (within, place) = (flaw.found_within(), flaw.place());
    let found = find(flaw);
    let Some((seed, violation)) = found else {
        panic!("no seed below {within} finds that {}", flaw.text());
    };
    let invariant = violation.invariant;
    assert!(flaw.breaks().contains(&invariant), "seed {seed}: {violation}");
    let Failure { trace, events: (before, after), .. } = match place {
        Place::TigerBeetle => explain(&TigerBeetleWorld { flaw: Some(flaw) }, seed),
        Place::Memory => explain(&MemoryWorld { flaw: Some(flaw) }, seed),
        Place::Coordination => explain(&CoordinationWorld { flaw: Some(flaw) }, seed),
    };
    assert!(after <= before, "{after} of {before} events");
    let last = trace.lines().last().unwrap_or_default();
    assert!(last.starts_with(&format!("BROKEN: {invariant}: ")), "{trace}");
}

macro_rules! found {
    ($($test:ident: $flaw:ident,)*) => {
        $(
            #[test]
            fn $test() {
                is_found(Flaw::$flaw);
            }
        )*

        #[test]
        fn every_flaw_has_its_test() {
            let tested = [$(Flaw::$flaw,)*];
            let untested: Vec<_> = Flaw::ALL.iter().filter(|flaw| !tested.contains(flaw)).collect();
            assert!(untested.is_empty(), "{untested:?}");
            assert!(Flaw::ALL.len() >= 10);
        }
    };
}

found! {
    a_limit_that_is_not_checked_is_found: SkipsOneLimit,
    a_reservation_that_never_expires_is_found: NeverExpires,
    a_chain_that_is_split_is_found: SplitsChains,
    a_reservations_id_that_is_used_twice_is_found: ReusesReserveIds,
    a_releases_id_that_is_used_twice_is_found: ReusesVoidIds,
    an_ignored_exists_is_found: IgnoresExists,
    a_decrease_that_is_applied_twice_is_found: DecreasesTwice,
    forgotten_debt_is_found: ForgetsDebt,
    debt_that_is_counted_twice_is_found: CountsDebtAgain,
    com_05_a_complete_after_another_is_found: IgnoresMarkers,
    com_05_a_released_hold_that_is_taken_for_an_expired_one_is_found: TakesVoidedForExpired,
    a_denial_that_leaves_a_hold_is_found: DenialLeavesHold,
    a_new_lease_after_silence_is_found: NewLeaseAfterSilence,
    an_early_release_is_found: ReleasesEarly,
    a_complete_that_releases_nothing_is_found: VoidsNothing,
    a_limit_that_stays_closed_is_found: NeverReopens,
    def_08_two_changes_of_the_limits_file_at_once_are_found: LocksNothing,
    tb_08_a_begun_change_that_is_not_looked_for_is_found: HidesStagedFiles,
    a_limit_that_is_not_checked_in_memory_is_found: SkipsOneLimitInMemory,
    a_forgotten_complete_is_found: ForgetsCompletes,
    a_complete_that_counts_twice_is_found: CompletesAgain,
    a_denial_that_leaves_a_hold_in_memory_is_found: DenialLeavesHoldInMemory,
    a_forgotten_lease_is_found: ForgetsLeases,
    def_08_a_limits_file_that_is_not_flushed_is_found: FlushesNothing,
    cal_01_a_period_that_ends_early_is_found: EndsPeriodsEarly,
    cal_01_a_reservation_that_outlives_the_reset_is_found: OutlivesResets,
    cal_01_a_schedule_that_changes_at_once_is_found: AppliesSchedulesAtOnce,
    cal_03_a_hint_beyond_the_reset_is_found: HintsBeyondReset,
    cal_04_a_complete_that_returns_units_of_the_next_period_is_found: ReturnsToNextPeriod,
    shd_01_a_limit_in_shadow_mode_that_denies_is_found: DeniesInShadow,
    shd_01_a_shadow_denial_that_is_not_named_is_found: NamesNoShadow,
    shd_01_a_shadow_denial_that_was_none_is_found: NamesEveryShadow,
    shd_02_a_limit_that_enforces_late_is_found: EnforcesLate,
    tpl_03_an_instance_that_forgets_its_use_is_found: ForgetsUseWhenDefined,
    tpl_04_a_decrease_that_does_not_reach_instances_is_found: KeepsInstancesLarge,
    tpl_04_an_instance_that_goes_with_its_template_is_found: DropsInstancesWithTemplate,
    tpl_05_an_instance_that_is_never_dropped_is_found: NeverDropsInstances,
    tpl_07_an_instance_too_many_is_found: IgnoresInstanceBounds,
    tpl_07_an_instance_that_is_denied_early_is_found: DeniesInstancesEarly,
    wait_04_a_waiter_that_is_admitted_after_it_left_is_found: AdmitsTheGone,
    wait_06_a_lost_wake_up_is_found: LosesWakeUps,
    tb_18_renews_without_records_are_found: RecordsNoRenews,
    ren_03_a_renew_that_counts_twice_is_found: RenewsTwice,
    ren_01_a_renew_that_is_not_carried_out_is_found: ForgetsRenews,
    ren_01_growth_that_is_not_counted_is_found: CountsNoGrowth,
    ren_01_growth_that_is_not_counted_on_a_ledger_is_found: CountsNoGrowthOnLedger,
    ren_01_a_denied_renew_that_gives_back_is_found: DeniesShrinking,
    ren_01_a_denied_renew_that_has_room_is_found: DeniesGrowing,
    ren_02_a_window_that_begins_again_is_found: RestartsWindows,
    com_01_a_renewed_hold_that_outlives_its_complete_is_found: KeepsRenewedHolds,
    ren_01_debt_of_a_renewed_lease_that_is_too_high_is_found: ForgetsLapsed,
    ren_03_a_renew_of_an_unknown_lease_that_is_done_is_found: RenewsUnknownLeases,
    wait_06_a_renew_that_wakes_nobody_is_found: RenewsWakeNobody,
    wait_01_a_waiter_that_is_never_answered_is_found: AnswersNoDenials,
    wait_04_a_joined_wait_that_is_admitted_twice_is_found: AdmitsJoinersApart,
    wait_02_a_reserve_that_overtakes_waiters_is_found: OvertakesWaiters,
    a_claim_that_is_handed_out_twice_is_found: HandsOutTwice,
    a_lost_item_is_found: LosesReaped,
    an_acknowledgement_by_a_stranger_is_found: AcksForAnyone,
    a_duplicate_delivery_is_found: DeliversDuplicates,
    an_early_delivery_is_found: IgnoresDueTimes,
    a_fencing_token_that_starts_again_is_found: ResetsFencing,
    a_lease_that_is_given_twice_is_found: LeasesTwice,
    work_under_an_old_fence_is_found: IgnoresFences,
    crd_03_a_dispatcher_that_does_not_begin_is_found: NeverBegins,
    crd_02_a_lost_attempt_that_is_counted_twice_is_found: CountsLostTwice,
    a_runner_that_does_not_extend_its_claims_is_found: NeverExtends,
    crd_04_a_dispatcher_that_stops_late_is_found: StopsLate,
    a_result_of_another_job_is_found: MixesUpResults,
    a_job_without_a_slot_is_found: SkipsSlots,
    a_slot_that_is_never_released_is_found: KeepsDeadSlots,
    a_message_that_is_finished_without_its_handler_is_found: SkipsHandlers,
    crd_02_a_message_that_fails_without_its_handler_is_found: FailsUnhandled,
    a_worker_that_panics_is_found: PanicsInClaim,
}
