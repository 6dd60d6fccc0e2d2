//! The sections of a run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bar::Bar;
use crate::progress::Progress;
use crate::report::{NotRun, Section};
use crate::scale::Scale;
use crate::{growth, http, in_process, memory, tigerbeetle, utilisation};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    InProcess,
    Http,
    TigerBeetle,
    Utilisation,
    Memory,
    Growth,
}

impl Subject {
    pub(crate) const ALL: [Self; 6] = [
        Self::InProcess,
        Self::Http,
        Self::TigerBeetle,
        Self::Utilisation,
        Self::Memory,
        Self::Growth,
    ];

    /// As the command line names it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Http => "http",
            Self::TigerBeetle => "tigerbeetle",
            Self::Utilisation => "utilisation",
            Self::Memory => "memory",
            Self::Growth => "growth",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::InProcess => "In process",
            Self::Http => "HTTP",
            Self::TigerBeetle => "TigerBeetle",
            Self::Utilisation => "Utilisation",
            Self::Memory => "Memory",
            Self::Growth => "Growth",
        }
    }

    /// Measures. A section that fails says so in its place, and the others go on.
    pub(crate) fn run(self, scale: Scale, progress: &Progress) -> Section {
        progress.section(format_args!("{}", self.title()));
        let measure = || match self {
            Self::InProcess => Ok(in_process::run(scale, progress)),
            Self::Http => http::run(scale, progress),
            Self::TigerBeetle => tigerbeetle::run(scale, progress),
            Self::Utilisation => utilisation::run(scale),
            Self::Memory => Ok(memory::run(scale, progress)),
            Self::Growth => Ok(growth::run(scale, progress)),
        };
        let outcome = catch_unwind(AssertUnwindSafe(measure))
            .unwrap_or_else(|_| Err(NotRun("it failed; stderr says where".to_owned())));
        let section = outcome.unwrap_or_else(|NotRun(reason)| {
            progress.section(format_args!("{} DID NOT RUN: {reason}", self.title()));
            let mut section = Section::default();
            section.text(format!("**This section did not run**: {reason}."));
            section.bars = self.bars_not_measured();
            section
        });
        section.titled(self.title())
    }

    fn bars_not_measured(self) -> Vec<Bar> {
        match self {
            Self::InProcess => in_process::bars(None),
            Self::Http => http::bars(None),
            Self::TigerBeetle => tigerbeetle::bars(None),
            Self::Utilisation | Self::Memory | Self::Growth => Vec::new(),
        }
    }
}
