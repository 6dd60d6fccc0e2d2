//! Prototype 3: void and re-reserve makes unused tokens available at once.

use std::process::ExitCode;

use prototypes::{Error, Steps, cluster, reconcile};
use testkit::tigerbeetle::Mode;

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let mut steps = Steps::start("TigerBeetle: unused tokens are available at once");
    let cluster = cluster::start(Mode::Development)?;
    let limiter = cluster::limiter(&cluster.settings()).await?;
    reconcile::run(&mut steps, &limiter).await?;
    Ok(steps.end())
}
