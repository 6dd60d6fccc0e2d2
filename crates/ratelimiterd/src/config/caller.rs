//! Callers with names and bounds (`OPS-04`).

use std::fmt;
use std::sync::Arc;

use ratelimiter::{KeyPattern, PatternError};
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

use super::error::ValueError;
use super::token::Token;

/// The most named callers.
pub const CALLERS_MAX: usize = 1_000;
/// The most patterns of keys of one caller.
pub const CALLER_KEYS_MAX: usize = 100;
/// The most characters of a caller's name.
pub const CALLER_NAME_CHARACTERS_MAX: usize = 64;

/// The path of the list in a config.
pub(super) const PATH: &str = "auth.tokens";
const FIELDS: [&str; 4] = ["name", "token", "may", "keys"];

/// A caller with its token, what it may do, and to which keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerConfig {
    /// Names the caller in logs and metrics.
    pub name: CallerName,
    /// Proves that a request is the caller's.
    pub token: Token,
    /// What the caller may do.
    pub may: Vec<Permission>,
    /// The keys that it may name and see; `None` for all.
    pub keys: Option<Vec<KeyPattern>>,
}

/// What a token permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Reserve, renew and complete.
    Call,
    /// GET of the admin API, metrics and the page.
    Read,
    /// Everything.
    Admin,
}

/// The name of a caller: 1 to 64 characters without white space or control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerName(Arc<str>);

/// Why a text is not a caller's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CallerNameError {
    /// Empty, too long, or with white space or control characters.
    #[error(
        "a name has 1 to {CALLER_NAME_CHARACTERS_MAX} characters, without white space or control characters"
    )]
    Shape,
    /// The server gives this name to callers that have none.
    #[error(
        "`client_tokens`, `admin_tokens` and `anonymous` are reserved for callers without a name"
    )]
    Reserved,
}

impl Permission {
    const ALL: [Self; 3] = [Self::Call, Self::Read, Self::Admin];

    /// Its name in a config.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

impl CallerName {
    /// Callers with one of `auth.client_tokens`.
    pub(crate) const CLIENT_TOKENS: &str = "client_tokens";
    /// Callers with one of `auth.admin_tokens`.
    pub(crate) const ADMIN_TOKENS: &str = "admin_tokens";
    /// All callers, if no token is needed.
    pub(crate) const ANONYMOUS: &str = "anonymous";

    /// Creates a name from a text.
    ///
    /// # Errors
    /// The rule that the text breaks.
    pub fn new(text: &str) -> Result<Self, CallerNameError> {
        let fits = (1..=CALLER_NAME_CHARACTERS_MAX).contains(&text.chars().count());
        if !fits || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(CallerNameError::Shape);
        }
        if [Self::CLIENT_TOKENS, Self::ADMIN_TOKENS, Self::ANONYMOUS].contains(&text) {
            return Err(CallerNameError::Reserved);
        }
        Ok(Self(text.into()))
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Deserializes the list; of several errors it reports the first. [`read`] reports all.
pub(super) fn list<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<CallerConfig>, D::Error> {
    let read = read(&Value::deserialize(deserializer)?);
    read.map_err(|errors| match errors.first() {
        Some(ValueError { path, message }) if path == PATH => D::Error::custom(message),
        Some(error) => D::Error::custom(error),
        None => D::Error::custom("is invalid"),
    })
}

/// Reads the list.
///
/// # Errors
/// Every invalid value, with its path. Nothing is quoted: any text may be a secret in the wrong place.
pub(super) fn read(value: &Value) -> Result<Vec<CallerConfig>, Vec<ValueError>> {
    let mut errors = Errors::default();
    let Value::Array(items) = value else {
        let shape =
            "must be a list, such as [{name: ci, token: \"file:/run/secrets/ci\", may: [call]}]";
        errors.add(PATH, shape);
        return Err(errors.0);
    };
    if items.len() > CALLERS_MAX {
        errors.add(PATH, format!("has {} callers; at most {CALLERS_MAX} fit", items.len()));
        return Err(errors.0);
    }
    let mut callers: Vec<(usize, CallerConfig)> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let Some(caller) = read_one(item, &item_path(at), &mut errors) else { continue };
        match callers.iter().find(|(_, earlier)| earlier.name == caller.name) {
            Some((earlier, _)) => {
                let message =
                    format!("is the name of {} too; each caller has its own", item_path(*earlier));
                errors.add(&format!("{}.name", item_path(at)), message);
            }
            None => callers.push((at, caller)),
        }
    }
    match errors.0.is_empty() {
        true => Ok(callers.into_iter().map(|(_, caller)| caller).collect()),
        false => Err(errors.0),
    }
}

/// The path of one caller in a config.
pub(super) fn item_path(at: usize) -> String {
    format!("{PATH}[{at}]")
}

#[derive(Default)]
struct Errors(Vec<ValueError>);

impl Errors {
    fn add(&mut self, path: &str, message: impl fmt::Display) {
        self.0.push(ValueError { path: path.to_owned(), message: message.to_string() });
    }

