#![doc = include_str!("../README.md")]

mod answer;
mod anthropic;
mod api;
mod authorisation;
mod body;
mod call;
mod calls;
mod charge;
mod fault;
mod faulty;
mod gzip;
mod limits;
mod openai;
mod options;
mod payload;
mod plan;
mod problem;
mod prompt;
mod provider;
mod rate_headers;
mod service;
mod state;

pub use calls::{CALLS_KEPT_MAX, CallEnd, SeenCall};
pub use fault::{Fault, UnknownFault};
pub use options::{MockOptions, OUTPUT_TOKENS_MAX, RateCounts};
pub use provider::MockProvider;
