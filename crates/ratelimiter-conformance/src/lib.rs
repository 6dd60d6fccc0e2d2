//! What every limiter must do, as tests that any implementer runs
