//! `ratelimiterd top`: live view of a server's limits.

use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ratelimiter::{Backend, LimitKey, LimitMode, LimitState, LimitStatus, Page};

use super::CliError;
use super::denials::{DenialCounts, denied_counts};
use super::remote::Remote;

const BAR_CHARACTERS: usize = 24;

/// Live view of a running server's limits.
#[derive(Debug, Args)]
pub(super) struct Top {
    #[command(flatten)]
    remote: Remote,
    /// Only keys that begin with this
    #[arg(long, default_value = "")]
    prefix: String,
    /// Number of limits to show, the fullest first
    #[arg(long, default_value_t = 30)]
    rows: usize,
    /// Refresh interval in milliseconds
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    every_ms: u64,
    /// Number of refreshes; default: until interrupted
    #[arg(long)]
    times: Option<u64>,
}

/// Counts at one refresh.
#[derive(Debug, Default)]
struct Snapshot {
    used: HashMap<LimitKey, u64>,
    denied: DenialCounts,
}

pub(super) async fn run(top: Top) -> Result<ExitCode, CliError> {
    let server = top.remote.limiter()?;
    let page = Page { prefix: top.prefix.clone(), ..Page::default() };
    let every = Duration::from_millis(top.every_ms);
    let mut ticks = tokio::time::interval(every);
    let mut before: Option<Snapshot> = None;
    let mut times_left = top.times.unwrap_or(u64::MAX);
    while times_left > 0 {
        times_left -= 1;
        ticks.tick().await;
        let mut states = server.states(&page).await.map_err(CliError::of)?;
        let denied = denied_counts(&server).await;
        let used = states.iter().map(|state| (state.limit.key.clone(), state.usage.used)).collect();
        let now = Snapshot { used, denied };
        states.sort_by(|a, b| {
            usage_millionths(b)
                .cmp(&usage_millionths(a))
                .then_with(|| a.limit.key.cmp(&b.limit.key))
        });
        states.truncate(top.rows);
        let screen = render(&states, &now, before.as_ref().unwrap_or(&now), every);
        let clear = if io::stdout().is_terminal() { "\x1b[2J\x1b[H" } else { "" };
        io::stdout().write_all(format!("{clear}{screen}").as_bytes()).map_err(CliError::of)?;
        before = Some(now);
    }
    Ok(ExitCode::SUCCESS)
}

/// Used part of the capacity, in millionths.
fn usage_millionths(state: &LimitState) -> u128 {
    u128::from(state.usage.used) * 1_000_000 / u128::from(state.limit.capacity.get().max(1))
}

fn render(states: &[LimitState], now: &Snapshot, before: &Snapshot, every: Duration) -> String {
    let mut screen = format!(
        "{:<26} {:>22} {:>9} {:>9} {:>9} {:>9}  KEY\n",
        "FILLED", "USED/CAPACITY", "CHANGE/S", "DENIED", "DENIED/S", "DEBT"
    );
    for state in states {
        let LimitState { limit, status, usage, resets_at: _ } = state;
        let key = limit.key.as_str();
        let used_before = before.used.get(&limit.key).copied().unwrap_or(usage.used);
        // In shadow mode, what the limit would have denied.
        let denied_key = (limit.mode, key.to_owned());
        let denied = now.denied.get(&denied_key).copied().unwrap_or(0);
        let denied_before = before.denied.get(&denied_key).copied().unwrap_or(0);
        let status = match status {
            LimitStatus::Active => None,
            LimitStatus::Paused => Some("paused".to_owned()),
            LimitStatus::Decreasing { to } => Some(format!("decreasing to {to}")),
        };
        let mode = (limit.mode == LimitMode::Shadow).then(|| "shadow".to_owned());
        let notes: Vec<_> = mode.into_iter().chain(status).collect();
        let note = if notes.is_empty() { "" } else { &format!("  ({})", notes.join(", ")) };
        screen += &format!(
            "[{}] {:>22} {:>+9} {denied:>9} {:>9} {:>9}  {key}{note}\n",
            bar(state),
            format!("{}/{}", usage.used, limit.capacity),
            per_second(usage.used, used_before, every),
            per_second(denied, denied_before, every),
            usage.debt,
        );
    }
    screen
}

