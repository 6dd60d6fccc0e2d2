//! `ratelimiterd top`: a live view of a server's limits.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ratelimiter::{Backend, LimitKey, LimitState, LimitStatus, Page};

use super::Failure;
use super::remote::Remote;

/// How wide a full bar is.
const BAR_CHARACTERS: u64 = 24;

/// Live view of a running server's limits.
#[derive(Debug, Args)]
pub(super) struct Top {
    #[command(flatten)]
    remote: Remote,
    /// Only keys that begin with this
    #[arg(long, default_value = "")]
    prefix: String,
    /// How many limits are shown, the fullest first
    #[arg(long, default_value_t = 30)]
    rows: usize,
    /// How often to look, in milliseconds
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    every_ms: u64,
    /// Look this many times and end; for ever if not given
    #[arg(long)]
    times: Option<u64>,
}

pub(super) async fn run(top: Top) -> Result<ExitCode, Failure> {
    let server = top.remote.limiter()?;
    let page = Page { prefix: top.prefix.clone(), after: None, count_max: None };
    let mut ticks = tokio::time::interval(Duration::from_millis(top.every_ms));
    let mut used_before: HashMap<LimitKey, u64> = HashMap::new();
    let mut times_left = top.times.unwrap_or(u64::MAX);
    while times_left > 0 {
        times_left -= 1;
        ticks.tick().await;
        let mut states = server.states(&page).await.map_err(Failure::of)?;
        states.sort_by(|a, b| {
            fullness(b).total_cmp(&fullness(a)).then(a.limit.key.cmp(&b.limit.key))
        });
        states.truncate(top.rows);
        let screen = render(&states, &used_before, Duration::from_millis(top.every_ms));
        let clear = if io::stdout().is_terminal() { "\x1b[2J\x1b[H" } else { "" };
        io::stdout().write_all(format!("{clear}{screen}").as_bytes()).map_err(Failure::of)?;
        used_before =
            states.iter().map(|state| (state.limit.key.clone(), state.usage.used)).collect();
    }
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::cast_precision_loss, reason = "only sorts and draws")]
fn fullness(state: &LimitState) -> f64 {
    state.usage.used as f64 / state.limit.capacity.get().max(1) as f64
}

fn render(states: &[LimitState], used_before: &HashMap<LimitKey, u64>, every: Duration) -> String {
    let mut screen = format!(
        "{:<26} {:>22} {:>10} {:>10}  KEY\n",
        "FILLED", "USED/CAPACITY", "CHANGE/S", "DEBT"
    );
    for state in states {
        let LimitState { limit, status, usage } = state;
        let change = used_before
            .get(&limit.key)
            .map_or(0, |before| i128::from(usage.used) - i128::from(*before));
        let per_second =
            change * 1_000 / i128::try_from(every.as_millis()).unwrap_or(i128::MAX).max(1);
        let note = match status {
            LimitStatus::Active => String::new(),
            LimitStatus::Decreasing { to } => format!("  (decreasing to {to})"),
        };
        screen += &format!(
            "[{}] {:>22} {per_second:>+10} {:>10}  {}{note}\n",
            bar(usage.used, limit.capacity.get()),
            format!("{}/{}", usage.used, limit.capacity),
            usage.debt,
            limit.key,
        );
    }
    screen
}

fn bar(used: u64, capacity: u64) -> String {
    let filled = u128::from(used) * u128::from(BAR_CHARACTERS) / u128::from(capacity.max(1));
    let filled = usize::try_from(filled.min(u128::from(BAR_CHARACTERS))).unwrap_or(0);
    let empty = usize::try_from(BAR_CHARACTERS).unwrap_or(0) - filled;
    "#".repeat(filled) + &".".repeat(empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_full_as_its_limit() {
        assert_eq!(bar(0, 10), ".".repeat(24));
        assert_eq!(bar(5, 10), "#".repeat(12) + &".".repeat(12));
        assert_eq!(bar(20, 10), "#".repeat(24));
        assert_eq!(bar(0, 0), ".".repeat(24));
    }
}
