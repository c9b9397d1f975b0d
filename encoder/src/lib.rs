//! Encoders of coded computation: k queries become r parity queries.
//!
//! After *Parity Models* (Kosaian, Rashmi, Venkataraman, SOSP 2019), section 3. A coding group
//! holds k queries `X_1 .. X_k`; row j of the code makes one parity query `P_j`. With a linear code
//! a parity model is trained so that `F_Pj(P_j) ~ sum_i a_ji F(X_i)`, which lets the decoder solve
//! for missing predictions. With slots, slot i of `F_Pj(P_j)` is trained to be about `F(X_i)`.
//! Everything here is pure: `f32` slices in and out, no allocation per query, no IO.
//!
//! - [`CodeSpec`] is what a configuration or a model repository says; [`Code`] is the same, parsed
//!   and validated.
//! - [`OutputTransform`] is the domain in which predictions are added; a part of the code.
//! - [`Encoder`]s add or stack samples of any shape, or put images side by side; [`build_encoder`]
//!   makes the one of a code. A learned code's is a network (`parapet-onnx`).
//! - [`Padding`] and [`stack_padded`] are for queries of several lengths.

mod code;
mod concat;
mod error;
mod generator;
mod padding;
mod resample;
mod stack;
mod sum;
mod transform;

use concat::ConcatEncoder;

pub use code::{Code, CodeSpec, Decoding, EncoderKind, K_MAX, R_MAX};
pub use error::{CodeError, EncodeError};
pub use generator::{eliminate, subsets};
pub use padding::{Padding, stack_padded};
pub use transform::{DEFAULT_FLOOR, OutputDomain, OutputTransform};

/// Makes the parity queries of one coding group.
pub trait Encoder: Send + Sync + std::fmt::Debug {
    /// The code whose rows this encoder makes.
    fn code(&self) -> &Code;

    /// Writes the parity query of `row` (0-based, `< r`) into `parity`.
    ///
    /// `queries` holds k slices of equal length, each one or more whole samples in
    /// row-major order (the batch axis first); `parity` has [`Code::stacked`] times that length.
    /// Encoders of this crate allocate nothing.
    ///
    /// # Errors
    /// [`EncodeError`] when the row, the number of queries or a length does not fit the code.
    fn encode(&self, row: usize, queries: &[&[f32]], parity: &mut [f32])
    -> Result<(), EncodeError>;
}

/// Builds the encoder that `spec` names for samples of `sample_shape` (without the batch axis).
///
/// # Errors
/// [`CodeError`] when the code itself is invalid, cannot be applied to that shape, or is a learned
/// one ([`EncoderKind::Learned`]), whose encoder comes with its networks.
pub fn build_encoder(
    spec: &CodeSpec,
    sample_shape: &[usize],
) -> Result<Box<dyn Encoder>, CodeError> {
    let code = Code::try_from(spec)?;
    let sample_len = sample_shape.iter().product();
    match spec.encoder {
        EncoderKind::Concat => Ok(Box::new(ConcatEncoder::new(code, sample_shape)?)),
        EncoderKind::Learned => Err(CodeError::networks()),
        EncoderKind::Sum | EncoderKind::Stack if sample_len == 0 => {
            let problem = format!("the model's input {sample_shape:?} has no elements");
            Err(CodeError::new("encoder", problem, "coding needs at least one"))
        }
        EncoderKind::Sum | EncoderKind::Stack => Ok(Box::new(SampleEncoder { code, sample_len })),
    }
}

/// Encoder that adds or stacks samples of any shape.
#[derive(Debug)]
struct SampleEncoder {
    code: Code,
    sample_len: usize,
}

impl Encoder for SampleEncoder {
    fn code(&self) -> &Code {
        &self.code
    }

    fn encode(
        &self,
        row: usize,
        queries: &[&[f32]],
        parity: &mut [f32],
    ) -> Result<(), EncodeError> {
        check_group(&self.code, self.sample_len, row, queries, parity)?;
        match self.code.encoder() {
            EncoderKind::Stack => stack::stack(self.sample_len, queries, parity),
            _ => sum::weighted_sum(self.code.row(row), queries, parity),
        }
        Ok(())
    }
}

/// Checks a group of samples of `sample_len` elements before an encoder touches data.
///
/// # Errors
/// [`EncodeError`] when the row, the number of queries or a length does not fit.
pub fn check_group(
    code: &Code,
    sample_len: usize,
    row: usize,
    queries: &[&[f32]],
    parity: &[f32],
) -> Result<(), EncodeError> {
    let (k, r) = (code.k(), code.r());
    if row >= r {
        return Err(EncodeError::NoSuchRow { row, r });
    }
    if queries.len() != k {
        return Err(EncodeError::GroupSize { expected: k, got: queries.len() });
    }
    let parity_sample_len = code.stacked() * sample_len;
    if parity.is_empty() || !parity.len().is_multiple_of(parity_sample_len) {
        return Err(EncodeError::PartialSample {
            len: parity.len(),
            sample_len: parity_sample_len,
        });
    }
    let expected = parity.len() / code.stacked();
    for (slot, query) in queries.iter().enumerate() {
        if query.len() != expected {
            return Err(EncodeError::UnequalLength { slot, expected, got: query.len() });
        }
    }
    Ok(())
}
