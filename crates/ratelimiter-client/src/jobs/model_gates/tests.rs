//! Which jobs are claimed next, without a runner.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

const START: Timestamp = Timestamp::from_unix_ms(1_736_660_000_000);

fn topic(name: &str) -> Topic {
    Topic::new(format!("llm.job:{name}")).unwrap()
}

fn key(text: &str) -> LimitKey {
    LimitKey::new(text).unwrap()
}

fn gates() -> ModelGates {
    ModelGates::new(Models::all(), 8)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The claims as text: `a 1, all but a`.
fn shown(claims: &[Claiming]) -> String {
    let names = |set: &TopicSet| {
        let names = set.iter().map(|topic| topic.as_str().trim_start_matches("llm.job:"));
        names.collect::<Vec<_>>().join("+")
    };
    let claim = |claim: &Claiming| match &claim.topics {
        Topics::All => "all".to_owned(),
        Topics::Only(set) if claim.max == u32::MAX => names(set),
        Topics::Only(set) => format!("{} {}", names(set), claim.max),
        Topics::Except(set) => format!("all but {}", names(set)),
    };
    claims.iter().map(claim).collect::<Vec<_>>().join(", ")
}

fn claims(gates: &mut ModelGates, now: Timestamp) -> String {
    shown(&gates.claims(now))
}

/// A job asks and is denied by this limit.
fn denied(
    gates: &mut ModelGates,
    now: Timestamp,
    topic: &Topic,
    limit: &str,
    wait: Duration,
) -> MessageId {
    let id = MessageId::random();
    gates.denied(now, id, topic, &[key(limit)], None, wait);
    id
}

#[test]
fn a_model_without_room_is_left_out_until_the_hint_is_over() {
    let (mut gates, now) = (gates(), START);
    assert_eq!(claims(&mut gates, now), "all");
    denied(&mut gates, now, &topic("a"), "rpm", secs(5));
    assert_eq!(claims(&mut gates, now), "all but a");
    assert_eq!(gates.opens_at(now), Some(now.after(secs(5))));
    assert_eq!(claims(&mut gates, now.after(secs(5))), "a 1, all but a");
}

#[test]
fn an_open_gate_widens_with_every_allow_until_it_is_gone() {
    let (mut gates, now) = (gates(), START);
    denied(&mut gates, now, &topic("a"), "rpm", Duration::ZERO);
    let mut seen = Vec::new();
    for allowed in [1, 2, 4] {
        seen.push(claims(&mut gates, now));
        for _ in 0..allowed {
            gates.allowed(MessageId::random(), &topic("a"), None);
        }
    }
    assert_eq!(seen, ["a 1, all but a", "a 2, all but a", "a 4, all but a"]);
    assert_eq!(claims(&mut gates, now), "a 8, all but a", "as wide as the model may be");
    for _ in 0..8 {
        gates.allowed(MessageId::random(), &topic("a"), None);
    }
    assert_eq!(claims(&mut gates, now), "all");
}

#[test]
fn while_a_job_of_a_gated_model_asks_no_other_is_claimed() {
    let (mut gates, now) = (gates(), START);
    denied(&mut gates, now, &topic("a"), "rpm", Duration::ZERO);
    assert!(gates.try_start(&topic("a")));
    assert_eq!(claims(&mut gates, now), "all but a");
    assert!(gates.end_asking(&topic("a")), "worth another look");
    assert_eq!(claims(&mut gates, now), "a 1, all but a");
}

#[test]
fn room_that_comes_back_opens_the_gates_of_just_those_limits() {
    let (mut gates, now) = (gates(), START);
    denied(&mut gates, now, &topic("a"), "a:slots", secs(5));
    denied(&mut gates, now, &topic("b"), "b:rpm", secs(5));
    assert!(!gates.released(now, &[key("c:slots")]));
    assert!(gates.released(now, &[key("a:slots")]));
    assert_eq!(claims(&mut gates, now), "a 1, all but a+b");
}

/// Jobs that asked together are denied one after the other, each with its own limits and hint.
#[test]
fn a_model_is_closed_while_one_of_its_limits_is() {
    let (mut gates, now) = (gates(), START);
    denied(&mut gates, now, &topic("a"), "rpm", secs(60));
    denied(&mut gates, now, &topic("a"), "rpm", secs(2));
    denied(&mut gates, now, &topic("a"), "slots", secs(90));
    assert_eq!(gates.opens_at(now), Some(now.after(secs(90))));
    assert!(!gates.released(now, &[key("slots")]), "rpm is still closed");
    assert_eq!(gates.opens_at(now), Some(now.after(secs(60))), "a later hint shortens none");
    assert!(gates.released(now, &[key("rpm")]));
    assert!(!gates.released(now, &[key("rpm")]), "it was open already");
    assert_eq!(claims(&mut gates, now), "a 1, all but a");
}

#[test]
fn a_model_with_all_its_workers_busy_is_left_to_other_runners() {
    let mut gates = ModelGates::new(Models::all(), 2);
    let now = START;
    assert!(gates.try_start(&topic("slow")));
    assert!(gates.try_start(&topic("slow")));
    assert!(!gates.try_start(&topic("slow")));
    assert_eq!(claims(&mut gates, now), "all but slow");
    gates.end_asking(&topic("slow"));
    assert!(gates.finish(&topic("slow")), "worth another look");
    assert_eq!(claims(&mut gates, now), "all");
}

#[test]
fn a_runner_of_some_models_claims_no_other() {
    let models = Models::only([("p", "a"), ("p", "b")]).unwrap();
    let mut gates = ModelGates::new(models, 8);
    let now = START;
    assert_eq!(claims(&mut gates, now), "p:a+p:b");
    denied(&mut gates, now, &topic("p:a"), "rpm", secs(5));
    assert_eq!(claims(&mut gates, now), "p:b");
    gates.add_foreign(&topic("other"));
    assert_eq!(claims(&mut gates, now), "p:b");
}

#[test]
fn a_topic_without_jobs_is_claimed_once() {
    let (mut gates, now) = (gates(), START);
    gates.add_foreign(&topic("mail"));
    assert_eq!(claims(&mut gates, now), "all but mail");
}

#[test]
fn a_tenant_without_budget_waits_alone_and_longer_each_time() {
    let (mut gates, now) = (gates(), START);
    let budget = key("tenant:acme:llm:daily_tokens");
    let mut waits = Vec::new();
    for _ in 0..4 {
        let id = MessageId::random();
        let hint = Duration::from_millis(600);
        waits.push(gates.denied(
            now,
            id,
            &topic("a"),
            std::slice::from_ref(&budget),
            Some(&budget),
            hint,
        ));
    }
    assert_eq!(waits, [600, 600, 1000, 2000].map(Duration::from_millis));
    assert_eq!(claims(&mut gates, now), "all", "the model is not gated");
    assert_eq!(gates.tenant_wait(now, &budget), Some(secs(2)));
    assert_eq!(gates.tenant_wait(now.after(secs(2)), &budget), None);
    gates.allowed(MessageId::random(), &topic("a"), Some(&budget));
    assert_eq!(gates.tenant_wait(now, &budget), None);
}

/// SCH-01: the hint is the longest of all limits that denied, so it tells nothing about the shared one.
#[test]
fn sch_01_a_tenant_without_budget_closes_no_model() {
    let (mut gates, now) = (gates(), START);
    let (id, budget) = (MessageId::random(), key("tenant:acme:llm:daily_tokens"));
    let keys = [key("rpm"), budget.clone()];
    for _ in 0..=STARVING_AFTER {
        gates.denied(now, id, &topic("a"), &keys, Some(&budget), secs(300));
    }
    assert_eq!(claims(&mut gates, now), "all", "the model is not gated");
    assert_eq!(gates.tenant_wait(now, &budget), Some(secs(300)));
}

/// A runner that handles a thousand jobs a second, in the order in which they are due.
#[test]
fn a_hundred_thousand_jobs_of_a_tenant_without_budget_leave_others_their_turn() {
    let (mut gates, mut now) = (gates(), START);
    let budget = key("tenant:poor:llm:daily_tokens");
    let keys = std::slice::from_ref(&budget);
    let mut due = BinaryHeap::from(vec![Reverse(now); 100_000]);
    let mut turns_of_others = 0;
    for _ in 0..600_000 {
        if due.peek().is_some_and(|Reverse(due_at)| *due_at <= now) {
            due.pop();
            let wait = gates.tenant_wait(now, &budget).unwrap_or_else(|| {
                gates.denied(now, MessageId::random(), &topic("a"), keys, Some(&budget), secs(5))
            });
            due.push(Reverse(now.after(wait)));
        } else {
            turns_of_others += 1;
        }
        now = now.after(Duration::from_millis(1));
    }
    assert!(turns_of_others > 400_000, "{turns_of_others} of 600 000");
}

#[test]
fn a_job_that_was_denied_too_often_goes_first() {
    let (mut gates, mut now) = (gates(), START);
    let (large, limit) = (MessageId::random(), key("tpm"));
    for count in 1..=STARVING_AFTER {
        gates.denied(now, large, &topic("a"), std::slice::from_ref(&limit), None, secs(1));
        let opens_early = gates.released(now, std::slice::from_ref(&limit));
        assert_eq!(opens_early, count < STARVING_AFTER, "denied {count} times");
        now = now.after(secs(2));
    }
    // Not forever.
    now = now.after(FIRST_LASTS_MAX);
    gates.denied(now, large, &topic("a"), std::slice::from_ref(&limit), None, secs(1));
    assert!(gates.released(now, &[limit]));
}

/// SCH-05: a job that its tenant's budget holds up anyway must not hold up other tenants.
#[test]
fn sch_05_a_denial_by_the_budget_resets_the_count_of_shared_denials() {
    let (mut gates, now) = (gates(), START);
    let (id, limit, budget) =
        (MessageId::random(), key("tpm"), key("tenant:acme:llm:daily_tokens"));
    let mut denied = |by: &LimitKey| {
        gates.denied(now, id, &topic("a"), std::slice::from_ref(by), Some(&budget), secs(1));
        gates.released(now, std::slice::from_ref(&limit))
    };
    for _ in 1..STARVING_AFTER {
        assert!(denied(&limit));
    }
    denied(&budget);
    assert!(denied(&limit), "it does not go first");
}

/// A job that was denied before is counted on when no other can be remembered.
#[test]
fn a_remembered_job_goes_first_when_the_memory_is_full() {
    let (mut gates, now) = (gates(), START);
    let (large, limit) = (MessageId::random(), key("tpm"));
    let keys = std::slice::from_ref(&limit);
    gates.denied(now, large, &topic("a"), keys, None, secs(1));
    for _ in 1..DENIED_MAX {
        denied(&mut gates, now, &topic("b"), "rpm", secs(1));
    }
    for _ in 1..STARVING_AFTER {
        gates.denied(now, large, &topic("a"), keys, None, secs(1));
    }
    assert!(!gates.released(now, keys), "the gate is kept for it");
}

#[test]
fn gates_tenants_and_denied_jobs_are_bounded() {
    let (mut gates, now) = (gates(), START);
    for number in 0..=GATED_MAX {
        denied(&mut gates, now, &topic(&number.to_string()), "rpm", secs(5));
        gates.add_foreign(&topic(&format!("foreign-{number}")));
    }
    assert_eq!((gates.gated.len(), gates.foreign.len()), (GATED_MAX, GATED_MAX));
    for number in 0..=TENANTS_MAX {
        let budget = key(&format!("tenant:{number}:llm:daily_tokens"));
        gates.denied(
            now,
            MessageId::random(),
            &topic("0"),
            std::slice::from_ref(&budget),
            Some(&budget),
            secs(1),
        );
    }
    assert_eq!(gates.tenants.len(), TENANTS_MAX);
    for _ in 0..=DENIED_MAX {
        denied(&mut gates, now, &topic("0"), "rpm", secs(5));
    }
    assert_eq!(gates.denials.len(), DENIED_MAX);
    for number in 0..=REQUIREMENTS_MAX {
        denied(&mut gates, now, &topic("0"), &format!("limit:{number}"), secs(5));
    }
    assert_eq!(gates.gated[&topic("0")].len(), REQUIREMENTS_MAX);
    assert!(!claims(&mut gates, now).is_empty(), "a claim can still be named");
}
