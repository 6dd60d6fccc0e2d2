//! The parsers under test and their round trips.

use std::collections::BTreeSet;
use std::fmt::{Debug, Display};
use std::str::FromStr;

use coordination::{CronSchedule, Timestamp};
use ratelimiter::{KeyPattern, LeaseId, LimitKey};
use ratelimiter_wire::{
    Body, CompleteBody, DefineRequest, DefinitionBody, DefinitionsBody, ErrorCode, LimitsDocument,
    RenewBody, ReserveBody, read, read_batch, read_define,
};
use ratelimiterd::config::{Layers, ListenAddr};

use crate::corpus;

/// One parser with inputs that it accepts.
#[derive(Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Valid inputs.
    pub corpus: &'static [&'static str],
    /// Parses an input: whether it was accepted, or what differs after a round trip.
    pub read: fn(&[u8]) -> Result<bool, String>,
}

/// All targets.
pub const TARGETS: [Target; 15] = [
    Target { name: "reserve", corpus: &corpus::RESERVE, read: reserve },
    Target { name: "renew", corpus: &corpus::RENEW, read: renew },
    Target { name: "complete", corpus: &corpus::COMPLETE, read: complete },
    Target { name: "reserve-batch", corpus: &corpus::RESERVE_BATCH, read: batch::<ReserveBody> },
    Target { name: "complete-batch", corpus: &corpus::COMPLETE_BATCH, read: batch::<CompleteBody> },
    Target { name: "definition", corpus: &corpus::DEFINITION, read: definition },
    Target { name: "definitions", corpus: &corpus::DEFINITIONS, read: definitions },
    Target { name: "limits-file", corpus: &corpus::LIMITS_FILE, read: limits_file },
    Target { name: "config", corpus: &corpus::CONFIG, read: config },
    Target { name: "key", corpus: &corpus::KEYS, read: key },
    Target { name: "key-pattern", corpus: &corpus::PATTERNS, read: text::<KeyPattern> },
    Target { name: "lease-id", corpus: &corpus::LEASES, read: text::<LeaseId> },
    Target { name: "cron", corpus: &corpus::CRON, read: cron },
    Target { name: "listen-addr", corpus: &corpus::ADDRESSES, read: text::<ListenAddr> },
    Target { name: "error-code", corpus: &corpus::ERROR_CODES, read: text::<ErrorCode> },
];

fn same<T: PartialEq + Debug>(first: &T, again: &T) -> Result<bool, String> {
    match first == again {
        true => Ok(true),
        false => Err(format!("{first:?} was printed, and parsed as {again:?}")),
    }
}

/// Prints an accepted body as a client does, and parses it again as a server does.
fn body<B: Body>(
    input: &[u8],
    print: impl Fn(&B::Request) -> Result<Vec<u8>, serde_json::Error>,
) -> Result<bool, String>
where
    B::Request: PartialEq + Debug,
{
    let Ok(request) = read::<B>(input) else { return Ok(false) };
    let printed = print(&request).map_err(|error| error.to_string())?;
    let again = read::<B>(&printed).map_err(|refusal| refusal.message)?;
    same(&request, &again)
}

fn reserve(input: &[u8]) -> Result<bool, String> {
    body::<ReserveBody>(input, |request| serde_json::to_vec(&ReserveBody::from(request)))
}

fn renew(input: &[u8]) -> Result<bool, String> {
    body::<RenewBody>(input, |request| serde_json::to_vec(&RenewBody::from(request)))
}

fn complete(input: &[u8]) -> Result<bool, String> {
    body::<CompleteBody>(input, |request| serde_json::to_vec(&CompleteBody::from(request)))
}

fn definition(input: &[u8]) -> Result<bool, String> {
    body::<DefinitionBody>(input, |limit| serde_json::to_vec(&DefinitionBody::from(limit)))
}

