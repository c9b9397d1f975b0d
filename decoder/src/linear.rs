//! The linear decoder.
//!
//! With `M` the missing slots (u of them) and `J` any u parity rows that answered, the group
//! satisfies `sum_{i in M} a_ji F(X_i) = F_Pj(P_j) - sum_{i not in M} a_ji F(X_i)` for j in J (ParM
//! section 3.3). For one slot m, solve `A^T y = e_m` with `A = (a_ji)_{j in J, i in M}`; then
//!
//! ```text
//! F^(X_m) = sum_{j in J} y_j F_Pj(P_j) - sum_{i not in M} (sum_{j in J} y_j a_ji) F(X_i)
//! ```
//!
//! so a reconstruction is one weighted sum of at most k + r - 1 vectors, whatever u is.
//!
//! With an output transform T, `T(F(X_i))` stands for `F(X_i)` throughout, and the sum is led back
//! by T's inverse where it has one. Parity outputs are in T's domain already.

use parapet_encoder::{K_MAX, OutputTransform, R_MAX, eliminate};

use crate::{DecodeError, GroupDecoder};

impl GroupDecoder {
    /// The weights `y_j` of the parity outputs, zero for rows that are not used.
    fn solve(
        &self,
        predictions: &[Option<&[f32]>],
        parity: &[Option<&[f32]>],
        slot: usize,
    ) -> Result<[f32; R_MAX], DecodeError> {
        let mut missing = [0usize; K_MAX];
        let mut u = 0;
        for (i, _) in predictions.iter().enumerate().filter(|(_, prediction)| prediction.is_none())
        {
            missing[u] = i;
            u += 1;
        }
        let mut rows = [0usize; R_MAX];
        let answered = parity.iter().enumerate().filter(|(_, output)| output.is_some());
        for (to, (row, _)) in rows.iter_mut().zip(answered) {
            *to = row;
        }
        // A^T y = e_slot, augmented with the right-hand side in the last column.
        let mut system = [[0.0f64; R_MAX + 1]; R_MAX];
        for (equation, &column) in missing.iter().enumerate().take(u) {
            for (unknown, &row) in rows.iter().enumerate().take(u) {
                system[equation][unknown] = f64::from(self.code.coefficient(row, column));
            }
            system[equation][u] = if column == slot { 1.0 } else { 0.0 };
        }
        if !eliminate(&mut system, u) {
            return Err(DecodeError::Singular);
        }
        let mut weights = [0.0; R_MAX];
        for (unknown, &row) in rows.iter().enumerate().take(u) {
            weights[row] = system[unknown][u] as f32;
        }
        Ok(weights)
    }

    /// Writes the reconstruction of `slot`, in the transform's domain, for a group that fits.
    pub(super) fn solve_slot(
        &self,
        predictions: &[Option<&[f32]>],
        parity: &[Option<&[f32]>],
        slot: usize,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        let weights = self.solve(predictions, parity, slot)?;
        let transform = self.code.transform();

        out.fill(0.0);
        for (weight, output) in weights.iter().zip(parity) {
            if let (true, Some(output)) = (*weight != 0.0, output) {
                OutputTransform::Raw.add_scaled(*weight, output, self.output_len, out);
            }
        }
        for (i, prediction) in predictions.iter().enumerate() {
            let Some(prediction) = prediction else { continue };
            let rows = weights.iter().enumerate();
            let weight: f32 = rows.map(|(row, y)| y * self.code.coefficient(row, i)).sum();
            transform.add_scaled(-weight, prediction, self.output_len, out);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, build_decoder};
    use parapet_encoder::{CodeSpec, EncoderKind};

    fn decoder(k: usize, r: usize) -> Box<dyn Decoder> {
        build_decoder(&CodeSpec::new(EncoderKind::Sum, k, r), 1).unwrap()
    }

    #[test]
    fn r_1_is_a_difference() {
        let mut out = [0.0; 2];
        decoder(2, 1)
            .decode(&[None, Some(&[1.0, 2.0])], &[Some(&[5.0, 1.0])], 0, &mut out)
            .unwrap();
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
        assert_eq!(
            decode(&[None, Some(one)], &[Some(one)], 1),
            Err(DecodeError::NotMissing { slot: 1 })
        );
        for (predictions, parity, slot) in [
            (&[None][..], &[Some(one)][..], 0),
            (&[None, Some(one)], &[Some(one), None], 0),
            (&[None, Some(one)], &[Some(one)], 2),
        ] {
            let refused = decode(predictions, parity, slot);
            assert!(matches!(refused, Err(DecodeError::GroupShape { .. })));
        }
        assert!(matches!(
            decode(&[None, Some(&[1.0, 2.0])], &[Some(one)], 0),
            Err(DecodeError::UnequalLength { expected: 1, got: 2 })
        ));
        assert_eq!(out, [7.0]);
    }
}
