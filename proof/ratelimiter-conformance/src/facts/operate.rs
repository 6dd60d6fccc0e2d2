//! `OPS-01`, `OPS-02`: what an operator does about leases and debts.

use std::time::Duration;

use futures::future::join_all;
use ratelimiter::{
    ForgiveError, HeldAmount, JobId, LeasePage, LeasesError, OpenLease, Requirements,
    ReserveRequest,
};

use crate::context::TestContext;

scripts! {
    /// OPS-01
    fn ops_01_a_lease_is_listed_while_it_is_open: "
        limit tokens rolling 60s 100; limit slots concurrency 60s 10
        leases tokens ->
        reserve A tokens=50 slots=2
        leases tokens -> A slots=2 tokens=50
        leases slots -> A slots=2 tokens=50
        complete A tokens=20
        leases tokens ->
        used tokens=20
    ";

    /// OPS-01
    fn ops_01_only_leases_of_the_key_are_listed: "
        limit a rolling 60s 10; limit b rolling 60s 10; limit c rolling 60s 10
        reserve A a=1; pass 5ms; reserve B b=1; pass 5ms; reserve C a=2 b=2
        leases a -> A a=1, C a=2 b=2
        leases b -> B b=1, C a=2 b=2
        leases c ->
    ";

    /// OPS-01
    fn ops_01_an_expired_part_of_a_lease_is_not_listed: "
        limit brief concurrency 1s 10; limit tokens rolling 60s 100
        reserve A brief=1 tokens=5; reserve B brief=2
        outlast 1s
        leases brief ->
        leases tokens -> A tokens=5
    ";

    /// OPS-01, DEF-09
    fn ops_01_a_deleted_limit_is_not_listed: "
        limit gone rolling 60s 10; limit tokens rolling 60s 10
        reserve A gone=1 tokens=2; reserve B gone=3
        delete gone
        leases gone ->
        leases tokens -> A tokens=2
    ";

    /// OPS-01
    fn ops_01_a_denied_lease_is_not_listed: "
        limit tokens rolling 60s 10
        reserve A tokens=11 -> exceeds tokens; reserve B tokens=8; reserve C tokens=8 -> denied tokens
        leases tokens -> B tokens=8
    ";

    /// OPS-01
    fn ops_01_only_old_leases_are_listed: "
        limit tokens rolling 60s 10
        reserve A tokens=1
        outlast 5s
        lifetime B 5s; reserve B tokens=1
        within B: leases tokens older 5s -> A tokens=1
        leases tokens -> A tokens=1, B tokens=1
    ";

    /// OPS-01, COM-01, COM-04, RES-09
    fn ops_01_a_release_is_a_complete_without_actuals: "
        limit tokens rolling 60s 100; limit slots concurrency 60s 3; limit more concurrency 60s 3
        reserve A tokens=50 slots=2 more=1; reserve B tokens=10 slots=1
        release A
        used tokens=60 slots=1 more=0
        leases tokens -> B slots=1 tokens=10
        reserve A tokens=50 slots=2 more=1 -> ended
    ";

    /// OPS-01, COM-05
    fn ops_01_a_release_is_final: "
        limit tokens rolling 60s 100; limit slots concurrency 60s 1
        reserve A tokens=50 slots=1
        release A
        complete A tokens=10
        used tokens=50 slots=0; debt tokens=0
        reserve B slots=1
        release A -> unknown; complete A
        used tokens=50 slots=1
    ";

    /// OPS-01
    fn ops_01_only_an_open_lease_can_be_released: "
        limit tokens rolling 60s 10; limit brief concurrency 1s 10
        release A -> unknown
        reserve B tokens=6; reserve C tokens=6 -> denied tokens
        release C -> unknown
        complete B tokens=1; release B -> unknown
        used tokens=1
        reserve D brief=1; outlast 1s
        release D -> unknown
    ";

    /// OPS-01
    fn ops_01_what_is_left_of_a_lease_can_be_released: "
        limit brief concurrency 1s 10; limit slots concurrency 60s 10
        reserve A brief=1 slots=1; outlast 1s
        release A
        used slots=0
    ";

    /// OPS-01, COM-07
    fn ops_01_a_lease_is_released_at_another_server: "
        limit tokens rolling 60s 100; limit slots concurrency 60s 1
        reserve A tokens=50 slots=1
        move
        release A
        used tokens=50 slots=0
        release A -> unknown
    ";

    /// OPS-02
    fn ops_02_a_debt_is_forgiven_and_returned_once: "
        limit tokens rolling 60s 10
        forgive tokens -> 0
        reserve A tokens=10; complete A tokens=17
        debt tokens=7; forgive tokens -> 7
        debt tokens=0; used tokens=10; forgive tokens -> 0
    ";

    /// OPS-02
    fn ops_02_after_it_was_forgiven_a_debt_grows_again: "
        limit tokens rolling 60s 30
        reserve A tokens=10; reserve B tokens=10; reserve C tokens=10
        complete A tokens=12; forgive tokens -> 2
        complete B tokens=15; debt tokens=5; complete C tokens=11; debt tokens=6
        forgive tokens -> 6; debt tokens=0
    ";

    /// OPS-02
    fn ops_02_only_the_debt_of_the_key_is_forgiven: "
        limit a rolling 60s 10; limit b rolling 60s 10
        reserve A a=10 b=10; complete A a=13 b=14
        forgive a -> 3; debt a=0 b=4
        forgive b -> 4
    ";

    /// OPS-02
    fn ops_02_the_debt_of_an_unknown_key_is_not_forgiven: "
        limit tokens rolling 60s 10
        forgive other -> unknown other
        delete tokens; forgive tokens -> unknown tokens
    ";

    /// OPS-02
    fn ops_02_a_debt_is_forgiven_at_another_server: "
        limit tokens rolling 60s 10
        reserve A tokens=10; complete A tokens=17
        move
        forgive tokens -> 7
        debt tokens=0
    ";
}