fn per_second(now: u64, before: u64, every: Duration) -> i128 {
    let every_ms = i128::try_from(every.as_millis()).unwrap_or(i128::MAX).max(1);
    (i128::from(now) - i128::from(before)) * 1_000 / every_ms
}

fn bar(state: &LimitState) -> String {
    let filled = usize::try_from(usage_millionths(state) * BAR_CHARACTERS as u128 / 1_000_000);
    let filled = filled.unwrap_or(BAR_CHARACTERS).min(BAR_CHARACTERS);
    "#".repeat(filled) + &".".repeat(BAR_CHARACTERS - filled)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ratelimiter::{Capacity, Limit, LimitKind, Usage, Window};

    use super::*;

    fn state(key: &str, used: u64, capacity: u64) -> LimitState {
        let kind = LimitKind::Rolling { window: Window::from_seconds(60).unwrap() };
        let limit = Limit::new(LimitKey::new(key).unwrap(), kind, Capacity::new(capacity).unwrap());
        let usage = Usage { used, available: 0, debt: 3, uncovered: 3 };
        LimitState { limit, status: LimitStatus::Active, usage, resets_at: None }
    }

    #[test]
    fn a_bar_is_as_full_as_its_limit() {
        for (used, capacity, filled) in
            [(0, 10, 0), (5, 10, 12), (10, 10, 24), (20, 10, 24), (0, 0, 0), (u64::MAX, 1, 24)]
        {
            let expected = "#".repeat(filled) + &".".repeat(24 - filled);
            assert_eq!(bar(&state("k", used, capacity)), expected, "{used}/{capacity}");
        }
    }

    /// SHD-01: `used` may exceed the capacity, and the denials are those that would have been.
    #[test]
    fn shd_01_a_limit_in_shadow_mode_is_marked() {
        let now = Snapshot {
            used: HashMap::new(),
            denied: HashMap::from([
                ((LimitMode::Enforce, "k".to_owned()), 1),
                ((LimitMode::Shadow, "k".to_owned()), 2),
            ]),
        };
        let mut shadow = state("k", u64::MAX >> 1, 3);
        shadow.limit.mode = LimitMode::Shadow;
        let mut paused = state("p", 3, 0);
        (paused.limit.mode, paused.status) = (LimitMode::Shadow, LimitStatus::Paused);
        let screen = render(&[shadow, paused], &now, &now, Duration::from_secs(1));
        expect![[r#"
            FILLED                              USED/CAPACITY  CHANGE/S    DENIED  DENIED/S      DEBT  KEY
            [########################]  9223372036854775807/3        +0         2         0         3  k  (shadow)
            [########################]                    3/0        +0         0         0         3  p  (shadow, paused)
        "#]].assert_eq(&screen);
    }

    #[test]
    fn rates_are_the_difference_between_two_snapshots() {
        let snapshot = |used, denied| Snapshot {
            used: HashMap::from([(LimitKey::new("k").unwrap(), used)]),
            denied: HashMap::from([
                ((LimitMode::Enforce, "k".to_owned()), denied),
                ((LimitMode::Shadow, "k".to_owned()), denied + 1),
            ]),
        };
        let mut decreasing = state("k", 6, 10);
        decreasing.status = LimitStatus::Decreasing { to: Capacity::new(4).unwrap() };
        let screen =
            render(&[decreasing], &snapshot(6, 30), &snapshot(8, 10), Duration::from_millis(500));
        expect![[r#"
            FILLED                              USED/CAPACITY  CHANGE/S    DENIED  DENIED/S      DEBT  KEY
            [##############..........]                   6/10        -4        30        40         3  k  (decreasing to 4)
        "#]].assert_eq(&screen);
    }
}
