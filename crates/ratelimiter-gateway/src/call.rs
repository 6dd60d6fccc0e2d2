//! A call, as its body says: model, bounds, and what of it becomes input.

mod content;

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) use self::content::Content;
use crate::api::Operation;
use crate::encoding::Encoding;
use crate::model_name::{MODEL_BYTES_MAX, is_model_name};
use crate::reasoning::is_told_to_reason;

/// Asks the provider for usage at the end of a stream.
const WITH_USAGE: &str = r#"{"include_usage":true}"#;

/// A call to a provider.
#[derive(Debug)]
pub(crate) struct Call {
    /// As the caller wrote it.
    pub(crate) model: Box<str>,
    pub(crate) is_stream: bool,
    pub(crate) output: OutputBound,
    /// How many answers are generated: the bound is that of each.
    pub(crate) answers: u64,
    /// It is answered at once, and goes on at the provider.
    pub(crate) is_background: bool,
    /// Whether the model is to reason; `None` if it is for the model to say.
    pub(crate) reasons: Option<bool>,
    pub(crate) content: Content,
    /// As the caller sent it.
    pub(crate) body: CallBody,
    /// With `stream_options.include_usage`, for a stream of which the caller did not ask for it. It is then
    /// withheld from the caller.
    pub(crate) body_with_usage: Option<CallBody>,
}

/// The body of a call, in which the model can be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallBody {
    bytes: Bytes,
    /// The JSON of the model's name.
    model_at: Range<usize>,
}

/// A change of a text.
struct Splice {
    at: usize,
    skipped: usize,
    inserted: String,
}

/// The most tokens of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputBound {
    /// The operation has no output that is counted.
    None,
    Stated(u64),
    Unstated,
}

/// What is wrong with a body. Nothing of it is quoted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the body is not UTF-8; send JSON")]
    NotUtf8,
    #[error("the body is no JSON object, such as {{\"model\": …}}")]
    NotAnObject,
    #[error("the body cannot be read as JSON of a call: {0}")]
    NotJson(String),
    #[error("`{path}`: {error}")]
    Field { path: String, error: String },
    #[error(
        "`model` must be 1 to {MODEL_BYTES_MAX} characters without white space and without `*`"
    )]
    ModelName,
    #[error("`stream_options` must be an object")]
    StreamOptions,
}

/// The fields that the gateway needs. A field that is there twice is an error: the provider might read the other one.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    stream: Option<bool>,
    #[serde(borrow, default, deserialize_with = "present")]
    stream_options: Option<&'a RawValue>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    n: Option<u64>,
    best_of: Option<u64>,
    background: Option<bool>,
    reasoning_effort: Option<Value>,
    reasoning: Option<Value>,
    thinking: Option<Value>,
    // What becomes input is read as a whole; here it is only not there twice.
    #[serde(rename = "messages")]
    _messages: Option<IgnoredAny>,
    #[serde(rename = "input")]
    _input: Option<IgnoredAny>,
    #[serde(rename = "prompt")]
    _prompt: Option<IgnoredAny>,
    #[serde(rename = "system")]
    _system: Option<IgnoredAny>,
    #[serde(rename = "instructions")]
    _instructions: Option<IgnoredAny>,
    #[serde(rename = "tools")]
    _tools: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct StreamOptions<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    include_usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ModelField<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
}

