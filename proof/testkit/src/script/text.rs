//! Scripts and answers as text.

use std::error::Error;
use std::fmt::{self, Write};
use std::str::FromStr;
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Actuals, Capacity, CompleteError, CompleteRequest, Decision, DefineError, Denial, DenialReason,
    HoldTimeout, LeaseId, Limit, LimitKey, LimitKind, LimitMode, LimitState, LimitStatus, Overage,
    Requirements, ReserveError, ReserveRequest, ResetDay, ResetSchedule, ResetTime, TimeZone,
    Weekday, Window,
};

use super::{Answer, Call, Script, Step};

/// Why a text is not a script.
pub type NotAScript = Box<dyn Error + Send + Sync>;

const WEEKDAYS: [Weekday; 7] = [
    Weekday::Monday,
    Weekday::Tuesday,
    Weekday::Wednesday,
    Weekday::Thursday,
    Weekday::Friday,
    Weekday::Saturday,
    Weekday::Sunday,
];

/// Amounts that are easier to read as powers.
const POWERS: [(u64, &str); 3] =
    [((1 << 63) - 1, "2^63-1"), (1 << 63, "2^63"), (u64::MAX, "2^64-1")];

impl FromStr for Script {
    type Err = NotAScript;

    fn from_str(text: &str) -> Result<Self, NotAScript> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Step {
    type Err = NotAScript;

    fn from_str(line: &str) -> Result<Self, NotAScript> {
        let line = line.split(" -> ").next().unwrap_or(line).trim();
        if let Some(limit) = line.strip_prefix("limit ") {
            return Ok(Self { at: Duration::ZERO, call: Call::Define(limit_of(limit)?) });
        }
        let (at, call) = line.split_once(' ').ok_or("a time, then a call")?;
        Ok(Self { at: duration_of(at)?, call: call.parse()? })
    }
}

impl FromStr for Call {
    type Err = NotAScript;

    fn from_str(text: &str) -> Result<Self, NotAScript> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        Ok(match verb {
            "define" => Self::Define(limit_of(rest)?),
            "delete" => Self::Delete(LimitKey::new(rest)?),
            "reserve" => {
                let (lease, needs) = lease_and_pairs(rest)?;
                Self::Reserve(ReserveRequest::new(lease, Requirements::of(needs)?))
            }
            "complete" => {
                let (lease, actuals) = lease_and_pairs(rest)?;
                Self::Complete(CompleteRequest::new(lease, Actuals::of(actuals)?))
            }
            "state" => Self::State(LimitKey::new(rest)?),
            "sweep" => Self::Sweep,
            _ => return Err(format!("no such call: {text}").into()),
        })
    }
}

/// `A rpm=1 tpm=20`
fn lease_and_pairs(text: &str) -> Result<(LeaseId, Vec<(LimitKey, u64)>), NotAScript> {
    let mut words = text.split_whitespace();
    let lease = u128::from_str_radix(words.next().ok_or("a lease")?, 36)?;
    let pair = |pair: &str| -> Result<_, NotAScript> {
        let (key, amount) = pair.rsplit_once('=').ok_or("a key and an amount")?;
        Ok((LimitKey::new(key)?, amount_of(amount)?))
    };
    Ok((LeaseId::from_u128(lease), words.map(pair).collect::<Result<_, _>>()?))
}

/// `rpm rolling 60s 1`, `budget calendar day@06:30/Europe/Sofia 1`; at the end `deny` for `Overage::Deny`, `shadow` for
/// `LimitMode::Shadow`.
///
/// # Errors
/// The text is no limit.
pub fn limit_of(text: &str) -> Result<Limit, NotAScript> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [key, kind, lifetime, capacity, options @ ..] = &words[..] else {
        return Err("a key, a kind, a lifetime and a capacity".into());
    };
    let seconds = || Ok::<_, NotAScript>(duration_of(lifetime)?.as_secs());
    let kind = match *kind {
        "rolling" => LimitKind::Rolling { window: Window::from_seconds(seconds()?)? },
        "concurrency" => LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(seconds()?)? },
        "calendar" => LimitKind::Calendar { resets: schedule_of(lifetime)? },
        other => return Err(format!("no such kind: {other}").into()),
    };
    let capacity = Capacity::new(amount_of(capacity)?)?;
    let mut limit = Limit::new(LimitKey::new(key)?, kind, capacity);
    for option in options {
        match *option {
            "deny" => limit.overage = Overage::Deny,
            "shadow" => limit.mode = LimitMode::Shadow,
            other => return Err(format!("no such option: {other}").into()),
        }
    }
    Ok(limit)
}

