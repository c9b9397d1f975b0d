//! A tensor's JSON `data`: reading it straight into little-endian bytes, and writing it from them.
//!
//! `data` is an array of elements, flat or nested in row-major order; only the number of elements
//! is held against the shape. No tree of JSON values is built: a 3 KB tensor would take 25 KB.

use std::fmt;

use half::f16;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};

use crate::bounded::SHORT;
use crate::error::{MAX_AXES, json_mistake};
use crate::room::Contents;
use crate::tensor::element_count;
use crate::{Datatype, Excerpt, ProtocolError, Tensor, match_integers};

const BF16_IS_BINARY: &str = "BF16 cannot be sent as JSON";

/// Reads `json` as the contents of a tensor, for which `contents` has room.
pub(crate) fn tensor(
    contents: &mut Contents<'_>,
    name: String,
    datatype: Datatype,
    shape: Vec<usize>,
    json: &str,
) -> Result<Tensor, ProtocolError> {
    let no_form = |tensor| ProtocolError::NoJsonForm { tensor, reason: BF16_IS_BINARY };
    ensure!(datatype.has_json_form(), no_form(Excerpt::from(&name)));
    let wrong =
        |mistake: String| ProtocolError::Data { tensor: Excerpt::from(&name), datatype, mistake };
    if datatype != Datatype::Bytes && json.len() > SHORT && json.contains('"') {
        // The parser would copy a text of any length before it is refused.
        return Err(wrong(format!("an element is a string, not a {datatype} value")));
    }
    let expected = element_count(&name, &shape)?;
    // Whatever the shape claims, a number takes two characters at least and a string three.
    let capacity = match datatype.size() {
        Some(size) => expected.min(json.len() / 2 + 1) * size,
        None => expected.min(json.len() / 3 + 1) * 4 + json.len(),
    };
    // The parser copies a text that has an escape.
    let copies = if datatype == Datatype::Bytes && json.contains('\\') { json.len() } else { 0 };
    contents.grow(capacity, copies)?;
    let mut sink = Sink { datatype, expected, count: 0, bytes: Vec::with_capacity(capacity) };
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let elements = Elements { sink: &mut sink, depth: 0 };
    let read = elements.deserialize(&mut deserializer);
    if let Err(error) = read.and_then(|()| deserializer.end()) {
        return Err(wrong(json_mistake(&error)));
    }
    let actual = sink.count;
    ensure!(
        actual == expected,
        ProtocolError::ElementCount { tensor: Excerpt::from(&name), shape, expected, actual }
    );
    Tensor::new(name, datatype, shape, sink.bytes.into())
}

struct Sink {
    datatype: Datatype,
    expected: usize,
    count: usize,
    bytes: Vec<u8>,
}

impl Sink {
    /// Counts an element; those beyond the shape are counted, for the error, but not kept.
    fn push<const N: usize>(&mut self, element: [u8; N]) {
        self.count += 1;
        if self.count <= self.expected {
            self.bytes.extend_from_slice(&element);
        }
    }

    /// Pushes the integer and returns true, if it is in the datatype's range.
    fn integer(&mut self, value: i128) -> bool {
        macro_rules! push {
            ($type:ty) => {
                <$type>::try_from(value).map(|value| self.push(value.to_le_bytes())).is_ok()
            };
        }
        match_integers!(self.datatype, push, {
            Datatype::Bool => {
                let is_bit = matches!(value, 0 | 1);
                if is_bit {
                    self.push([u8::from(value == 1)]);
                }
                is_bit
            }
            Datatype::Fp16 | Datatype::Fp32 | Datatype::Fp64 => self.float(value as f64),
            Datatype::Bf16 | Datatype::Bytes => false,
        })
    }

