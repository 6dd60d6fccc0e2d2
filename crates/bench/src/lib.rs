//! What the benchmarks share: rounds that are measured in turn, and the table that compares them.
//!
//! A figure stands beside another one of the same run: rounds alternate between the contestants, so that whatever the
//! machine does meanwhile happens to all of them, and the medians are compared.

mod bar;
mod rounds;
mod workload;

pub use bar::Bar;
pub use rounds::{Contestant, Figure, Rounds};
pub use workload::Workload;
