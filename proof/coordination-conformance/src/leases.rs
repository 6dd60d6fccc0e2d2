//! Scenarios of system leases.

use coordination::{FencingToken, Lease, Leases, Tenure};
use testkit::{eventually, within};

use crate::Fixture;
use crate::fixture::{lease, units};
use crate::sample::{owner, resource};
use crate::scenario::{answer, racing, suite};

suite! {
    $
    /// One test per scenario of system leases.
    macro lease_suite, module leases, fixture Fixture,
    "LEASE-001" lease_001_a_free_resource_is_acquired:
        "`acquire` succeeds for a free resource.";
    "LEASE-002" lease_002_the_callers_owner_token_is_kept:
        "`acquire` honours the caller's owner token; without one each lease has its own.";
    "LEASE-003" lease_003_a_held_resource_is_not_acquired:
        "`acquire` returns none while the lease is held and unexpired.";
    "LEASE-004" lease_004_the_holder_can_renew:
        "`try_renew_now` succeeds for the valid current holder and extends by the original duration.";
    "LEASE-005" lease_005_a_renewal_raises_the_fencing_token:
        "A successful renewal increments the fencing token.";
    "LEASE-006" lease_006_the_cancellation_token_fires_by_itself:
        "After loss or expiry the lease's cancellation token is cancelled, without anyone asking.";
    "LEASE-007" lease_007_ensure_held_fails_after_the_loss:
        "`ensure_held` is `LostLease` after the loss.";
    "LEASE-008" lease_008_a_lost_lease_is_not_renewed:
        "`try_renew_now` is false after the lease is lost, by the holder's clock or to the provider.";
    "LEASE-009" lease_009_a_dropped_or_released_lease_frees_the_resource:
        "Dropping or releasing a lease gives up ownership before it expires and allows acquisition.";
    "LEASE-010" lease_010_an_expired_lease_can_be_acquired_anew:
        "An expired lease can be acquired by a new lease instance.";
    "LEASE-A" lease_a_the_same_owner_is_refused_too:
        "None while someone holds it, the same owner included.";
    "LEASE-B" lease_b_the_fencing_token_grows_for_ever:
        "A resource's fencing token grows through renewal, expiry, release and acquisition.";
    "LEASE-C" lease_c_an_earlier_tenure_changes_nothing:
        "A tenure from before, of the same owner too, can neither renew nor release what came after.";
    "LEASE-D" lease_d_a_renewal_may_be_repeated:
        "A renewal repeated with an older token of the same tenure, after a lost answer, succeeds.";
    "LEASE-E" lease_e_racing_acquisitions_have_one_winner:
        "Of many tasks that acquire at once, one gets the lease.";
    "LEASE-F" lease_f_resources_are_independent:
        "Leases on different resources do not affect each other.";
    "LEASE-G" lease_g_a_lease_can_renew_itself:
        "A lease that renews itself is held over many durations, and ends when it is dropped.";
    "LEASE-H" lease_h_work_stops_when_the_lease_is_lost:
        "Work run under a lease is stopped when the lease is lost.";
}

/// PRIM-INMEMORY-LEASE-001
pub async fn lease_001_a_free_resource_is_acquired<F: Fixture>(fixture: F) {
    let held = acquire(&fixture, "a").await.expect("nobody holds it");
    assert_eq!(held.resource(), &resource("report"));
    assert_eq!(held.ensure_held(), Ok(()));
    assert!(!held.lost().is_cancelled());
    assert_eq!(held.fence().resource, resource("report"));
    assert_eq!(held.fence().token, held.fencing_token());
}

/// PRIM-INMEMORY-LEASE-002
pub async fn lease_002_the_callers_owner_token_is_kept<F: Fixture>(fixture: F) {
    let held = acquire(&fixture, "the-caller").await.expect("nobody holds it");
    assert_eq!(held.owner(), &owner("the-caller"));
    let mut own = Vec::new();
    for name in ["one", "two"] {
        let acquired = answer(fixture.leases().acquire(&resource(name), lease(10), None)).await;
        own.push(acquired.expect("nobody holds it"));
    }
    assert_ne!(own[0].owner(), own[1].owner());
}

