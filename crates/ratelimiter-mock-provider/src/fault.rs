//! What a provider can do wrong.

use std::fmt;
use std::str::FromStr;

/// Something that a provider does wrong. The README describes each by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the README has a table of them")]
pub enum Fault {
    TooManyRequests,
    Quota,
    Unavailable,
    Cut,
    CutUtf8,
    Garbage,
    Slow,
    Stall,
    Reset,
    NoUsage,
    Endless,
    LongLine,
    WrongLength,
    Gzip,
    ContentType,
    RejectStreamOptions,
    ErrorEvent,
}

/// A name that is not that of a [`Fault`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a fault; faults are {}", Fault::ALL.map(Fault::name).join(", "))]
pub struct UnknownFault {
    /// What was given.
    pub name: String,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 17] = [
        Self::TooManyRequests,
        Self::Quota,
        Self::Unavailable,
        Self::Cut,
        Self::CutUtf8,
        Self::Garbage,
        Self::Slow,
        Self::Stall,
        Self::Reset,
        Self::NoUsage,
        Self::Endless,
        Self::LongLine,
        Self::WrongLength,
        Self::Gzip,
        Self::ContentType,
        Self::RejectStreamOptions,
        Self::ErrorEvent,
    ];

    /// The name on the command line and in the header `x-mock-fault`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooManyRequests => "429",
            Self::Quota => "quota",
            Self::Unavailable => "503",
            Self::Cut => "cut",
            Self::CutUtf8 => "cut-utf8",
            Self::Garbage => "garbage",
            Self::Slow => "slow",
            Self::Stall => "stall",
            Self::Reset => "reset",
            Self::NoUsage => "no-usage",
            Self::Endless => "endless",
            Self::LongLine => "long-line",
            Self::WrongLength => "wrong-length",
            Self::Gzip => "gzip",
            Self::ContentType => "content-type",
            Self::RejectStreamOptions => "reject-stream-options",
            Self::ErrorEvent => "error-event",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(name: &str) -> Result<Self, UnknownFault> {
        let named = Self::ALL.into_iter().find(|fault| fault.name() == name);
        named.ok_or_else(|| UnknownFault { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_read_by_its_name() {
        for fault in Fault::ALL {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
    }

    #[test]
    fn an_unknown_fault_is_told_the_names() {
        let error = "earthquake".parse::<Fault>().unwrap_err().to_string();
        let begins = "\"earthquake\" is not a fault; faults are 429, quota, 503, cut, cut-utf8, ";
        assert!(error.starts_with(begins), "{error}");
    }

    #[test]
    fn the_readme_describes_every_fault() {
        for fault in Fault::ALL {
            assert!(include_str!("../README.md").contains(&format!("| `{fault}` | ")), "{fault}");
        }
    }
}