/// One definition, or a list with distinct keys.
fn definitions(input: &[u8]) -> Result<bool, String> {
    let Ok(request) = read_define(input) else { return Ok(false) };
    let printed = match &request {
        DefineRequest::One(limit) => serde_json::to_vec(&DefinitionBody::from(&**limit)),
        DefineRequest::Many(limits) => {
            let keys: BTreeSet<_> = limits.iter().map(|limit| &limit.key).collect();
            if limits.is_empty() || keys.len() < limits.len() {
                return Err(format!("accepted an empty list, or a key twice: {limits:?}"));
            }
            serde_json::to_vec(&limits.iter().collect::<DefinitionsBody>())
        }
    };
    let printed = printed.map_err(|error| error.to_string())?;
    same(&request, &read_define(&printed).map_err(|refusal| refusal.message)?)
}

/// Parses a batch twice, with the same result.
fn batch<B: Body>(input: &[u8]) -> Result<bool, String>
where
    B::Request: PartialEq + Debug,
{
    let Ok(items) = read_batch::<B>(input) else { return Ok(false) };
    let again = read_batch::<B>(input).map_err(|refusal| refusal.message)?;
    same(&items, &again)
}

fn limits_file(input: &[u8]) -> Result<bool, String> {
    let LimitsDocument { registry, preserved, .. } = match LimitsDocument::read(input) {
        Ok(document) => document,
        Err(error) if error.errors.is_empty() => return Err("refused without an error".to_owned()),
        Err(_) => return Ok(false),
    };
    let printed = preserved.write(registry.iter());
    let again = LimitsDocument::read(printed.as_bytes()).map_err(|error| format!("{error:?}"))?;
    same(&printed, &again.preserved.write(again.registry.iter()))?;
    let is_array = input.trim_ascii_start().starts_with(b"[");
    if is_array && printed.starts_with('{') {
        // A limit needs version 2. Everything in an array is known.
        same(&again.preserved.is_empty(), &true)?;
    } else {
        same(&preserved, &again.preserved)?;
    }
    same(&registry, &again.registry)
}

/// Parses a config file, alone and with a value from the environment. File names are left out, so that the result does
/// not depend on the machine.
fn config(input: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(false) };
    let read = || {
        let mut layers = Layers::new();
        layers.add_yaml("config.yaml", text);
        let value = text.chars().take(200).collect();
        layers.add_environment([("RATELIMITER_TIGERBEETLE__ADDRESSES".to_owned(), value)]);
        layers.config()
    };
    let mut alone = Layers::new();
    alone.add_yaml("config.yaml", text);
    same(&read(), &read())?;
    Ok(alone.config().is_ok())
}

fn key(input: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(false) };
    let Ok(key) = LimitKey::new(text) else { return Ok(false) };
    let printed = key.to_string();
    let again = LimitKey::new(&printed).map_err(|error| error.to_string())?;
    same(&key, &again)
}

fn text<T: FromStr + Display + PartialEq + Debug>(input: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(false) };
    let Ok(value) = text.parse::<T>() else { return Ok(false) };
    let again = value.to_string().parse::<T>();
    let again = again.map_err(|_| format!("{value} was printed, and is refused"))?;
    same(&value, &again)
}

/// An accepted schedule computes its next times, or that there are none, in bounded time.
fn cron(input: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(false) };
    let Ok(schedule) = CronSchedule::parse(text, "Europe/Vienna") else { return Ok(false) };
    let again = CronSchedule::parse(schedule.line(), schedule.zone_name());
    let again = again.map_err(|error| format!("its own line is refused: {error}"))?;
    let mut at = Timestamp::from_unix_micros(0).map_err(|error| error.to_string())?;
    for _ in 0..3 {
        let (next, next_again) = (schedule.next_after(at), again.next_after(at));
        same(&next, &next_again)?;
        match next {
            Some(next) if next > at => at = next,
            Some(next) => return Err(format!("next after {at:?} is {next:?}")),
            None => break,
        }
    }
    same(&schedule, &again)
}
