//! Gradients without effect, under a penalty that keeps weights at 0.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::row_list::RowList;
use crate::{Key, KeyRange};

/// Leaves out the rows of a push that would not change their weights, where an L1 penalty keeps
/// those at 0 (Li et al., OSDI 2014, section 5.1): a row whose weights are all 0 and whose
/// estimated global gradients are all within `threshold`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kkt {
    /// The most that a gradient may be to be left out; below the weight of the penalty.
    pub threshold: f32,
    /// Factor that makes this worker's gradient an estimate of the sum of all: the number of
    /// workers, where each has an equal part of the data.
    pub scale: f32,
    /// Treatment of gradients that are left out.
    pub left_out: LeftOut,
}

/// Treatment of a gradient that is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// It is gone. For rules that judge each gradient by itself, as the proximal step of the paper
    /// does: one within the penalty leaves a weight of 0 where it is, however often it comes.
    Dropped,
    /// It is added to the next gradient of its row, and their sum is judged. For rules that add up
    /// what they are given (FTRL-proximal): there, small gradients in one direction make a weight
    /// in the end, and a worker that drops each of them would never let a rare feature have one.
    /// All workers together keep back `threshold` of a row at most.
    KeptBack,
}

impl Kkt {
    pub(super) fn has_effect(self, gradients: &[f32], weights: &[f32]) -> bool {
        weights.iter().any(|&weight| weight != 0.0)
            || gradients
                .iter()
                .any(|gradient| (self.scale * gradient).abs() > self.threshold)
    }
}

/// The rows that were kept back: found by key, as a push may name a few of millions.
#[derive(Debug, Clone, Default)]
pub(super) struct Kept(HashMap<Key, SmallVec<[f32; 2]>>);

impl Kept {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, key: Key) -> Option<&[f32]> {
        self.0.get(&key).map(SmallVec::as_slice)
    }

    /// Keeps these rows in the place of what there is of them, and lets go of others.
    pub(super) fn replace(&mut self, rows: &RowList, gone: &[Key], width: usize) {
        for (key, row) in rows.iter(width) {
            self.0.insert(key, SmallVec::from_slice(row));
        }
        for key in gone {
            self.0.remove(key);
        }
    }

    /// Lets go of the rows of `range`, and gives them in the order of their keys.
    pub(super) fn take(&mut self, range: KeyRange) -> RowList {
        let mut rows: Vec<(Key, SmallVec<[f32; 2]>)> =
            self.0.extract_if(|key, _| range.contains(*key)).collect();
        rows.sort_unstable_by_key(|&(key, _)| key);
        let mut list = RowList::default();
        rows.into_iter().for_each(|(key, row)| list.push(key, row));
        list
    }
}
