//! Parameters and columns of statements, without the driver's type parameters.

use std::borrow::Cow;

use coordination::{
    CorrelationId, Delay, ErrorText, LeaseDuration, OwnerToken, Payload, Timestamp, Topics,
};
use sqlx::{ColumnIndex, Decode, Row, Type};

use crate::error::DatabaseError;

/// A parameter of a statement. `None` is NULL.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// A number, or a timestamp in microseconds.
    Int(Option<i64>),
    /// A text.
    Text(Option<Cow<'a, str>>),
    /// Bytes.
    Bytes(Option<&'a [u8]>),
    /// A list of texts.
    Texts(Vec<String>),
}

/// A row of a result, read by column name.
pub trait Columns: Send {
    /// A number.
    fn int(&self, column: &'static str) -> Result<i64, DatabaseError>;
    /// A number or NULL.
    fn maybe_int(&self, column: &'static str) -> Result<Option<i64>, DatabaseError>;
    /// A text.
    fn text(&self, column: &'static str) -> Result<&str, DatabaseError>;
    /// A text or NULL.
    fn maybe_text(&self, column: &'static str) -> Result<Option<&str>, DatabaseError>;
    /// Bytes.
    fn bytes(&self, column: &'static str) -> Result<&[u8], DatabaseError>;
    /// Bytes or NULL.
    fn maybe_bytes(&self, column: &'static str) -> Result<Option<&[u8]>, DatabaseError>;

    /// A timestamp.
    fn moment(&self, column: &'static str) -> Result<Timestamp, DatabaseError> {
        read(column, Timestamp::from_unix_micros(self.int(column)?))
    }

    /// A count.
    fn count(&self, column: &'static str) -> Result<u32, DatabaseError> {
        read(column, u32::try_from(self.int(column)?))
    }

    /// A payload.
    fn payload(&self, column: &'static str) -> Result<Payload, DatabaseError> {
        read(column, Payload::new(self.bytes(column)?))
    }

    /// An error text.
    fn error_text(&self, column: &'static str) -> Result<ErrorText, DatabaseError> {
        Ok(ErrorText::new(self.text(column)?))
    }

    /// A text, parsed by a checking constructor.
    fn named<'a, T, E: ToString>(
        &'a self,
        column: &'static str,
        new: impl FnOnce(&'a str) -> Result<T, E>,
    ) -> Result<T, DatabaseError> {
        read(column, new(self.text(column)?))
    }

    /// The same, or NULL.
    fn maybe_named<'a, T, E: ToString>(
        &'a self,
        column: &'static str,
        new: impl FnOnce(&'a str) -> Result<T, E>,
    ) -> Result<Option<T>, DatabaseError> {
        self.maybe_text(column)?.map(|text| read(column, new(text))).transpose()
    }
}

impl<R: Row> Columns for R
where
    for<'c> &'c str: ColumnIndex<R> + Decode<'c, R::Database> + Type<R::Database>,
    for<'c> &'c [u8]: Decode<'c, R::Database> + Type<R::Database>,
    for<'c> i64: Decode<'c, R::Database> + Type<R::Database>,
{
    fn int(&self, column: &'static str) -> Result<i64, DatabaseError> {
        Ok(self.try_get(column)?)
    }

    fn maybe_int(&self, column: &'static str) -> Result<Option<i64>, DatabaseError> {
        Ok(self.try_get(column)?)
    }

    fn text(&self, column: &'static str) -> Result<&str, DatabaseError> {
        Ok(self.try_get(column)?)
    }

    fn maybe_text(&self, column: &'static str) -> Result<Option<&str>, DatabaseError> {
        Ok(self.try_get(column)?)
    }

    fn bytes(&self, column: &'static str) -> Result<&[u8], DatabaseError> {
        Ok(self.try_get(column)?)
    }

    fn maybe_bytes(&self, column: &'static str) -> Result<Option<&[u8]>, DatabaseError> {
        Ok(self.try_get(column)?)
    }
}

/// Turns a value that this crate never writes into an error that names the column.
pub(crate) fn read<T, E: ToString>(
    column: &'static str,
    value: Result<T, E>,
) -> Result<T, DatabaseError> {
    value.map_err(|reason| DatabaseError::Unreadable { column, reason: reason.to_string() })
}

/// IDs as one parameter.
pub(crate) fn ids<I: ToString>(ids: &[I]) -> Value<'static> {
    Value::Texts(ids.iter().map(ToString::to_string).collect())
}

/// The named topics as one parameter.
pub(crate) fn topics_value(topics: &Topics) -> Option<Value<'static>> {
    match topics {
        Topics::All => None,
        Topics::Only(set) | Topics::Except(set) => {
            Some(Value::Texts(set.iter().map(|topic| topic.as_str().to_owned()).collect()))
        }
    }
}

/// An ID.
pub(crate) fn id(id: &impl ToString) -> Value<'static> {
    Value::Text(Some(Cow::Owned(id.to_string())))
}

/// An optional timestamp.
pub(crate) fn maybe_moment(at: Option<Timestamp>) -> Value<'static> {
    Value::Int(at.map(Timestamp::unix_micros))
}

/// An optional correlation ID.
pub(crate) fn correlation(id: Option<&CorrelationId>) -> Value<'_> {
    Value::Text(id.map(|id| Cow::Borrowed(id.as_str())))
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value::Int(Some(number))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Value<'a> {
        Value::Text(Some(Cow::Borrowed(text)))
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(Some(Cow::Owned(text)))
    }
}

impl<'a> From<&'a OwnerToken> for Value<'a> {
    fn from(owner: &'a OwnerToken) -> Value<'a> {
        Value::from(owner.as_str())
    }
}

impl<'a> From<&'a ErrorText> for Value<'a> {
    fn from(error: &'a ErrorText) -> Value<'a> {
        Value::from(error.as_str())
    }
}

impl<'a> From<&'a Payload> for Value<'a> {
    fn from(payload: &'a Payload) -> Value<'a> {
        Value::Bytes(Some(payload.as_bytes()))
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(at: Timestamp) -> Self {
        at.unix_micros().into()
    }
}

impl From<LeaseDuration> for Value<'_> {
    fn from(lease: LeaseDuration) -> Self {
        micros(lease.get())
    }
}

impl From<Delay> for Value<'_> {
    fn from(delay: Delay) -> Self {
        micros(delay.get())
    }
}

/// A duration in microseconds.
fn micros(span: std::time::Duration) -> Value<'static> {
    i64::try_from(span.as_micros()).expect("leases and delays are at most 366 days").into()
}
