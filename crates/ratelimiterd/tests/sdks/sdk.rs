//! An SDK, and what a script says that its calls used.

use serde::Deserialize;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Sdk {
    OpenAi,
    Anthropic,
}

/// What a script's calls of a model used.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Used {
    /// Calls that were answered to the end, and their tokens.
    pub(crate) requests: u64,
    pub(crate) input: u64,
    pub(crate) output: u64,
    /// Streams that were broken off, or ended with an error.
    pub(crate) cut: u64,
    /// Calls that were refused for lack of room and not repeated.
    pub(crate) refused: u64,
}

impl Sdk {
    pub(crate) const ALL: [Self; 2] = [Self::OpenAi, Self::Anthropic];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
        }
    }

    /// Where a program would have the provider's own URL.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::OpenAi => "/openai/v1",
            Self::Anthropic => "/anthropic",
        }
    }
}
