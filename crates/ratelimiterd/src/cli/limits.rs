//! `ratelimiterd limits`: the admin API from a shell.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Subcommand};
use ratelimiter::{
    Backend, KeyPattern, LeaseId, LimitKey, LimitMode, LimitState, LimitStatus, Page,
    RegisteredLimit, Registry, StateError,
};
use ratelimiter_client::{HttpLimiter, HttpOptions};
use ratelimiter_wire::{
    Body, DEFINITIONS_MAX, DefinitionBody, KindBody, ModeBody, OverageBody, PeriodBody, Refusal,
    WeekdayBody, write_limits_file,
};
use serde::de::DeserializeOwned;

use super::CliError;
use super::diff::{Change, changes};
use super::leases::{self, Leases};
use super::remote::Remote;
use super::table::aligned;
use crate::LimitsFile;

/// How long one request may take: longer than a server with default settings waits for its backend, so that a command shows the
/// server's answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Limits per request. A page costs the server time in proportion to all limits, so there are few.
const PAGE_COUNT: usize = DEFINITIONS_MAX;

/// Define, delete and show the limits of a running server, and its open leases.
#[derive(Debug, Args)]
pub(super) struct Limits {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the limits with current usage
    List {
        /// Only keys that begin with this
        #[arg(long, default_value = "")]
        prefix: String,
        /// In place of what is defined, the limits that were made from this template and are in use or owe a debt
        #[arg(long, value_name = "KEY", conflicts_with = "json")]
        template: Option<String>,
        /// Print a limits file instead of a table, for `apply`
        #[arg(long)]
        json: bool,
    },
    /// Show one limit
    Get {
        /// The limit's key
        key: String,
    },
    /// Define a limit, or change one
    Put(Definition),
    /// Remove a limit
    Delete {
        /// The limit's key
        key: String,
    },
    /// List open leases, the oldest first
    Leases(Leases),
    /// End a lease whose caller does not: release its holds, keep its rolling reservations
    Release {
        /// The lease's ID
        lease: String,
    },
    /// Set the debt of a limit to 0
    Forgive {
        /// The limit's key
        key: String,
    },
    /// Make the server's limits those of a limits file: define, change and delete
    Apply {
        /// A limits file
        file: PathBuf,
        /// Show the difference and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Keep limits that are not in the file
        #[arg(long)]
        keep_others: bool,
    },
}

/// The wire checks which of these fields a kind has.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("returns").required(true))]
struct Definition {
    /// The limit's key; with a segment `*` or `**` a template for all keys that it matches
    key: String,
    /// Whether units return after a window or on completion
    #[arg(long, group = "returns", value_parser = one_of::<KindBody, _>(["rolling", "concurrency"]))]
    kind: Option<KindBody>,
    /// In place of --kind: units return at the end of each period
    #[arg(
        long,
        value_name = "PERIOD",
        group = "returns",
        conflicts_with_all = ["window_seconds", "timeout_seconds"],
        value_parser = one_of::<PeriodBody, _>(["hour", "day", "week", "month"])
    )]
    calendar: Option<PeriodBody>,
    /// The most units held at a time
    #[arg(long)]
    capacity: u64,
    /// Rolling: how long a reservation counts
    #[arg(long, default_value_t = 0)]
    window_seconds: u64,
    /// Concurrency: after which time a hold is released if the call never completes
    #[arg(long, default_value_t = 0)]
    timeout_seconds: u64,
    /// Calendar: whose clocks count, for example Europe/Sofia [default: UTC]
    #[arg(long, value_name = "NAME")]
    time_zone: Option<String>,
    /// Calendar: the time at which a period ends [default: 00:00]
    #[arg(long, value_name = "HH:MM")]
    resets_at: Option<String>,
    /// Calendar week: the day on which it ends [default: monday]
    #[arg(long, value_name = "DAY", value_parser = one_of::<WeekdayBody, _>(
        ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    ))]
    weekday: Option<WeekdayBody>,
    /// Calendar month: the day on which it ends, 1 to 28 [default: 1]
    #[arg(long)]
    day: Option<u64>,
    /// What one unit is, for example tokens
    #[arg(long, default_value = "")]
    unit: String,
    /// What the limit is for
    #[arg(long, default_value = "")]
    description: String,
    /// What to do with usage beyond the reservation if there is no room for it
    #[arg(long, value_parser = one_of::<OverageBody, _>(["debt", "deny"]), default_value = "debt")]
    overage: OverageBody,
    /// Count and never deny; answers name the limit if it would have denied
    #[arg(long)]
    shadow: bool,
}

