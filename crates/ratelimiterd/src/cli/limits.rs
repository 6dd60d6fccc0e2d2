//! `ratelimiterd limits`: the admin API from a shell.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use ratelimiter::{
    Backend, LimitKey, LimitState, LimitStatus, Page, RegisteredLimit, Registry, StateError,
};
use ratelimiter_client::HttpLimiter;
use ratelimiter_wire::{Body, DefinitionBody, KindBody, OverageBody, Refusal, write_limits_file};
use serde::de::DeserializeOwned;

use super::CliError;
use super::diff::{Change, changes};
use super::remote::Remote;
use crate::LimitsFile;

/// Limits per request.
const PAGE_COUNT: usize = 500;

/// Define, delete and show the limits of a running server.
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

#[derive(Debug, Args)]
struct Definition {
    /// The limit's key
    key: String,
    /// Whether units return after a window or on completion
    #[arg(long, value_parser = one_of::<KindBody>(["rolling", "concurrency"]))]
    kind: KindBody,
    /// The most units held at a time
    #[arg(long)]
    capacity: u64,
    /// Rolling: how long a reservation counts
    #[arg(long, default_value_t = 0)]
    window_seconds: u64,
    /// Concurrency: after which time a hold is released if the call never completes
    #[arg(long, default_value_t = 0)]
    timeout_seconds: u64,
    /// What one unit is, for example tokens
    #[arg(long, default_value = "")]
    unit: String,
    /// What the limit is for
    #[arg(long, default_value = "")]
    description: String,
    /// What to do with usage beyond the reservation if there is no room for it
    #[arg(long, value_parser = one_of::<OverageBody>(["debt", "deny"]), default_value = "debt")]
    overage: OverageBody,
}

/// Parses one of the values that the wire has for a type.
fn one_of<T>(values: [&'static str; 2]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(values)
        .map(|value| serde_json::from_value(value.into()).expect("a value of the wire"))
}

pub(super) async fn run(limits: Limits) -> Result<ExitCode, CliError> {
    let Limits { action, remote } = limits;
    let server = remote.limiter()?;
    let text = match action {
        Action::List { prefix, json } => {
            let states = all_states(&server, &prefix).await?;
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
            let key = limit.key.clone();
            let status = server.define(limit).await.map_err(CliError::of)?;
            format!("{key}: {}\n", status_text(status))
        }
        Action::Delete { key } => {
            let key = parse_key(&key)?;
            server.delete(&key).await.map_err(CliError::of)?;
            format!("{key}: deleted\n")
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

/// Applies the changes in order and stops at the first error. Applying again continues from there.
async fn apply(
    server: &HttpLimiter,
    wanted: &Registry,
    dry_run: bool,
    keep_others: bool,
) -> Result<String, CliError> {
    let present = all_states(server, "").await?;
    let mut text = String::new();
    for change in changes(&present, wanted, keep_others) {
        text += &format!("{change}\n");
        if dry_run {
            continue;
        }
        let key = change.key().clone();
        let failed = |reason: String| CliError(format!("{key}: {reason}"));
        match change {
            Change::Define { limit, .. } => {
                server.define(*limit).await.map_err(|error| failed(error.to_string()))?;
            }
            Change::Delete { key } => {
                server.delete(&key).await.map_err(|error| failed(error.to_string()))?;
            }
        }
    }
    if text.is_empty() {
        text.push_str("nothing to change\n");
    }
    Ok(text)
}

async fn all_states(server: &HttpLimiter, prefix: &str) -> Result<Vec<LimitState>, CliError> {
    let mut states: Vec<LimitState> = Vec::new();
    loop {
        let after = states.last().map(|state| state.limit.key.clone());
        let page = Page { prefix: prefix.to_owned(), after, count_max: Some(PAGE_COUNT) };
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
        let LimitState { limit, status, usage: _ } = state.clone();
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

fn table(states: &[LimitState]) -> String {
    let mut rows =
        vec![["KEY", "KIND", "USED", "CAPACITY", "DEBT", "STATUS", "UNIT"].map(str::to_owned)];
    for LimitState { limit, status, usage } in states {
        rows.push([
            limit.key.to_string(),
            format!("{} {}s", limit.kind.name(), limit.kind.lifetime_seconds()),
            usage.used.to_string(),
            limit.capacity.to_string(),
            usage.debt.to_string(),
            status_text(*status),
            limit.unit.as_str().to_owned(),
        ]);
    }
    let mut widths = [0; 7];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

impl Definition {
    fn into_body(self) -> Result<DefinitionBody, CliError> {
        let Self {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
        } = self;
        let capacity = ratelimiter::Capacity::new(capacity).map_err(CliError::of)?;
        let key = parse_key(&key)?;
        Ok(DefinitionBody {
            key,
            kind,
            capacity,
            window_seconds,
            timeout_seconds,
            unit,
            description,
            overage,
        })
    }
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        Self::of(refusal)
    }
}
