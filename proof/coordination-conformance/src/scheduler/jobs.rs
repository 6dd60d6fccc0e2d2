//! Scenarios of jobs and their runs.

use std::collections::HashSet;
use std::time::Duration;

use coordination::{
    CatchUp, CatchUpMax, CronSchedule, Delay, JobRun, JobSaved, Materialised, RunId, Scheduler,
    TriggerError,
};

use super::timers::{add, claim_timers};
use crate::Fixture;
use crate::fixture::{advance_to, lease, units};
use crate::sample::{batch, fence, job, job_by, job_name, owner, payload, timer, topic};
use crate::scenario::{answer, racing};

/// Long enough for a job that is due every second to be due.
const TICK: Duration = Duration::from_secs(1);

/// PRIM-INMEMORY-SCHED-006
pub async fn sched_006_a_triggered_job_has_a_claimable_run<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let name = job_name("report");
    let unknown = scheduler.trigger_job(&name, RunId::random()).await;
    assert!(matches!(&unknown, Err(TriggerError::UnknownJob { .. })), "{unknown:?}");
    let yearly = job_by("report", "0 0 1 1 *").with_payload(payload("pdf"));
    answer(scheduler.create_or_update_job(yearly)).await;
    let run = RunId::random();
    let before = fixture.now().await;
    assert_eq!(scheduler.trigger_job(&name, run).await.expect("a known job"), run);
    let after = fixture.now().await;
    let runs = claim_runs(&fixture, "a").await;
    assert_eq!(runs.len(), 1);
    assert_eq!((runs[0].id, &runs[0].job), (run, &name));
    assert_eq!((&runs[0].topic, &runs[0].payload), (&topic("report.make"), &payload("pdf")));
    assert!((before..=after).contains(&runs[0].scheduled_at));
}

/// PRIM-INMEMORY-SCHED-007
pub async fn sched_007_an_updated_job_is_used_by_the_next_runs<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let save = |definition| async { scheduler.create_or_update_job(definition).await };
    let first = job("report").with_payload(payload("old"));
    let mut second = job("report").with_payload(payload("new"));
    second.topic = topic("report.print");
    assert_eq!(answer(save(first.clone())).await, JobSaved::Created);
    assert_eq!(answer(save(first)).await, JobSaved::Unchanged);
    assert_eq!(answer(save(second)).await, JobSaved::Updated);
    fixture.advance(TICK).await;
    materialise(&fixture, 1).await;
    let runs = claim_runs(&fixture, "a").await;
    assert_eq!(runs.len(), 1);
    assert_eq!((&runs[0].topic, &runs[0].payload), (&topic("report.print"), &payload("new")));
}

/// PRIM-INMEMORY-SCHED-008
pub async fn sched_008_a_deleted_job_takes_its_pending_runs_along<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    for name in ["report", "report-2"] {
        answer(scheduler.create_or_update_job(job(name))).await;
    }
    scheduler.trigger_job(&job_name("report"), RunId::random()).await.expect("a known job");
    fixture.advance(TICK).await;
    materialise(&fixture, 1).await;
    assert_eq!(answer(scheduler.delete_job(&job_name("report"))).await, 1);
    assert_eq!(answer(scheduler.delete_job(&job_name("report"))).await, 0, "once");
    let runs = claim_runs(&fixture, "a").await;
    assert_eq!(runs.len(), 1, "the other job's");
    assert_eq!(runs[0].job, job_name("report-2"));
    fixture.advance(TICK).await;
    materialise(&fixture, 1).await;
    let jobs: HashSet<_> = claim_runs(&fixture, "a").await.into_iter().map(|run| run.job).collect();
    assert_eq!(jobs, HashSet::from([job_name("report-2")]), "no more ticks");
}

/// PRIM-INMEMORY-SCHED-009
pub async fn sched_009_due_jobs_become_runs<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let saved_at = fixture.now().await;
    answer(scheduler.create_or_update_job(job("often"))).await;
    answer(scheduler.create_or_update_job(job_by("rare", "0 0 29 2 *"))).await;
    let tick = job("often").schedule.next_after(saved_at).expect("there is a next second");
    advance_to(&fixture, tick).await;
    assert!(materialise(&fixture, 1).await >= 1);
    let runs = claim_runs(&fixture, "a").await;
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].job, job_name("often"));
    assert!(runs[0].scheduled_at >= tick, "{} before {tick}", runs[0].scheduled_at);
    assert_eq!(runs[0].scheduled_at.unix_micros() % 1_000_000, 0, "ticks are whole seconds");
    assert_eq!(answer(scheduler.ack_job_runs(&owner("a"), &[runs[0].id])).await, 1);
}

