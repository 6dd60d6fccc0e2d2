//! Guides. This module has no code.

#[doc = include_str!("guide/choosing_limits.md")]
pub mod choosing_limits {}

#[cfg(feature = "http")]
#[doc = include_str!("guide/one_process_to_many.md")]
pub mod one_process_to_many {}

#[doc = include_str!("guide/what_an_allow_promises.md")]
pub mod what_an_allow_promises {}

/// Compiles the Rust of a guide of the repository.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/leases-that-live.md")]
mod leases_that_live {}
