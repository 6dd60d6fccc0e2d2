//! Batches: independent items that follow the same rules, in order.

use crate::context::TestContext;

scripts! {
    /// RES-01
    fn res_01_the_requests_of_a_batch_are_independent: "
        limit rate rolling 60s 2; limit free rolling 60s 10; limit slots concurrency 60s 1
        reserve full slots=1
        batch
            reserve A free=1 rate=1
            reserve B free=1 slots=1 -> denied slots
            reserve C free=1 unknown=1 -> unknown unknown
            reserve D free=1 rate=3 -> exceeds rate
            reserve full slots=1
            reserve A free=2 rate=1 -> conflict
            reserve E free=1 rate=1
        end
        used free=2 rate=2 slots=1
    ";

    /// RES-02
    fn res_02_a_batch_shares_the_room_in_order: "
        limit rate rolling 60s 5
        batch
            reserve A rate=1
            reserve B rate=1
            reserve C rate=1
            reserve D rate=1
            reserve E rate=1
            reserve F rate=1 -> denied rate
            reserve G rate=1 -> denied rate
            reserve H rate=1 -> denied rate
        end
        used rate=5
    ";

    /// RES-04
    fn res_04_a_lease_twice_in_a_batch_counts_once: "
        limit rate rolling 60s 10
        batch
            reserve A rate=3
            reserve A rate=3 -> allowed as before
        end
        used rate=3
    ";

    /// RES-05
    fn res_05_a_lease_denied_in_a_batch_stays_denied: "
        limit slots concurrency 60s 1
        reserve A slots=1
        batch
            reserve B slots=1 -> denied slots
            reserve B slots=1 -> denied
        end
        complete A
        reserve B slots=1 -> denied
    ";

    /// COM-01, COM-02
    fn com_01_a_batch_completes_each_lease: "
        limit tokens rolling 60s 100; limit slots concurrency 60s 5
        reserve A tokens=30 slots=1; reserve B tokens=30 slots=1; reserve C tokens=30 slots=1
        batch
            complete A tokens=10
            complete unknown
            complete B
        end
        used tokens=70 slots=1
    ";

    /// COM-05
    fn com_05_a_lease_twice_in_a_batch_completes_once: "
        limit tokens rolling 60s 100
        reserve A tokens=100
        batch
            complete A tokens=110
            complete A tokens=110
        end
        used tokens=100; debt tokens=10
    ";

    /// COM-06
    fn com_06_a_refused_complete_leaves_its_neighbours_alone: "
        limit tokens rolling 60s 100; limit slots concurrency 60s 5
        reserve A tokens=30 slots=1; reserve B tokens=30 slots=1; reserve C tokens=30 slots=1
        batch
            complete A tokens=0
            complete B tokens=0 slots=1 -> invalid slots
            complete C tokens=0
        end
        used tokens=30 slots=1
    ";
}

/// RES-02
pub(crate) async fn res_02_a_batch_of_256_is_answered_in_order(on: &mut TestContext) {
    for limit in ["a rolling 3600s 1000", "b rolling 3600s 1000", "c rolling 3600s 1000"] {
        on.run(&format!("limit {limit}")).await;
    }
    let request = |n| {
        let expected = if n < 200 { "allowed" } else { "denied rate" };
        format!("reserve {n} a=1 b=1 c=1 rate=1 -> {expected}\n")
    };
    let requests: String = (0..256).map(request).collect();
    on.run(&format!("limit rate rolling 3600s 200\nbatch\n{requests}end")).await;
    on.run("used a=200 rate=200").await;
}
