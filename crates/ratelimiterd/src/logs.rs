//! Logging to standard error.

use tracing::level_filters::LevelFilter;

use crate::config::{LogConfig, LogFormat, LogLevel};

/// Installs the subscriber. Only the first call in a process has an effect.
pub(crate) fn start(config: &LogConfig) {
    let level = match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let events = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    let started = match config.format {
        LogFormat::Text => events.with_ansi(false).with_target(false).try_init(),
        LogFormat::Json => events.json().flatten_event(true).with_target(false).try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was already started");
    }
}