/// PRIM-INMEMORY-SCHED-010
pub async fn sched_010_the_next_event_is_the_earliest_of_all<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let next = || async { answer(scheduler.next_event_time()).await };
    assert_eq!(next().await, None, "nothing to wait for");
    let now = fixture.now().await;
    let yearly = job_by("report", "0 0 1 1 *");
    answer(scheduler.create_or_update_job(yearly.clone())).await;
    assert_eq!(next().await, yearly.schedule.next_after(now), "the job's tick");
    let later = timer("later", now.after(units(3600)));
    answer(scheduler.schedule_timer(later.clone())).await;
    let timer_id = add(&fixture, "due").await;
    let due_at = next().await.expect("the due timer");
    assert!(due_at <= fixture.now().await, "a due timer is an event");
    assert_eq!(claim_timers(&fixture, "a").await, [timer_id]);
    assert_eq!(next().await, Some(later.due_at), "a claimed timer is none");
    scheduler.trigger_job(&job_name("report"), RunId::random()).await.expect("a known job");
    let run_at = next().await.expect("the due run");
    assert!(run_at <= fixture.now().await, "a due run is an event");
    assert_eq!(claim_runs(&fixture, "a").await.len(), 1);
    assert_eq!(next().await, Some(later.due_at), "a claimed run is none");
    answer(scheduler.cancel_timer(later.id)).await;
    answer(scheduler.delete_job(&job_name("report"))).await;
    assert_eq!(next().await, None);
}

/// SCHED-E
pub async fn sched_e_a_pending_run_uses_the_newest_definition<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let yearly = job_by("report", "0 0 1 1 *");
    answer(scheduler.create_or_update_job(yearly.clone())).await;
    scheduler.trigger_job(&job_name("report"), RunId::random()).await.expect("a known job");
    let newest = yearly.with_payload(payload("newest"));
    answer(scheduler.create_or_update_job(newest)).await;
    assert_eq!(claim_runs(&fixture, "a").await[0].payload, payload("newest"));
}

/// SCHED-F
pub async fn sched_f_a_moment_of_a_job_is_one_run<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    answer(scheduler.create_or_update_job(job("report"))).await;
    let mut moments = HashSet::new();
    for _ in 0..3 {
        fixture.advance(TICK).await;
        for _ in 0..3 {
            materialise(&fixture, 1).await;
        }
        for run in claim_runs(&fixture, "a").await {
            assert!(moments.insert(run.scheduled_at), "{} twice", run.scheduled_at);
        }
    }
    assert!(moments.len() >= 3, "{moments:?}");
}

/// SCHED-G
pub async fn sched_g_missed_ticks_are_one_run<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let saved_at = fixture.now().await;
    answer(scheduler.create_or_update_job(job("report"))).await;
    fixture.advance(TICK * 4).await;
    assert_eq!(materialise(&fixture, 1).await, 1);
    let runs = claim_runs(&fixture, "a").await;
    assert_eq!(runs.len(), 1);
    assert!(runs[0].scheduled_at > saved_at, "a tick that was missed");
    let next = answer(scheduler.next_event_time()).await.expect("the next tick");
    assert!(next > runs[0].scheduled_at.after(TICK * 2), "the others are not made up for");
}

/// SCHED-H
pub async fn sched_h_missed_ticks_are_caught_up_to_a_bound<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let all = CatchUp::All(CatchUpMax::new(3).expect("a valid bound"));
    let few = job("report").catching_up(all);
    let saved_at = fixture.now().await;
    answer(scheduler.create_or_update_job(few.clone())).await;
    fixture.advance(TICK * 6).await;
    assert_eq!(materialise(&fixture, 1).await, 3, "up to the bound");
    let runs = claim_runs(&fixture, "a").await;
    let moments: Vec<_> = runs.iter().map(|run| run.scheduled_at).collect();
    assert!(moments[0] > saved_at && moments[0] <= saved_at.after(TICK * 3), "the oldest first");
    for pair in moments.windows(2) {
        assert_eq!(few.schedule.next_after(pair[0]), Some(pair[1]), "tick by tick");
    }
    let next = answer(scheduler.next_event_time()).await.expect("the next tick");
    assert!(next > saved_at.after(TICK * 5), "the rest is dropped");
}

/// SCHED-J
pub async fn sched_j_a_stale_fencing_token_changes_nothing<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    answer(scheduler.create_or_update_job(job("report"))).await;
    materialise(&fixture, 7).await;
    claim_runs(&fixture, "a").await;
    fixture.advance(TICK * 2).await;
    let stale = answer(scheduler.create_job_runs_from_due_jobs(&fence(6))).await;
    assert_eq!(stale, Materialised::StaleFence { recorded: fence(7).token });
    assert_eq!(claim_runs(&fixture, "a").await, [], "nothing was made");
    assert!(materialise(&fixture, 7).await >= 1, "the same token goes on");
    assert!(!claim_runs(&fixture, "a").await.is_empty());
    fixture.advance(TICK * 2).await;
    assert!(materialise(&fixture, 8).await >= 1, "a larger one takes over");
    let stale = answer(scheduler.create_job_runs_from_due_jobs(&fence(7))).await;
    assert_eq!(stale, Materialised::StaleFence { recorded: fence(8).token });
}

