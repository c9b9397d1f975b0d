//! Decoders of Berrut's rational interpolation (ApproxIFER, AAAI 2022; see [`parapet_encoder::berrut`]).
//!
//! The outputs that are there are values of `F(u(z))` at their points; a missing prediction is the value at its query's
//! point of Berrut's interpolant through them. Signs alternate over the points that are there, so no pattern of missing
//! outputs makes a pole.

use parapet_encoder::berrut::{
    check_berrut_sizes, interpolation_weights, member_point, parity_gap, parity_point, worker_point,
};
use parapet_encoder::{Code, CodeError, K_MAX, OutputDomain, OutputTransform, R_MAX};

use crate::{DecodeError, Decoder, check_group};

/// Decodes the systematic form: predictions of the queries themselves, and the deployed model's outputs for r coded ones.
///
/// At least as many coded outputs must be there as predictions are missing: k points in all, as in the paper. With fewer
/// the interpolant would know nothing of some query.
#[derive(Debug, Clone)]
pub struct SystematicBerrutDecoder {
    code: Code,
    output_len: usize,
    /// All k + r outputs in the order of their points.
    points: Vec<(f64, Source)>,
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Member(usize),
    Parity(usize),
}

impl SystematicBerrutDecoder {
    /// A decoder for `code` and a model with `output_len` outputs a sample.
    ///
    /// # Errors
    /// [`CodeError`] when the code's transform does not fit such a model.
    pub fn new(code: Code, output_len: usize) -> Result<Self, CodeError> {
        code.transform().validate(output_len)?;
        let (k, r) = (code.k(), code.r());
        let rows = |gap: usize| (0..r).find(move |&row| parity_gap(k, r, row) == gap);
        let points = (0..k)
            .flat_map(|slot| {
                let parity = rows(slot).map(|row| (parity_point(k, r, row), Source::Parity(row)));
                parity.into_iter().chain([(member_point(k, slot), Source::Member(slot))])
            })
            .collect();
        Ok(Self { code, output_len, points })
    }
}

impl Decoder for SystematicBerrutDecoder {
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
        const EMPTY: &[f32] = &[];
        let mut points = [0.0; K_MAX + R_MAX];
        let mut outputs = [EMPTY; K_MAX + R_MAX];
        let mut there = 0;
        for &(point, source) in &self.points {
            let output = match source {
                Source::Member(slot) => predictions.get(slot),
                Source::Parity(row) => parity.get(row),
            };
            if let Some(Some(output)) = output {
                (points[there], outputs[there]) = (point, output);
                there += 1;
            }
        }
        let mut weights = [0.0; K_MAX + R_MAX];
        let weights = &mut weights[..there];
        interpolation_weights(&points[..there], member_point(self.code.k(), slot), weights);
        let transform = self.code.transform();
        out.fill(0.0);
        for (weight, output) in weights.iter().zip(outputs) {
            transform.add_scaled(*weight as f32, output, self.output_len, out);
        }
        transform.invert(out);
        Ok(())
    }
}

/// Decodes the paper's form, in which every query is coded: any k of the k + s outputs, or more, give all predictions.
#[derive(Debug, Clone)]
pub struct BerrutDecoder {
    k: usize,
    workers: usize,
    /// In which domain outputs are interpolated.
    transform: OutputTransform,
    output_len: usize,
}

impl BerrutDecoder {
    /// The decoder for k queries coded into `k + spare`, of a model with `output_len` outputs a sample.
    ///
    /// # Errors
    /// [`CodeError`] as for [`BerrutEncoder::new`](parapet_encoder::BerrutEncoder::new), and when the transform does not fit
    /// such a model.
    pub fn new(
        k: usize,
        spare: usize,
        transform: OutputTransform,
        output_len: usize,
    ) -> Result<Self, CodeError> {
        check_berrut_sizes(k, spare)?;
        transform.validate(output_len)?;
        Ok(Self { k, workers: k + spare, transform, output_len })
    }

    /// What the numbers of a reconstruction are.
    pub fn output_domain(&self) -> OutputDomain {
        self.transform.output_domain()
    }

    /// Writes the prediction of the query in `slot` into `out`; `outputs` has an entry for each of the k + s coded
    /// queries, `None` where there is no answer, all of the length of `out`.
    ///
    /// # Errors
    /// [`DecodeError`]; `out` is untouched then.
    pub fn decode(
        &self,
        outputs: &[Option<&[f32]>],
        slot: usize,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        if outputs.len() != self.workers || slot >= self.k {
            let (k, r) = (self.k, self.workers - self.k);
            return Err(DecodeError::GroupShape { k, r, predictions: 0, parity: outputs.len(), slot });
        }
        let expected = out.len();
        if let Some(odd) = outputs.iter().flatten().find(|output| output.len() != expected) {
            return Err(DecodeError::UnequalLength { expected, got: odd.len() });
        }
        let mut points = [0.0; 2 * K_MAX];
        let mut there = 0;
        for (worker, _) in outputs.iter().enumerate().filter(|(_, output)| output.is_some()) {
            points[there] = worker_point(self.workers, worker);
            there += 1;
        }
        if there < self.k {
            return Err(DecodeError::TooFewOutputs { wanted: self.k, available: there });
        }
        let mut weights = [0.0; 2 * K_MAX];
        let weights = &mut weights[..there];
        interpolation_weights(&points[..there], member_point(self.k, slot), weights);
        out.fill(0.0);
        for (weight, output) in weights.iter().zip(outputs.iter().flatten()) {
            self.transform.add_scaled(*weight as f32, output, self.output_len, out);
        }
        self.transform.invert(out);
        Ok(())
    }
}
