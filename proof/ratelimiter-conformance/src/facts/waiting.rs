//! `WAIT-01` to `WAIT-04`: reserves that wait for room.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, join, select};
use ratelimiter::Decision;

use crate::context::TestContext;

scripts! {
    /// WAIT-01
    fn wait_01_a_reserve_waits_until_there_is_room: "
        limit slots concurrency 60s 1
        reserve A slots=1
        together
            reserve B slots=1 wait 60s
            complete A
        end
        used slots=1
        reserve B slots=1 -> allowed as before
        complete B
        used slots=0
    ";

    /// WAIT-01, COM-02
    fn wait_01_what_a_complete_returns_of_a_rolling_limit_is_waited_for: "
        limit tokens rolling 3600s 100; limit slots concurrency 60s 5
        reserve A tokens=80 slots=1
        together
            reserve B tokens=50 slots=1 wait 60s
            complete A tokens=40
        end
        used tokens=90 slots=1
    ";

    /// WAIT-01, RES-04, RES-09
    fn wait_01_every_other_refusal_is_immediate: "
        limit slots concurrency 60s 1
        reserve A slots=1; complete A; reserve B slots=1
        reserve A slots=1 wait 60s -> ended
        reserve B slots=1 wait 60s -> allowed as before
        reserve C slots=2 wait 60s -> exceeds slots
        reserve D slots=2 other=1 wait 60s -> unknown other
        used slots=1
    ";

    /// WAIT-01, PAUSE-01
    fn wait_01_the_end_of_a_pause_is_waited_for: "
        limit slots concurrency 60s 0 -> paused
        together
            reserve A slots=1 wait 60s
            limit slots concurrency 60s 1
        end
        used slots=1
    ";

    /// WAIT-01, DEF-06
    fn wait_01_a_greater_capacity_is_waited_for: "
        limit rate rolling 3600s 3
        reserve A rate=2
        together
            reserve B rate=3 wait 60s
            limit rate rolling 3600s 5
        end
        used rate=5
    ";

    /// WAIT-03
    fn wait_03_a_waiter_delays_nobody_who_needs_another_limit: "
        limit slots concurrency 60s 1; limit rate rolling 3600s 5
        reserve A slots=1
        together
            reserve B slots=1 rate=1 wait 60s
            reserve C rate=1
            complete A
        end
        used slots=1 rate=2
    ";

    /// WAIT-04, RES-04
    fn wait_04_a_repeated_lease_joins_the_same_wait: "
        limit slots concurrency 60s 2
        reserve A slots=2
        together
            reserve B slots=1 wait 60s
            reserve B slots=1 wait 60s
            complete A
        end
        used slots=1
    ";
}

/// WAIT-01, RES-05
pub(crate) async fn wait_01_without_room_it_is_denied_when_its_time_is_over(on: &mut TestContext) {
    on.run("limit slots concurrency 86400s 1; reserve A slots=1").await;
    let decision = decision_while_time_passes(on, "B slots=1 wait 1s").await;
    let denial = decision.denial().expect("there is no room");
    assert_eq!(denial.keys(), [on.key("slots")]);
    on.run("complete A; reserve B slots=1 -> denied; used slots=0").await;
}

/// On a virtual clock time goes on until there is an answer: nobody knows when the request begins to wait.
async fn decision_while_time_passes(on: &TestContext, request: &str) -> Decision {
    let time = pin!(async {
        loop {
            testkit::pass(Duration::from_millis(10)).await;
            on.pass(Duration::from_millis(100)).await;
        }
    });
    let Either::Left((answer, _)) =
        select(on.world.reserve(&on.reserve_request(request)), time).await;
    answer.expect("a working limiter answers")
}

/// WAIT-01
pub(crate) async fn wait_01_each_request_of_a_batch_waits_on_its_own(on: &mut TestContext) {
    on.run("limit slots concurrency 60s 1; limit rate rolling 3600s 5; reserve A slots=1").await;
    let requests = ["B slots=1 wait 60s", "C rate=1", "D rate=9 wait 60s"];
    let requests = requests.map(|request| on.reserve_request(request));
    let complete = on.complete_request("A");
    let calls = join(on.world.reserve_batch(&requests), on.world.complete(&complete));
    let (answers, completed) = calls.await;
    completed.expect("a lease completes");
    let is_allowed = |answer: &Result<Decision, _>| answer.as_ref().is_ok_and(Decision::is_allowed);
    assert_eq!(answers.iter().map(is_allowed).collect::<Vec<_>>(), [true, true, false]);
    on.run("used slots=1 rate=1").await;
}