/// PRIM-INMEMORY-LEASE-003
pub async fn lease_003_a_held_resource_is_not_acquired<F: Fixture>(fixture: F) {
    let held = acquire(&fixture, "a").await.expect("nobody holds it");
    assert!(acquire(&fixture, "b").await.is_none());
    fixture.advance(units(5)).await;
    assert!(acquire(&fixture, "b").await.is_none(), "still held");
    assert_eq!(held.ensure_held(), Ok(()), "the attempts changed nothing");
}

/// PRIM-INMEMORY-LEASE-004
pub async fn lease_004_the_holder_can_renew<F: Fixture>(fixture: F) {
    let held = acquire(&fixture, "a").await.expect("nobody holds it");
    for _ in 0..4 {
        fixture.advance(units(5)).await;
        assert!(held.try_renew_now().await);
        assert_eq!(held.ensure_held(), Ok(()));
    }
    fixture.advance(units(5)).await;
    assert!(acquire(&fixture, "b").await.is_none(), "extended by the whole duration");
    fixture.advance(units(5)).await;
    assert!(acquire(&fixture, "b").await.is_some(), "and no more");
}

/// PRIM-INMEMORY-LEASE-005
pub async fn lease_005_a_renewal_raises_the_fencing_token<F: Fixture>(fixture: F) {
    let held = acquire(&fixture, "a").await.expect("nobody holds it");
    for _ in 0..3 {
        let before = held.fencing_token();
        assert!(held.try_renew_now().await);
        assert!(held.fencing_token() > before);
    }
}

/// PRIM-INMEMORY-LEASE-006
pub async fn lease_006_the_cancellation_token_fires_by_itself<F: Fixture>(fixture: F) {
    let held = acquire(&fixture, "a").await.expect("nobody holds it");
    let lost = held.lost();
    fixture.advance(units(5)).await;
    assert!(!lost.is_cancelled());
    fixture.advance(units(5)).await;
    within("the cancellation token fires at the end", lost.cancelled()).await;

    // Released at the provider before its expiry: the renewal fails.
    let held = acquire(&fixture, "a").await.expect("it has run out");
    assert_eq!(answer(fixture.leases().release(&tenure(&held))).await, 1);
    assert!(!held.try_renew_now().await);
    assert!(held.lost().is_cancelled());
}

/// PRIM-INMEMORY-LEASE-007
pub async fn lease_007_ensure_held_fails_after_the_loss<F: Fixture>(fixture: F) {
    let held = acquire(&fixture, "a").await.expect("nobody holds it");
    assert_eq!(held.ensure_held(), Ok(()));
    fixture.advance(units(10)).await;
    let lost = held.ensure_held().expect_err("it has run out");
    assert_eq!((lost.resource, lost.token), (resource("report"), held.fencing_token()));
}

/// PRIM-INMEMORY-LEASE-008, `CRD-20`
pub async fn lease_008_a_lost_lease_is_not_renewed<F: Fixture>(fixture: F) {
    let leases = fixture.leases();
    let held = acquire(&fixture, "a").await.expect("nobody holds it");
    fixture.advance(units(10)).await;
    assert!(!held.try_renew_now().await);
    let refused = answer(leases.try_renew(&tenure(&held), lease(10))).await;
    assert_eq!(refused, None, "the provider says so too, and not only the holder's clock");
    let again = acquire(&fixture, "b").await;
    let again = again.expect("the attempt did not take the resource");
    assert!(!held.try_renew_now().await, "lost stays lost");

    // Lost at the provider while it is held by the holder's clock: the provider refuses.
    assert_eq!(answer(leases.release(&tenure(&again))).await, 1);
    let third = acquire(&fixture, "c").await.expect("it was released");
    assert_eq!(again.ensure_held(), Ok(()), "nobody has told the holder");
    assert!(!again.try_renew_now().await);
    assert!(again.ensure_held().is_err(), "now it knows");
    assert!(third.try_renew_now().await, "the new holder's is whole");
}

