//! The Redis backend of a server.

use ratelimiter::{
    Backend, DefineError, HintPolicy, LeasePage, LeasesError, Limit, LimitKey, LimitState,
    LimitStatus, OpenLease, Page, RegisteredLimit, Registry, StateError, Unanswered,
};
use ratelimiter_redis::{Observations, RedisLimiter, RedisOptions};
use ratelimiter_waiting::Runtime;
use tokio::sync::Notify;

use crate::config::Config;
use crate::hosted::{HostedBackend, NotReady};
use crate::metrics::Text;
use crate::server::as_usize;

/// A limiter on Redis, which connects at the first request.
///
/// # Panics
/// The settings are invalid; those of a [`Config`] that was read never are.
pub fn open(config: &Config, hints: HintPolicy) -> RedisLimiter {
    let Config { redis, registry, .. } = config;
    let options = RedisOptions {
        hints,
        instances_max: as_usize(registry.instances_max),
        new_instances_per_second_max: as_usize(registry.new_instances_per_second_max),
        ..RedisOptions::default()
    };
    RedisLimiter::new(redis.checked(), options)
}

impl HostedBackend for RedisLimiter {
    /// Not needed: the definitions are in Redis.
    async fn restore(&self, registered: RegisteredLimit) -> Result<LimitStatus, DefineError> {
        let capacity = registered.target();
        self.define(Limit { capacity, ..registered.limit }).await
    }

    async fn visible_states(
        &self,
        page: &Page,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<LimitState>, StateError> {
        self.states_where(page, is_visible).await
    }

    async fn visible_leases(
        &self,
        page: &LeasePage,
        is_visible: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<OpenLease>, LeasesError> {
        self.leases_where(page, is_visible).await
    }

    fn keeps_definitions(&self) -> bool {
        true
    }

    async fn definitions(&self) -> Result<Registry, Unanswered> {
        self.registry().await
    }

    async fn follow_changes(&self, changed: &Notify) {
        Self::follow_changes(self, || changed.notify_one()).await;
    }

    async fn governing(&self, keys: &[LimitKey]) -> Result<Vec<Option<Limit>>, Unanswered> {
        Self::governing(self, keys).await
    }

    async fn ready(&self) -> Result<(), NotReady> {
        Self::ready(self).await.map_err(|problem| NotReady { reason: problem.to_string() })
    }

    async fn tick(&self, _: &dyn Runtime) {
        Self::tick(self).await;
    }

    /// As of the last tick.
    fn open_leases(&self) -> Option<u64> {
        Some(Self::open_leases(self))
    }

    fn metrics_key(&self, key: &LimitKey) -> Option<LimitKey> {
        Self::metrics_key(self, key)
    }

    fn instances(&self) -> Vec<(LimitKey, usize)> {
        self.instances_by_template()
    }

    fn write_metrics(&self, text: &mut String) {
        let mut own = Text::default();
        write_observations(&self.observations(), &mut own);
        text.push_str(&own.into_string());
    }
}

fn write_observations(seen: &Observations, text: &mut Text) {
    let Observations { round_trips, calls, errors, is_subscribed, changes, .. } = seen;
    let mut one = |name: &str, kind: &str, help: &str, value: u64| {
        text.family(name, kind, help);
        text.sample(name, &[], value);
    };
    let help = "Requests and pipelines sent to Redis.";
    one("ratelimiter_redis_round_trips_total", "counter", help, *round_trips);
    let help = "Calls of scripts and commands in them.";
    one("ratelimiter_redis_calls_total", "counter", help, *calls);
    let help = "Whether changes of limits at other servers are followed (1) or not (0).";
    one("ratelimiter_redis_subscribed", "gauge", help, u64::from(*is_subscribed));
    let help = "Changes of limits that were announced, this server's own included.";
    one("ratelimiter_redis_changes_total", "counter", help, *changes);
    if let Some(server) = &seen.server {
        let help = "Memory that Redis uses for everything in it.";
        one("ratelimiter_redis_memory_used_bytes", "gauge", help, server.used_memory_bytes);
        let help = "The most memory that Redis may use (maxmemory); 0 if there is no bound.";
        one("ratelimiter_redis_memory_max_bytes", "gauge", help, server.maxmemory_bytes);
        let help = "Whether the maxmemory-policy of Redis is another one than noeviction.";
        one("ratelimiter_redis_may_evict", "gauge", help, u64::from(server.may_evict()));
        let help = "Ended and denied leases that are remembered in Redis.";
        one("ratelimiter_redis_past_leases", "gauge", help, seen.past_leases);
    }
    let name = "ratelimiter_redis_errors_total";
    text.family(name, "counter", "Calls without an answer, by reason.");
    for (reason, count) in errors {
        text.sample(name, &[("reason", reason)], *count);
    }
    write_pipeline_sizes(seen, text);
}

fn write_pipeline_sizes(seen: &Observations, text: &mut Text) {
    let name = "ratelimiter_redis_pipeline_size";
    text.family(name, "histogram", "Calls in one round trip.");
    let (bucket, mut sum) = (format!("{name}_bucket"), 0);
    for (power, count) in seen.pipeline_sizes.iter().enumerate() {
        sum += count;
        text.sample(&bucket, &[("le", &(1_u64 << power).to_string())], sum);
    }
    text.sample(&bucket, &[("le", "+Inf")], sum);
    text.sample(&format!("{name}_sum"), &[], seen.calls);
    text.sample(&format!("{name}_count"), &[], sum);
}

#[cfg(test)]
mod tests {
    use ratelimiter_redis::ServerInfo;

    use super::*;

    #[test]
    fn observations_are_counted_under_stable_names() {
        let errors = vec![("away", 2), ("memory", 1)];
        let mut text = Text::default();
        let server = ServerInfo {
            version: "7.0.15".to_owned(),
            used_memory_bytes: 1_000,
            maxmemory_bytes: 2_000,
            maxmemory_policy: "volatile-lru".to_owned(),
            ..ServerInfo::default()
        };
        let seen = Observations {
            round_trips: 7,
            calls: 9,
            pipeline_sizes: [6, 0, 1, 0, 0, 0, 0, 0],
            errors,
            is_subscribed: true,
            changes: 3,
            server: Some(server),
            past_leases: 4,
        };
        write_observations(&seen, &mut text);
        let text = text.into_string();
        for line in [
            "ratelimiter_redis_round_trips_total 7",
            "ratelimiter_redis_calls_total 9",
            "ratelimiter_redis_errors_total{reason=\"away\"} 2",
            "ratelimiter_redis_errors_total{reason=\"memory\"} 1",
            "ratelimiter_redis_subscribed 1",
            "ratelimiter_redis_changes_total 3",
            "ratelimiter_redis_memory_used_bytes 1000",
            "ratelimiter_redis_memory_max_bytes 2000",
            "ratelimiter_redis_may_evict 1",
            "ratelimiter_redis_past_leases 4",
            "ratelimiter_redis_pipeline_size_bucket{le=\"2\"} 6",
            "ratelimiter_redis_pipeline_size_bucket{le=\"4\"} 7",
            "ratelimiter_redis_pipeline_size_bucket{le=\"128\"} 7",
            "ratelimiter_redis_pipeline_size_bucket{le=\"+Inf\"} 7",
            "ratelimiter_redis_pipeline_size_sum 9",
            "ratelimiter_redis_pipeline_size_count 7",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