/// A page of leases of the limit `tokens`.
fn page(on: &TestContext, after: Option<&str>, count_max: usize) -> LeasePage {
    let (key, after) = (Some(on.key("tokens")), after.map(|name| on.lease(name)));
    LeasePage { key, after, count_max, ..LeasePage::default() }
}

/// The names of the leases of a page.
async fn list(on: &TestContext, after: Option<&str>, count_max: usize) -> String {
    let leases = on.leases(&page(on, after, count_max)).await;
    leases.iter().map(|open| on.lease_name(open.lease)).collect::<Vec<_>>().join(" ")
}

/// OPS-01
pub(crate) async fn ops_01_leases_are_listed_page_by_page(on: &mut TestContext) {
    on.run("limit tokens rolling 60s 100").await;
    for name in ["A", "B", "C", "D", "E"] {
        on.run(&format!("reserve {name} tokens=1; pass 5ms")).await;
    }
    assert_eq!(list(on, None, 9).await, "A B C D E");
    assert_eq!(list(on, None, 2).await, "A B");
    assert_eq!(list(on, Some("B"), 2).await, "C D");
    assert_eq!(list(on, Some("D"), 2).await, "E");
    assert_eq!(list(on, Some("E"), 2).await, "");
    // An operator releases what is on a page, then asks for the next one.
    on.run("release A; complete B; reserve F tokens=1").await;
    assert_eq!(list(on, Some("B"), 2).await, "C D");
    assert_eq!(list(on, Some("A"), 9).await, "C D E F");
}

/// OPS-01
pub(crate) async fn ops_01_a_page_after_an_unknown_lease_is_refused(on: &mut TestContext) {
    on.run("limit tokens rolling 60s 100\nreserve A tokens=1").await;
    let answer = on.world.leases(&page(on, Some("B"), 2)).await;
    assert_eq!(answer, Err(LeasesError::UnknownLease { lease: on.lease("B") }));
}

