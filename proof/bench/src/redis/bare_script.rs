//! One Lua script that checks four keys and increments all of them or none.
//!
//! The script has fixed windows and no leases, so it does less than a limiter: it shows the cost of the round trip and of the
//! script alone.

use testkit::redis::{TestRedis, packed};

use crate::load::Target;
use crate::load::reply::ExpectedReply;
use crate::load::request::Template;
use crate::workload::{AMOUNTS, batches, keys};

/// `ARGV` has the amounts of all keys, then their capacities, then their windows in milliseconds.
const SCRIPT: &str = "
for i, key in ipairs(KEYS) do
  local used = tonumber(redis.call('GET', key) or '0')
  if used + ARGV[i] > tonumber(ARGV[#KEYS + i]) then return 0 end
end
for i, key in ipairs(KEYS) do
  local used = redis.call('INCRBY', key, ARGV[i])
  if used == tonumber(ARGV[i]) then redis.call('PEXPIRE', key, ARGV[2 * #KEYS + i]) end
end
return 1";
/// More than a run uses, and exact in the script's floating-point numbers.
const CAPACITY: u64 = 1 << 52;
const WINDOWS_MS: [u64; 4] = [60_000, 60_000, 300_000, 86_400_000];

/// The script for calls to these models, `reserves_per_request` of them in a pipeline.
pub(crate) fn target(redis: &TestRedis, model_count: usize, reserves_per_request: usize) -> Target {
    let sha = redis.command(&["SCRIPT", "LOAD", SCRIPT]);
    let batches = batches(model_count, reserves_per_request, reserves_per_request);
    let template = |models: Vec<usize>| {
        Template::of_bytes(models.into_iter().flat_map(|model| check(&sha, model)).collect())
    };
    Target {
        addr: redis.addr(),
        templates: batches.map(template).collect(),
        reply: ExpectedReply::RedisOne { count: reserves_per_request },
        reserves_per_request,
    }
}

fn check(sha: &str, model: usize) -> Vec<u8> {
    let keys = keys(model).map(|key| key.to_string());
    let mut words = vec!["EVALSHA".to_owned(), sha.to_owned(), keys.len().to_string()];
    let capacities = keys.each_ref().map(|_| CAPACITY);
    words.extend(keys);
    words.extend([AMOUNTS, capacities, WINDOWS_MS].as_flattened().iter().map(u64::to_string));
    packed(&words)
}
