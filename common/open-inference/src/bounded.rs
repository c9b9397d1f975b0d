//! Deserialization that takes no long text and no long list out of a message.
//!
//! serde copies a text before its length can be looked at, and repeats it in its errors.
//! [`Bounded`] stands around a deserializer and everything that is deserialized within it, and
//! refuses what is too long by its length alone. A tensor's `data`, which is a
//! [`RawValue`](serde_json::value::RawValue), and values that are ignored pass unread.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

use crate::ProtocolError;

/// Longest name, datatype, id or parameter, in bytes.
pub const MAX_TEXT: usize = 4096;
/// Longest number, in characters: a float written out to its last digit has 1,079.
const MAX_NUMBER: usize = 2048;
/// Longest list: inputs, outputs.
const MAX_ELEMENTS: usize = 1024;
/// Axes of a tensor, the batch axis among them.
pub const MAX_AXES: usize = 16;
/// Objects and arrays within each other, in a long header.
const MAX_DEPTH: usize = 64;
/// Longest JSON whose depth, texts and numbers are bounded by its length alone.
pub(crate) const SHORT: usize = 64 * 1024;
/// Objects and arrays around an element of a tensor's `data`.
const DATA_DEPTH: usize = 4;
/// Bytes of the longest escape, `\u0007`.
const ESCAPED: usize = 6;
/// Names of the types by which `serde_json` passes values on unread begin so.
const UNREAD: &str = "$serde_json::private";

/// Reads `json` within the bounds.
pub(crate) fn read<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ProtocolError> {
    if json.len() > SHORT {
        scan(json)?;
    }
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let read = T::deserialize(Bounded(&mut deserializer));
    let read = read.and_then(|value| deserializer.end().map(|()| value));
    read.map_err(|error| ProtocolError::Json(error.into()))
}

/// Refuses values nested deeper than [`MAX_DEPTH`], long numbers, and long texts
/// outside tensors' data.
///
/// `serde_json` notes each level of a value that it passes over, and copies a long number and a
/// text that has an escape: that takes as much memory again as the value.
fn scan(json: &[u8]) -> Result<(), ProtocolError> {
    let mut depth = 0_usize;
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                let length = skip_text(&mut bytes);
                if depth < DATA_DEPTH && length > ESCAPED * MAX_TEXT {
                    return Err(ProtocolError::LongText {
                        length,
                        limit: MAX_TEXT,
                    });
                }
            }
            b'-' | b'0'..=b'9' => {
                let length = 1 + skip_number(&mut bytes);
                if length > MAX_NUMBER {
                    return Err(ProtocolError::LongNumber {
                        length,
                        limit: MAX_NUMBER,
                    });
                }
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(ProtocolError::Deep { limit: MAX_DEPTH });
        }
    }
    Ok(())
}

/// Moves past the text that has just begun, and returns its length with its escapes as they stand.
fn skip_text(bytes: &mut std::slice::Iter<'_, u8>) -> usize {
    let left = bytes.len();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return left - bytes.len() - 1,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    left
}

/// Moves past the number that has just begun, and returns the length of what was left of it.
fn skip_number(bytes: &mut std::slice::Iter<'_, u8>) -> usize {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let left = bytes.as_slice();
    let length = left
        .iter()
        .position(|byte| !is_part(byte))
        .unwrap_or(left.len());
    *bytes = left[length..].iter();
    length
}

/// Reads a tensor's shape.
pub(crate) fn shape<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<usize>, D::Error> {
    struct Shape;

    impl<'de> Visitor<'de> for Shape {
        type Value = Vec<usize>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a shape, which is an array of lengths")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut axes: A) -> Result<Vec<usize>, A::Error> {
            let mut shape = Vec::new();
            while let Some(axis) = axes.next_element()? {
                if shape.len() == MAX_AXES {
                    return Err(A::Error::custom(format_args!(
                        "a shape of more than {MAX_AXES} axes"
                    )));
                }
                shape.push(axis);
            }
            Ok(shape)
        }
    }

    deserializer.deserialize_seq(Shape)
}

/// Deserializer, visitor, access or seed within the bounds.
struct Bounded<T>(T);

/// List within the bounds.
struct BoundedList<A> {
    elements: A,
    read: usize,
}

fn check<E: Error>(text: &str) -> Result<(), E> {
    if text.len() <= MAX_TEXT {
        return Ok(());
    }
    Err(E::custom(format_args!(
        "a text of {} bytes; at most {MAX_TEXT} are taken",
        text.len()
    )))
}

/// By whatever type a value has: where another one is asked for, `serde_json` would repeat a text
/// without asking the visitor.
macro_rules! deserialize {
    ($($method:ident($($type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $(_: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.deserialize_any(Bounded(visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<D> {
    type Error = D::Error;

    deserialize! {
        deserialize_any() deserialize_bool() deserialize_i8() deserialize_i16() deserialize_i32()
        deserialize_i64() deserialize_i128() deserialize_u8() deserialize_u16() deserialize_u32()
        deserialize_u64() deserialize_u128() deserialize_f32() deserialize_f64() deserialize_char()
        deserialize_str() deserialize_string() deserialize_bytes() deserialize_byte_buf()
        deserialize_unit() deserialize_seq() deserialize_map() deserialize_identifier()
        deserialize_unit_struct(&'static str)
        deserialize_tuple(usize)
        deserialize_tuple_struct(&'static str, usize)
        deserialize_struct(&'static str, &'static [&'static str])
        deserialize_enum(&'static str, &'static [&'static str])
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Bounded(visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_ignored_any(Bounded(visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        if name.starts_with(UNREAD) {
            return self.0.deserialize_newtype_struct(name, visitor);
        }
        self.0.deserialize_newtype_struct(name, Bounded(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident: $type:ty),*) => {$(
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value)
        }
    )*};
}

macro_rules! visit_text {
    ($($method:ident: $type:ty),*) => {$(
        fn $method<E: Error>(self, text: $type) -> Result<V::Value, E> {
            check(&text)?;
            self.0.$method(text)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Bounded<V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(formatter)
    }

    visit! {
        visit_bool: bool, visit_i64: i64, visit_i128: i128,
        visit_u64: u64, visit_u128: u128, visit_f64: f64
    }

    visit_text! { visit_str: &str, visit_borrowed_str: &'de str, visit_string: String }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Bounded(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Bounded(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(BoundedList { elements, read: 0 })
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Bounded(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(variant)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Bounded<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Bounded(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for BoundedList<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let element = self.elements.next_element_seed(Bounded(seed))?;
        self.read += usize::from(element.is_some());
        if self.read > MAX_ELEMENTS {
            return Err(A::Error::custom(format_args!(
                "a list of more than {MAX_ELEMENTS}"
            )));
        }
        Ok(element)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Bounded<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Bounded(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Bounded(seed))
    }
}
