//! One request, read.

use hyper::body::Bytes;
use serde_json::{Map, Value};

use crate::options::OUTPUT_TOKENS_MAX;
use crate::problem::Problem;

/// As OpenAI.
const CHOICES_MAX: u64 = 128;

/// When the first call was made, in Unix seconds: a constant, so that answers are deterministic.
const CREATED: u64 = 1_700_000_000;

/// What IDs follow from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) seed: u64,
    pub(crate) number: u64,
}

pub(crate) struct Call {
    pub(crate) identity: Identity,
    pub(crate) body: Map<String, Value>,
    /// Set if the caller says how many there are.
    pub(crate) prompt_tokens: Option<u64>,
    /// What an answer has if the request does not want fewer.
    pub(crate) output_tokens: u64,
    pub(crate) is_endless: bool,
    pub(crate) gives_usage: bool,
    /// Its stream ends with an error.
    pub(crate) fails: bool,
}

/// The tokens of one choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Output {
    /// `u64::MAX` in a stream that never ends.
    pub(crate) tokens: u64,
    /// The most that the request allowed.
    pub(crate) tokens_max: u64,
    /// The request wanted fewer than there were.
    pub(crate) is_cut: bool,
}

impl Identity {
    /// Random numbers of this call; each `purpose` has its own.
    pub(crate) fn rng(self, purpose: u64) -> fastrand::Rng {
        let mixed = self.number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose.rotate_left(32);
        fastrand::Rng::with_seed(self.seed.wrapping_add(mixed))
    }

    pub(crate) fn id(self, prefix: &str) -> String {
        let mut rng = self.rng(0);
        format!("{prefix}{:016x}{:08x}", rng.u64(..), rng.u32(..))
    }

    pub(crate) const fn created(self) -> u64 {
        CREATED.wrapping_add(self.number)
    }
}

/// Reads the body of a POST.
pub(crate) fn read_body(bytes: &Bytes) -> Result<Map<String, Value>, Problem> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(Problem::invalid("The body of the request is not a JSON object.")),
        Err(error) => {
            let message = format!("We could not parse the JSON body of your request: {error}");
            Err(Problem::invalid(message))
        }
    }
}

impl Call {
    pub(crate) fn model(&self) -> Result<&str, Problem> {
        match self.body.get("model").and_then(Value::as_str) {
            Some(model) if !model.is_empty() => Ok(model),
            Some(_) | None => Err(Problem::invalid("model: a string is required")),
        }
    }

    pub(crate) fn required(&self, name: &str) -> Result<&Value, Problem> {
        match self.body.get(name) {
            Some(value) if !value.is_null() => Ok(value),
            Some(_) | None => Err(Problem::invalid(format!("{name}: Field required"))),
        }
    }

    pub(crate) fn required_array(&self, name: &str) -> Result<&Value, Problem> {
        let value = self.required(name)?;
        let is_filled = value.as_array().is_some_and(|items| !items.is_empty());
        let problem = || Problem::invalid(format!("{name}: at least one item is required"));
        is_filled.then_some(value).ok_or_else(problem)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.body.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.flag("stream")
    }

    /// A whole number from 1.
    pub(crate) fn count(&self, name: &str) -> Result<Option<u64>, Problem> {
        match self.body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(count) if count > 0 => Ok(Some(count)),
                Some(_) | None => {
                    Err(Problem::invalid(format!("{name}: a whole number from 1 is required")))
                }
            },
        }
    }

    pub(crate) fn choices(&self) -> Result<u64, Problem> {
        let choices = self.count("n")?.unwrap_or(1);
        if choices > CHOICES_MAX {
            return Err(Problem::invalid(format!("n: at most {CHOICES_MAX}")));
        }
        Ok(choices)
    }

    pub(crate) fn prompt_tokens(&self, counted: u64) -> u64 {
        self.prompt_tokens.unwrap_or(counted).max(1)
    }

    /// One choice of a request that wants at most so many tokens.
    pub(crate) fn output(&self, wanted: Option<u64>) -> Output {
        assert!(self.output_tokens <= OUTPUT_TOKENS_MAX, "checked where it is set");
        let tokens_max = wanted.unwrap_or(self.output_tokens);
        if self.is_endless && self.is_stream() {
            return Output { tokens: u64::MAX, tokens_max, is_cut: false };
        }
        let is_cut = tokens_max < self.output_tokens;
        Output { tokens: self.output_tokens.min(tokens_max), tokens_max, is_cut }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(body: &Value) -> Call {
        Call {
            identity: Identity { seed: 1, number: 1 },
            body: read_body(&Bytes::from(body.to_string())).expect("an object"),
            prompt_tokens: None,
            output_tokens: 16,
            is_endless: false,
            gives_usage: true,
            fails: false,
        }
    }

    /// GW-14
    #[test]
    fn ids_follow_from_seed_and_number() {
        let id = |seed, number| Identity { seed, number }.id("chatcmpl-");
        assert_eq!(id(7, 1), id(7, 1));
        assert_ne!(id(7, 1), id(7, 2));
        assert_ne!(id(7, 1), id(8, 1));
        assert_eq!(Identity { seed: 7, number: 3 }.created(), 1_700_000_003);
    }

    #[test]
    fn an_answer_is_cut_if_the_request_wants_less() {
        let call = call(&json!({}));
        for (wanted, tokens, tokens_max, is_cut) in [
            (None, 16, 16, false),
            (Some(16), 16, 16, false),
            (Some(15), 15, 15, true),
            (Some(1_000), 16, 1_000, false),
        ] {
            assert_eq!(call.output(wanted), Output { tokens, tokens_max, is_cut });
        }
    }

    #[test]
    fn numbers_start_at_one() {
        for (body, count) in [
            (json!({}), Ok(None)),
            (json!({ "max_tokens": null }), Ok(None)),
            (json!({ "max_tokens": 1 }), Ok(Some(1))),
            (json!({ "max_tokens": 0 }), Err(())),
            (json!({ "max_tokens": "5" }), Err(())),
        ] {
            assert_eq!(call(&body).count("max_tokens").map_err(drop), count, "{body}");
        }
        assert_eq!(call(&json!({ "n": 128 })).choices(), Ok(128));
        assert!(call(&json!({ "n": 129 })).choices().is_err());
    }

    #[test]
    fn a_body_is_an_object() {
        for bytes in ["", "[]", "{\"a\":"] {
            assert!(read_body(&Bytes::from(bytes)).is_err(), "{bytes}");
        }
    }
}
