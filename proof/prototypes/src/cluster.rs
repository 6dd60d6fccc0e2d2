//! A TigerBeetle server for a prototype.

use ratelimiter_tigerbeetle::ledger::cluster::{
    ClusterConfig, ClusterLedger, ClusterSettings, NoObserver,
};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use testkit::tigerbeetle::{BINARY_VARIABLE, Mode, TestCluster, find_binary};

use crate::Error;

/// Starts a TigerBeetle server on a free port with a temporary data file.
///
/// # Errors
/// There is no server binary.
pub fn start(mode: Mode) -> Result<TestCluster, Error> {
    if find_binary().is_none() {
        let reason =
            format!("no TigerBeetle: set {BINARY_VARIABLE}, or put tigerbeetle on the PATH");
        return Err(reason.into());
    }
    Ok(TestCluster::start(mode))
}

/// A limiter on the cluster.
///
/// # Errors
/// The settings are not valid, or the system starts no more threads.
pub async fn limiter(
    settings: &ClusterSettings,
) -> Result<TigerBeetleLimiter<ClusterLedger>, Error> {
    let ledger = ClusterLedger::open(ClusterConfig::new(settings)?, NoObserver)?;
    ledger.ready().await;
    Ok(TigerBeetleLimiter::new(ledger, LimiterOptions::default()))
}
