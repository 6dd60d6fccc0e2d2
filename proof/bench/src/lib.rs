//! Measures ratelimiter beside its peers and beside the limit, in one run, and writes it down.
//!
//! Each section is a module with its contestants; [`run`] is the whole program. Figures are compared only within a run: the
//! contestants take turns, round by round, so that whatever the machine does meanwhile happens to all of them.

mod arguments;
mod bar;
mod child;
mod growth;
mod http;
mod in_process;
mod load;
mod machine;
mod memory;
mod probe;
mod progress;
mod report;
mod rounds;
mod scale;
mod spread;
mod subject;
mod table;
mod tigerbeetle;
mod utilisation;
mod workload;

use std::path::Path;
use std::process::ExitCode;

use self::arguments::{Arguments, HELP, Parsed};
use self::child::Role;
use self::machine::Machine;
use self::progress::Progress;
use self::report::Report;

/// Runs the program: what the command line asks for, or one of the processes that a run starts of itself.
pub fn run() -> ExitCode {
    if let Some(role) = Role::of_this_process() {
        return match role {
            Role::Ratelimiterd => ratelimiterd::cli::run(),
            Role::Bare => http::bare::serve(),
            Role::Memory(probe) => probe.report(),
        };
    }
    let given: Vec<String> = std::env::args().skip(1).collect();
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance");
    match Parsed::of(&given, published) {
        Parsed::Run(arguments) => measure(arguments),
        Parsed::Help => {
            print(HELP);
            ExitCode::SUCCESS
        }
        Parsed::Wrong(reason) => {
            complain(&format!("bench: {reason}\n\n{HELP}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: Arguments) -> ExitCode {
    let Arguments { subjects, scale, out, command } = arguments;
    let (machine, progress) = (Machine::this(), Progress::new());
    let sections = subjects.into_iter().map(|subject| subject.run(scale, &progress)).collect();
    let minutes = progress.minutes();
    let report = Report { machine, command, scale, minutes, sections };
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

#[expect(clippy::print_stdout, reason = "the tables are what the program is for")]
fn print(text: &str) {
    print!("{text}");
}

#[expect(clippy::print_stderr, reason = "a program says on stderr what is wrong")]
fn complain(text: &str) {
    eprint!("{text}");
}
