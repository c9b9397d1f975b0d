//! The linear decoder.
//!
//! With `M` the missing slots (u of them) and `J` any u parity rows that answered, the group satisfies
//! `sum_{i in M} a_ji F(X_i) = F_Pj(P_j) - sum_{i not in M} a_ji F(X_i)` for j in J (ParM section 3.3). For one slot m,
//! solve `A^T y = e_m` with `A = (a_ji)_{j in J, i in M}`; then
//!
//! ```text
//! F^(X_m) = sum_{j in J} y_j F_Pj(P_j) - sum_{i not in M} (sum_{j in J} y_j a_ji) F(X_i)
//! ```
//!
//! so a reconstruction is one weighted sum of at most k + r - 1 vectors, whatever u is.
//!
//! With an output transform T, `T(F(X_i))` stands for `F(X_i)` throughout, and the sum is led back by T's inverse where it
//! has one. Parity outputs are in T's domain already.

use parapet_encoder::{Code, CodeError, K_MAX, OutputDomain, OutputTransform, R_MAX};
use thiserror::Error;

/// Why a slot could not be reconstructed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The slices do not have k and r entries, or the slot is out of range.
    #[error(
        "decoder for k = {k}, r = {r} was handed {predictions} predictions, {parity} parity outputs, slot {slot}"
    )]
    GroupShape {
        /// Queries of a group.
        k: usize,
        /// Parity rows.
        r: usize,
        /// Predictions handed in.
        predictions: usize,
        /// Parity outputs handed in.
        parity: usize,
        /// Slot asked for.
        slot: usize,
    },
    /// More predictions are missing than parity outputs are there.
    #[error("{missing} predictions are missing and only {available} parity outputs are there")]
    Unrecoverable {
        /// Missing predictions.
        missing: usize,
        /// Parity outputs that answered.
        available: usize,
    },
    /// The slot asked for has its exact prediction.
    #[error("slot {slot} is not missing")]
    NotMissing {
        /// The slot.
        slot: usize,
    },
    /// An output has another length than `out`.
    #[error("an output of the group has {got} elements where {expected} are wanted")]
    UnequalLength {
        /// Elements of `out`.
        expected: usize,
        /// Elements of the odd one.
        got: usize,
    },
    /// The system had no stable solution. Cannot happen for a validated [`Code`].
    #[error("the parity rows that answered do not determine the missing predictions")]
    Singular,
}

/// Solves for missing predictions of a coding group.
#[derive(Debug, Clone)]
pub struct LinearDecoder {
    code: Code,
    output_len: usize,
}

impl LinearDecoder {
    /// A decoder for `code` and a model with `output_len` outputs a sample.
    ///
    /// # Errors
    /// [`CodeError`] when the code's transform does not fit such a model.
    pub fn new(code: Code, output_len: usize) -> Result<Self, CodeError> {
        code.transform().validate(output_len)?;
        Ok(Self { code, output_len })
    }

    /// The code it decodes.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// What the numbers of a reconstruction are.
    pub fn output_domain(&self) -> OutputDomain {
        self.code.transform().output_domain()
    }

    /// Writes the reconstruction of `slot` into `out`: in the deployed model's own domain if the code's transform has an
    /// inverse, else in the transform's. Nothing is allocated.
    ///
    /// `predictions` has k entries, `None` where the prediction is missing (`slot` among them); `parity` has r entries,
    /// `None` where the parity model has not answered. All outputs have the length of `out`, one or more whole samples.
    ///
    /// # Errors
    /// [`DecodeError`]; `out` is untouched then.
    pub fn decode(
        &self,
        predictions: &[Option<&[f32]>],
        parity: &[Option<&[f32]>],
        slot: usize,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        let (k, r) = (self.code.k(), self.code.r());
        if predictions.len() != k || parity.len() != r || slot >= k {
            let (predictions, parity) = (predictions.len(), parity.len());
            return Err(DecodeError::GroupShape { k, r, predictions, parity, slot });
        }
        if predictions.get(slot).is_some_and(Option::is_some) {
            return Err(DecodeError::NotMissing { slot });
        }
        let expected = out.len();
        for output in predictions.iter().chain(parity).flatten() {
            if output.len() != expected {
                return Err(DecodeError::UnequalLength { expected, got: output.len() });
            }
        }
        let solution = self.solve(predictions, parity, slot)?;
        let transform = self.code.transform();

        out.fill(0.0);
        for (weight, output) in solution.parity.iter().zip(parity) {
            if let (true, Some(output)) = (*weight != 0.0, output) {
                OutputTransform::Raw.add_scaled(*weight, output, self.output_len, out);
            }
        }
        for (i, prediction) in predictions.iter().enumerate() {
            let Some(prediction) = prediction else { continue };
            let weight: f32 =
                solution.parity.iter().enumerate().map(|(row, y)| y * self.code.coefficient(row, i)).sum();
            transform.add_scaled(-weight, prediction, self.output_len, out);
        }
        transform.invert(out);
        Ok(())
    }

