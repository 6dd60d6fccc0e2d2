//! What the command line asks for.

use std::path::PathBuf;

use crate::scale::Scale;
use crate::subject::Subject;

pub(crate) const HELP: &str = "\
Measures ratelimiter beside its peers and beside the limit, each figure beside another one of the same run.

Usage: bench [all | SECTION…] [--quick] [--out DIR]

Sections:
  in-process    reserve and complete beside governor, throttlecrab and limitador
  http          ratelimiterd (memory) beside a bare axum server and Redis
  tigerbeetle   ratelimiterd on TigerBeetle beside the client crate alone
  utilisation   how much of a simulated provider the scheduler uses
  memory        bytes for each definition and lease, and after a burst
  growth        the same work with 10 and 100 times the keys and leases

  all           all sections; writes results.md and results.svg to docs/performance/

  --quick       a short run to see that everything works; its figures mean nothing
  --out DIR     write results.md and results.svg to DIR
  --help        this text

Without `all` and `--out`, and with `--quick`, the tables are only printed.

Environment:
  TIGERBEETLE_BIN    the TigerBeetle server, if it is not on the PATH
  RATELIMITERD_BIN   a ratelimiterd to measure instead of the one that is built into this program
";

/// What to measure, and where to write it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) subjects: Vec<Subject>,
    pub(crate) scale: Scale,
    /// Nothing: print only.
    pub(crate) out: Option<PathBuf>,
    /// As it was given, for the report.
    pub(crate) command: String,
}

/// What the command line turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    Run(Arguments),
    Help,
    /// What is wrong with it.
    Wrong(String),
}

impl Parsed {
    /// Reads the arguments behind the program's name. `published` is where the figures of `all` go.
    pub(crate) fn of(given: &[String], published: PathBuf) -> Self {
        let mut subjects = Vec::new();
        let (mut scale, mut out) = (Scale::Full, None);
        let mut words = given.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" | "help" => return Self::Help,
                "--quick" => scale = Scale::Quick,
                "--out" => match words.next() {
                    Some(folder) => out = Some(PathBuf::from(folder)),
                    None => return Self::Wrong("--out needs a folder".to_owned()),
                },
                "all" => subjects.extend(Subject::ALL),
                name => match Subject::ALL.into_iter().find(|subject| subject.name() == name) {
                    Some(subject) => subjects.push(subject),
                    None => return Self::Wrong(format!("there is no section {name:?}")),
                },
            }
        }
        if subjects.is_empty() {
            return Self::Wrong("say what to measure: all, or sections".to_owned());
        }
        let is_whole = Subject::ALL.iter().all(|subject| subjects.contains(subject));
        if out.is_none() && is_whole && scale == Scale::Full {
            out = Some(published);
        }
        let command = format!("cargo run --release -p bench -- {}", given.join(" "));
        Self::Run(Arguments { subjects, scale, out, command })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Parsed {
        let given: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Parsed::of(&given, PathBuf::from("docs"))
    }

    #[test]
    fn only_a_full_run_of_everything_replaces_the_published_figures() {
        for (line, out) in [
            ("all", Some("docs")),
            ("all --quick", None),
            ("http", None),
            ("http --out here", Some("here")),
            ("all --quick --out here", Some("here")),
        ] {
            let Parsed::Run(arguments) = parsed(line) else { panic!("{line}") };
            assert_eq!(arguments.out, out.map(PathBuf::from), "{line}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        assert_eq!(parsed("htpp"), Parsed::Wrong("there is no section \"htpp\"".to_owned()));
        assert_eq!(parsed("all --out"), Parsed::Wrong("--out needs a folder".to_owned()));
        assert!(matches!(parsed("--quick"), Parsed::Wrong(_)));
        assert_eq!(parsed("http --help"), Parsed::Help);
    }

    #[test]
    fn the_help_names_every_section() {
        for subject in Subject::ALL {
            assert!(HELP.contains(&format!("\n  {} ", subject.name())), "{subject:?}");
        }
    }
}