/// SCHED-K
pub async fn sched_k_a_run_of_a_deleted_job_does_not_come_back<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let mut ids = Vec::new();
    for name in ["acknowledged", "abandoned", "reaped"] {
        answer(scheduler.create_or_update_job(job_by(name, "0 0 1 1 *"))).await;
        let run = scheduler.trigger_job(&job_name(name), RunId::random()).await;
        ids.push(run.expect("a known job"));
    }
    assert_eq!(claim_runs(&fixture, "a").await.len(), 3);
    for name in ["acknowledged", "abandoned", "reaped"] {
        answer(scheduler.delete_job(&job_name(name))).await;
    }
    assert_eq!(answer(scheduler.ack_job_runs(&owner("a"), &ids[..1])).await, 1);
    let count = answer(scheduler.abandon_job_runs(&owner("a"), &ids[1..2], Delay::ZERO)).await;
    assert_eq!(count, 1);
    fixture.advance(units(10)).await;
    answer(scheduler.reap_job_runs()).await;
    assert_eq!(claim_runs(&fixture, "b").await, []);
}

/// SCHED-L
pub async fn sched_l_another_owner_changes_no_run<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let ids = [trigger(&fixture, "report").await];
    claim_runs(&fixture, "a").await;
    assert_eq!(answer(scheduler.ack_job_runs(&owner("b"), &ids)).await, 0);
    let count = answer(scheduler.abandon_job_runs(&owner("b"), &ids, Delay::ZERO)).await;
    assert_eq!(count, 0);
    assert_eq!(claim_runs(&fixture, "b").await, [], "the claim stands");
    let count = answer(scheduler.abandon_job_runs(&owner("a"), &ids, Delay::ZERO)).await;
    assert_eq!(count, 1);
    let runs = claim_runs(&fixture, "b").await;
    assert_eq!((runs[0].id, runs[0].attempts), (ids[0], 2));
    assert_eq!(answer(scheduler.ack_job_runs(&owner("b"), &ids)).await, 1);
    assert_eq!(answer(scheduler.ack_job_runs(&owner("b"), &ids)).await, 0, "once");
}

/// SCHED-M
pub async fn sched_m_an_expired_run_claim_is_reaped<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let done = trigger(&fixture, "done").await;
    let held = trigger(&fixture, "held").await;
    assert_eq!(claim_runs(&fixture, "a").await.len(), 2);
    answer(scheduler.ack_job_runs(&owner("a"), &[done])).await;
    assert_eq!(answer(scheduler.reap_job_runs()).await, 0, "nothing has run out");
    fixture.advance(units(10)).await;
    assert_eq!(answer(scheduler.reap_job_runs()).await, 1);
    let runs = claim_runs(&fixture, "b").await;
    assert_eq!(runs.iter().map(|run| run.id).collect::<Vec<_>>(), [held]);
}

/// SCHED-N
pub async fn sched_n_racing_run_claims_hand_out_each_run_once<F: Fixture>(fixture: F) {
    for number in 0..20 {
        let definition = job(&format!("report-{number}"));
        answer(fixture.scheduler().create_or_update_job(definition)).await;
    }
    fixture.advance(TICK).await;
    let runs = racing(|owner| {
        let scheduler = fixture.scheduler().clone();
        async move {
            let mut got = Vec::new();
            for _ in 0..5 {
                let made = answer(scheduler.create_job_runs_from_due_jobs(&fence(1))).await;
                assert!(matches!(made, Materialised::Runs(_)));
                let claimed = answer(scheduler.claim_job_runs(&owner, lease(3600), batch(3))).await;
                got.extend(claimed);
                tokio::task::yield_now().await;
            }
            got
        }
    });
    let (mut ids, mut moments, mut jobs) = (HashSet::new(), HashSet::new(), HashSet::new());
    for run in runs.await {
        assert!(ids.insert(run.id), "{} handed out twice", run.id);
        assert!(moments.insert((run.job.clone(), run.scheduled_at)), "{run:?} made twice");
        jobs.insert(run.job);
    }
    assert_eq!(jobs.len(), 20, "every job had its run");
}

