//! `simulation --seeds N [--seed S] [--for DURATION] [--world NAME]`, or `simulation --flaws`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is the command")]

use std::process::ExitCode;
use std::time::Duration;

use simulation::flaw::Flaw;
use simulation::report;
use simulation::run::{StopCondition, Summary, run};
use simulation::world::World;
use simulation::worlds::{CoordinationWorld, MemoryWorld, TigerBeetleWorld};

const USAGE: &str = "\
simulation [--world tigerbeetle|memory|coordination] [--seeds N | --for 30s|10m|8h] [--seed S]

  --seeds N   plays N seeds in each world (1000 if neither this nor --for is given)
  --for T     plays for so long, the time divided between the worlds
  --seed S    begins with this seed; alone, plays only this seed and prints what happens
  --world W   only this world
  --flaws     finds every deliberate bug, and prints the table
  --flaw F    with a deliberate bug, by its name, to see it found";

#[derive(Default)]
struct Arguments {
    world: Option<String>,
    seeds: Option<u64>,
    time: Option<Duration>,
    seed: Option<u64>,
    flaws: bool,
    flaw: Option<Flaw>,
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            eprintln!("{problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if arguments.flaws {
        return match report::flaw_table() {
            Ok(table) => {
                print!("{table}");
                ExitCode::SUCCESS
            }
            Err(table) => {
                print!("{table}");
                eprintln!("not every deliberate bug was found as it should be");
                ExitCode::FAILURE
            }
        };
    }
    match play_worlds(&arguments) {
        Ok(all_kept) if all_kept => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("{problem}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Plays what was asked for; false if there was a violation.
fn play_worlds(arguments: &Arguments) -> Result<bool, String> {
    let flaw = arguments.flaw;
    let is_asked = |name: &str| {
        let named = arguments.world.as_deref().or(flaw.map(|flaw| flaw.place().name()));
        named.is_none_or(|world| world == name)
    };
    let names = [TigerBeetleWorld::NAME, MemoryWorld::NAME, CoordinationWorld::NAME];
    let asked: Vec<&str> = names.into_iter().filter(|name| is_asked(name)).collect();
    if asked.is_empty() {
        return Err(format!("there is no world {:?}", arguments.world));
    }
    let part = u32::try_from(asked.len()).expect("there are three");
    let mut summaries = Vec::new();
    for name in asked {
        let summary = match name {
            TigerBeetleWorld::NAME => play(&TigerBeetleWorld { flaw }, arguments, part),
            MemoryWorld::NAME => play(&MemoryWorld { flaw }, arguments, part),
            _ => play(&CoordinationWorld { flaw }, arguments, part),
        };
        summaries.push((name, summary));
    }
    let is_many = summaries.iter().any(|(_, summary)| summary.seeds > 1);
    if summaries.len() > 1 && is_many {
        let faults: Vec<_> =
            summaries.iter().map(|(name, summary)| (*name, &summary.faults)).collect();
        print!("\n{}", report::fault_table(&faults));
    }
    Ok(summaries.iter().all(|(_, summary)| summary.failure.is_none()))
}

fn play<W: World>(world: &W, arguments: &Arguments, part: u32) -> Summary {
    let first = arguments.seed.unwrap_or(0);
    let until = match (arguments.seeds, arguments.time) {
        (None, None) if arguments.seed.is_some() => {
            print!("{}", world.play(&world.plan(first), true).trace);
            StopCondition::Seeds(1)
        }
        (None, Some(time)) => StopCondition::Time(time / part),
        (seeds, _) => StopCondition::Seeds(seeds.unwrap_or(1_000)),
    };
    let summary = run(world, first, until);
    print!("{}", report::summary(W::NAME, &summary));
    if let Some(failure) = &summary.failure {
        print!("{}", report::failure(W::NAME, failure));
    }
    summary
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--flaws" => parsed.flaws = true,
            "--world" => parsed.world = Some(value()?),
            "--seeds" => parsed.seeds = Some(number(&value()?)?),
            "--seed" => parsed.seed = Some(number(&value()?)?),
            "--for" => parsed.time = Some(duration(&value()?)?),
            "--flaw" => {
                let name = value()?;
                let flaw = Flaw::ALL.iter().find(|flaw| format!("{flaw:?}") == name);
                let names = || Flaw::ALL.iter().map(|flaw| format!("{flaw:?}"));
                let known = || names().collect::<Vec<_>>().join(", ");
                parsed.flaw = Some(*flaw.ok_or_else(|| format!("--flaw is one of {}", known()))?);
            }
            _ => return Err(format!("{argument} is not known")),
        }
    }
    Ok(parsed)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.len().saturating_sub(1));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(format!("{text:?} is not a duration such as 30s, 10m or 8h")),
    };
    Ok(Duration::from_secs(number(digits)?.saturating_mul(seconds)))
}
