//! Benchmarks against other limiters and the theoretical ceiling.
//!
//! Each section is a module with its contestants; [`run`] is the whole program. Results are compared only within a run: the
//! contestants alternate, so that other load on the machine affects all of them alike.

mod chart;
mod child;
mod cliffs;
mod command_line;
mod gateway;
mod growth;
mod http;
mod in_process;
mod load;
mod machine;
mod memory;
mod probe;
mod probe_process;
mod progress;
mod redis;
mod report;
mod resident;
mod rounds;
mod scale;
mod sections;
mod summary;
mod table;
mod threshold;
mod tigerbeetle;
mod utilisation;
mod workload;

use std::process::ExitCode;

use clap::Parser;

use self::child::Role;
use self::command_line::CommandLine;
use self::machine::Machine;
use self::progress::Progress;
use self::report::Report;

/// Runs the program: the given sections, or the role of a process that a section started.
pub fn run() -> ExitCode {
    if let Some(role) = Role::of_this_process() {
        return match role {
            Role::Ratelimiterd => ratelimiterd::cli::run(),
            Role::Bare => http::bare::serve(),
            Role::BareProxy => gateway::bare_proxy::serve(),
            Role::Probe(probe) => probe.report(),
        };
    }
    let command_line = CommandLine::parse();
    let (machine, progress) = (Machine::this(), Progress::new());
    let (scale, out) = (command_line.scale(), command_line.folder());
    let kinds = command_line.kinds().into_iter();
    let sections = kinds.map(|kind| kind.run(scale, &progress)).collect();
    let minutes = progress.minutes();
    let report = Report { machine, scale, minutes, sections };
    print(&report.to_string());
    let Some(folder) = out else { return ExitCode::SUCCESS };
    match report.write(&folder) {
        Ok(()) => {
            progress.section(format_args!("written to {}", folder.display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&format!("bench: cannot write to {}: {error}\n", folder.display()));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "the tables are the program's output")]
fn print(text: &str) {
    print!("{text}");
}

#[expect(clippy::print_stderr, reason = "errors go to stderr")]
fn complain(text: &str) {
    eprint!("{text}");
}
