//! A document as databases store it: the text of a limits file.

use std::io;
use std::path::PathBuf;

use ratelimiter::Registry;
use ratelimiter_wire::{LimitsDocument, PreservedFields};
use tokio::task::spawn_blocking;

use super::{Changes, Version};
use crate::limits_file::{self, LoadError, StagedDocument};

/// The document of a registry without one. Its version says that unknown fields may come.
const NO_LIMITS: &str = r#"{"version": 2, "limits": []}"#;
const MISSING: &str = "there is no document";
const PANICKED: &str = "the work on it panicked";

/// Reads texts of one database, on threads that may take their time.
#[derive(Debug, Clone)]
pub(super) struct TextReader {
    place: String,
    limits_max: usize,
}

impl TextReader {
    pub(super) const fn new(place: String, limits_max: usize) -> Self {
        Self { place, limits_max }
    }

    pub(super) const fn limits_max(&self) -> usize {
        self.limits_max
    }

    /// Reads a document; without a text it has no limits.
    pub(super) async fn read(&self, text: Option<String>) -> Result<LimitsDocument, LoadError> {
        let Some(text) = text else { return Ok(empty()) };
        let Self { place, limits_max } = self.clone();
        let parse = move || limits_file::parse(|| place.clone(), text.as_bytes(), limits_max);
        spawn_blocking(parse).await.unwrap_or_else(|_| Err(self.unreadable(panicked())))
    }

    /// Reads a document that must exist, and what is staged: its name and its text.
    pub(super) async fn read_changes(
        &self,
        version: Option<Version>,
        text: Option<String>,
        staged: Option<(String, Option<String>)>,
    ) -> io::Result<Changes> {
        let document = match text {
            Some(_) => self.read(text).await,
            None => Err(self.unreadable(io::Error::new(io::ErrorKind::NotFound, MISSING))),
        };
        let mut uncommitted = Vec::new();
        if let Some((name, text)) = staged {
            let parse = move || {
                StagedDocument::new(PathBuf::from(name), text.as_deref().map(str::as_bytes))
            };
            uncommitted.push(spawn_blocking(parse).await.map_err(|_| panicked())?);
        }
        Ok(Changes { version, document, uncommitted })
    }

    pub(super) fn unreadable(&self, error: io::Error) -> LoadError {
        LoadError::unreadable(self.place.clone(), error)
    }
}

/// A document without limits.
pub(super) fn empty() -> LimitsDocument {
    LimitsDocument::read(NO_LIMITS.as_bytes()).expect("it is valid")
}

/// The text of a document.
///
/// # Errors
/// It would be too long to be read again.
pub(super) async fn write(registry: &Registry, preserved: &PreservedFields) -> io::Result<String> {
    let (registry, preserved) = (registry.clone(), preserved.clone());
    let written = spawn_blocking(move || limits_file::write(&registry, &preserved)).await;
    written.unwrap_or_else(|_| Err(panicked()))
}

fn panicked() -> io::Error {
    io::Error::other(PANICKED)
}
