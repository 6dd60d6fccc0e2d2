//! Prototype 3: void and re-reserve frees what a call did not use at once.

use std::process::ExitCode;

use prototypes::{Error, Steps, cluster, reconcile};
use testkit::tigerbeetle::Mode;

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let mut steps = Steps::begin("TigerBeetle: what a call did not use is free at once");
    let cluster = cluster::start(Mode::Development)?;
    let limiter = cluster::limiter(&cluster.settings()).await?;
    reconcile::play(&mut steps, &limiter).await?;
    Ok(steps.end())
}