/// SCHED-O
pub async fn sched_o_saving_the_same_job_keeps_its_next_tick<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    answer(scheduler.create_or_update_job(job("report"))).await;
    let tick = answer(scheduler.next_event_time()).await;
    fixture.advance(TICK * 3).await;
    let other = job("report").with_payload(payload("x"));
    assert_eq!(answer(scheduler.create_or_update_job(other)).await, JobSaved::Updated);
    assert_eq!(answer(scheduler.next_event_time()).await, tick, "still due");
    let rescheduled = job_by("report", "0 0 1 1 *");
    answer(scheduler.create_or_update_job(rescheduled)).await;
    let tick = answer(scheduler.next_event_time()).await.expect("the next new year");
    assert!(tick > fixture.now().await, "counted from now");
}

/// SCHED-P
pub async fn sched_p_purge_forgets_only_old_finished_timers_and_runs<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    let timer_id = add(&fixture, "done").await;
    let run = trigger(&fixture, "done").await;
    assert_eq!(claim_timers(&fixture, "a").await, [timer_id]);
    assert_eq!(claim_runs(&fixture, "a").await.len(), 1);
    answer(scheduler.ack_timers(&owner("a"), &[timer_id])).await;
    answer(scheduler.ack_job_runs(&owner("a"), &[run])).await;
    let ready = add(&fixture, "ready").await;
    assert_eq!(answer(scheduler.purge(units(10))).await, 0, "too young");
    fixture.advance(units(10)).await;
    assert_eq!(answer(scheduler.purge(units(10))).await, 2);
    assert_eq!(answer(scheduler.purge(Duration::ZERO)).await, 0);
    assert_eq!(claim_timers(&fixture, "a").await, [ready]);
}

/// SCHED-Q
pub async fn sched_q_a_tick_is_the_schedules_own<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    for zone in ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC"] {
        let mut nightly = job("nightly");
        nightly.schedule = CronSchedule::parse("30 2 * * *", zone).expect("a valid line");
        answer(scheduler.create_or_update_job(nightly.clone())).await;
        let now = fixture.now().await;
        let tick = answer(scheduler.next_event_time()).await;
        assert_eq!(tick, nightly.schedule.next_after(now), "{zone}");
    }
}

/// SCHED-R
pub async fn sched_r_the_age_of_the_oldest_ready_item_is_known<F: Fixture>(fixture: F) {
    let scheduler = fixture.scheduler();
    assert_eq!(answer(scheduler.oldest_ready_age()).await, None);
    add(&fixture, "due").await;
    fixture.advance(units(20)).await;
    let age = answer(scheduler.oldest_ready_age()).await.expect("it is due");
    assert!(units(20) <= age, "{age:?}");
    claim_timers(&fixture, "a").await;
    assert_eq!(answer(scheduler.oldest_ready_age()).await, None, "claimed");
}

/// SCHED-S
pub async fn sched_s_ticks_go_on_when_a_clock_that_was_ahead_is_set_right<F: Fixture>(fixture: F) {
    let (scheduler, year) = (fixture.scheduler(), Duration::from_secs(365 * 24 * 60 * 60));
    answer(scheduler.create_or_update_job(job("report"))).await;
    for updated in [None, Some(job("report").with_payload(payload("new")))] {
        let meanwhile = async {
            materialise(&fixture, 1).await;
            claim_runs(&fixture, "a").await;
        };
        fixture.while_ahead(year, meanwhile).await;
        if let Some(updated) = updated {
            answer(scheduler.create_or_update_job(updated)).await;
        }
        materialise(&fixture, 1).await;
        // The first tick may have had its run while the clock was ahead.
        for _ in 0..2 {
            fixture.advance(TICK).await;
            materialise(&fixture, 1).await;
        }
        assert!(!claim_runs(&fixture, "b").await.is_empty(), "a tick has come");
    }
}

/// Saves a job whose tick is far off and triggers it.
async fn trigger<F: Fixture>(fixture: &F, name: &str) -> RunId {
    let scheduler = fixture.scheduler();
    answer(scheduler.create_or_update_job(job_by(name, "0 0 1 1 *"))).await;
    scheduler.trigger_job(&job_name(name), RunId::random()).await.expect("a known job")
}

/// Creates due runs with this token. Returns how many.
async fn materialise<F: Fixture>(fixture: &F, token: u64) -> usize {
    let made = answer(fixture.scheduler().create_job_runs_from_due_jobs(&fence(token))).await;
    match made {
        Materialised::Runs(count) => count,
        Materialised::Partly { unreadable, .. } => unreachable!("{unreadable} unreadable jobs"),
        Materialised::StaleFence { recorded } => {
            unreachable!("{token} is stale, {} is recorded", recorded.get())
        }
    }
}

/// Claims up to 50 runs for 10 units.
async fn claim_runs<F: Fixture>(fixture: &F, by: &str) -> Vec<JobRun> {
    answer(fixture.scheduler().claim_job_runs(&owner(by), lease(10), batch(50))).await
}
