//! Batches of one size, for devices that prepare themselves anew for each other one.

use parapet_open_inference::Tensor;

use super::join::{join, split, take_rows};
use crate::engine::{EngineError, InferenceEngine};

/// An engine whose batches all have as many rows: smaller ones are filled up with their own rows,
/// and the answers to those are dropped.
pub(crate) struct FullBatches<E> {
    pub(crate) engine: E,
    pub(crate) rows: usize,
}

impl<E: InferenceEngine> InferenceEngine for FullBatches<E> {
    fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
        let first = inputs.first().and_then(|input| input.shape.first());
        let rows = first.copied().unwrap_or_default();
        if rows == 0 || rows >= self.rows {
            return self.engine.infer(inputs);
        }
        let head = |input: &Tensor| take_rows(&mut input.clone(), self.rows % rows);
        let rest: Vec<Tensor> = inputs.iter().map(head).collect();
        let mut parts = vec![inputs; self.rows / rows];
        if !self.rows.is_multiple_of(rows) {
            parts.push(&rest);
        }
        let mut answers = split(self.engine.infer(&join(&parts))?, &[rows, self.rows - rows])?;
        Ok(answers.swap_remove(0))
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Gives what it takes, and notes how many rows that were.
    #[derive(Default)]
    struct Echo(Mutex<Vec<usize>>);

    impl InferenceEngine for Echo {
        fn infer(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, EngineError> {
            self.0.lock().push(inputs[0].shape[0]);
            Ok(inputs.to_vec())
        }
    }

    #[test]
    fn batches_are_filled_up_and_answers_are_those_of_their_rows() {
        let full = FullBatches { engine: Echo::default(), rows: 8 };
        for rows in [1, 3, 4, 7, 8] {
            let values: Vec<f32> = (0..2 * rows).map(|value| value as f32).collect();
            let inputs = vec![Tensor::from_f32("x", [rows, 2], &values).unwrap()];
            assert_eq!(full.infer(&inputs).unwrap(), inputs, "{rows} rows");
        }
        assert_eq!(*full.engine.0.lock(), [8; 5]);
    }
}
