//! `ratelimiterd check`: validates the config and the limits, in their file or database.

use std::io::Write;
use std::process::ExitCode;

use ratelimiter_wire::LimitsDocument;

use super::{CliError, Settings};
use crate::{LimitsFile, RegistryPlace};

/// Prints every error with its location, or a summary if there is none.
pub(super) async fn run(
    settings: &Settings,
    variables: Vec<(String, String)>,
    out: &mut impl Write,
) -> Result<ExitCode, CliError> {
    // The limits file is checked even if the config has errors, as long as its path is known.
    let (place, mut errors) = match settings.layers(variables).config() {
        Ok(config) => (Some(config.registry_place()), Vec::new()),
        Err(error) => {
            let file = settings.limits.as_ref().map(LimitsFile::new).map(RegistryPlace::from);
            (file, error.errors.iter().map(ToString::to_string).collect())
        }
    };
    let mut summary = "config: ok".to_owned();
    if let Some(place) = place {
        match place.load().await {
            Ok(LimitsDocument { registry, notes, .. }) => {
                let count = registry.len();
                summary += &format!("\n{place}: ok, {count} limits");
                for note in notes {
                    summary += &format!("\n{place}: {note}");
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
