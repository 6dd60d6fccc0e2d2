//! What a limit of LLM calls counts, by the last segment of its key.

use crate::price::Price;
use crate::rate_figures::Counted;
use crate::usage::Usage;

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Dimension {
    Requests,
    /// All input, and output.
    Tokens {
        is_rate: bool,
    },
    /// Input without what was read from a cache.
    InputTokens {
        is_rate: bool,
    },
    OutputTokens {
        is_rate: bool,
    },
    Concurrency,
    /// Micro-dollars.
    Cost,
}

impl Dimension {
    /// The last segments of keys.
    pub(crate) const ALL: [(&str, Self); 16] = [
        ("rps", Self::Requests),
        ("rpm", Self::Requests),
        ("rph", Self::Requests),
        ("rpd", Self::Requests),
        ("tpm", Self::Tokens { is_rate: true }),
        ("tph", Self::Tokens { is_rate: false }),
        ("tpd", Self::Tokens { is_rate: false }),
        ("daily_tokens", Self::Tokens { is_rate: false }),
        ("monthly_tokens", Self::Tokens { is_rate: false }),
        ("itpm", Self::InputTokens { is_rate: true }),
        ("itpd", Self::InputTokens { is_rate: false }),
        ("otpm", Self::OutputTokens { is_rate: true }),
        ("otpd", Self::OutputTokens { is_rate: false }),
        ("concurrency", Self::Concurrency),
        ("daily_cost", Self::Cost),
        ("monthly_cost", Self::Cost),
    ];

    /// True for the limits that a provider enforces a minute, and may count up front.
    pub(crate) const fn is_token_rate(self) -> bool {
        match self {
            Self::Tokens { is_rate }
            | Self::InputTokens { is_rate }
            | Self::OutputTokens { is_rate } => is_rate,
            Self::Requests | Self::Concurrency | Self::Cost => false,
        }
    }

    /// What a provider's figures call it; `None` for what they do not limit.
    pub(crate) const fn counted(self) -> Option<Counted> {
        match self {
            Self::Requests => Some(Counted::Requests),
            Self::Tokens { .. } => Some(Counted::Tokens),
            Self::InputTokens { .. } => Some(Counted::InputTokens),
            Self::OutputTokens { .. } => Some(Counted::OutputTokens),
            Self::Concurrency | Self::Cost => None,
        }
    }

    /// True if what is used of it depends on tokens.
    pub(crate) const fn counts_tokens(self) -> bool {
        match self {
            Self::Tokens { .. }
            | Self::InputTokens { .. }
            | Self::OutputTokens { .. }
            | Self::Cost => true,
            Self::Requests | Self::Concurrency => false,
        }
    }

    /// The most that a call with this estimate uses; a cost needs a price.
    pub(crate) fn at_most(self, input: u64, output: u64, price: Option<&Price>) -> Option<u64> {
        Some(match self {
            Self::Requests | Self::Concurrency => 1,
            Self::Tokens { .. } => input.saturating_add(output),
            Self::InputTokens { .. } => input,
            Self::OutputTokens { .. } => output,
            Self::Cost => price?.cost_at_most(input, output),
        })
    }

    /// What a call used.
    pub(crate) fn used(self, requests: u64, usage: &Usage, price: Option<&Price>) -> u64 {
        match self {
            Self::Requests | Self::Concurrency => requests,
            Self::Tokens { .. } => usage.all(),
            Self::InputTokens { .. } => usage.uncached_input(),
            Self::OutputTokens { .. } => usage.output,
            Self::Cost => price.map_or(0, |price| price.cost(usage)),
        }
    }
}
