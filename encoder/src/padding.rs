//! Queries with a length of their own, as sequences: grouped and stacked by padded length.
//!
//! Queries of a group are about as long as each other, so that a parity query is mostly contents
//! (after Cavs, Xu et al., USENIX ATC 2018: batched by structure, not by arrival alone).

use serde::{Deserialize, Serialize};

use crate::{Code, CodeError, Decoding, EncodeError, EncoderKind};

/// Lengths that queries are padded to with zeros, rising: a query takes the least that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Padding {
    /// 1 to 64 lengths, in steps of the free axis.
    lengths: Vec<usize>,
}

impl Padding {
    /// Most lengths: each has groups of its own.
    pub const MAX_LENGTHS: usize = 64;

    /// Lengths for groups of `code`.
    ///
    /// # Errors
    /// [`CodeError`]: there are none or too many, they do not rise, or the code does not stack.
    pub fn new(lengths: Vec<usize>, code: &Code) -> Result<Self, CodeError> {
        let padding = Self { lengths };
        padding.check(code)?;
        Ok(padding)
    }

    /// Checks what was read from a file.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn check(&self, code: &Code) -> Result<(), CodeError> {
        let stacks = (code.encoder(), code.decoding()) == (EncoderKind::Stack, Decoding::Slots);
        if !stacks {
            let problem = format!("given for encoder = \"{}\"", code.encoder());
            let fix = "leave it out, or train a parity model with encoder = \"stack\"";
            return Err(CodeError::new("padding", problem, fix));
        }
        let lengths = &self.lengths;
        let rises = lengths.is_sorted_by(|one, next| one < next) && lengths.first() > Some(&0);
        if rises && lengths.len() <= Self::MAX_LENGTHS {
            return Ok(());
        }
        let fix = format!("give 1 to {} lengths that rise, as [32, 64, 128]", Self::MAX_LENGTHS);
        Err(CodeError::new("padding", format!("{lengths:?}"), fix))
    }

    /// The lengths, rising.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Position of the length that a query of `steps` is padded to; `None` if all are shorter.
    pub fn position(&self, steps: usize) -> Option<usize> {
        let position = self.lengths.partition_point(|&length| length < steps);
        (position < self.lengths.len()).then_some(position)
    }

    /// Length that a query of `steps` is padded to.
    pub fn padded(&self, steps: usize) -> Option<usize> {
        self.lengths.get(self.position(steps)?).copied()
    }
}

/// Stacks k queries of `rows` samples each, of any fixed-size datatype: in the result each sample
/// has `sample_bytes`, the rest of them zeros, and the k that belong together follow each other.
///
/// # Errors
/// [`EncodeError::PartialSample`] for a query that is not `rows` samples or does not fit.
pub fn stack_padded(
    queries: &[&[u8]],
    rows: usize,
    sample_bytes: usize,
) -> Result<Vec<u8>, EncodeError> {
    let mut stacks = vec![0; queries.len() * rows * sample_bytes];
    for (slot, query) in queries.iter().enumerate() {
        let own = query.len() / rows.max(1);
        if own == 0 || own * rows != query.len() || own > sample_bytes {
            let (len, sample_len) = (query.len(), sample_bytes);
            return Err(EncodeError::PartialSample { len, sample_len });
        }
        let cells = stacks.chunks_exact_mut(sample_bytes).skip(slot).step_by(queries.len());
        for (cell, sample) in cells.zip(query.chunks_exact(own)) {
            cell[..own].copy_from_slice(sample);
        }
    }
    Ok(stacks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CodeSpec;
    use proptest::prelude::*;

    fn code(encoder: EncoderKind) -> Code {
        Code::try_from(&CodeSpec::new(encoder, 2, 1)).unwrap()
    }

    fn padding(lengths: &[usize]) -> Result<Padding, CodeError> {
        Padding::new(lengths.to_vec(), &code(EncoderKind::Stack))
    }

    #[test]
    fn a_query_is_padded_to_the_least_length_that_holds_it() {
        let padding = padding(&[2, 4, 9]).unwrap();
        for (steps, padded) in
            [(1, Some(2)), (2, Some(2)), (3, Some(4)), (9, Some(9)), (10, None), (usize::MAX, None)]
        {
            assert_eq!(padding.padded(steps), padded, "{steps}");
        }
    }

    #[test]
    fn lengths_that_do_not_rise_and_codes_that_do_not_stack_are_refused() {
        for lengths in [&[][..], &[0, 2], &[4, 4], &[8, 4], &(1..=65).collect::<Vec<_>>()] {
            let error = padding(lengths).unwrap_err().to_string();
            assert!(error.ends_with("give 1 to 64 lengths that rise, as [32, 64, 128]"), "{error}");
        }
        let error = Padding::new(vec![4], &code(EncoderKind::Sum)).unwrap_err().to_string();
        assert!(error.starts_with("code.padding: given for encoder = \"sum\""), "{error}");
    }

    #[test]
    fn a_query_that_is_no_whole_samples_or_too_long_is_refused() {
        for (query, rows) in [(&[1, 2, 3][..], 2), (&[1, 2, 3, 4, 5], 1), (&[], 1), (&[1], 0)] {
            assert!(stack_padded(&[&[7, 7], query], rows, 4).is_err(), "{query:?}");
        }
    }

    proptest! {
        #[test]
        fn every_sample_is_found_in_its_slot_and_behind_it_are_zeros(
            steps in prop::collection::vec(1_usize..6, 2..5),
            rows in 1_usize..4,
        ) {
            let contents = |slot: usize, steps: usize| -> Vec<u8> {
                (0..rows * steps).map(|at| (1 + slot + 7 * at) as u8).collect()
            };
            let queries: Vec<_> = (0..).zip(&steps).map(|(i, &s)| contents(i, s)).collect();
            let views: Vec<&[u8]> = queries.iter().map(Vec::as_slice).collect();
            let stacks = stack_padded(&views, rows, 6).unwrap();
            prop_assert_eq!(stacks.len(), steps.len() * rows * 6);
            for (at, cell) in stacks.chunks(6).enumerate() {
                let (row, slot) = (at / steps.len(), at % steps.len());
                let (own, rest) = cell.split_at(steps[slot]);
                prop_assert_eq!(own, &queries[slot][row * steps[slot]..][..steps[slot]]);
                prop_assert!(rest.iter().all(|&byte| byte == 0));
            }
        }
    }
}
