//! Request parsing.
//!
//! One fast pass, and a second pass for the field path when it fails.

use std::fmt;

use ratelimiter::RequestError;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error_code::ErrorCode;
use crate::field;
use crate::strict::ObjectOnly;

/// The most requests of one batch.
pub const BATCH_ITEMS_MAX: usize = 256;
/// The most bytes of a field's path in a refusal; a longer path is truncated.
const FIELD_BYTES_MAX: usize = 200;
/// The field name of the whole body.
const BODY: &str = "body";

/// Why a request was rejected before it reached the limiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stable error code.
    pub error: ErrorCode,
    /// What is wrong and what to do about it, in plain text.
    pub message: String,
}

/// The JSON form of a request.
pub trait Body: DeserializeOwned {
    /// The domain type.
    type Request;

    /// Checks what concerns more than one field, and converts.
    ///
    /// # Errors
    /// The request is malformed.
    fn into_request(self) -> Result<Self::Request, Refusal>;
}

/// Several independent requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with requests")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchBody<B> {
    /// 1 to 256 requests.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 256))]
    pub requests: Vec<B>,
}

/// One result per request of a batch, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchAnswer<A> {
    /// The results.
    pub results: Vec<A>,
}

/// The fields of every answer that is not 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// The stable error code.
    #[serde(with = "field::text")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "unauthorized"))]
    pub error: ErrorCode,
    /// What is wrong and what to do about it, in plain text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl<'de, B: Deserialize<'de>> Deserialize<'de> for BatchBody<B> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(ObjectOnly(deserializer))
    }
}

impl<B: Serialize> Serialize for BatchBody<B> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// Parses a request.
///
/// # Errors
/// The bytes are not JSON, or the request is malformed: the refusal names the first invalid field.
pub fn read<B: Body>(bytes: &[u8]) -> Result<B::Request, Refusal> {
    decode::<B>(bytes)?.into_request()
}

/// Parses a batch of requests. A malformed one is an `Err` at its position.
///
/// # Errors
/// The bytes are not JSON, or not a list of 1 to 256 requests.
pub fn read_batch<B: Body>(bytes: &[u8]) -> Result<Vec<Result<B::Request, Refusal>>, Refusal> {
    if let Ok(BatchBody { requests }) = parse::<BatchBody<B>>(bytes) {
        check_batch_count(requests.len())?;
        return Ok(requests.into_iter().map(B::into_request).collect());
    }
    let BatchBody { requests } = decode::<BatchBody<&RawValue>>(bytes)?;
    check_batch_count(requests.len())?;
    Ok(requests.into_iter().map(|request| read::<B>(request.get().as_bytes())).collect())
}

fn check_batch_count(count: usize) -> Result<(), Refusal> {
    if (1..=BATCH_ITEMS_MAX).contains(&count) {
        return Ok(());
    }
    let message = format!("a batch has 1 to {BATCH_ITEMS_MAX} requests, not {count}");
    Err(Refusal::of_field("requests", message))
}

/// Plain parsing is fast; only when it fails, a second pass finds the invalid field.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Refusal> {
    parse(bytes).map_err(|error| explain_error::<T>(bytes, &error))
}

/// Checks UTF-8 once for the whole body instead of once per string.
fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, serde_json::Error> {
    match str::from_utf8(bytes) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(bytes),
    }
}

#[cold]
fn explain_error<'a, T: Deserialize<'a>>(bytes: &'a [u8], error: &serde_json::Error) -> Refusal {
    use serde_json::error::Category;
    match error.classify() {
        Category::Data => {}
        // For a number out of range, serde_json reports a syntax error.
        Category::Syntax if parse::<IgnoredAny>(bytes).is_ok() => {}
        Category::Io | Category::Syntax | Category::Eof => {
            let message = format!("the body is not JSON: {error}");
            return Refusal::of_field(BODY, message);
        }
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let mut track = serde_path_to_error::Track::new();
    // The result is known: parsing fails as it did the first time, tracked or not.
    drop(T::deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track)));
    let path = track.path().to_string();
    let parent = if path == "." { "" } else { path.as_str() };
    let message = error.to_string();
    Refusal::of_field(&field_path(parent, &message), message)
}

/// The path of the field that an error is about. If a field is missing or listed twice, the tracked path is that of its
/// object, and serde names the field in its message only.
fn field_path(parent: &str, message: &str) -> String {
    let named = ["missing field `", "duplicate field `"].iter().find_map(|prefix| {
        let (name, _) = message.strip_prefix(prefix)?.split_once('`')?;
        Some(name)
    });
    match (parent, named) {
        ("", None) => BODY.to_owned(),
        ("", Some(name)) => name.to_owned(),
        (parent, None) => parent.to_owned(),
        (parent, Some(name)) if parent.ends_with(name) => parent.to_owned(),
        (parent, Some(name)) => format!("{parent}.{name}"),
    }
}

impl Refusal {
    /// `invalid_request:<field>`
    pub fn of_field(field: &str, message: impl Into<String>) -> Self {
        let field = &field[..field.floor_char_boundary(FIELD_BYTES_MAX)];
        // The code is one line without white space, whatever the client's field names.
        let field = field.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
        Self { error: ErrorCode::InvalidRequest { field }, message: message.into() }
    }

    /// This refusal of a part, as one of the whole: the field's path begins at the parent.
    pub(crate) fn inside(self, parent: &str) -> Self {
        if let ErrorCode::InvalidRequest { field } = &self.error {
            return Self::of_field(&format!("{parent}.{field}"), self.message);
        }
        self
    }
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        let message = error.to_string();
        match error {
            RequestError::RequirementCount { .. }
            | RequestError::AmountZero { .. }
            | RequestError::TemplateKey { .. } => Self::of_field("requirements", message),
            RequestError::ActualCount { .. } => Self::of_field("actuals", message),
            RequestError::DuplicateKey { key } => {
                Self { error: ErrorCode::DuplicateKey { key }, message }
            }
            RequestError::JobId => Self::of_field("job_id", message),
            RequestError::WaitTooLong { .. } => Self::of_field("wait_ms", message),
            RequestError::Queue => Self::of_field("queue", message),
        }
    }
}

impl From<Refusal> for ErrorBody {
    fn from(Refusal { error, message }: Refusal) -> Self {
        Self { error, message }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error, self.message)
    }
}

impl std::error::Error for Refusal {}