/// `hour@00:30`, `day@06:30/Europe/Sofia`, `week,sunday@06:30/UTC`, `month,28@06:30/UTC`
fn schedule_of(text: &str) -> Result<ResetSchedule, NotAScript> {
    let (period, when) = text.split_once('@').ok_or("a period and a time")?;
    let (at, zone) = when.split_once('/').unwrap_or((when, "UTC"));
    let (at, zone) = (at.parse::<ResetTime>()?, TimeZone::new(zone)?);
    Ok(match period.split_once(',').unwrap_or((period, "")) {
        ("hour", "") => ResetSchedule::Hourly { minute: at.minute() },
        ("day", "") => ResetSchedule::Daily { at, zone },
        ("week", name) => {
            let weekday = WEEKDAYS.into_iter().find(|weekday| weekday.name() == name);
            ResetSchedule::Weekly { weekday: weekday.ok_or("a weekday")?, at, zone }
        }
        ("month", day) => ResetSchedule::Monthly { day: ResetDay::new(day.parse()?)?, at, zone },
        _ => return Err(format!("no such period: {period}").into()),
    })
}

/// The inverse of [`limit_of`].
fn limit_text(limit: &Limit) -> String {
    let Limit { key, kind, capacity, overage, mode, .. } = limit;
    let lifetime = match kind {
        LimitKind::Rolling { .. } | LimitKind::Concurrency { .. } => kind.to_string(),
        LimitKind::Calendar { resets } => format!("calendar {}", schedule_text(*resets)),
    };
    let deny = if *overage == Overage::Deny { " deny" } else { "" };
    let shadow = if *mode == LimitMode::Shadow { " shadow" } else { "" };
    format!("{key} {lifetime} {}{deny}{shadow}", amount_text(capacity.get()))
}

fn schedule_text(schedule: ResetSchedule) -> String {
    match schedule {
        ResetSchedule::Hourly { minute } => format!("hour@{}", ResetTime::from(minute)),
        ResetSchedule::Daily { at, zone } => format!("day@{at}/{zone}"),
        ResetSchedule::Weekly { weekday, at, zone } => {
            format!("week,{}@{at}/{zone}", weekday.name())
        }
        ResetSchedule::Monthly { day, at, zone } => format!("month,{}@{at}/{zone}", day.get()),
    }
}

/// `20`, `2^63`
///
/// # Errors
/// The text is no amount.
pub fn amount_of(text: &str) -> Result<u64, NotAScript> {
    let power = POWERS.iter().find(|(_, power)| *power == text);
    power.map_or_else(|| Ok(text.parse()?), |(amount, _)| Ok(*amount))
}

/// `2s`, `150ms`, `1ns`
///
/// # Errors
/// The text is no duration.
pub fn duration_of(text: &str) -> Result<Duration, NotAScript> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or("a unit")?;
    let (number, unit) = text.split_at(unit_at);
    let number = number.parse()?;
    match unit {
        "ns" => Ok(Duration::from_nanos(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        other => Err(format!("no such unit: {other}").into()),
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, call } = self;
        match at.as_nanos() {
            nanos if nanos % 1_000_000_000 == 0 => write!(f, "{}s {call}", at.as_secs()),
            nanos if nanos % 1_000_000 == 0 => write!(f, "{}ms {call}", at.as_millis()),
            nanos => write!(f, "{nanos}ns {call}"),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Define(limit) => write!(f, "define {}", limit_text(limit)),
            Self::Delete(key) => write!(f, "delete {key}"),
            Self::Reserve(ReserveRequest { lease, requirements, .. }) => {
                write!(f, "reserve {}", lease_text(*lease))?;
                let mut needs = requirements.iter();
                needs.try_for_each(|need| {
                    write!(f, " {}={}", need.key, amount_text(need.amount.get()))
                })
            }
            Self::Complete(CompleteRequest { lease, actuals, .. }) => {
                write!(f, "complete {}", lease_text(*lease))?;
                let mut actuals = actuals.iter();
                actuals.try_for_each(|actual| {
                    write!(f, " {}={}", actual.key, amount_text(actual.amount))
                })
            }
            Self::State(key) => write!(f, "state {key}"),
            Self::Sweep => f.write_str("sweep"),
        }
    }
}