/// PRIM-INMEMORY-LEASE-009, `CRD-20`
pub async fn lease_009_a_dropped_or_released_lease_frees_the_resource<F: Fixture>(fixture: F) {
    let held = acquire(&fixture, "a").await.expect("nobody holds it");
    let lost = held.lost();
    assert_eq!(answer(held.release()).await, 1);
    assert!(lost.is_cancelled(), "whoever works under it is told");
    let held = acquire(&fixture, "b").await.expect("it was released");
    let lost = held.lost();
    drop(held);
    assert!(lost.is_cancelled());
    // A provider with I/O releases a dropped lease in a separate task. No time passes, so the lease
    // cannot have expired.
    let dropped_at = fixture.now().await;
    within("the dropped lease is given up", async {
        while acquire(&fixture, "c").await.is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(fixture.now().await, dropped_at, "long before its end");
}

/// PRIM-INMEMORY-LEASE-010
pub async fn lease_010_an_expired_lease_can_be_acquired_anew<F: Fixture>(fixture: F) {
    let first = acquire(&fixture, "a").await.expect("nobody holds it");
    fixture.advance(units(10)).await;
    let second = acquire(&fixture, "b").await.expect("it has run out");
    assert!(second.fencing_token() > first.fencing_token());
    drop(first);
    assert!(
        acquire(&fixture, "c").await.is_none(),
        "the old lease's end does not free the new one"
    );
    assert_eq!(second.ensure_held(), Ok(()));
}

/// LEASE-A
pub async fn lease_a_the_same_owner_is_refused_too<F: Fixture>(fixture: F) {
    let _held = acquire(&fixture, "a").await.expect("nobody holds it");
    assert!(acquire(&fixture, "a").await.is_none());
}

/// LEASE-B
pub async fn lease_b_the_fencing_token_grows_for_ever<F: Fixture>(fixture: F) {
    let mut last = FencingToken::new(0);
    let mut grew = |token: FencingToken, how: &str| {
        assert!(token > last, "{how}: {} after {}", token.get(), last.get());
        last = token;
    };
    for round in 0..3 {
        let held = acquire(&fixture, "a").await.expect("nobody holds it");
        grew(held.fencing_token(), "acquisition");
        assert!(held.try_renew_now().await);
        grew(held.fencing_token(), "renewal");
        answer(held.release()).await;
        let held = acquire(&fixture, "b").await.expect("it was released");
        grew(held.fencing_token(), "acquisition after release");
        fixture.advance(units(10)).await;
        let held = acquire(&fixture, "c").await.expect("it has run out");
        grew(held.fencing_token(), "acquisition after expiry");
        fixture.advance(units(10 + round)).await;
    }
}

/// LEASE-C
pub async fn lease_c_an_earlier_tenure_changes_nothing<F: Fixture>(fixture: F) {
    let leases = fixture.leases();
    let first = acquire(&fixture, "a").await.expect("nobody holds it");
    let earlier = tenure(&first);
    fixture.advance(units(10)).await;
    let expired = answer(leases.try_renew(&earlier, lease(10))).await;
    assert_eq!(expired, None, "expired, though nobody else holds it");
    let second = acquire(&fixture, "a").await.expect("it has run out");
    let renewed = answer(leases.try_renew(&earlier, lease(3600))).await;
    assert_eq!(renewed, None);
    assert_eq!(answer(leases.release(&earlier)).await, 0);
    assert_eq!(second.ensure_held(), Ok(()));
    assert!(second.try_renew_now().await, "the newer tenure is whole");
    let stranger = Tenure { owner: owner("b"), ..tenure(&second) };
    assert_eq!(answer(leases.try_renew(&stranger, lease(10))).await, None);
    assert_eq!(answer(leases.release(&stranger)).await, 0);
    assert!(acquire(&fixture, "b").await.is_none(), "still held");
}

/// LEASE-D
pub async fn lease_d_a_renewal_may_be_repeated<F: Fixture>(fixture: F) {
    let leases = fixture.leases();
    let held = acquire(&fixture, "a").await.expect("nobody holds it");
    let known = tenure(&held);
    let lost_answer = answer(leases.try_renew(&known, lease(10))).await;
    let lost_answer = lost_answer.expect("it is held");
    let repeated = answer(leases.try_renew(&known, lease(10))).await;
    assert!(repeated.expect("it is still held") > lost_answer);
    assert_eq!(answer(leases.release(&known)).await, 1);
    assert_eq!(answer(leases.release(&known)).await, 0, "once");
}

/// LEASE-E
pub async fn lease_e_racing_acquisitions_have_one_winner<F: Fixture>(fixture: F) {
    for round in 0..20 {
        let contested = resource(&format!("contested-{round}"));
        let won = racing(|_| {
            let (leases, contested) = (fixture.leases().clone(), contested.clone());
            async move {
                let acquired = answer(leases.acquire(&contested, lease(3600), None)).await;
                acquired.into_iter().collect()
            }
        });
        let won = won.await;
        assert_eq!(won.len(), 1, "round {round}");
    }
}

/// LEASE-F
pub async fn lease_f_resources_are_independent<F: Fixture>(fixture: F) {
    let leases = fixture.leases();
    let first = acquire(&fixture, "a").await.expect("nobody holds it");
    let other = answer(leases.acquire(&resource("other"), lease(10), Some(owner("a")))).await;
    let other = other.expect("nobody holds it");
    assert_eq!(answer(first.release()).await, 1);
    assert_eq!(other.ensure_held(), Ok(()));
    assert!(other.try_renew_now().await);
}

/// LEASE-G
pub async fn lease_g_a_lease_can_renew_itself<F: Fixture>(fixture: F) {
    let held = acquire(&fixture, "a").await.expect("nobody holds it").renewed_automatically();
    for _ in 0..5 {
        let before = held.fencing_token();
        // It renews at 55 to 65 % of its duration.
        fixture.advance(units(7)).await;
        eventually("the lease renews itself", async || held.fencing_token() > before).await;
        assert_eq!(held.ensure_held(), Ok(()));
    }
    assert!(acquire(&fixture, "b").await.is_none());
    drop(held);
    fixture.advance(units(10)).await;
    assert!(acquire(&fixture, "b").await.is_some(), "nobody renews a dropped lease");
}

/// LEASE-H
pub async fn lease_h_work_stops_when_the_lease_is_lost<F: Fixture>(fixture: F) {
    let held = acquire(&fixture, "a").await.expect("nobody holds it");
    assert_eq!(held.run(async { 42 }).await, Ok(42));
    let ((), stopped) = within("the work is stopped", async {
        tokio::join!(fixture.advance(units(10)), held.run(std::future::pending::<()>()),)
    })
    .await;
    let lost = stopped.expect_err("the work never ends by itself");
    assert_eq!(lost.resource, resource("report"));
    assert!(held.run(async {}).await.is_err(), "nothing starts under a lost lease");
}

/// Acquires `report` for 10 units.
async fn acquire<F: Fixture>(fixture: &F, by: &str) -> Option<Lease<F::Leases>> {
    let report = resource("report");
    answer(fixture.leases().acquire(&report, lease(10), Some(owner(by)))).await
}

fn tenure<L: Leases>(held: &Lease<L>) -> Tenure {
    Tenure {
        resource: held.resource().clone(),
        owner: held.owner().clone(),
        token: held.fencing_token(),
    }
}
