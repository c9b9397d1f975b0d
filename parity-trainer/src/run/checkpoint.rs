//! A trainer's state as a file: a SHA-256, which tells a file that a crash has left half-written,
//! and then the state in postcard's format. Floats keep their bits, in a resumed run, too.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::training::TrainerState;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Digest of everything that decides how the run goes.
    pub run: String,
    pub state: TrainerState,
}

impl Checkpoint {
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        // Room for the digest.
        let room = vec![0; Sha256::output_size()];
        let mut contents = postcard::to_extend(self, room).map_err(|error| error.to_string())?;
        let (digest, state) = contents.split_at_mut(Sha256::output_size());
        digest.copy_from_slice(&Sha256::digest(state));
        Ok(contents)
    }

    /// Reads what [`encode`](Self::encode) has written; says why if it is not whole.
    pub fn decode(contents: &[u8]) -> Result<Self, String> {
        let parts = contents.split_at_checked(Sha256::output_size());
        let (digest, state) = parts.ok_or("it has no digest")?;
        let problem = "its contents do not have the digest that it notes";
        ensure!(Sha256::digest(state).as_slice() == digest, problem.to_owned());
        postcard::from_bytes(state).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::backend::{BackendState, ParameterSet};
    use crate::network::stream;
    use crate::training::{Best, Sampler, Validation};

    fn floats() -> impl Strategy<Value = Vec<f32>> {
        vec(-1e6f32..1e6, 0..20)
    }

    prop_compose! {
        fn checkpoints()(
            (weights, first, buffers) in (floats(), floats(), floats()),
            best in proptest::option::of((floats(), -1e300f64..1e300)),
            (seed, purpose, word) in (any::<u64>(), any::<u64>(), 0u128..(1 << 68)),
            (samples, drawn) in (1usize..20, vec(0usize..1, 0..20)),
            clock in any::<u64>(),
        ) -> Checkpoint {
            let best = best.map(|(values, agreement)| Best {
                step: 7,
                validation: Validation { agreement, loss: 0.1 },
                weights: ParameterSet { values, buffers: buffers.clone() },
            });
            let (mut rng, mut sampler) = (stream(seed, purpose), Sampler::new(samples));
            rng.set_word_pos(word);
            sampler.draw(&mut drawn.clone(), &mut rng);
            Checkpoint {
                run: "abc".into(),
                state: TrainerState {
                    backend: BackendState { clock, weights, slots: vec![first] },
                    buffers,
                    best,
                    rng,
                    sampler,
                },
            }
        }
    }

    proptest! {
        #[test]
        fn checkpoint_is_read_as_it_was_written_and_damage_is_noticed(
            checkpoint in checkpoints(),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let whole = checkpoint.encode().unwrap();
            prop_assert_eq!(Checkpoint::decode(&whole), Ok(checkpoint));
            let at = at.index(whole.len());
            prop_assert!(Checkpoint::decode(&whole[..at]).is_err());
            let mut damaged = whole;
            damaged[at] ^= flip;
            prop_assert!(Checkpoint::decode(&damaged).is_err());
        }
    }
}
