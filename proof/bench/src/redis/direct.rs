//! The script of a reserve, as the limiter sends it.

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{LeaseId, Limiter, ReserveRequest};
use ratelimiter_redis::RedisLimiter;
use testkit::redis::TestRedis;

use super::{SECONDS_MIN, redis_workload};
use crate::load::Target;
use crate::load::reply::ExpectedReply;
use crate::load::request::Template;
use crate::workload::batches;

/// Reserves of calls to all models, `reserves_per_request` of them in a pipeline.
pub(super) async fn target(
    redis: &TestRedis,
    limiter: &RedisLimiter,
    model_count: usize,
    reserves_per_request: usize,
) -> Target {
    let (clock, workload) = (MonotonicClock::new(), redis_workload(SECONDS_MIN));
    let request = |model| {
        ReserveRequest::new(LeaseId::generate(clock.now()), workload.call(model).requirements)
    };
    // Redis then has the script.
    let first = limiter.reserve(&request(0)).await.expect("Redis answers");
    assert!(first.is_allowed(), "the limits never deny");
    let template = |models: Vec<usize>| {
        let requests: Vec<_> = models.into_iter().map(request).collect();
        let leases: Vec<_> = requests.iter().map(|request| request.lease).collect();
        let packed = |request| limiter.packed_reserve(request).expect("the keys are defined");
        let bytes = requests.iter().flat_map(packed).collect();
        let text = String::from_utf8(bytes).expect("arguments of a script are text");
        Template::with_leases(&text, &leases)
    };
    let batches = batches(model_count, reserves_per_request, reserves_per_request);
    Target {
        addr: redis.addr(),
        templates: batches.map(template).collect(),
        reply: ExpectedReply::RedisAllowed { count: reserves_per_request },
        reserves_per_request,
    }
}
