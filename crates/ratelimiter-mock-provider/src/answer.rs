//! What an endpoint answers.

use crate::payload::Payload;

pub(crate) struct Answer {
    pub(crate) prompt_tokens: u64,
    /// In all choices together.
    pub(crate) output_tokens: u64,
    /// The most that the request allowed; what a provider that counts up front takes.
    pub(crate) output_tokens_max: u64,
    pub(crate) payload: Payload,
}