    /// The weights `y_j` of the parity outputs, zero for rows that are not used.
    fn solve(
        &self,
        predictions: &[Option<&[f32]>],
        parity: &[Option<&[f32]>],
        slot: usize,
    ) -> Result<Solution, DecodeError> {
        let mut missing = [0usize; K_MAX];
        let mut u = 0;
        for (i, _) in predictions.iter().enumerate().filter(|(_, prediction)| prediction.is_none()) {
            missing[u] = i;
            u += 1;
        }
        let mut rows = [0usize; R_MAX];
        let mut available = 0;
        for (row, _) in parity.iter().enumerate().filter(|(_, output)| output.is_some()) {
            rows[available] = row;
            available += 1;
        }
        if u > available {
            return Err(DecodeError::Unrecoverable { missing: u, available });
        }
        // A^T y = e_slot, augmented with the right-hand side in the last column.
        let mut system = [[0.0f64; R_MAX + 1]; R_MAX];
        for (equation, &column) in missing.iter().enumerate().take(u) {
            for (unknown, &row) in rows.iter().enumerate().take(u) {
                system[equation][unknown] = f64::from(self.code.coefficient(row, column));
            }
            system[equation][u] = if column == slot { 1.0 } else { 0.0 };
        }
        eliminate(&mut system, u)?;
        let mut solution = Solution { parity: [0.0; R_MAX] };
        for (unknown, &row) in rows.iter().enumerate().take(u) {
            solution.parity[row] = system[unknown][u] as f32;
        }
        Ok(solution)
    }
}

struct Solution {
    parity: [f32; R_MAX],
}

/// Gauss-Jordan with partial pivoting; leaves the solution in column `n`.
fn eliminate(system: &mut [[f64; R_MAX + 1]; R_MAX], n: usize) -> Result<(), DecodeError> {
    for column in 0..n {
        let pivot = (column..n)
            .max_by(|&a, &b| system[a][column].abs().total_cmp(&system[b][column].abs()))
            .unwrap_or(column);
        system.swap(pivot, column);
        let head = system[column][column];
        if head.abs() < 1e-12 {
            return Err(DecodeError::Singular);
        }
        for value in &mut system[column] {
            *value /= head;
        }
        let pivot_row = system[column];
        for (index, row) in system.iter_mut().enumerate().take(n) {
            if index != column {
                let factor = row[column];
                for (value, pivot_value) in row.iter_mut().zip(pivot_row) {
                    *value -= factor * pivot_value;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parapet_encoder::{CodeSpec, EncoderKind};

    fn decoder(k: usize, r: usize) -> LinearDecoder {
        let spec = CodeSpec::new(EncoderKind::Sum, k, r);
        LinearDecoder::new(Code::try_from(&spec).unwrap(), 1).unwrap()
    }

    #[test]
    fn r_1_is_a_difference() {
        let mut out = [0.0; 2];
        decoder(2, 1).decode(&[None, Some(&[1.0, 2.0])], &[Some(&[5.0, 1.0])], 0, &mut out).unwrap();
        assert_eq!(out, [4.0, -1.0]);
    }

    #[test]
    fn what_cannot_be_decoded_is_refused_and_leaves_out_alone() {
        let decoder = decoder(2, 1);
        let one: &[f32] = &[1.0];
        let mut out = [7.0];
        let mut decode = |predictions: &[Option<&[f32]>], parity: &[Option<&[f32]>], slot| {
            decoder.decode(predictions, parity, slot, &mut out)
        };
        assert_eq!(
            decode(&[None, None], &[Some(one)], 0),
            Err(DecodeError::Unrecoverable { missing: 2, available: 1 })
        );
        assert_eq!(
            decode(&[None, Some(one)], &[None], 0),
            Err(DecodeError::Unrecoverable { missing: 1, available: 0 })
        );
        assert_eq!(decode(&[None, Some(one)], &[Some(one)], 1), Err(DecodeError::NotMissing { slot: 1 }));
        assert!(matches!(decode(&[None], &[Some(one)], 0), Err(DecodeError::GroupShape { .. })));
        assert!(matches!(
            decode(&[None, Some(&[1.0, 2.0])], &[Some(one)], 0),
            Err(DecodeError::UnequalLength { expected: 1, got: 2 })
        ));
        assert_eq!(out, [7.0]);
    }
}
