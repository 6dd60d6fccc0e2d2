//! The JSON form of `PUT /v1/admin/limits`: one definition, or a list of them (`OPS-03`).

use std::collections::HashSet;
use std::fmt;

use ratelimiter::Limit;
use serde::de::{Deserializer, Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::decode::{Body, Refusal, read};
use crate::definition::DefinitionBody;
use crate::error_code::ErrorCode;
use crate::strict::strict;

/// The most definitions of one request.
pub const DEFINITIONS_MAX: usize = 10_000;
/// The most bytes of a request with definitions.
pub const DEFINITIONS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The field that only a list has.
pub(crate) const LIMITS: &str = "limits";

/// Several definitions, which are applied together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self", expecting = "an object with limits")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DefinitionsBody {
    /// 1 to 10 000 definitions with distinct keys.
    #[serde(deserialize_with = "definitions")]
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 10_000))]
    pub limits: Vec<DefinitionBody>,
}

/// A request to define limits. Its form decides the form of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefineRequest {
    /// One definition.
    One(Box<Limit>),
    /// A list with distinct keys.
    Many(Vec<Limit>),
}

strict!(ObjectOnly: DefinitionsBody);

/// Parses a request with one definition or with several.
///
/// # Errors
/// As [`read`]. The path of a field in a list begins with its entry, such as `limits[3].capacity`.
pub fn read_define(bytes: &[u8]) -> Result<DefineRequest, Refusal> {
    match read::<DefinitionBody>(bytes) {
        Ok(limit) => Ok(DefineRequest::One(Box::new(limit))),
        // A definition has no such field, so this is a list.
        Err(Refusal { error: ErrorCode::InvalidRequest { field }, .. }) if field == LIMITS => {
            Ok(DefineRequest::Many(read::<DefinitionsBody>(bytes)?))
        }
        Err(refusal) => Err(refusal),
    }
}

impl Body for DefinitionsBody {
    type Request = Vec<Limit>;

    fn into_request(self) -> Result<Vec<Limit>, Refusal> {
        let Self { limits } = self;
        let limit = |(at, body): (usize, DefinitionBody)| {
            body.into_request().map_err(|refusal| refusal.inside(&format!("{LIMITS}[{at}]")))
        };
        let limits = limits.into_iter().enumerate().map(limit).collect::<Result<Vec<_>, _>>()?;
        let mut keys = HashSet::with_capacity(limits.len());
        match limits.iter().find(|limit| !keys.insert(&limit.key)) {
            Some(Limit { key, .. }) => {
                let message = format!("{key} is defined twice in this list; define it once");
                Err(Refusal { error: ErrorCode::DuplicateKey { key: key.clone() }, message })
            }
            None => Ok(limits),
        }
    }
}

impl<'a> FromIterator<&'a Limit> for DefinitionsBody {
    fn from_iter<I: IntoIterator<Item = &'a Limit>>(limits: I) -> Self {
        Self { limits: limits.into_iter().map(DefinitionBody::from).collect() }
    }
}

/// Parses 1 to [`DEFINITIONS_MAX`] definitions, and reads no more of a longer list.
fn definitions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<DefinitionBody>, D::Error> {
    deserializer.deserialize_seq(Definitions)
}

struct Definitions;

impl<'de> Visitor<'de> for Definitions {
    type Value = Vec<DefinitionBody>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of 1 to {DEFINITIONS_MAX} definitions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut definitions = Vec::new();
        while definitions.len() < DEFINITIONS_MAX {
            match list.next_element()? {
                Some(definition) => definitions.push(definition),
                None if definitions.is_empty() => return Err(Error::invalid_length(0, &self)),
                None => return Ok(definitions),
            }
        }
        match list.next_element::<IgnoredAny>()? {
            Some(IgnoredAny) => Err(Error::invalid_length(DEFINITIONS_MAX + 1, &self)),
            None => Ok(definitions),
        }
    }
}
