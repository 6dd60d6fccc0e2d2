//! `ratelimiterd check`: validates the config and the limits file.

use std::io::Write;
use std::process::ExitCode;

use ratelimiter_wire::LimitsDocument;

use super::{CliError, Settings};
use crate::LimitsFile;

/// Prints every error with its location, or a summary if there is none.
pub(super) fn run(
    settings: &Settings,
    variables: Vec<(String, String)>,
    out: &mut impl Write,
) -> Result<ExitCode, CliError> {
    // The limits file is checked even if the config has errors, as long as its path is known.
    let (file, mut errors) = match settings.layers(variables).config() {
        Ok(config) => (Some(config.registry.limits_file()), Vec::new()),
        Err(error) => {
            let file = settings.limits.as_ref().map(LimitsFile::new);
            (file, error.errors.iter().map(ToString::to_string).collect())
        }
    };
    let mut summary = "config: ok".to_owned();
    if let Some(file) = file {
        match file.load() {
            Ok(LimitsDocument { registry, notes, .. }) => {
                let (path, count) = (file.path().display(), registry.len());
                summary += &format!("\n{path}: ok, {count} limits");
                for note in notes {
                    summary += &format!("\n{path}: {note}");
                }
            }
            Err(error) => errors.push(error.to_string()),
        }
    }
    let (text, code) = match errors.is_empty() {
        true => (summary, ExitCode::SUCCESS),
        false => (errors.join("\n"), ExitCode::FAILURE),
    };
    writeln!(out, "{text}").map_err(CliError::of)?;
    Ok(code)
}
