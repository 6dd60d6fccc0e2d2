//! `COM-05`, `COM-07`: leases outlive the server that made them, and end once.

use ratelimiter::{Backend, LeasePage, Limiter, ReleaseError, ReserveError};
use testkit::tigerbeetle::Fixture;
use testkit::{eventually, run};

use crate::processes::new_lease;
use crate::servers::Deployment;

const NEEDS: [(&str, u64); 2] = [("tokens", 50), ("slots", 1)];

async fn define(on: &Deployment, at: &impl Backend) {
    at.define(on.rolling("tokens", 3_600, 100)).await.unwrap();
    at.define(on.concurrency("slots", 3_600, 1)).await.unwrap();
}

/// COM-07
pub fn com_07_a_lease_of_a_killed_server_is_completed_at_another(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let (first, second) = (on.server().await, on.server().await);
        define(&on, &first.limiter()).await;
        let lease = new_lease();
        let decision = first.limiter().reserve(&on.reserve(lease, &NEEDS)).await.unwrap();
        assert!(decision.is_allowed());
        first.kill();
        let second = second.limiter();
        second.complete(&on.complete(lease, &[("tokens", 20)])).await.unwrap();
        // The second server may not have read of these limits yet when it completes them.
        for name in ["slots", "tokens"] {
            let is_known = async || on.state(&second, name).await.is_some();
            eventually("the limits are known", is_known).await;
        }
        assert_eq!(on.state(&second, "slots").await.unwrap().usage.used, 0);
        assert_eq!(on.state(&second, "tokens").await.unwrap().usage.used, 20);
    });
}

/// COM-07, RES-04, RES-09
pub fn com_07_a_lease_of_a_killed_server_is_known_to_its_replacement(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let first = on.server().await;
        define(&on, &first.limiter()).await;
        let (lease, denied) = (new_lease(), new_lease());
        let request = on.reserve(lease, &NEEDS);
        let decision = first.limiter().reserve(&request).await.unwrap();
        let refused = first.limiter().reserve(&on.reserve(denied, &NEEDS)).await.unwrap();
        assert!(decision.is_allowed() && !refused.is_allowed());
        first.kill();
        let server = on.server().await;
        let second = server.limiter();
        // The wire carries milliseconds, on both sides of the restart.
        assert_eq!(second.reserve(&request).await, Ok(decision));
        let other = on.reserve(lease, &[("tokens", 51), ("slots", 1)]);
        assert_eq!(second.reserve(&other).await, Err(ReserveError::LeaseConflict));
        second.complete(&on.complete(lease, &[("tokens", 0)])).await.unwrap();
        assert_eq!(second.reserve(&request).await, Err(ReserveError::LeaseEnded));
        let again = second.reserve(&on.reserve(denied, &NEEDS)).await.unwrap();
        assert!(!again.is_allowed(), "there is room, but it was denied");
    });
}

/// COM-05: the first server still has the lease in memory as it was when the second one completed it.
pub fn com_05_a_complete_at_one_server_is_final_at_the_other(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let servers = (on.server().await, on.server().await);
        let (first, second) = (servers.0.limiter(), servers.1.limiter());
        define(&on, &first).await;
        let is_known = async || on.state(&second, "slots").await.is_some();
        eventually("the limits are known", is_known).await;
        for (needs, used) in [(&NEEDS[..], 80), (&NEEDS[..1], 160)] {
            let lease = new_lease();
            assert!(first.reserve(&on.reserve(lease, needs)).await.unwrap().is_allowed());
            second.complete(&on.complete(lease, &[("tokens", 80)])).await.unwrap();
            for actual in [0, 10, 90] {
                first.complete(&on.complete(lease, &[("tokens", actual)])).await.unwrap();
                let tokens = on.state(&first, "tokens").await.unwrap().usage;
                assert_eq!((tokens.used, tokens.debt), (used, 0), "{actual} of {needs:?}");
            }
            let more = first.reserve(&on.reserve(new_lease(), &[("tokens", 60)])).await.unwrap();
            assert!(!more.is_allowed(), "20 are free");
            first.define(on.rolling("tokens", 3_600, used + 100)).await.unwrap();
        }
    });
}

/// OPS-01, OPS-02: an operator may ask any server.
pub fn ops_01_ops_02_an_operator_releases_and_forgives_at_any_server(fixture: &Fixture) {
    run(async {
        let on = Deployment::on(fixture.development());
        let servers = (on.server().await, on.server().await);
        let (first, second) = (servers.0.limiter(), servers.1.limiter());
        define(&on, &first).await;
        let is_known = async || on.state(&second, "slots").await.is_some();
        eventually("the limits are known", is_known).await;
        let (stuck, owing) = (new_lease(), new_lease());
        assert!(first.reserve(&on.reserve(stuck, &NEEDS)).await.unwrap().is_allowed());
        assert!(first.reserve(&on.reserve(owing, &NEEDS[..1])).await.unwrap().is_allowed());
        let page = LeasePage { key: Some(on.key("slots")), ..LeasePage::default() };
        let listed = first.leases(&page).await.unwrap();
        assert_eq!(listed.iter().map(|open| open.lease).collect::<Vec<_>>(), [stuck]);
        assert_eq!(second.leases(&page).await, Ok(vec![]), "each lists its own");
        second.release(stuck).await.unwrap();
        let unknown = Err(ReleaseError::UnknownLease { lease: stuck });
        assert_eq!(first.release(stuck).await, unknown);
        assert_eq!(first.leases(&page).await, Ok(vec![]));
        assert_eq!(on.state(&first, "slots").await.unwrap().usage.used, 0);
        assert_eq!(on.state(&first, "tokens").await.unwrap().usage.used, 100);

        first.complete(&on.complete(owing, &[("tokens", 57)])).await.unwrap();
        let key = on.key("tokens");
        let both = futures::future::join(first.forgive(&key), second.forgive(&key)).await;
        assert_eq!(both.0.unwrap() + both.1.unwrap(), 7);
        assert_eq!(on.state(&second, "tokens").await.unwrap().usage.debt, 0);
    });
}