fn amount_text(amount: u64) -> String {
    let power = POWERS.iter().find(|(power, _)| *power == amount);
    power.map_or_else(|| amount.to_string(), |(_, text)| (*text).to_owned())
}

fn lease_text(lease: LeaseId) -> String {
    let mut digits = Vec::new();
    let mut rest = lease.as_u128();
    while rest > 0 || digits.is_empty() {
        let digit = u32::try_from(rest % 36).ok().and_then(|digit| char::from_digit(digit, 36));
        digits.push(digit.expect("it is below 36").to_ascii_uppercase());
        rest /= 36;
    }
    digits.iter().rev().collect()
}

impl Answer {
    /// The answer in words. It was given `at` this time after the script `began`.
    pub fn text(&self, began: Timestamp, at: Duration) -> String {
        match self {
            Self::Defined(Ok(status)) => status_text(*status),
            Self::Defined(Err(DefineError::KindConflict { key, is })) => format!("{key} is {is}"),
            Self::Defined(Err(error)) => error.to_string(),
            Self::Deleted(Ok(())) | Self::Completed(Ok(())) => "ok".to_owned(),
            Self::Deleted(Err(error)) => error.to_string(),
            Self::Decided(Ok(Decision::Allowed { reserved_at, shadow_denied })) => {
                let allowed = match reserved_at.since(began) {
                    since if since == at => "allowed".to_owned(),
                    since => format!("allowed since {since:?}"),
                };
                match &shadow_denied[..] {
                    [] => allowed,
                    keys => format!("{allowed}, shadow denied {}", key_list(keys)),
                }
            }
            Self::Decided(Ok(Decision::Denied(denial))) => denial_text(denial),
            Self::Decided(Err(ReserveError::UnknownKey { key })) => format!("unknown {key}"),
            Self::Decided(Err(ReserveError::AmountExceedsCapacity { key })) => {
                format!("exceeds capacity of {key}")
            }
            Self::Decided(Err(ReserveError::LeaseConflict)) => "lease conflict".to_owned(),
            Self::Decided(Err(ReserveError::LeaseEnded)) => "lease ended".to_owned(),
            Self::Decided(Err(error)) => error.to_string(),
            Self::Completed(Err(CompleteError::InvalidActual { key })) => {
                format!("invalid actual of {key}")
            }
            Self::Completed(Err(error)) => error.to_string(),
            Self::State(Ok(None)) => "not defined".to_owned(),
            Self::State(Ok(Some(state))) => state_text(state),
            Self::State(Err(error)) => error.to_string(),
            Self::Swept { open_count, past_count } => {
                format!("{open_count} open, {past_count} past")
            }
        }
    }
}

fn denial_text(denial: &Denial) -> String {
    let retry_after = denial.retry_after;
    match &denial.reason {
        DenialReason::NoRoom { keys } => {
            format!("denied {}, retry after {retry_after:?}", key_list(keys))
        }
        DenialReason::Paused { key } => format!("{key} is paused, retry after {retry_after:?}"),
        DenialReason::Decreasing { key } => {
            format!("{key} is decreasing, retry after {retry_after:?}")
        }
        DenialReason::TooManyInstances { template } => {
            format!("too many of {template}, retry after {retry_after:?}")
        }
        DenialReason::TooManyWaiters { keys } => {
            format!("too many wait for {}, retry after {retry_after:?}", key_list(keys))
        }
    }
}

fn key_list(keys: &[LimitKey]) -> String {
    keys.iter().map(LimitKey::as_str).collect::<Vec<_>>().join(" ")
}

/// `active`, `paused`, `decreasing to 5`
pub fn status_text(status: LimitStatus) -> String {
    match status {
        LimitStatus::Active => "active".to_owned(),
        LimitStatus::Paused => "paused".to_owned(),
        LimitStatus::Decreasing { to } => format!("decreasing to {to}"),
    }
}

fn state_text(state: &LimitState) -> String {
    let LimitState { limit, status, usage, resets_at: _ } = state;
    let mut text = format!("{}, used {} of {}", status_text(*status), usage.used, limit.capacity);
    if usage.uncovered > 0 {
        write!(text, ", debt {}, uncovered {}", usage.debt, usage.uncovered)
            .expect("a string takes any text");
    }
    text
}
