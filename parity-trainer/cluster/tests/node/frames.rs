//! Arbitrary frames: random bytes that read as one.

use parapet_cluster::node::wire::Frame;
use parapet_parameter_server::{
    Keys, Message, Operation, Packed, PackedKeys, PackedValues, Pull, PullReply, Push, Replicate,
    Snapshot, Update, Values,
};
use proptest::prelude::{Strategy, any};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Kinds of messages.
const MESSAGES: u8 = 10;

pub(crate) fn frames() -> impl Strategy<Value = Frame> {
    any::<u64>().prop_map(frame)
}

/// The frame of a seed. Most are messages.
pub(crate) fn frame(seed: u64) -> Frame {
    let mut random = Random(ChaCha8Rng::seed_from_u64(seed));
    loop {
        // Most bytes are small: they stand for variants, options and counts, too.
        let mut bytes: [u8; 400] = std::array::from_fn(|_| match random.below(4) {
            0 => random.0.random(),
            _ => random.0.random_range(0..4),
        });
        bytes[0] = random.below(16).min(2) as u8;
        bytes[1] = random.0.random_range(0..MESSAGES);
        if let Ok((mut frame, _)) = postcard::take_from_bytes(&bytes) {
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
            Values::Factors(factors) => {
                *factors.numbers_mut() = self.numbers(|n| f32::from(n as u16)).into();
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
                rows.steps = self.numbers(|n| n as u32).into();
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
