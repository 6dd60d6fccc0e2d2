//! Prototype 4: a limit defined on a running server is active at once; neither the server nor TigerBeetle restarts.

use std::process::ExitCode;

use prototypes::semantics::{new_lease, word};
use prototypes::server_process::ServerProcess;
use prototypes::{Error, Steps, cluster};
use ratelimiter_client::{
    Actuals, Backend, Capacity, CompleteRequest, HoldTimeout, HttpLimiter, Limit, LimitKey,
    LimitKind, LimitStatus, Limiter, Requirements, ReserveError, ReserveRequest, Window,
};
use testkit::tigerbeetle::Mode;

fn main() -> Result<ExitCode, Error> {
    if std::env::args().nth(1).is_some_and(|argument| argument == "serve") {
        return Ok(ratelimiterd::cli::run());
    }
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<ExitCode, Error> {
    let mut steps = Steps::start("A server on TigerBeetle: new limits without a restart");
    let cluster = cluster::start(Mode::Development)?;
    let mut server = ServerProcess::start(&cluster)?;
    let limiter = HttpLimiter::new(&server.url())?;
    let rpm = LimitKey::llm_rpm("prototype", "added-at-runtime")?;
    let slots = LimitKey::llm_concurrency("prototype", "added-at-runtime")?;
    let requirements = Requirements::of([(rpm.clone(), 1), (slots.clone(), 1)])?;
    let request = || ReserveRequest::new(new_lease(), requirements.clone());

    let unknown = ReserveError::UnknownKey { key: rpm.clone() };
    let answer = limiter.reserve(&request()).await;
    steps.equal("reserve before the limits are defined", &Err(unknown), &answer);

    let minute = LimitKind::Rolling { window: Window::from_seconds(60)? };
    let held = LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(60)? };
    for (key, kind, capacity) in [(&rpm, minute, 2), (&slots, held, 1)] {
        let limit = Limit::new(key.clone(), kind, Capacity::new(capacity)?);
        let status = limiter.define(limit).await?;
        steps.equal(&format!("PUT {key} = {capacity}"), &LimitStatus::Active, &status);
    }
    let first = request();
    let decision = limiter.reserve(&first).await?;
    steps.equal("reserve at once", &"allowed", &word(&decision));
    let decision = limiter.reserve(&request()).await?;
    steps.equal("reserve again: the only slot is held", &"denied", &word(&decision));
    limiter.complete(&CompleteRequest::new(first.lease, Actuals::none())).await?;
    let decision = limiter.reserve(&request()).await?;
    steps.equal("complete the first and reserve", &"allowed", &word(&decision));

    let limit = Limit::new(rpm.clone(), minute, Capacity::new(3)?);
    steps.equal("PUT a higher capacity", &LimitStatus::Active, &limiter.define(limit).await?);
    let state = limiter.state(&rpm).await?.ok_or("the limit is defined")?;
    let usage = (state.limit.capacity.get(), state.usage.used);
    steps.equal("GET it: capacity and usage", &(3, 2), &usage);
    steps.equal("the server is still the same process", &true, &server.is_running());
    Ok(steps.end())
}
