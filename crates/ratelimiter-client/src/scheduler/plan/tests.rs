//! The plan by itself: no runtime, no limiter, and time as a number.

use super::*;
use expect_test::{Expect, expect};

const STARVING_AFTER: u32 = 3;

/// Plays a script over a plan with so many workers, and shows what each line led to.
///
/// - `add NAME queue tenant key=amount…` takes a job in
/// - `next` lets jobs ask as long as they may
/// - `allow NAME`, `deny NAME key… for SECONDS`, `silence NAME`, `refuse NAME` answers one that asks
/// - `end NAME key…` ends one that runs, which frees these limits
/// - `cancel NAME` takes out one that waits
///
/// A line may begin with a moment, as `5s`.
#[derive(Debug)]
struct Script {
    plan: Plan<String>,
    names: BTreeMap<String, JobNumber>,
    now: Timestamp,
    shown: String,
}

const START: Timestamp = Timestamp::from_unix_ms(1_736_660_000_000);

#[expect(clippy::needless_pass_by_value, reason = "so that `expect!` stands in the call")]
fn check(workers_max: usize, script: &str, expected: Expect) {
    let mut played = Script {
        plan: Plan::new(workers_max, STARVING_AFTER),
        names: BTreeMap::new(),
        now: START,
        shown: String::new(),
    };
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let led_to = played.play(line);
        let led_to = if led_to.is_empty() { String::new() } else { format!(" -> {led_to}") };
        played.shown.push_str(&format!("{line}{led_to}\n"));
    }
    expected.assert_eq(&played.shown);
}

impl Script {
    fn play(&mut self, line: &str) -> String {
        let mut words: Vec<_> = line.split_whitespace().collect();
        if let Some(seconds) = words[0].strip_suffix('s').and_then(|text| text.parse().ok()) {
            self.now = START.after(Duration::from_secs_f64(seconds));
            words.remove(0);
        }
        match words[..] {
            ["add", name, queue, tenant, ..] => self.add(name, queue, tenant, &words[4..]),
            ["next"] => return self.next(),
            ["allow", name] => drop(self.plan.allowed(self.names[name])),
            ["deny", name, ..] => self.deny(name, &words[2..]),
            ["silence", name] => {
                let lease = LeaseId::from_u128(7);
                let job = self.names[name];
                self.plan.unanswered(self.now, job, lease, Duration::ZERO, 0.0);
            }
            ["refuse", name] => drop(self.plan.refused(self.names[name])),
            ["end", _, ..] => {
                self.plan.ended();
                let keys: Vec<_> =
                    words[2..].iter().map(|key| LimitKey::new(key).unwrap()).collect();
                self.plan.released(&keys);
            }
            ["cancel", name] => {
                let removed = self.plan.remove(self.names[name]);
                assert!(matches!(removed, Removed::Waiting(_)), "{removed:?}");
            }
            _ => panic!("no such line: {line}"),
        }
        String::new()
    }

    fn add(&mut self, name: &str, queue: &str, tenant: &str, needs: &[&str]) {
        let queue = QueueName { provider: queue.into(), model: "m".into() };
        let pairs = needs.iter().map(|need| {
            let (key, amount) = need.split_once('=').unwrap();
            (LimitKey::new(key).unwrap(), amount.parse().unwrap())
        });
        let requirements = Requirements::of(pairs).unwrap();
        let number = self.plan.add(queue, tenant, &requirements, name.to_owned());
        self.names.insert(name.to_owned(), number);
    }

    fn deny(&mut self, name: &str, words: &[&str]) {
        let (seconds, words) = words.split_last().unwrap();
        let wait = Duration::from_secs_f64(seconds.parse().unwrap());
        let keys = words.iter().filter(|word| **word != "for");
        let keys: Vec<_> = keys.map(|key| LimitKey::new(key).unwrap()).collect();
        self.plan.denied(self.now, self.names[name], &keys, wait);
    }

