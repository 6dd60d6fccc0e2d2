//! The providers' APIs and their metered operations.

/// Whose API a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI's, which many other providers speak too.
    OpenAi,
    /// Anthropic's.
    Anthropic,
}

/// An operation that uses tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `POST chat/completions`
    ChatCompletions,
    /// `POST completions`
    Completions,
    /// `POST responses`
    Responses,
    /// `POST embeddings`
    Embeddings,
    /// `POST v1/messages`
    Messages,
}
