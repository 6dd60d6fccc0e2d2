//! The ratelimiter server and its command line.
//!
//! The server is "HTTP to a limiter": it reads a request with `ratelimiter-wire`, asks the backend that it hosts, and
//! writes what that said. [`Server::bind`] starts one on any [`HostedBackend`]; [`cli`] does so with what a [`config`]
//! names.

pub mod admin;
mod answer;
mod auth;
pub mod cli;
pub mod config;
pub mod disk;
mod hosted;
mod limits_file;
mod logs;
mod metrics;
mod openapi;
mod routes;
pub mod runtime;
mod server;
pub mod tigerbeetle;
mod tls;

pub use admin::RestoreError;
pub use hosted::{HostedBackend, NotReady};
pub use limits_file::{LimitsFile, LoadError};
pub use routes::BODY_BYTES_MAX;
pub use server::{Reloaded, Server, StartError};
pub use tls::{TlsError, TlsFault, TlsField};
