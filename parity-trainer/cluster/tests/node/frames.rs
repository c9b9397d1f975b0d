//! Arbitrary frames: every type of a message is deserialised from random numbers.

use parapet_cluster::node::wire::Frame;
use parapet_parameter_server::{
    Keys, Message, Operation, Packed, PackedKeys, PackedValues, Pull, PullReply, Push, Replicate,
    Snapshot, Update, Values,
};
use proptest::prelude::{Strategy, any};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::de::value::Error;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer as _, SeqAccess,
    VariantAccess, Visitor,
};
use serde::{Deserialize as _, forward_to_deserialize_any};

pub(crate) fn frames() -> impl Strategy<Value = Frame> {
    any::<u64>().prop_map(frame)
}

/// The frame of a seed. Most are messages.
pub(crate) fn frame(seed: u64) -> Frame {
    let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
    loop {
        // Some random numbers are refused, such as a range that ends before it starts.
        let frame = match random.below(8) {
            0 => Frame::deserialize(&mut random),
            _ => Packed::deserialize(&mut random).map(Frame::Message),
        };
        if let Ok(mut frame) = frame {
            if let Frame::Message(packed) = &mut frame {
                random.fill(packed);
            }
            return frame;
        }
    }
}

struct Random(ChaCha8Rng);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    /// Numbers in counts from none to those of a long section.
    fn numbers<T>(&mut self, number: impl Fn(u64) -> T) -> Vec<T> {
        let counts = [0..1, 1..20, 1_000..1_100, 4_090..4_100, 70_000..100_000];
        let counts = counts[self.below(counts.len())].clone();
        let (count, salt) = (self.0.random_range(counts), self.0.random::<u64>() | 1);
        (0..count).map(|i| number(salt.wrapping_mul(i))).collect()
    }

    fn fill_keys(&mut self, keys: &mut Keys) {
        if let Keys::List(list) = keys {
            *list = self.numbers(|n| n).into();
        }
    }

    fn fill_values(&mut self, values: &mut Values) {
        match values {
            Values::F32(values) => *values = self.numbers(|n| f32::from(n as u16)).into(),
            Values::Bf16(values) | Values::F16(values) => {
                *values = self.numbers(|n| n as u16).into();
            }
        }
    }

    /// Fills the arrays of numbers, which are not deserialised.
    fn fill(&mut self, packed: &mut Packed) {
        match &mut packed.message {
            Message::Push(Push { keys, values, .. })
            | Message::PullReply(PullReply { keys, values, .. })
            | Message::Replicate(Replicate {
                operation: Operation::Update(Update { keys, values, .. }),
                ..
            }) => {
                self.fill_keys(keys);
                self.fill_values(values);
            }
            Message::Pull(Pull { keys, .. }) => self.fill_keys(keys),
            Message::Snapshot(Snapshot { rows, .. }) => {
                self.fill_keys(&mut rows.keys);
                self.fill_values(&mut rows.values);
                self.fill_values(&mut rows.state);
                rows.steps = self.numbers(|n| n as u32);
                (packed.keys, packed.values) = (None, None);
            }
            _ => {}
        }
        match &mut packed.keys {
            Some(PackedKeys::Plain { keys, .. }) => self.fill_keys(keys),
            Some(PackedKeys::Lz4 { bytes, .. }) => *bytes = self.numbers(|n| n as u8).into(),
            Some(PackedKeys::Known { .. }) | None => {}
        }
        match &mut packed.values {
            Some(PackedValues::Plain(values)) => self.fill_values(values),
            Some(PackedValues::Lz4 { bytes, .. }) => *bytes = self.numbers(|n| n as u8).into(),
            None => {}
        }
    }
}

impl<'de> Deserializer<'de> for &mut Random {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("a type that no message has yet: add it here"))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.0.random())
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u32(self.0.random())
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u64(self.0.random())
    }

    fn deserialize_u128<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_u128(self.0.random())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.below(2) {
            0 => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let count = self.below(5);
        self.deserialize_tuple(count, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Elements(self, count))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let variant = self.below(variants.len());
        visitor.visit_enum(Elements(self, variant))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple_struct map identifier ignored_any
    }
}

/// So many elements of a sequence, or the variant of an enumeration by its number.
struct Elements<'a>(&'a mut Random, usize);

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(left) = self.1.checked_sub(1) else {
            return Ok(None);
        };
        self.1 = left;
        seed.deserialize(&mut *self.0).map(Some)
    }
}

impl<'de, 'a> EnumAccess<'de> for Elements<'a> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let variant = seed.deserialize((self.1 as u32).into_deserializer())?;
        Ok((variant, self))
    }
}

impl<'de> VariantAccess<'de> for Elements<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(self.0)
    }

    fn tuple_variant<V: Visitor<'de>>(self, count: usize, visitor: V) -> Result<V::Value, Error> {
        self.0.deserialize_tuple(count, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_tuple(fields.len(), visitor)
    }
}
