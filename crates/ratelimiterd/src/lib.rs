#![doc = include_str!("../README.md")]
//!
//! # Overview
//!
//! [`Server::bind`] starts a server on any [`HostedBackend`]; [`cli`] does so with the backend that a [`config`] names. The server
//! parses a request with `ratelimiter-wire`, asks the backend, and writes the answer.

pub mod admin;
mod auth;
pub mod cli;
pub mod config;
pub mod disk;
mod gateway;
mod hosted;
mod limits_file;
pub mod load;
mod logs;
mod medium;
mod metrics;
mod openapi;
pub mod redis;
mod response;
mod routes;
mod server;
pub mod tigerbeetle;
mod tls;

pub use admin::RestoreError;
pub use hosted::{HostedBackend, NotReady};
pub use limits_file::{LimitsFile, LoadError};
pub use medium::{
    PostgresRegistry, PostgresUrl, RedisRegistry, RegistryPlace, RegistryUrl, RegistryUrlError,
};
pub use routes::BODY_BYTES_MAX;
pub use server::{Reloaded, Server, StartError};
pub use tls::{TlsError, TlsErrorKind, TlsField};
