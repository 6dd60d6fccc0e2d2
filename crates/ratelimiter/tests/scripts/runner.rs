//! Runs a script on a memory backend: `limit` lines define, every other line begins with its time.
//!
//! ```text
//! limit rpm rolling 60s 1            a limit; `deny` at the end for its overage
//! 0s reserve A rpm=1                 a lease and its requirements
//! 1s complete A rpm=0                a lease and its actuals
//! 1s define rpm rolling 60s 5        as `limit`, at a time
//! 1s delete rpm
//! 1s state rpm
//! 1s sweep
//! ```
//!
//! Hints have no jitter here, so that they are exact.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::clock::{Clock, FakeClock, Timestamp};
use ratelimiter::memory::MemoryOptions;
use ratelimiter::{
    Actuals, Capacity, CompleteError, CompleteRequest, Decision, DefineError, Denial, DenialReason,
    HintPolicy, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind, LimitState, LimitStatus,
    MemoryLimiter, Overage, Requirements, ReserveError, ReserveRequest, Window,
};

/// Runs a script; returns its timed lines, each with its result.
pub(crate) fn run(script: &str) -> String {
    let mut runner = Runner::new();
    let mut output = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(limit) = line.strip_prefix("limit ") {
            runner.limiter.define_now(limit_of(limit)).unwrap();
            continue;
        }
        let (at, command) = line.split_once(' ').expect("a time, then a command");
        runner.wait_until(duration_of(at));
        writeln!(output, "{line} -> {}", runner.answer(command)).unwrap();
    }
    output
}

struct Runner {
    clock: Arc<FakeClock>,
    began: Timestamp,
    limiter: MemoryLimiter,
    leases: HashMap<String, LeaseId>,
}

impl Runner {
    fn new() -> Self {
        let clock = Arc::new(FakeClock::new());
        let mut hints = HintPolicy::default();
        hints.rolling.jitter = Duration::ZERO;
        hints.concurrency.jitter = Duration::ZERO;
        let options = MemoryOptions { hints, ..MemoryOptions::for_tests(clock.clone()) };
        let limiter = MemoryLimiter::with_options(options);
        Self { began: clock.now(), clock, limiter, leases: HashMap::new() }
    }

    fn wait_until(&self, at: Duration) {
        let passed = self.clock.now().since(self.began);
        self.clock.advance(at.checked_sub(passed).expect("a script's time goes forward"));
    }

    fn answer(&mut self, command: &str) -> String {
        let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
        match verb {
            "reserve" => self.reserve(rest),
            "complete" => self.complete(rest),
            "define" => define_text(self.limiter.define_now(limit_of(rest))),
            "delete" => match self.limiter.delete_now(&key(rest)) {
                Ok(()) => "ok".to_owned(),
                Err(error) => error.to_string(),
            },
            "state" => {
                let state = self.limiter.state_now(&key(rest));
                state.map_or_else(|| "not defined".to_owned(), |state| state_text(&state))
            }
            "sweep" => {
                self.limiter.sweep();
                format!("{} open, {} past", self.limiter.open_leases(), self.limiter.past_leases())
            }
            _ => panic!("no such command: {command}"),
        }
    }

    fn reserve(&mut self, rest: &str) -> String {
        let (lease, pairs) = self.lease_and_pairs(rest);
        let request = ReserveRequest::new(lease, Requirements::of(pairs).unwrap());
        match self.limiter.reserve_now(&request) {
            Ok(Decision::Allowed { reserved_at }) if reserved_at == self.clock.now() => {
                "allowed".to_owned()
            }
            Ok(Decision::Allowed { reserved_at }) => {
                format!("allowed since {:?}", reserved_at.since(self.began))
            }
            Ok(Decision::Denied(denial)) => denial_text(&denial),
            Err(ReserveError::UnknownKey { key }) => format!("unknown {key}"),
            Err(ReserveError::AmountExceedsCapacity { key }) => {
                format!("exceeds capacity of {key}")
            }
            Err(ReserveError::LeaseConflict) => "lease conflict".to_owned(),
            Err(ReserveError::LeaseEnded) => "lease ended".to_owned(),
            Err(other) => panic!("not an answer of the memory backend: {other}"),
        }
    }

