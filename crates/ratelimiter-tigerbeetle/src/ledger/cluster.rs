//! The real cluster.