/// A value that may be null.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Call {
    /// Reads the body of a call. `encoding_of` knows how a model turns text into tokens.
    pub(crate) fn parse(
        operation: Operation,
        body: Bytes,
        encoding_of: impl FnOnce(&str) -> Option<Encoding>,
    ) -> Result<Self, CallError> {
        let text = std::str::from_utf8(&body).map_err(|_| CallError::NotUtf8)?;
        // A list would be read as the fields in their order.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(CallError::NotAnObject);
        }
        let not_json = |error: serde_json::Error| CallError::NotJson(error.to_string());
        let fields: Fields<'_> = match serde_json::from_str(text) {
            Ok(fields) => fields,
            Err(error) => {
                return Err(located::<Fields<'_>>(text).unwrap_or_else(|| not_json(error)));
            }
        };
        let model = Box::<str>::from(&*fields.model);
        if !is_model_name(&model) {
            return Err(CallError::ModelName);
        }
        let value = serde_json::from_str(text).map_err(not_json)?;
        let content = Content::read(operation, &value, encoding_of(&model));
        let is_stream = fields.stream == Some(true);
        let asks_for_usage =
            matches!(operation, Operation::ChatCompletions | Operation::Completions) && is_stream;
        let splice = if asks_for_usage { with_usage(text, fields.stream_options)? } else { None };
        let model_at = match &fields.model {
            // With its quotes.
            Cow::Borrowed(name) => {
                let at = offset(text, name);
                at - 1..at + name.len() + 1
            }
            Cow::Owned(_) => {
                let ModelField { model } = serde_json::from_str(text).map_err(not_json)?;
                let at = offset(text, model.get());
                at..at + model.get().len()
            }
        };
        let body_with_usage = splice.map(|splice| {
            let bytes = splice.apply(text);
            CallBody { bytes, model_at: splice.shift(&model_at) }
        });
        let stated = match operation {
            Operation::ChatCompletions => fields.max_completion_tokens.or(fields.max_tokens),
            Operation::Completions | Operation::Messages => fields.max_tokens,
            Operation::Responses => fields.max_output_tokens,
            Operation::Embeddings => None,
        };
        let output = match (operation, stated) {
            (Operation::Embeddings, _) => OutputBound::None,
            (_, Some(tokens)) => OutputBound::Stated(tokens),
            (_, None) => OutputBound::Unstated,
        };
        let copies = match operation {
            Operation::ChatCompletions => fields.n.unwrap_or(1),
            Operation::Completions => fields.n.unwrap_or(1).max(fields.best_of.unwrap_or(1)),
            Operation::Responses | Operation::Embeddings | Operation::Messages => 1,
        };
        let answers = copies.max(1).saturating_mul(content.prompts);
        let is_background = fields.background == Some(true);
        let [effort, reasoning, thinking] =
            [&fields.reasoning_effort, &fields.reasoning, &fields.thinking].map(Option::as_ref);
        let reasons = is_told_to_reason(effort, reasoning, thinking);
        Ok(Self {
            model,
            is_stream,
            output,
            answers,
            is_background,
            reasons,
            content,
            body: CallBody { bytes: body, model_at },
            body_with_usage,
        })
    }
}

/// The error of a body with the path of its field, if it is about one.
fn located<'a, T: Deserialize<'a>>(text: &'a str) -> Option<CallError> {
    let deserializer = &mut serde_json::Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, T>(deserializer).err()?;
    let path = error.path().to_string();
    let error = error.into_inner().to_string();
    (path != ".").then_some(CallError::Field { path, error })
}

