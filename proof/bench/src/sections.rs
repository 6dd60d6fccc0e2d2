//! The sections of a run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::ValueEnum;

use crate::progress::Progress;
use crate::report::{Section, SkipReason};
use crate::scale::Scale;
use crate::threshold::Threshold;
use crate::{cliffs, gateway, growth, http, in_process, memory, redis, tigerbeetle, utilisation};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SectionKind {
    /// All sections
    All,
    /// Reserve and complete, compared with governor, throttlecrab and limitador
    InProcess,
    /// ratelimiterd with the memory backend, compared with a bare axum server and Redis
    Http,
    /// ratelimiterd as a gateway to a provider, compared with a bare proxy and LiteLLM
    Gateway,
    /// ratelimiterd on Redis, compared with scripts sent directly and with limitador
    Redis,
    /// ratelimiterd on TigerBeetle, compared with the client crate alone
    #[value(name = "tigerbeetle")]
    TigerBeetle,
    /// The limiter on TigerBeetle without HTTP, compared with the client crate alone
    Limiter,
    /// Use of a simulated provider's capacity by the scheduler
    Utilisation,
    /// Bytes per definition and lease, and after a burst
    Memory,
    /// The same work with 10 and 100 times the keys and leases
    Growth,
    /// Bad cases of the memory backend, each beside its good case
    Cliffs,
}

impl SectionKind {
    /// What `all` stands for.
    pub(crate) fn each() -> &'static [Self] {
        &Self::value_variants()[1..]
    }

    const fn title(self) -> &'static str {
        match self {
            Self::All => "All",
            Self::InProcess => "In process",
            Self::Http => "HTTP",
            Self::Gateway => "Gateway",
            Self::Redis => "Redis",
            Self::TigerBeetle => "TigerBeetle",
            Self::Limiter => "TigerBeetle without HTTP",
            Self::Utilisation => "Utilisation",
            Self::Memory => "Memory",
            Self::Growth => "Growth",
            Self::Cliffs => "Cliffs",
        }
    }

    /// Runs the section. One that cannot run or panics reports that, and the others go on.
    pub(crate) fn run(self, scale: Scale, progress: &Progress) -> Section {
        progress.section(format_args!("{}", self.title()));
        let measure = || match self {
            Self::All => unreachable!("the command line replaces it by the sections"),
            Self::InProcess => Ok(in_process::run(scale, progress)),
            Self::Http => http::run(scale, progress),
            Self::Gateway => gateway::run(scale, progress),
            Self::Redis => redis::run(scale, progress),
            Self::TigerBeetle => tigerbeetle::run(scale, progress),
            Self::Limiter => tigerbeetle::limiter::run(scale, progress),
            Self::Utilisation => utilisation::run(scale),
            Self::Memory => Ok(memory::run(scale, progress)),
            Self::Growth => Ok(growth::run(scale, progress)),
            Self::Cliffs => Ok(cliffs::run(scale, progress)),
        };
        let outcome = catch_unwind(AssertUnwindSafe(measure))
            .unwrap_or_else(|_| Err(SkipReason("it panicked; see stderr".to_owned())));
        let section = outcome.unwrap_or_else(|SkipReason(reason)| {
            progress.section(format_args!("{} DID NOT RUN: {reason}", self.title()));
            let mut section = Section::default();
            section.text(format!("**This section did not run**: {reason}."));
            section.thresholds = self.thresholds();
            section
        });
        section.titled(self.title())
    }

    fn thresholds(self) -> Vec<Threshold> {
        match self {
            Self::InProcess => in_process::THRESHOLDS.to_vec(),
            Self::Http => http::THRESHOLDS.to_vec(),
            Self::Gateway => gateway::THRESHOLDS.to_vec(),
            Self::Redis => redis::THRESHOLDS.to_vec(),
            Self::TigerBeetle => tigerbeetle::THRESHOLDS.to_vec(),
            Self::Limiter => tigerbeetle::limiter::THRESHOLDS.to_vec(),
            Self::Cliffs => cliffs::THRESHOLDS.to_vec(),
            Self::All | Self::Utilisation | Self::Memory | Self::Growth => Vec::new(),
        }
    }
}
