//! Open leases, as an operator sees them.

use std::str::FromStr;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    HeldAmount, JobId, LeaseId, LeasePage, LeasesError, LimitKey, OpenLease, Unanswered,
};

use super::RedisLimiter;
use crate::reply::{Reply, timestamp};
use crate::script::ScriptName;

/// The leases of one call.
const LEASES_MAX: usize = 200;

impl RedisLimiter {
    /// A page of the open leases that have something of a listed limit, with their amounts of listed limits.
    ///
    /// # Errors
    /// As for [`Backend::leases`](ratelimiter::Backend::leases).
    pub async fn leases_where(
        &self,
        page: &LeasePage,
        is_listed: impl Fn(&LimitKey) -> bool + Send + Sync,
    ) -> Result<Vec<OpenLease>, LeasesError> {
        self.has_present_definitions().await?;
        let script = ScriptName::Leases;
        let (mut after_at, mut after) = (String::new(), String::new());
        if let Some(lease) = page.after {
            after = lease.to_string();
        }
        let mut leases = Vec::new();
        loop {
            let mut call = self.redis.call(script);
            self.add_memory(&mut call);
            call.arg(LEASES_MAX).arg(&after_at).arg(&after);
            let reply = self.redis.run(script, &call).await?;
            if reply.status() == "unknown" {
                let lease = page.after.ok_or_else(|| reply.unexpected())?;
                return Err(LeasesError::UnknownLease { lease });
            }
            let now = timestamp(reply.number(1)?);
            for row in reply.rows(2)? {
                let lease = self.read_lease(&row, now, &is_listed)?;
                if lease.age < page.older_than {
                    return Ok(leases);
                }
                if page.has(&lease.amounts) {
                    leases.push(lease);
                }
                if leases.len() >= page.len_max() {
                    return Ok(leases);
                }
            }
            if reply.number(3)? == 1 || page.len_max() == 0 {
                return Ok(leases);
            }
            (after_at, after) = (reply.text(4)?.to_owned(), reply.text(5)?.to_owned());
        }
    }

    fn read_lease(
        &self,
        row: &Reply,
        now: Timestamp,
        is_listed: impl Fn(&LimitKey) -> bool,
    ) -> Result<OpenLease, Unanswered> {
        let lease = LeaseId::from_str(row.text(0)?).map_err(|_| row.unexpected())?;
        let reserved_at = timestamp(row.number(1)?);
        let job = match row.text(2)? {
            "" => None,
            job => JobId::new(job).ok(),
        };
        let definitions = self.definitions();
        let mut amounts = Vec::new();
        for amount in row.rows(3)? {
            let key = LimitKey::new(amount.text(0)?).map_err(|_| row.unexpected())?;
            if definitions.find(&key).is_some() && is_listed(&key) {
                let lapses_at = amount.moment(2).ok_or_else(|| row.unexpected())?;
                amounts.push(HeldAmount { key, amount: amount.number(1)?, lapses_at });
            }
        }
        amounts.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(OpenLease { lease, job, reserved_at, age: now.since(reserved_at), amounts })
    }
}
