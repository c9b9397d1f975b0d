//! A trainer's state as a safetensors file.
//!
//! Arrays are tensors; numbers that are not are metadata, floats by their bits, so that a resumed
//! run goes on bit for bit. A SHA-256 over all of it tells a file that a crash has left
//! half-written.

use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;

use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize};
use sha2::{Digest, Sha256};

use crate::backend::BackendState;
use crate::training::{
    Best, Buffer, RngPosition, SamplerPosition, Snapshot, TrainerState, Validation,
};

const DIGEST: &str = "sha256";
const BACKEND: &str = "backend/";
const BUFFER: &str = "buffer/";
const BEST_WEIGHTS: &str = "best";
const BEST_BUFFER: &str = "best-buffer/";
const ORDER: &str = "sampler/order";
const RECENT: &str = "sampler/recent";

/// A trainer's state and whose it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Digest of everything that decides how the run goes.
    pub run: String,
    pub state: TrainerState,
}

impl Checkpoint {
    /// The file's contents.
    ///
    /// # Errors
    /// If the state cannot be written as safetensors; says why.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let state = &self.state;
        let mut floats: BTreeMap<String, &[f32]> = BTreeMap::new();
        for (name, values) in &state.backend.arrays {
            floats.insert(format!("{BACKEND}{name}"), values);
        }
        for buffer in &state.buffers {
            floats.insert(format!("{BUFFER}{}", buffer.name), &buffer.values);
        }
        let mut text: BTreeMap<String, String> = BTreeMap::new();
        let mut note = |key: &str, value: String| text.insert(key.to_owned(), value);
        note("run", self.run.clone());
        note("step", state.backend.clock.to_string());
        note(
            "rng.seed",
            state
                .rng
                .seed
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        );
        note("rng.stream", state.rng.stream.to_string());
        note("rng.word", state.rng.word.to_string());
        note("sampler.next", state.sampler.next.to_string());
        if let Some(best) = &state.best {
            note("best.step", best.step.to_string());
            note("best.agreement", bits(best.validation.agreement));
            note("best.loss", bits(best.validation.loss));
            floats.insert(BEST_WEIGHTS.to_owned(), &best.snapshot.weights);
            for buffer in &best.snapshot.buffers {
                floats.insert(format!("{BEST_BUFFER}{}", buffer.name), &buffer.values);
            }
        }
        let (order, recent) = (
            numbers(&state.sampler.order)?,
            numbers(&state.sampler.recent)?,
        );
        let mut tensors: BTreeMap<&str, TensorView<'_>> = BTreeMap::new();
        for (name, values) in &floats {
            tensors.insert(
                name,
                view(Dtype::F32, values.len(), bytemuck::cast_slice(values))?,
            );
        }
        for (name, values) in [(ORDER, &order), (RECENT, &recent)] {
            tensors.insert(
                name,
                view(Dtype::U32, values.len(), bytemuck::cast_slice(values))?,
            );
        }
        let all: Vec<(&str, &[u8])> = tensors
            .iter()
            .map(|(name, view)| (*name, view.data()))
            .collect();
        let digest = digest(&text, &all);
        let mut metadata: HashMap<String, String> = text.into_iter().collect();
        metadata.insert(DIGEST.to_owned(), digest);
        serialize(tensors, Some(metadata)).map_err(|error| error.to_string())
    }

    /// Reads what [`encode`](Self::encode) has written.
    ///
    /// # Errors
    /// If the file is not whole or not a checkpoint; says why.
    pub fn decode(contents: &[u8]) -> Result<Self, String> {
        let (_, header) =
            SafeTensors::read_metadata(contents).map_err(|error| error.to_string())?;
        let file = SafeTensors::deserialize(contents).map_err(|error| error.to_string())?;
        let mut text: BTreeMap<String, String> = header
            .metadata()
            .clone()
            .unwrap_or_default()
            .into_iter()
            .collect();
        let expected = text.remove(DIGEST).ok_or("it has no digest")?;
        let tensors: BTreeMap<String, TensorView<'_>> = file.tensors().into_iter().collect();
        let all: Vec<(&str, &[u8])> = tensors
            .iter()
            .map(|(name, view)| (name.as_str(), view.data()))
            .collect();
        if digest(&text, &all) != expected {
            return Err("its contents do not have the digest that it notes".to_owned());
        }
        Contents {
            text: &text,
            tensors: &tensors,
        }
        .checkpoint()
    }
}

/// Notes and arrays of a file whose digest is right.
struct Contents<'a> {
    text: &'a BTreeMap<String, String>,
    tensors: &'a BTreeMap<String, TensorView<'a>>,
}

