//! Answers of scripts.

use std::time::Duration;

use redis::Value;

use ratelimiter::Unanswered;
use ratelimiter::clock::Timestamp;

/// Retry hint for a request that Redis did not answer.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How much of an unexpected answer is logged, in characters.
const ANSWER_LOGGED_MAX: usize = 200;

/// The answer of a script: a status, the time, and what the status has besides.
#[derive(Debug)]
pub(crate) struct Reply {
    values: Vec<Value>,
}

impl Reply {
    /// # Errors
    /// It is not the answer of a script.
    pub(crate) fn new(value: Value) -> Result<Self, Unanswered> {
        match value {
            Value::Array(values) if text(values.first()).is_some() => Ok(Self { values }),
            other => Err(unexpected(&format!("{other:?}"))),
        }
    }

    /// The answer in an array of an answer.
    pub(crate) fn within(&self, at: usize) -> Result<Self, Unanswered> {
        Ok(Self { values: self.list(at)?.to_vec() })
    }

    pub(crate) fn status(&self) -> &str {
        text(self.values.first()).expect("it was checked")
    }

    /// The time at which the script ran, in microseconds; not every answer has it.
    pub(crate) fn now(&self) -> Option<u64> {
        number(self.values.get(1))
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn text(&self, at: usize) -> Result<&str, Unanswered> {
        let value = self.values.get(at);
        text(value).ok_or_else(|| match value {
            Some(Value::BulkString(_)) => unanswered("the text is not UTF-8"),
            _ => self.unexpected(),
        })
    }

    /// A whole number that is not negative.
    pub(crate) fn number(&self, at: usize) -> Result<u64, Unanswered> {
        number(self.values.get(at)).ok_or_else(|| self.unexpected())
    }

    /// A moment; `None` if the number is negative.
    pub(crate) fn moment(&self, at: usize) -> Option<Timestamp> {
        number(self.values.get(at)).map(timestamp)
    }

    /// A number of more than 64 bits in decimal.
    pub(crate) fn decimal(&self, at: usize) -> Result<u128, Unanswered> {
        self.text(at)?.parse().map_err(|_| self.unexpected())
    }

    pub(crate) fn list(&self, at: usize) -> Result<&[Value], Unanswered> {
        match self.values.get(at) {
            Some(Value::Array(values)) => Ok(values),
            _ => Err(self.unexpected()),
        }
    }

    /// The arrays in an array.
    pub(crate) fn rows(&self, at: usize) -> Result<Vec<Self>, Unanswered> {
        let row = |value: &Value| match value {
            Value::Array(values) => Ok(Self { values: values.clone() }),
            _ => Err(self.unexpected()),
        };
        self.list(at)?.iter().map(row).collect()
    }

    pub(crate) fn unexpected(&self) -> Unanswered {
        unexpected(&format!("{:?}", self.values))
    }
}

pub(crate) fn text(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

fn number(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => text(Some(other))?.parse().ok(),
    }
}

/// The moment so many microseconds after the Unix epoch.
pub(crate) const fn timestamp(micros: u64) -> Timestamp {
    Timestamp::from_unix_nanos(micros.saturating_mul(1_000))
}

fn unexpected(answer: &str) -> Unanswered {
    // It may be a document of megabytes.
    let answer = format!("{answer:.ANSWER_LOGGED_MAX$}");
    tracing::error!(answer, "redis gave an unexpected answer");
    unanswered("Redis gave an unexpected answer")
}

fn unanswered(reason: &str) -> Unanswered {
    Unanswered { reason: reason.to_owned(), retry_after: RETRY_AFTER }
}