    /// A value that is written as text; an error is added to the list.
    fn text<T, E: fmt::Display>(
        &mut self,
        value: Option<&Value>,
        path: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        match value {
            Some(Value::String(text)) => read(text).map_err(|error| self.add(path, error)).ok(),
            Some(_) => {
                self.add(path, "must be text; put it in quotes");
                None
            }
            None => {
                self.add(path, "is missing");
                None
            }
        }
    }
}

fn read_one(item: &Value, path: &str, errors: &mut Errors) -> Option<CallerConfig> {
    let Value::Object(fields) = item else {
        errors.add(path, "must be an object with name, token, may and, to bound it, keys");
        return None;
    };
    if fields.keys().any(|field| !FIELDS.contains(&field.as_str())) {
        errors.add(path, "has an unknown field; a caller has name, token, may, keys");
    }
    let path = |field: &str| format!("{path}.{field}");
    let name = errors.text(fields.get("name"), &path("name"), CallerName::new);
    let token = errors.text(fields.get("token"), &path("token"), Token::new);
    let may = permissions(fields.get("may"), &path("may"), errors);
    // Null is not "absent": it must not open all keys by accident.
    let keys = match fields.get("keys") {
        None => Some(None),
        Some(value) => patterns(value, &path("keys"), errors).map(Some),
    };
    Some(CallerConfig { name: name?, token: token?, may: may?, keys: keys? })
}

fn permissions(value: Option<&Value>, path: &str, errors: &mut Errors) -> Option<Vec<Permission>> {
    let items = value.and_then(Value::as_array).filter(|items| !items.is_empty());
    let Some(items) = items else {
        errors.add(path, "must be a list of one or more of call, read and admin");
        return None;
    };
    let permission = |(at, item): (usize, &Value)| {
        let known = Permission::ALL.into_iter().find(|known| item == known.name());
        if known.is_none() {
            errors.add(&format!("{path}[{at}]"), "must be call, read or admin");
        }
        known
    };
    // All items are read, so that all errors are reported.
    let permissions: Vec<_> = items.iter().enumerate().map(permission).collect();
    permissions.into_iter().collect()
}

fn patterns(value: &Value, path: &str, errors: &mut Errors) -> Option<Vec<KeyPattern>> {
    let items = value.as_array().filter(|items| (1..=CALLER_KEYS_MAX).contains(&items.len()));
    let Some(items) = items else {
        let message = format!(
            "must be a list of 1 to {CALLER_KEYS_MAX} keys or patterns, such as [\"tenant:acme:**\"]; leave it out for all keys"
        );
        errors.add(path, message);
        return None;
    };
    let pattern = |(at, item): (usize, &Value)| {
        errors.text(Some(item), &format!("{path}[{at}]"), |text| {
            KeyPattern::new(text).map_err(|error| {
                if let PatternError::PartOfSegment { .. } = error {
                    return "`*` and `**` must be whole segments between `:`".to_owned();
                }
                error.to_string()
            })
        })
    };
    let patterns: Vec<_> = items.iter().enumerate().map(pattern).collect();
    patterns.into_iter().collect()
}