impl Contents<'_> {
    fn checkpoint(&self) -> Result<Checkpoint, String> {
        let state = TrainerState {
            backend: BackendState {
                clock: self.number("step")?,
                arrays: self.named(BACKEND).collect(),
            },
            buffers: self.buffers(BUFFER),
            best: self.best()?,
            rng: RngPosition {
                seed: self.rng_seed()?,
                stream: self.number("rng.stream")?,
                word: self.number("rng.word")?,
            },
            sampler: SamplerPosition {
                order: self.indices(ORDER)?,
                next: self.number("sampler.next")?,
                recent: self.indices(RECENT)?,
            },
        };
        let run = self.note("run")?.clone();
        Ok(Checkpoint { run, state })
    }

    fn note(&self, key: &str) -> Result<&String, String> {
        self.text.get(key).ok_or_else(|| format!("it has no {key}"))
    }

    fn number<N: FromStr>(&self, key: &str) -> Result<N, String> {
        let note = self.note(key)?;
        note.parse().map_err(|_| format!("bad {key}"))
    }

    fn float(&self, key: &str) -> Result<f64, String> {
        u64::from_str_radix(self.note(key)?, 16)
            .map(f64::from_bits)
            .map_err(|_| format!("bad {key}"))
    }

    fn rng_seed(&self) -> Result<[u8; 32], String> {
        let text = self.note("rng.seed")?;
        let byte = |at: usize| {
            let digits = text.get(2 * at..2 * at + 2)?;
            u8::from_str_radix(digits, 16).ok()
        };
        let seed: Option<Vec<u8>> = (0..32).map(byte).collect();
        seed.and_then(|seed| seed.try_into().ok())
            .ok_or_else(|| "bad rng.seed".to_owned())
    }

    fn named<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (String, Vec<f32>)> + 'a {
        let own = move |(name, view): (&String, &TensorView<'_>)| {
            let name = name.strip_prefix(prefix)?;
            Some((name.to_owned(), floats(view)))
        };
        self.tensors.iter().filter_map(own)
    }

    fn buffers(&self, prefix: &str) -> Vec<Buffer> {
        self.named(prefix)
            .map(|(name, values)| Buffer { name, values })
            .collect()
    }

    fn indices(&self, name: &str) -> Result<Vec<usize>, String> {
        let view = self.tensors.get(name);
        let view = view.ok_or_else(|| format!("it has no {name}"))?;
        let (numbers, _) = view.data().as_chunks();
        Ok(numbers
            .iter()
            .map(|bytes| u32::from_le_bytes(*bytes) as usize)
            .collect())
    }

    fn best(&self) -> Result<Option<Best>, String> {
        let Some(weights) = self.tensors.get(BEST_WEIGHTS) else {
            return Ok(None);
        };
        Ok(Some(Best {
            step: self.number("best.step")?,
            validation: Validation {
                agreement: self.float("best.agreement")?,
                loss: self.float("best.loss")?,
            },
            snapshot: Snapshot {
                weights: floats(weights),
                buffers: self.buffers(BEST_BUFFER),
            },
        }))
    }
}

fn floats(view: &TensorView<'_>) -> Vec<f32> {
    let (numbers, _) = view.data().as_chunks();
    numbers
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

fn bits(value: f64) -> String {
    format!("{:016x}", value.to_bits())
}

fn numbers(indices: &[usize]) -> Result<Vec<u32>, String> {
    indices
        .iter()
        .map(|&index| u32::try_from(index).map_err(|_| "more than 2^32 samples".to_owned()))
        .collect()
}

fn view(dtype: Dtype, length: usize, bytes: &[u8]) -> Result<TensorView<'_>, String> {
    TensorView::new(dtype, vec![length], bytes).map_err(|error| error.to_string())
}

fn digest(text: &BTreeMap<String, String>, tensors: &[(&str, &[u8])]) -> String {
    let mut hash = Sha256::new();
    for (key, value) in text {
        hash.update(format!("{key}={value}\n"));
    }
    for (name, bytes) in tensors {
        hash.update(format!("{name}:{}\n", bytes.len()));
        hash.update(bytes);
    }
    format!("{:x}", hash.finalize())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn floats() -> impl Strategy<Value = Vec<f32>> {
        proptest::collection::vec(-1e6f32..1e6, 0..20)
    }

    prop_compose! {
        fn checkpoints()(
            (weights, first, running) in (floats(), floats(), floats()),
            best in proptest::option::of((floats(), any::<f64>()
                .prop_filter("a number", |x| !x.is_nan()))),
            (seed, stream, word) in (any::<[u8; 32]>(), any::<u64>(), 0u128..(1 << 68)),
            (order, next) in (proptest::collection::vec(0usize..1000, 0..20), 0usize..20),
            clock in any::<u64>(),
        ) -> Checkpoint {
            let buffers = vec![Buffer { name: "norm.mean".into(), values: running }];
            let best = best.map(|(weights, agreement)| Best {
                step: 7,
                validation: Validation { agreement, loss: 0.1 },
                snapshot: Snapshot { weights, buffers: buffers.clone() },
            });
            Checkpoint {
                run: "abc".into(),
                state: TrainerState {
                    backend: BackendState {
                        clock,
                        arrays: vec![("optimiser.first".into(), first),
                            ("weights".into(), weights)],
                    },
                    buffers,
                    best,
                    rng: RngPosition { seed, stream, word },
                    sampler: SamplerPosition { order: order.clone(), next, recent: order },
                },
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(checkpoint in checkpoints()) {
            prop_assert_eq!(
                Checkpoint::decode(&checkpoint.encode().unwrap()),
                Ok(checkpoint)
            );
        }

        #[test]
        fn no_damage_goes_unnoticed(
            checkpoint in checkpoints(),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let whole = checkpoint.encode().unwrap();
            let cut = at.index(whole.len());
            prop_assert!(Checkpoint::decode(&whole[..cut]).is_err());
            let mut damaged = whole;
            damaged[cut] ^= flip;
            // A change of the header that means the same (a blank) is no damage.
            prop_assert!(
                Checkpoint::decode(&damaged).is_ok_and(|read| read == checkpoint)
                    || Checkpoint::decode(&damaged).is_err()
            );
        }
    }
}