    fn next(&mut self) -> String {
        let mut asking = Vec::new();
        while let Some(attempt) = self.plan.next(self.now) {
            let name = &self.plan.get(attempt.job).unwrap().work;
            let again = if attempt.repeats.is_some() { " same lease" } else { "" };
            asking.push(format!("{name}#{}{again}", attempt.count));
        }
        if asking.is_empty() {
            asking.push("nobody".to_owned());
        }
        let wake = match self.plan.wake_at() {
            Some(at) => format!("then at {}s", at.since(START).as_secs_f64()),
            None => "then on an event".to_owned(),
        };
        format!("{}; {wake}", asking.join(", "))
    }
}

/// SCH-01
#[test]
fn sch_01_the_queues_take_turns() {
    check(
        9,
        "add a1 A t rpmA=1
         add a2 A t rpmA=1
         add a3 A t rpmA=1
         add b1 B t rpmB=1
         add b2 B t rpmB=1
         next",
        expect![[r#"
            add a1 A t rpmA=1
            add a2 A t rpmA=1
            add a3 A t rpmA=1
            add b1 B t rpmB=1
            add b2 B t rpmB=1
            next -> a1#1, b1#1, a2#1, b2#1, a3#1; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_the_tenants_of_a_queue_take_turns() {
    check(
        9,
        "add t1 A t rpm=1
         add t2 A t rpm=1
         add t3 A t rpm=1
         add u1 A u rpm=1
         next",
        expect![[r#"
            add t1 A t rpm=1
            add t2 A t rpm=1
            add t3 A t rpm=1
            add u1 A u rpm=1
            next -> t1#1, u1#1, t2#1, t3#1; then on an event
        "#]],
    );
}

/// SCH-01
///
/// The second job of the saturated model does not even ask: it needs about as much as the one that was denied.
#[test]
fn sch_01_a_saturated_model_never_delays_another() {
    check(
        1,
        "add a1 A t tpmA=10
         add a2 A t tpmA=10
         add b1 B t tpmB=10
         next
         deny a1 tpmA for 60
         next
         allow b1
         end b1
         1s next
         60s next",
        expect![[r#"
            add a1 A t tpmA=10
            add a2 A t tpmA=10
            add b1 B t tpmB=10
            next -> a1#1; then on an event
            deny a1 tpmA for 60
            next -> b1#1; then on an event
            allow b1
            end b1
            1s next -> nobody; then at 60s
            60s next -> a1#2; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_a_tenant_out_of_budget_never_delays_another() {
    check(
        1,
        "add t1 A t tpm=10 tenant:t=10
         add t2 A t tpm=10 tenant:t=10
         add u1 A u tpm=10 tenant:u=10
         next
         deny t1 tenant:t for 5
         next
         allow u1
         end u1 tpm tenant:u
         1s next
         5s next",
        expect![[r#"
            add t1 A t tpm=10 tenant:t=10
            add t2 A t tpm=10 tenant:t=10
            add u1 A u tpm=10 tenant:u=10
            next -> t1#1; then on an event
            deny t1 tenant:t for 5
            next -> u1#1; then on an event
            allow u1
            end u1 tpm tenant:u
            1s next -> nobody; then at 5s
            5s next -> t1#2; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_a_tenant_out_of_budget_waits_in_all_its_queues() {
    check(
        9,
        "add a1 A t tpmA=10 tenant:t=10
         next
         deny a1 tenant:t for 5
         add b1 B t tpmB=10 tenant:t=10
         next
         5s next
         allow a1
         next",
        expect![[r#"
            add a1 A t tpmA=10 tenant:t=10
            next -> a1#1; then on an event
            deny a1 tenant:t for 5
            add b1 B t tpmB=10 tenant:t=10
            next -> nobody; then at 5s
            5s next -> a1#2; then on an event
            allow a1
            next -> b1#1; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_a_smaller_job_may_pass_a_denied_one() {
    check(
        1,
        "add large A t tpm=100
         add equal A t tpm=100
         add small A t tpm=10
         next
         deny large tpm for 30
         next
         allow small",
        expect![[r#"
            add large A t tpm=100
            add equal A t tpm=100
            add small A t tpm=10
            next -> large#1; then on an event
            deny large tpm for 30
            next -> small#1; then on an event
            allow small
        "#]],
    );
}

/// SCH-01
///
/// After a denial one asks at a time; when it is allowed, others do.
#[test]
fn sch_01_room_that_comes_back_opens_the_gate() {
    check(
        9,
        "add first A t slots=1
         next
         allow first
         add second A t slots=1
         add third A t slots=1
         next
         deny second slots for 2
         deny third slots for 2
         next
         end first slots
         next
         allow second
         next",
        expect![[r#"
            add first A t slots=1
            next -> first#1; then on an event
            allow first
            add second A t slots=1
            add third A t slots=1
            next -> second#1, third#1; then on an event
            deny second slots for 2
            deny third slots for 2
            next -> nobody; then at 2s
            end first slots
            next -> second#2; then on an event
            allow second
            next -> third#2; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_room_that_comes_back_while_a_job_asks_makes_its_denial_old_news() {
    check(
        9,
        "add first A t slots=1
         next
         allow first
         add second A t slots=1
         next
         end first slots
         deny second slots for 2
         next",
        expect![[r#"
            add first A t slots=1
            next -> first#1; then on an event
            allow first
            add second A t slots=1
            next -> second#1; then on an event
            end first slots
            deny second slots for 2
            next -> second#2; then on an event
        "#]],
    );
}

/// SCH-02
#[test]
fn sch_02_who_is_denied_waits_and_asks_again_with_a_new_lease() {
    check(
        9,
        "add a A t rpm=1
         next
         deny a rpm for 1.5
         next
         1.4s next
         1.5s next",
        expect![[r#"
            add a A t rpm=1
            next -> a#1; then on an event
            deny a rpm for 1.5
            next -> nobody; then at 1.5s
            1.4s next -> nobody; then at 1.5s
            1.5s next -> a#2; then on an event
        "#]],
    );
}

/// SCH-02
#[test]
fn sch_02_who_gets_no_answer_asks_again_with_the_same_lease() {
    check(
        9,
        "add a A t rpm=1
         next
         silence a
         next
         0.1s next
         silence a
         0.2s next
         0.3s next
         deny a rpm for 1
         1.3s next",
        expect![[r#"
            add a A t rpm=1
            next -> a#1; then on an event
            silence a
            next -> nobody; then at 0.1s
            0.1s next -> a#2 same lease; then on an event
            silence a
            0.2s next -> nobody; then at 0.3s
            0.3s next -> a#3 same lease; then on an event
            deny a rpm for 1
            1.3s next -> a#4; then on an event
        "#]],
    );
}

/// SCH-02
///
/// After the first answer everybody may ask again whose own time has come.
#[test]
fn sch_02_while_nobody_answers_one_job_at_a_time_finds_out() {
    check(
        9,
        "add a A t rpm=1
         add b B t rpmB=1
         next
         add c C t rpmC=1
         add d D t rpmD=1
         silence a
         silence b
         next
         0.1s next
         silence c
         0.2s next
         0.3s next
         allow d
         next",
        expect![[r#"
            add a A t rpm=1
            add b B t rpmB=1
            next -> a#1, b#1; then on an event
            add c C t rpmC=1
            add d D t rpmD=1
            silence a
            silence b
            next -> nobody; then at 0.1s
            0.1s next -> c#1; then on an event
            silence c
            0.2s next -> nobody; then at 0.3s
            0.3s next -> d#1; then on an event
            allow d
            next -> a#2 same lease, b#2 same lease, c#2 same lease; then on an event
        "#]],
    );
}

/// SCH-02
#[test]
fn sch_02_who_is_refused_is_gone() {
    check(
        9,
        "add a A t nokey=1
         next
         refuse a
         next",
        expect![[r#"
            add a A t nokey=1
            next -> a#1; then on an event
            refuse a
            next -> nobody; then on an event
        "#]],
    );
}

/// SCH-05
///
/// From its third denial on nobody passes it.
#[test]
fn sch_05_after_three_denials_a_large_job_goes_first() {
    check(
        1,
        "add large A t tpm=90
         add s1 A t tpm=10
         add s2 A u tpm=10
         next
         deny large tpm for 1
         next
         allow s2
         end s2 tpm
         next
         deny large tpm for 1
         next
         allow s1
         end s1 tpm
         add s3 A t tpm=10
         add s4 A u tpm=10
         next
         deny large tpm for 1
         next
         1s next
         allow large
         end large tpm
         next",
        expect![[r#"
            add large A t tpm=90
            add s1 A t tpm=10
            add s2 A u tpm=10
            next -> large#1; then on an event
            deny large tpm for 1
            next -> s2#1; then on an event
            allow s2
            end s2 tpm
            next -> large#2; then on an event
            deny large tpm for 1
            next -> s1#1; then on an event
            allow s1
            end s1 tpm
            add s3 A t tpm=10
            add s4 A u tpm=10
            next -> large#3; then on an event
            deny large tpm for 1
            next -> nobody; then at 1s
            1s next -> large#4; then on an event
            allow large
            end large tpm
            next -> s4#1; then on an event
        "#]],
    );
}

/// SCH-05
///
/// It goes before its own tenant's jobs only.
#[test]
fn sch_05_a_large_job_without_budget_does_not_hold_up_another_tenant() {
    check(
        1,
        "add large A t tpm=90 tenant:t=90
         next
         deny large tenant:t for 1
         1s next
         deny large tenant:t for 1
         2s next
         deny large tenant:t for 1
         add small A t tpm=10 tenant:t=10
         add other A u tpm=10 tenant:u=10
         next
         allow other
         end other tpm tenant:u
         next
         3s next",
        expect![[r#"
            add large A t tpm=90 tenant:t=90
            next -> large#1; then on an event
            deny large tenant:t for 1
            1s next -> large#2; then on an event
            deny large tenant:t for 1
            2s next -> large#3; then on an event
            deny large tenant:t for 1
            add small A t tpm=10 tenant:t=10
            add other A u tpm=10 tenant:u=10
            next -> other#1; then on an event
            allow other
            end other tpm tenant:u
            next -> nobody; then at 3s
            3s next -> large#4; then on an event
        "#]],
    );
}

/// SCH-05
#[test]
fn sch_05_denials_by_the_own_budget_begin_the_count_anew() {
    check(
        1,
        "add large A t tpm=90 tenant:t=90
         next
         deny large tpm for 1
         1s next
         deny large tpm for 1
         2s next
         deny large tenant:t for 1
         3s next
         deny large tpm for 1
         add other A u tpm=10 tenant:u=10
         next",
        expect![[r#"
            add large A t tpm=90 tenant:t=90
            next -> large#1; then on an event
            deny large tpm for 1
            1s next -> large#2; then on an event
            deny large tpm for 1
            2s next -> large#3; then on an event
            deny large tenant:t for 1
            3s next -> large#4; then on an event
            deny large tpm for 1
            add other A u tpm=10 tenant:u=10
            next -> other#1; then on an event
        "#]],
    );
}

/// SCH-05
///
/// Small jobs that are allowed in between make it possible that both ask at a time.
#[test]
fn sch_05_two_jobs_that_go_first_do_not_wait_for_each_other() {
    check(
        9,
        "add x A t tpm=90 tenant:t=90
         add y A t tpm=80 tenant:t=80
         next
         deny x tpm for 1
         deny y tenant:t for 1
         add z1 A t tpm=1 tenant:t=1
         next
         allow z1
         1s next
         deny x tpm for 1
         deny y tenant:t for 1
         add z2 A t tpm=1 tenant:t=1
         next
         allow z2
         2s next
         deny x tpm for 1
         deny y tenant:t for 1
         3s next
         allow x
         next
         allow y",
        expect![[r#"
            add x A t tpm=90 tenant:t=90
            add y A t tpm=80 tenant:t=80
            next -> x#1, y#1; then on an event
            deny x tpm for 1
            deny y tenant:t for 1
            add z1 A t tpm=1 tenant:t=1
            next -> z1#1; then on an event
            allow z1
            1s next -> x#2, y#2; then on an event
            deny x tpm for 1
            deny y tenant:t for 1
            add z2 A t tpm=1 tenant:t=1
            next -> z2#1; then on an event
            allow z2
            2s next -> x#3, y#3; then on an event
            deny x tpm for 1
            deny y tenant:t for 1
            3s next -> x#4; then on an event
            allow x
            next -> y#4; then on an event
            allow y
        "#]],
    );
}

/// SCH-05
///
/// Other processes take all the room; after two minutes the claim ends.
#[test]
fn sch_05_who_goes_first_in_vain_lets_others_go_again() {
    check(
        1,
        "add large A t tpm=90
         next
         deny large tpm for 1
         1s next
         deny large tpm for 1
         2s next
         deny large tpm for 121
         add small A t tpm=10
         next
         123s next
         deny large tpm for 1
         next",
        expect![[r#"
            add large A t tpm=90
            next -> large#1; then on an event
            deny large tpm for 1
            1s next -> large#2; then on an event
            deny large tpm for 1
            2s next -> large#3; then on an event
            deny large tpm for 121
            add small A t tpm=10
            next -> nobody; then at 123s
            123s next -> large#4; then on an event
            deny large tpm for 1
            next -> small#1; then on an event
        "#]],
    );
}

/// SCH-04
#[test]
fn sch_04_a_cancelled_job_leaves_no_claim_behind() {
    check(
        1,
        "add large A t tpm=90
         next
         deny large tpm for 1
         1s next
         deny large tpm for 1
         2s next
         deny large tpm for 9
         add small A t tpm=10
         next
         cancel large
         next",
        expect![[r#"
            add large A t tpm=90
            next -> large#1; then on an event
            deny large tpm for 1
            1s next -> large#2; then on an event
            deny large tpm for 1
            2s next -> large#3; then on an event
            deny large tpm for 9
            add small A t tpm=10
            next -> nobody; then at 11s
            cancel large
            next -> small#1; then on an event
        "#]],
    );
}

/// SCH-01
#[test]
fn sch_01_no_more_jobs_ask_or_run_than_there_are_workers() {
    check(
        2,
        "add a A t rpm=1
         add b A t rpm=1
         add c A t rpm=1
         next
         allow a
         next
         end a
         next",
        expect![[r#"
            add a A t rpm=1
            add b A t rpm=1
            add c A t rpm=1
            next -> a#1, b#1; then on an event
            allow a
            next -> nobody; then on an event
            end a
            next -> c#1; then on an event
        "#]],
    );
}

#[test]
fn nothing_is_left_of_jobs_that_are_gone() {
    let mut script = Script {
        plan: Plan::new(4, STARVING_AFTER),
        names: BTreeMap::new(),
        now: START,
        shown: String::new(),
    };
    for line in [
        "add a A t tpm=1 tenant:t=1",
        "add b B u tpmB=1",
        "add c A u tpm=5",
        "next",
        "deny a tpm for 1",
        "silence b",
        "allow c",
        "end c tpm",
        "cancel a",
    ] {
        script.play(line);
    }
    let plan = &mut script.plan;
    assert_eq!(plan.remove_all().len(), 1);
    assert_eq!((plan.waiting(), plan.busy()), (0, 0));
    let Plan { queues, gates, .. } = plan;
    assert!(queues.is_empty() && gates.is_empty(), "{queues:?} {gates:?}");
}
