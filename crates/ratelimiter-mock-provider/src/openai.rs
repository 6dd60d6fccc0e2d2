//! OpenAI's API.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod embeddings;
pub(crate) mod models;
pub(crate) mod responses;
mod stream_end;
