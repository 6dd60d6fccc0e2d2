//! Structs are parsed from JSON objects only, and the names of variants from strings only.
//!
//! By default, serde also reads `["01J…", null, [["k", 1]]]` as a reserve, by position, and `{"day": null}` as the variant
//! `day`. Accepting them would make them part of the API forever, so they are rejected.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{Deserializer, Error, Visitor};
use serde::forward_to_deserialize_any;

/// Deserializes a struct from an object only.
pub(crate) struct ObjectOnly<D>(pub(crate) D);

/// Deserializes an enum without fields from a string only.
pub(crate) struct StringOnly<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for StringOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_str(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_str(VariantName { variants, visitor })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// Passes the name of a variant to the visitor of its enum.
struct VariantName<V> {
    variants: &'static [&'static str],
    visitor: V,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for VariantName<V> {
    type Value = V::Value;

    /// As serde lists the variants for an unknown one.
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variants {
            [one, other] => write!(f, "`{one}` or `{other}`"),
            variants => write!(f, "one of `{}`", variants.join("`, `")),
        }
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<V::Value, E> {
        self.visitor.visit_enum(StrDeserializer::new(name))
    }
}

/// Implements the traits for types whose derives are marked `remote = "Self"`: they are parsed through one of the deserializers
/// above.
macro_rules! strict {
    ($only:ident: $($name:ident)+) => {
        $(
            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    $name::deserialize($crate::strict::$only(deserializer))
                }
            }

            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    $name::serialize(self, serializer)
                }
            }
        )+
    };
}

pub(crate) use strict;