/// Parses one of the values that the wire has for a type.
fn one_of<T, const N: usize>(values: [&'static str; N]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(values)
        .map(|value| serde_json::from_value(value.into()).expect("a value of the wire"))
}

pub(super) async fn run(limits: Limits) -> Result<ExitCode, CliError> {
    let Limits { action, remote } = limits;
    let server = remote.limiter_with(HttpOptions { timeout: TIMEOUT, ..remote.options()? })?;
    let text = match action {
        Action::List { prefix, template, json } => {
            let template = template.map(KeyPattern::new).transpose().map_err(CliError::of)?;
            let states = all_states(&server, &Page { prefix, template, ..Page::default() }).await?;
            if json { limits_file_of(&states) } else { table(&states) }
        }
        Action::Get { key } => {
            let key = parse_key(&key)?;
            match server.state(&key).await.map_err(CliError::of)? {
                Some(state) => table(&[state]),
                None => return Err(CliError(format!("no limit is defined for {key}"))),
            }
        }
        Action::Put(definition) => {
            let limit = definition.into_body()?.into_request().map_err(CliError::of)?;
            let (key, mode) = (limit.key.clone(), limit.mode);
            let status = server.define(limit).await.map_err(CliError::of)?;
            let mode = if mode == LimitMode::Shadow { ", shadow" } else { "" };
            format!("{key}: {}{mode}\n", status_text(status))
        }
        Action::Delete { key } => {
            let key = parse_key(&key)?;
            server.delete(&key).await.map_err(CliError::of)?;
            format!("{key}: deleted\n")
        }
        Action::Leases(leases) => leases::list(&server, leases).await?,
        Action::Release { lease } => {
            let lease: LeaseId = lease.parse().map_err(CliError::of)?;
            server.release(lease).await.map_err(CliError::of)?;
            format!("{lease}: released\n")
        }
        Action::Forgive { key } => {
            let key = parse_key(&key)?;
            let forgiven = server.forgive(&key).await.map_err(CliError::of)?;
            format!("{key}: {forgiven} forgiven\n")
        }
        Action::Apply { file, dry_run, keep_others } => {
            let wanted = LimitsFile::new(file).load_existing().map_err(CliError::of)?;
            if let Some(note) = wanted.notes.first() {
                let reason = "cannot apply the file, parts of which this version does not know";
                return Err(CliError(format!("{reason}: {note}")));
            }
            apply(&server, &wanted.registry, dry_run, keep_others).await?
        }
    };
    io::stdout().write_all(text.as_bytes()).map_err(CliError::of)?;
    Ok(ExitCode::SUCCESS)
}

/// Defines all that is new or changed, up to 10 000 limits in one request, which the server takes or refuses as a whole; then deletes.
/// After an error, applying again continues.
async fn apply(
    server: &HttpLimiter,
    wanted: &Registry,
    dry_run: bool,
    keep_others: bool,
) -> Result<String, CliError> {
    let present = all_states(server, &Page::default()).await?;
    let (mut text, mut defined, mut deleted) = (String::new(), Vec::new(), Vec::new());
    for change in changes(&present, wanted, keep_others) {
        text += &format!("{change}\n");
        match change {
            Change::Define { limit, .. } => defined.push(*limit),
            Change::Delete { key } => deleted.push(key),
        }
    }
    if text.is_empty() {
        return Ok("nothing to change\n".to_owned());
    }
    if !dry_run {
        server.define_all(defined).await.map_err(CliError::of)?;
        for key in deleted {
            let failed = |error| CliError(format!("{key}: {error}"));
            server.delete(&key).await.map_err(failed)?;
        }
    }
    Ok(text)
}

/// All limits with the page's prefix and template.
async fn all_states(server: &HttpLimiter, page: &Page) -> Result<Vec<LimitState>, CliError> {
    let mut states: Vec<LimitState> = Vec::new();
    loop {
        let after = states.last().map(|state| state.limit.key.clone());
        let page = Page { after, count_max: Some(PAGE_COUNT), ..page.clone() };
        let more = server.states(&page).await.map_err(|error: StateError| CliError::of(error))?;
        let is_last = more.len() < PAGE_COUNT;
        states.extend(more);
        if is_last {
            return Ok(states);
        }
    }
}

fn parse_key(text: &str) -> Result<LimitKey, CliError> {
    LimitKey::new(text).map_err(CliError::of)
}

fn limits_file_of(states: &[LimitState]) -> String {
    let registered = |state: &LimitState| {
        let LimitState { limit, status, usage: _, resets_at: _ } = state.clone();
        RegisteredLimit { limit, status }
    };
    write_limits_file(&states.iter().map(registered).collect::<Vec<_>>())
}

fn status_text(status: LimitStatus) -> String {
    match status {
        LimitStatus::Active => "active".to_owned(),
        LimitStatus::Paused => "paused".to_owned(),
        LimitStatus::Decreasing { to } => format!("decreasing to {to}"),
    }
}

const COLUMNS: [&str; 9] =
    ["KEY", "KIND", "MODE", "USED", "CAPACITY", "DEBT", "STATUS", "RESETS", "UNIT"];
/// Few limits are in shadow mode; the column is left out if none is.
const MODE: usize = 2;
/// Only calendar limits have one.
const RESETS: usize = 7;

fn table(states: &[LimitState]) -> String {
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    for LimitState { limit, status, usage, resets_at } in states {
        let mode = if limit.mode == LimitMode::Shadow { "shadow" } else { "" };
        rows.push([
            limit.key.to_string(),
            limit.kind.to_string(),
            mode.to_owned(),
            usage.used.to_string(),
            limit.capacity.to_string(),
            usage.debt.to_string(),
            status_text(*status),
            resets_at.map_or_else(String::new, |at| at.to_string()),
            limit.unit.as_str().to_owned(),
        ]);
    }
    for column in [MODE, RESETS] {
        if rows[1..].iter().all(|row| row[column].is_empty()) {
            rows[0][column].clear();
        }
    }
    aligned(&rows)
}

impl Definition {
    fn into_body(self) -> Result<DefinitionBody, CliError> {
        let Self {
            key,
            kind,
            calendar: period,
            capacity,
            window_seconds,
            timeout_seconds,
            time_zone,
            resets_at,
            weekday,
            day,
            unit,
            description,
            overage,
            shadow,
        } = self;
        let capacity = ratelimiter::Capacity::new(capacity).map_err(CliError::of)?;
        let key = parse_key(&key)?;
        Ok(DefinitionBody {
            key,
            // Without a kind there is a period.
            kind: kind.unwrap_or(KindBody::Calendar),
            capacity,
            window_seconds,
            timeout_seconds,
            period,
            time_zone,
            resets_at,
            weekday,
            day,
            unit,
            description,
            overage,
            mode: if shadow { ModeBody::Shadow } else { ModeBody::Enforce },
        })
    }
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        Self::of(refusal)
    }
}
