//! Decoders of coded computation: a coding group's missing predictions from the others and parity.
//!
//! After *Parity Models* (SOSP 2019), section 3.3. Pure: `f32` slices in and out, no allocation per
//! query, no IO.
//!
//! - [`Decoder`]s are linear (any u <= r missing predictions, from any u parity rows that answered)
//!   or read slots (any number of them, from any one parity output); [`build_decoder`] makes the
//!   one that a code wants.
//! - [`Agreement`]: what an output means ([`OutputKind`]), and when two of them agree.
//! - [`Score`]: how sure a reconstruction is of its top class; [`Calibration`]: its measured worth.

mod agreement;
mod calibration;
mod confidence;
mod error;
mod linear;
mod slots;

use parapet_encoder::{Code, CodeError, CodeSpec, Decoding, EncoderKind, OutputDomain};

pub use agreement::{Agreement, OutputError, OutputKind, OutputSpec, top_class};
pub use calibration::{Calibration, MAX_BINS};
pub use confidence::Score;
pub use error::DecodeError;

/// Reconstructs the missing predictions of a coding group.
pub trait Decoder: Send + Sync + std::fmt::Debug {
    /// The code it decodes.
    fn code(&self) -> &Code;

    /// Returns the scale that the numbers of a reconstruction are on.
    fn output_domain(&self) -> OutputDomain {
        self.code().transform().output_domain()
    }

    /// Writes the reconstruction of `slot` into `out`: in the deployed model's own domain
    /// if the code's transform has an inverse, else in the transform's. Decoders of this
    /// crate allocate nothing.
    ///
    /// `predictions` has k entries, `None` where the prediction is missing (`slot` among them);
    /// `parity` has r entries, `None` where there is no parity output. Predictions have the length
    /// of `out`, one or more whole samples, parity outputs [`Code::slots`] times that. The parity
    /// outputs must be enough for the missing predictions ([`Decoding::can_recover`]).
    ///
    /// # Errors
    /// [`DecodeError`]; `out` is untouched then.
    fn decode(
        &self,
        predictions: &[Option<&[f32]>],
        parity: &[Option<&[f32]>],
        slot: usize,
        out: &mut [f32],
    ) -> Result<(), DecodeError>;
}

/// Builds the decoder that `spec` wants, for a model with `output_len` outputs a sample.
///
/// # Errors
/// [`CodeError`] when the code is invalid, its transform does not fit such a model, or it is a
/// learned one ([`EncoderKind::Learned`]), whose decoder comes with its networks.
pub fn build_decoder(spec: &CodeSpec, output_len: usize) -> Result<Box<dyn Decoder>, CodeError> {
    let code = Code::try_from(spec)?;
    if spec.encoder == EncoderKind::Learned {
        return Err(CodeError::networks());
    }
    code.transform().validate(output_len)?;
    Ok(Box::new(GroupDecoder { code, output_len }))
}

/// Decoder of a code without networks.
#[derive(Debug)]
struct GroupDecoder {
    code: Code,
    output_len: usize,
}

impl Decoder for GroupDecoder {
    fn code(&self) -> &Code {
        &self.code
    }

    fn decode(
        &self,
        predictions: &[Option<&[f32]>],
        parity: &[Option<&[f32]>],
        slot: usize,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        check_group(&self.code, predictions, parity, slot, out.len())?;
        match self.code.decoding() {
            Decoding::Linear => self.solve_slot(predictions, parity, slot, out)?,
            Decoding::Slots => self.read_slot(parity, slot, out),
        }
        self.code.transform().invert(out);
        Ok(())
    }
}

/// Checks a group before a decoder touches `out`, which has `expected` elements.
///
/// # Errors
/// [`DecodeError`] when the numbers of outputs or their lengths do not fit, `slot` is there, or too
/// few parity outputs are.
pub fn check_group(
    code: &Code,
    predictions: &[Option<&[f32]>],
    parity: &[Option<&[f32]>],
    slot: usize,
    expected: usize,
) -> Result<(), DecodeError> {
    let (k, r) = (code.k(), code.r());
    if predictions.len() != k || parity.len() != r || slot >= k {
        let (predictions, parity) = (predictions.len(), parity.len());
        return Err(DecodeError::GroupShape { k, r, predictions, parity, slot });
    }
    if predictions.get(slot).is_some_and(Option::is_some) {
        return Err(DecodeError::NotMissing { slot });
    }
    for (outputs, expected) in [(predictions, expected), (parity, expected * code.slots())] {
        if let Some(odd) = outputs.iter().flatten().find(|output| output.len() != expected) {
            return Err(DecodeError::UnequalLength { expected, got: odd.len() });
        }
    }
    let missing = predictions.iter().filter(|prediction| prediction.is_none()).count();
    let available = parity.iter().flatten().count();
    if !code.decoding().can_recover(missing, available) {
        return Err(DecodeError::Unrecoverable { missing, available });
    }
    Ok(())
}
