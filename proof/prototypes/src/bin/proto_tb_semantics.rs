//! Prototype 1: a denied lease ID stays denied on TigerBeetle, so a retry needs a new one.

use std::process::ExitCode;

use prototypes::{Error, Steps, cluster, semantics};
use testkit::tigerbeetle::Mode;

#[tokio::main]
async fn main() -> Result<ExitCode, Error> {
    let mut steps = Steps::start("TigerBeetle: a retry after a denial needs a new lease ID");
    let cluster = cluster::start(Mode::Development)?;
    let limiter = cluster::limiter(&cluster.settings()).await?;
    semantics::run(&mut steps, &limiter).await?;
    Ok(steps.end())
}
