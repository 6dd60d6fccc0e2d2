//! `ratelimiterd limits leases`: the open leases of a running server.

use std::time::Duration;

use clap::Args;
use ratelimiter::{
    Backend, HeldAmount, JobId, LEASE_PAGE_DEFAULT, LEASE_PAGE_MAX, LeasePage, LimitKey, OpenLease,
};
use ratelimiter_client::HttpLimiter;

use super::CliError;
use super::table::aligned;

#[derive(Debug, Args)]
pub(super) struct Leases {
    /// Only leases that have something of this limit
    #[arg(long)]
    key: Option<String>,
    /// Only leases of at least this age
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    older_than: u64,
    /// At most this many, the oldest first
    #[arg(long, value_name = "N", default_value_t = LEASE_PAGE_DEFAULT)]
    limit: usize,
}

pub(super) async fn list(server: &HttpLimiter, leases: Leases) -> Result<String, CliError> {
    let Leases { key, older_than, limit } = leases;
    let mut page = LeasePage {
        key: key.map(LimitKey::new).transpose().map_err(CliError::of)?,
        older_than: Duration::from_secs(older_than),
        ..LeasePage::default()
    };
    let mut listed: Vec<OpenLease> = Vec::new();
    loop {
        page.count_max = LEASE_PAGE_MAX.min(limit - listed.len());
        let more = server.leases(&page).await.map_err(CliError::of)?;
        let is_last = more.len() < page.count_max;
        listed.extend(more);
        if is_last || listed.len() == limit {
            return Ok(table(&listed));
        }
        page.after = listed.last().map(|open| open.lease);
    }
}

fn table(leases: &[OpenLease]) -> String {
    let mut rows = vec![["LEASE", "AGE", "JOB", "AMOUNTS"].map(str::to_owned)];
    for OpenLease { lease, job, age, amounts, .. } in leases {
        let amount = |HeldAmount { key, amount, .. }: &HeldAmount| format!("{key}={amount}");
        rows.push([
            lease.to_string(),
            format!("{}s", age.as_secs()),
            job.as_ref().map_or("-", JobId::as_str).to_owned(),
            amounts.iter().map(amount).collect::<Vec<_>>().join(" "),
        ]);
    }
    aligned(&rows)
}
