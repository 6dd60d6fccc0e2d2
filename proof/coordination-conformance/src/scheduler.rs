//! Scenarios of the scheduler.

mod jobs;
mod timers;

pub use self::jobs::*;
pub use self::timers::*;
use crate::scenario::suite;

suite! {
    $
    /// One test per scenario of the scheduler.
    macro scheduler_suite, module scheduler, fixture Fixture,
    "SCHED-001" sched_001_due_timers_are_claimed:
        "Due timers can be claimed through `claim_timers`; future ones cannot.";
    "SCHED-002" sched_002_a_timer_claim_respects_the_batch_size:
        "A timer claim respects the batch size, and comes in creation order.";
    "SCHED-003" sched_003_an_acknowledged_timer_is_not_claimed_again:
        "`ack_timers` finalizes claimed timers.";
    "SCHED-004" sched_004_an_abandoned_timer_is_ready_again:
        "`abandon_timers` returns timers to ready for another claim, after the delay.";
    "SCHED-005" sched_005_an_expired_timer_claim_is_reaped:
        "`reap_timers` returns expired claimed timers to ready and never touches finished ones.";
    "SCHED-006" sched_006_a_triggered_job_has_a_claimable_run:
        "`trigger_job` creates claimable job runs; an unknown job is an error value.";
    "SCHED-007" sched_007_an_updated_job_is_used_by_the_next_runs:
        "`create_or_update_job` updates the definition that subsequent runs use.";
    "SCHED-008" sched_008_a_deleted_job_takes_its_pending_runs_along:
        "`delete_job` removes the pending runs of the job.";
    "SCHED-009" sched_009_due_jobs_become_runs:
        "`create_job_runs_from_due_jobs` materializes runs from due cron schedules.";
    "SCHED-010" sched_010_the_next_event_is_the_earliest_of_all:
        "`next_event_time` is the earliest of ready timers, ready runs and next ticks, or none.";
    "SCHED-A" sched_a_a_cancelled_timer_is_never_claimed:
        "`cancel_timer` ends an unclaimed timer for good and changes no claimed or finished one.";
    "SCHED-B" sched_b_a_timer_id_is_scheduled_once:
        "Scheduling a known timer ID adds nothing, also after it is finished or cancelled.";
    "SCHED-C" sched_c_another_owner_changes_no_timer:
        "`ack_timers` and `abandon_timers` by another owner change nothing.";
    "SCHED-D" sched_d_racing_timer_claims_hand_out_each_timer_once:
        "Timer claims from many tasks hand out each timer once.";
    "SCHED-E" sched_e_a_pending_run_uses_the_newest_definition:
        "A pending run uses the job's newest definition.";
    "SCHED-F" sched_f_a_moment_of_a_job_is_one_run:
        "A run's identity is (job, scheduled time): a repeated materialisation makes no second run.";
    "SCHED-G" sched_g_missed_ticks_are_one_run:
        "Missed ticks coalesce into one run by default.";
    "SCHED-H" sched_h_missed_ticks_are_caught_up_to_a_bound:
        "With `catch_up = all` each missed tick is a run, oldest first, up to the bound.";
    "SCHED-J" sched_j_a_stale_fencing_token_changes_nothing:
        "Materialising with a smaller fencing token than the one recorded changes nothing.";
    "SCHED-K" sched_k_a_run_of_a_deleted_job_does_not_come_back:
        "A claimed run of a deleted job can be acknowledged, and is gone when it is given back or reaped.";
    "SCHED-L" sched_l_another_owner_changes_no_run:
        "`ack_job_runs` and `abandon_job_runs` by another owner change nothing; the owner's do.";
    "SCHED-M" sched_m_an_expired_run_claim_is_reaped:
        "`reap_job_runs` returns expired claimed runs to ready and never touches finished ones.";
    "SCHED-N" sched_n_racing_run_claims_hand_out_each_run_once:
        "Materialising and claiming from many tasks makes and hands out each run once.";
    "SCHED-O" sched_o_saving_the_same_job_keeps_its_next_tick:
        "Saving an unchanged schedule keeps the next tick; a changed one counts from now.";
    "SCHED-P" sched_p_purge_forgets_only_old_finished_timers_and_runs:
        "`purge` forgets finished timers and runs by age and nothing else.";
    "SCHED-Q" sched_q_a_tick_is_the_schedules_own:
        "A job's next tick is its schedule's next moment in its time zone.";
    "SCHED-R" sched_r_the_age_of_the_oldest_ready_item_is_known:
        "`oldest_ready_age` is the time since the oldest due and unclaimed timer or run became due.";
    "SCHED-S" sched_s_ticks_go_on_when_a_clock_that_was_ahead_is_set_right:
        "When a clock that was ahead is set right, jobs go on by the right time.";
}
