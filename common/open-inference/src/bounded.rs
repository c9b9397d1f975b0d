//! Deserialization that takes no long text and no long list out of a message.
//!
//! serde copies a text before its length can be looked at, and repeats it in its errors.
//! [`Bounded`] stands around a deserializer and everything that is deserialized within it, and
//! refuses what is too long by its length alone. A tensor's `data`, which is a
//! [`RawValue`](serde_json::value::RawValue), and values that are ignored pass unread.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use crate::ProtocolError;
use crate::error::json_mistake;

/// Longest name, datatype, id or parameter, in bytes.
pub(crate) const MAX_TEXT: usize = 4096;
/// Longest number, in characters: a float written out to its last digit has 1,079.
const MAX_NUMBER: usize = 2048;
/// Longest list or object: inputs, outputs, parameters.
const MAX_ELEMENTS: usize = 1024;
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

pub(crate) fn read<'de, T: Deserialize<'de>>(json: &'de [u8]) -> Result<T, ProtocolError> {
    if json.len() > SHORT {
        scan(json)?;
    }
    parse(json).map_err(|error| ProtocolError::Json(json_mistake(&error)))
}

/// Reads a part of JSON whose depth and numbers are bounded already.
pub(crate) fn parse<'de, T: Deserialize<'de>>(json: &'de [u8]) -> serde_json::Result<T> {
    // UTF-8 is checked faster in one go than text by text; the parser says where it is wrong.
    match std::str::from_utf8(json) {
        Ok(json) => deserialize_whole(serde_json::Deserializer::from_str(json)),
        Err(_) => deserialize_whole(serde_json::Deserializer::from_slice(json)),
    }
}

fn deserialize_whole<'de, T: Deserialize<'de>>(
    mut deserializer: serde_json::Deserializer<impl serde_json::de::Read<'de>>,
) -> serde_json::Result<T> {
    let value = T::deserialize(Bounded(&mut deserializer))?;
    deserializer.end()?;
    Ok(value)
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
                let limit = MAX_TEXT;
                let is_short = depth >= DATA_DEPTH || length <= ESCAPED * limit;
                ensure!(is_short, ProtocolError::LongText { length, limit });
            }
            b'-' | b'0'..=b'9' => {
                let (length, limit) = (1 + skip_number(&mut bytes), MAX_NUMBER);
                ensure!(length <= limit, ProtocolError::LongNumber { length, limit });
            }
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        ensure!(depth <= MAX_DEPTH, ProtocolError::Deep { limit: MAX_DEPTH });
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
    let length = left.iter().position(|byte| !is_part(byte)).unwrap_or(left.len());
    *bytes = left[length..].iter();
    length
}

/// Deserializer, visitor or seed within the bounds.
struct Bounded<T>(T);

/// Elements of a list or entries of an object, within the bounds.
struct Counted<A> {
    elements: A,
    read: usize,
}

impl<A> Counted<A> {
    fn count<E: Error>(&mut self, what: &str, is_one: bool) -> Result<(), E> {
        self.read += usize::from(is_one);
        let problem = format_args!("{what} of more than {MAX_ELEMENTS}");
        ensure!(self.read <= MAX_ELEMENTS, E::custom(problem));
        Ok(())
    }
}

fn check<E: Error>(text: &str) -> Result<(), E> {
    let length = text.len();
    let problem = format_args!("a text of {length} bytes; at most {MAX_TEXT} are taken");
    ensure!(length <= MAX_TEXT, E::custom(problem));
    Ok(())
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<D> {
    type Error = D::Error;

    // By whatever type a value has: where another one is asked for, `serde_json` would repeat a
    // text without asking the visitor.
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(Bounded(visitor))
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

    visit! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64 }

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

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Counted { elements, read: 0 })
    }

    fn visit_map<A: MapAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Counted { elements, read: 0 })
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Bounded<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Bounded(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Counted<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let element = self.elements.next_element_seed(Bounded(seed))?;
        self.count("a list", element.is_some())?;
        Ok(element)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Counted<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        let key = self.elements.next_key_seed(Bounded(seed))?;
        self.count("an object", key.is_some())?;
        Ok(key)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.elements.next_value_seed(Bounded(seed))
    }
}
