//! Capacity control for LLM calls: limits, leases, and the in-process limiter
