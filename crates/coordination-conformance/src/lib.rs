//! What every coordination provider must do, as tests that any provider runs
