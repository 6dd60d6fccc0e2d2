//! `ratelimiterd check`

use std::io::Write;
use std::process::ExitCode;

use ratelimiter_wire::LimitsDocument;

use super::{Failure, Settings};
use crate::LimitsFile;

/// Prints every fault with its place, or what was found to be right.
pub(super) fn run(
    settings: &Settings,
    variables: Vec<(String, String)>,
    out: &mut impl Write,
) -> Result<ExitCode, Failure> {
    // The limits file is looked at even when the config has faults, as long as it is known where it is.
    let (file, mut faults) = match settings.layers(variables).config() {
        Ok(config) => (Some(config.registry.limits_file()), Vec::new()),
        Err(error) => {
            let file = settings.limits.as_ref().map(LimitsFile::new);
            (file, error.faults.iter().map(ToString::to_string).collect())
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
            Err(error) => faults.push(error.to_string()),
        }
    }
    let (text, code) = match faults.is_empty() {
        true => (summary, ExitCode::SUCCESS),
        false => (faults.join("\n"), ExitCode::FAILURE),
    };
    writeln!(out, "{text}").map_err(Failure::of)?;
    Ok(code)
}
