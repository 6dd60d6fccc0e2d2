//! Command line.

use std::path::{Path, PathBuf};

use clap::Parser;

use crate::scale::Scale;
use crate::sections::SectionKind;

/// Benchmarks against other limiters and the theoretical ceiling, compared within one run
///
/// Results are only printed, except with --out, and by a full run of `all`, which writes results.md and results.svg to
/// docs/performance. Environment: `TIGERBEETLE_BIN` is the TigerBeetle server if it is not on the PATH, `RATELIMITERD_BIN`
/// a ratelimiterd to measure instead of the one in this program, `LITELLM_BIN` the program of
/// the LiteLLM proxy.
#[derive(Debug, Parser)]
pub(crate) struct CommandLine {
    #[arg(required = true, value_name = "SECTION")]
    sections: Vec<SectionKind>,
    /// Short run that shows that everything works; its numbers mean nothing
    #[arg(long)]
    quick: bool,
    /// Write results.md and results.svg to this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl CommandLine {
    pub(crate) fn kinds(&self) -> Vec<SectionKind> {
        let has_all = self.sections.contains(&SectionKind::All);
        if has_all { SectionKind::each().to_vec() } else { self.sections.clone() }
    }

    pub(crate) const fn scale(&self) -> Scale {
        if self.quick { Scale::Quick } else { Scale::Full }
    }

    /// `None`: print only.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        let kinds = self.kinds();
        let is_complete = SectionKind::each().iter().all(|kind| kinds.contains(kind));
        let published = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance");
        self.out.clone().or_else(|| (is_complete && !self.quick).then(published))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<CommandLine, clap::Error> {
        CommandLine::try_parse_from(std::iter::once("bench").chain(line.split_whitespace()))
    }

    #[test]
    fn only_a_full_run_of_all_sections_replaces_the_published_results() {
        for (line, out) in [
            ("all", Some("docs/performance")),
            ("all --quick", None),
            ("http", None),
            ("http --out here", Some("here")),
            ("all --quick --out here", Some("here")),
        ] {
            let folder = parse(line).unwrap().folder();
            assert_eq!(folder.is_some(), out.is_some(), "{line}");
            assert!(folder.is_none_or(|folder| folder.ends_with(out.unwrap())), "{line}");
        }
    }

    #[test]
    fn an_invalid_argument_is_named() {
        let error = |line| parse(line).unwrap_err().to_string();
        assert!(error("htpp").contains("'htpp'"));
        assert!(error("all --out").contains("--out"));
        assert!(error("--quick").contains("SECTION"));
    }
}