/// OPS-01: the leases of one moment are sorted by ID, as [`TestContext::leases`] checks.
pub(crate) async fn ops_01_many_leases_are_all_listed_and_sorted(on: &mut TestContext) {
    on.run("limit tokens rolling 3600s 1000").await;
    let names: Vec<_> = (0..150).map(|n| format!("L{n}")).collect();
    let request = |name: &String| {
        let needs = Requirements::of([(on.key("tokens"), 1)]).expect("a valid requirement");
        ReserveRequest::new(on.lease(name), needs)
    };
    let requests: Vec<_> = names.iter().map(request).collect();
    for answer in on.world.reserve_batch(&requests).await {
        assert!(answer.expect("a working limiter answers").is_allowed());
    }
    let all = on.leases(&page(on, None, 1_000)).await;
    assert_eq!(all.len(), 150);
    let mut paged: Vec<OpenLease> = Vec::new();
    loop {
        let mut next = page(on, None, 40);
        next.after = paged.last().map(|open| open.lease);
        let more = on.leases(&next).await;
        let is_last = more.len() < 40;
        paged.extend(more);
        if is_last {
            break;
        }
    }
    let ids = |leases: &[OpenLease]| leases.iter().map(|open| open.lease).collect::<Vec<_>>();
    assert_eq!(ids(&paged), ids(&all));
}

/// OPS-01
pub(crate) async fn ops_01_a_lease_is_listed_with_its_times_and_its_job(on: &mut TestContext) {
    on.run("limit tokens rolling 60s 100\nlimit slots concurrency 30s 10").await;
    let pairs = [(on.key("tokens"), 3), (on.key("slots"), 1)];
    let needs = Requirements::of(pairs).expect("valid requirements");
    let job = JobId::new("job 7").expect("a valid job ID");
    let plain = ReserveRequest::new(on.lease("A"), needs.clone());
    let named =
        ReserveRequest { job: Some(job.clone()), ..ReserveRequest::new(on.lease("B"), needs) };
    for request in [&plain, &named] {
        let decision = on.world.reserve(request).await.expect("a working limiter answers");
        assert!(decision.is_allowed());
        on.run("outlast 2s").await;
    }
    let leases = on.leases(&page(on, None, 9)).await;
    assert_eq!(leases.len(), 2, "two are open: {leases:?}");
    let (a, b) = (&leases[0], &leases[1]);
    assert_eq!((a.lease, &a.job), (on.lease("A"), &None));
    assert_eq!((b.lease, &b.job), (on.lease("B"), &Some(job)));
    assert!(a.age >= Duration::from_secs(4) && b.age >= Duration::from_secs(2), "{leases:?}");
    assert!(a.age > b.age);
    for OpenLease { reserved_at, amounts, .. } in [a, b] {
        // The reservations of one lease may be a moment apart.
        let lasts = |held: &HeldAmount, seconds: u64| {
            let ms = held.lapses_at.since(*reserved_at).as_millis();
            u128::from(seconds * 1_000).abs_diff(ms) <= 1
        };
        assert_eq!(amounts.len(), 2, "it has something of two limits: {amounts:?}");
        assert!(lasts(&amounts[0], 30) && lasts(&amounts[1], 60), "{amounts:?}");
    }
}

/// OPS-02
pub(crate) async fn ops_02_of_several_at_once_each_unit_is_forgiven_by_one(on: &mut TestContext) {
    on.run("limit tokens rolling 60s 10\nreserve A tokens=10\ncomplete A tokens=1010").await;
    let key = on.key("tokens");
    let forgiven = join_all((0..8).map(|_| on.world.forgive(&key))).await;
    let forgiven: Result<Vec<u128>, ForgiveError> = forgiven.into_iter().collect();
    assert_eq!(forgiven.expect("the key is defined").iter().sum::<u128>(), 1_000);
    on.run("debt tokens=0").await;
}

/// OPS-02, RES-07
pub(crate) async fn ops_02_the_largest_debts_are_forgiven_exactly(on: &mut TestContext) {
    on.run("limit tokens rolling 60s 10").await;
    for lease in ["A", "B", "C"] {
        on.run(&format!("reserve {lease} tokens=1; complete {lease} tokens={}", u64::MAX)).await;
    }
    let debt = 3 * (u128::from(u64::MAX) - 1);
    on.run(&format!("debt tokens={debt}; forgive tokens -> {debt}; debt tokens=0")).await;
}