/// The change that adds `include_usage`; `None` if the caller asks for it. All other bytes stay.
fn with_usage(text: &str, options: Option<&RawValue>) -> Result<Option<Splice>, CallError> {
    let Some(options) = options.filter(|options| options.get() != "null") else {
        // An absent field is added in front; one that is null is replaced.
        let (at, inserted, skipped) = match options {
            Some(null) => (offset(text, null.get()), WITH_USAGE.to_owned(), null.get().len()),
            None => (
                text.find('{').expect("an object was read") + 1,
                format!(r#""stream_options":{WITH_USAGE},"#),
                0,
            ),
        };
        return Ok(Some(Splice { at, skipped, inserted }));
    };
    if !options.get().starts_with('{') {
        return Err(CallError::StreamOptions);
    }
    let fields: StreamOptions<'_> =
        serde_json::from_str(options.get()).map_err(|_| CallError::StreamOptions)?;
    let (at, skipped, inserted) = match fields.include_usage {
        Some(value) if value.get() == "true" => return Ok(None),
        Some(value) => (offset(text, value.get()), value.get().len(), "true".to_owned()),
        None => {
            let is_empty = options.get()[1..].trim_start().starts_with('}');
            let comma = if is_empty { "" } else { "," };
            (offset(text, options.get()) + 1, 0, format!(r#""include_usage":true{comma}"#))
        }
    };
    Ok(Some(Splice { at, skipped, inserted }))
}

/// Where a part of a text begins.
fn offset(text: &str, part: &str) -> usize {
    let at = part.as_ptr().addr() - text.as_ptr().addr();
    assert!(at + part.len() <= text.len(), "a borrowed value is a part of its text");
    at
}

impl CallBody {
    /// The body as the caller sent it, or with the name of another model.
    pub(crate) fn with_model(&self, name: Option<&str>) -> Bytes {
        let Some(name) = name else { return self.bytes.clone() };
        let name = serde_json::to_string(name).expect("text is JSON");
        spliced(&self.bytes, self.model_at.clone(), &name)
    }
}

impl Splice {
    fn apply(&self, text: &str) -> Bytes {
        spliced(text.as_bytes(), self.at..self.at + self.skipped, &self.inserted)
    }

    /// Where a part of the text is after the change, which is not in it.
    fn shift(&self, part: &Range<usize>) -> Range<usize> {
        let Self { at, skipped, inserted } = self;
        let moved = |offset: usize| match offset > *at {
            true => offset + inserted.len() - skipped,
            false => offset,
        };
        moved(part.start)..moved(part.end)
    }
}

fn spliced(bytes: &[u8], replaced: Range<usize>, inserted: &str) -> Bytes {
    let mut spliced = BytesMut::with_capacity(bytes.len() + inserted.len());
    spliced.extend_from_slice(&bytes[..replaced.start]);
    spliced.extend_from_slice(inserted.as_bytes());
    spliced.extend_from_slice(&bytes[replaced.end..]);
    spliced.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(operation: Operation, body: &str) -> Result<Call, CallError> {
        Call::parse(operation, Bytes::from(body.to_owned()), |_| None)
    }

    /// GW-04
    #[test]
    fn gw_04_usage_is_asked_for_and_every_other_byte_stays() {
        for (options, expected) in [
            ("", r#"{"stream_options":{"include_usage":true},"model":"m", "stream":true}"#),
            (
                r#","stream_options":null"#,
                r#"{"model":"m", "stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (
                r#","stream_options": { }"#,
                r#"{"model":"m", "stream":true,"stream_options": {"include_usage":true }}"#,
            ),
            (
                r#","stream_options":{"a":1.10}"#,
                r#"{"model":"m", "stream":true,"stream_options":{"include_usage":true,"a":1.10}}"#,
            ),
            (
                r#","stream_options":{"a":1,"include_usage":null}"#,
                r#"{"model":"m", "stream":true,"stream_options":{"a":1,"include_usage":true}}"#,
            ),
            (
                r#","stream_options":{"a":1,"include_usage":false}"#,
                r#"{"model":"m", "stream":true,"stream_options":{"a":1,"include_usage":true}}"#,
            ),
        ] {
            let body = format!(r#"{{"model":"m", "stream":true{options}}}"#);
            let call = parse(Operation::ChatCompletions, &body).unwrap();
            assert_eq!(call.body_with_usage.unwrap().with_model(None), expected);
            assert_eq!(call.body.with_model(None), body, "to ask again without it");
        }
    }

    /// GW-08
    #[test]
    fn gw_08_the_model_is_replaced_and_every_other_byte_stays() {
        for (body, expected) in [
            (r#"{"model":"m"}"#, r#"{"model":"a\"b"}"#),
            (
                r#" { "n":1, "model" : "m" , "stream":true}"#,
                r#" { "n":1, "model" : "a\"b" , "stream":true}"#,
            ),
            (r#"{"model":"\u006d","messages":["m"]}"#, r#"{"model":"a\"b","messages":["m"]}"#),
        ] {
            let call = parse(Operation::ChatCompletions, body).unwrap();
            assert_eq!(call.body.with_model(Some("a\"b")), expected);
            assert_eq!(call.body.with_model(None), body);
        }
    }

    /// GW-04, GW-08
    #[test]
    fn gw_08_the_model_is_replaced_in_a_body_that_asks_for_usage() {
        for (body, expected) in [
            (
                r#"{"stream":true,"model":"m"}"#,
                r#"{"stream_options":{"include_usage":true},"stream":true,"model":"other"}"#,
            ),
            (
                r#"{"model":"\u006d","stream":true,"stream_options":null}"#,
                r#"{"model":"other","stream":true,"stream_options":{"include_usage":true}}"#,
            ),
            (
                r#"{"stream":true,"stream_options":{"include_usage":false},"model":"m"}"#,
                r#"{"stream":true,"stream_options":{"include_usage":true},"model":"other"}"#,
            ),
        ] {
            let call = parse(Operation::ChatCompletions, body).unwrap();
            assert_eq!(call.body_with_usage.unwrap().with_model(Some("other")), expected);
        }
    }

    /// GW-04
    #[test]
    fn gw_04_a_caller_who_asks_for_usage_gets_it() {
        let asks = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#;
        for (operation, body) in [
            (Operation::ChatCompletions, asks),
            (Operation::ChatCompletions, r#"{"model":"m"}"#),
            (Operation::ChatCompletions, r#"{"model":"m","stream":false}"#),
            (Operation::Responses, r#"{"model":"m","stream":true}"#),
            (Operation::Messages, r#"{"model":"m","stream":true,"max_tokens":1}"#),
        ] {
            assert_eq!(parse(operation, body).unwrap().body_with_usage, None, "{body}");
        }
    }

    /// GW-10
    #[test]
    fn gw_10_a_body_that_is_no_call_is_refused_with_what_to_do() {
        for (body, expected) in [
            ("", "no JSON object"),
            ("{", "EOF while parsing"),
            ("[]", "no JSON object"),
            (r#"["m",true]"#, "no JSON object"),
            ("1", "no JSON object"),
            ("{}", "missing field `model`"),
            (r#"{"model":1}"#, "`model`: invalid type"),
            (r#"{"model":""}"#, "1 to 128 characters"),
            (r#"{"model":"a b"}"#, "1 to 128 characters"),
            (r#"{"model":"a:*"}"#, "1 to 128 characters"),
            (r#"{"model":"a","model":"b"}"#, "duplicate field `model`"),
            (r#"{"model":"a","messages":["long"],"messages":[]}"#, "duplicate field `messages`"),
            (r#"{"model":"a","max_tokens":-1}"#, "`max_tokens`: invalid value"),
            (r#"{"model":"a","stream":"yes"}"#, "invalid type"),
            (r#"{"model":"a","stream":true,"stream_options":1}"#, "must be an object"),
            (r#"{"model":"a"} x"#, "trailing characters"),
        ] {
            let error = parse(Operation::ChatCompletions, body).unwrap_err().to_string();
            assert!(error.contains(expected), "{body}: {error}");
        }
        let not_utf8 = Bytes::from_static(b"{\"model\":\"\xff\"}");
        let not_utf8 = Call::parse(Operation::Messages, not_utf8, |_| None);
        assert_eq!(not_utf8.unwrap_err(), CallError::NotUtf8);
        let nested = "[".repeat(100_000);
        let deep = format!(r#"{{"model":"m","messages":{nested}"#);
        assert!(parse(Operation::Messages, &deep).is_err(), "a deep body ends the call only");
    }
}
