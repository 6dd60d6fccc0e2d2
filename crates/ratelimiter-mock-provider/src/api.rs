//! The two APIs and their endpoints.

use hyper::{HeaderMap, Method};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    OpenAi,
    Anthropic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    ChatCompletions,
    Completions,
    Responses,
    Embeddings,
    Models,
    Messages,
    CountTokens,
}

impl Api {
    /// Whose API a request means; of paths that both or neither have, a header tells.
    pub(crate) fn of(path: &str, headers: &HeaderMap) -> Self {
        match Endpoint::at(path) {
            Some(Endpoint::Messages | Endpoint::CountTokens) => Self::Anthropic,
            Some(
                Endpoint::ChatCompletions
                | Endpoint::Completions
                | Endpoint::Responses
                | Endpoint::Embeddings,
            ) => Self::OpenAi,
            Some(Endpoint::Models) | None if headers.contains_key("anthropic-version") => {
                Self::Anthropic
            }
            Some(Endpoint::Models) | None => Self::OpenAi,
        }
    }
}

impl Endpoint {
    pub(crate) fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/chat/completions" => Self::ChatCompletions,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/embeddings" => Self::Embeddings,
            "/v1/models" => Self::Models,
            "/v1/messages" => Self::Messages,
            "/v1/messages/count_tokens" => Self::CountTokens,
            _ => return None,
        })
    }

    pub(crate) const fn method(self) -> Method {
        match self {
            Self::Models => Method::GET,
            Self::ChatCompletions
            | Self::Completions
            | Self::Responses
            | Self::Embeddings
            | Self::Messages
            | Self::CountTokens => Method::POST,
        }
    }

    /// Calls of these count towards the limits.
    pub(crate) const fn is_limited(self) -> bool {
        match self {
            Self::ChatCompletions
            | Self::Completions
            | Self::Responses
            | Self::Embeddings
            | Self::Messages => true,
            Self::Models | Self::CountTokens => false,
        }
    }
}