    /// Pushes the value and returns true, if the datatype is a float that can hold it.
    fn float(&mut self, value: f64) -> bool {
        match self.datatype {
            Datatype::Fp16 if f16::from_f64(value).is_finite() => {
                self.push(f16::from_f64(value).to_le_bytes())
            }
            Datatype::Fp32 if (value as f32).is_finite() => self.push((value as f32).to_le_bytes()),
            Datatype::Fp64 => self.push(value.to_le_bytes()),
            _ => return false,
        }
        true
    }

    fn string(&mut self, value: &str) -> bool {
        let length = u32::try_from(value.len()).ok();
        let Some(length) = length.filter(|_| self.datatype == Datatype::Bytes) else {
            return false;
        };
        self.push(length.to_le_bytes());
        if self.count <= self.expected {
            self.bytes.extend_from_slice(value.as_bytes());
        }
        true
    }
}

/// An element, or an array of them; at depth 0 only an array.
struct Elements<'s> {
    sink: &'s mut Sink,
    depth: usize,
}

impl Elements<'_> {
    fn accept<E: Error>(
        self,
        value: impl fmt::Display,
        push: impl FnOnce(&mut Sink) -> bool,
    ) -> Result<(), E> {
        ensure!(self.depth > 0, E::custom("expected an array of elements"));
        if push(self.sink) {
            return Ok(());
        }
        let (index, datatype) = (self.sink.count, self.sink.datatype);
        Err(E::custom(format!("element {index} is {value}, not a {datatype} value")))
    }
}

impl<'de> DeserializeSeed<'de> for Elements<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "an array of {}", self.sink.datatype)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self { sink, depth } = self;
        let problem = format_args!("arrays are nested deeper than {MAX_AXES}");
        ensure!(depth < MAX_AXES, A::Error::custom(problem));
        let mut next = || elements.next_element_seed(Elements { sink, depth: depth + 1 });
        while next()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.accept(value, |sink| {
            sink.datatype == Datatype::Bool && sink.integer(i128::from(value))
        })
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.accept(value, |sink| sink.integer(i128::from(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.accept(value, |sink| sink.integer(i128::from(value)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.accept(value, |sink| sink.float(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.accept("a string", |sink| sink.string(value))
    }
}

pub(crate) struct JsonData<'a>(&'a Tensor);

impl<'a> JsonData<'a> {
    /// Wraps the tensor, unless JSON has no form for its contents.
    pub(crate) fn new(tensor: &'a Tensor) -> Result<Self, ProtocolError> {
        let is_text = |element| std::str::from_utf8(element).is_ok();
        let reason = match tensor.datatype {
            Datatype::Bf16 => BF16_IS_BINARY,
            Datatype::Bytes if !tensor.byte_strings().all(is_text) => "a byte string is not UTF-8",
            _ if tensor.has_non_finite() => "JSON has no NaN and no infinity",
            _ => return Ok(Self(tensor)),
        };
        Err(ProtocolError::NoJsonForm { tensor: Excerpt::from(&tensor.name), reason })
    }
}

impl Serialize for JsonData<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data = &self.0.data;
        macro_rules! numbers {
            ($type:ty) => {{
                let elements = data.as_chunks().0.iter();
                serializer.collect_seq(elements.map(|bytes| <$type>::from_le_bytes(*bytes)))
            }};
        }
        match_integers!(self.0.datatype, numbers, {
            Datatype::Bool => serializer.collect_seq(data.iter().map(|&byte| byte != 0)),
            Datatype::Fp16 => {
                let elements = data.as_chunks().0.iter();
                serializer.collect_seq(elements.map(|bytes| f16::from_le_bytes(*bytes).to_f32()))
            }
            Datatype::Fp32 => numbers!(f32),
            Datatype::Fp64 => numbers!(f64),
            Datatype::Bytes => {
                serializer.collect_seq(self.0.byte_strings().map(String::from_utf8_lossy))
            }
            Datatype::Bf16 => Err(S::Error::custom(BF16_IS_BINARY)),
        })
    }
}