    fn complete(&mut self, rest: &str) -> String {
        let (lease, pairs) = self.lease_and_pairs(rest);
        let request = CompleteRequest::new(lease, Actuals::of(pairs).unwrap());
        match self.limiter.complete_now(&request) {
            Ok(()) => "ok".to_owned(),
            Err(CompleteError::InvalidActual { key }) => format!("invalid actual of {key}"),
            Err(other) => panic!("not an answer of the memory backend: {other}"),
        }
    }

    fn lease_and_pairs(&mut self, text: &str) -> (LeaseId, Vec<(LimitKey, u64)>) {
        let (name, pairs) = text.split_once(' ').unwrap_or((text, ""));
        let next = LeaseId::from_u128(self.leases.len() as u128 + 1);
        let lease = *self.leases.entry(name.to_owned()).or_insert(next);
        let pair = |pair: &str| {
            let (name, amount) = pair.split_once('=').expect("a key and an amount");
            (key(name), amount_of(amount))
        };
        (lease, pairs.split_whitespace().map(pair).collect())
    }
}

fn key(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}

/// `rpm rolling 60s 1`, with `deny` at the end for `Overage::Deny`.
fn limit_of(text: &str) -> Limit {
    let words: Vec<&str> = text.split_whitespace().collect();
    let seconds = duration_of(words[2]).as_secs();
    let kind = match words[1] {
        "rolling" => LimitKind::Rolling { window: Window::from_seconds(seconds).unwrap() },
        "concurrency" => {
            LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(seconds).unwrap() }
        }
        other => panic!("no such kind: {other}"),
    };
    let overage = if words.get(4) == Some(&"deny") { Overage::Deny } else { Overage::Debt };
    Limit {
        overage,
        ..Limit::new(key(words[0]), kind, Capacity::new(amount_of(words[3])).unwrap())
    }
}

/// A number, `2^63-1` or `2^64-1`.
fn amount_of(text: &str) -> u64 {
    match text {
        "2^63-1" => (1 << 63) - 1,
        "2^63" => 1 << 63,
        "2^64-1" => u64::MAX,
        digits => digits.parse().expect("a number"),
    }
}

/// `2s`, `150ms`, `1ns`, `10m`.
fn duration_of(text: &str) -> Duration {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).expect("a unit");
    let (number, unit) = text.split_at(unit_at);
    let number: u64 = number.parse().expect("a whole number");
    match unit {
        "ns" => Duration::from_nanos(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number * 60),
        other => panic!("no such unit: {other}"),
    }
}

fn denial_text(denial: &Denial) -> String {
    let retry_after = denial.retry_after;
    match &denial.reason {
        DenialReason::NoRoom { keys } => {
            let keys: Vec<&str> = keys.iter().map(LimitKey::as_str).collect();
            format!("denied {}, retry after {retry_after:?}", keys.join(" "))
        }
        DenialReason::Paused { key } => format!("{key} is paused, retry after {retry_after:?}"),
        DenialReason::Decreasing { key } => {
            format!("{key} is decreasing, retry after {retry_after:?}")
        }
    }
}

fn define_text(answer: Result<LimitStatus, DefineError>) -> String {
    match answer {
        Ok(status) => status_text(status),
        Err(DefineError::KindConflict { key, is }) => format!("{key} is {is}"),
        Err(other) => panic!("not an answer of the memory backend: {other}"),
    }
}

fn status_text(status: LimitStatus) -> String {
    match status {
        LimitStatus::Active => "active".to_owned(),
        LimitStatus::Paused => "paused".to_owned(),
        LimitStatus::Decreasing { to } => format!("decreasing to {to}"),
    }
}

fn state_text(state: &LimitState) -> String {
    let LimitState { limit, status, usage } = state;
    let mut text = format!("{}, used {} of {}", status_text(*status), usage.used, limit.capacity);
    if usage.uncovered > 0 {
        write!(text, ", debt {}, uncovered {}", usage.debt, usage.uncovered).unwrap();
    }
    text
}
