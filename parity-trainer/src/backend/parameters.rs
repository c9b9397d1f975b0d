//! A model's parameters as one flat array.

use std::sync::Arc;

use super::BackendError;

/// Name and shape of one parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParameterShape {
    /// Its name in the model.
    pub name: String,
    pub shape: Vec<usize>,
}

impl ParameterShape {
    /// Values in it.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Values for all of a model's parameters (weights or gradients), one parameter after the other;
/// and what the model keeps besides, its buffers, such as batch norm's running moments: those to
/// compute with, or those after a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct ParameterSet {
    layout: Arc<[ParameterShape]>,
    values: Vec<f32>,
    buffers: Vec<f32>,
}

impl ParameterSet {
    /// Zeroes for parameters of `layout`.
    pub fn zeroes(layout: Vec<ParameterShape>) -> Self {
        let length = layout.iter().map(ParameterShape::len).sum();
        Self {
            layout: layout.into(),
            values: vec![0.0; length],
            buffers: Vec::new(),
        }
    }

    /// The same with these buffers, all in a row.
    #[must_use]
    pub fn with_buffers(self, buffers: Vec<f32>) -> Self {
        Self { buffers, ..self }
    }

    /// Zeroes of the same layout.
    pub fn zeroes_like(&self) -> Self {
        let (values, buffers) = (vec![0.0; self.values.len()], vec![0.0; self.buffers.len()]);
        Self {
            layout: Arc::clone(&self.layout),
            values,
            buffers,
        }
    }

    /// Names and shapes, in order.
    pub fn layout(&self) -> &[ParameterShape] {
        &self.layout
    }

    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All values, to be written.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    pub fn buffers(&self) -> &[f32] {
        &self.buffers
    }

    /// All buffers, to be written.
    pub fn buffers_mut(&mut self) -> &mut [f32] {
        &mut self.buffers
    }

    /// Each parameter with its values.
    pub fn iter(&self) -> impl Iterator<Item = (&ParameterShape, &[f32])> {
        let mut rest = self.values.as_slice();
        self.layout.iter().map(move |shape| {
            let (own, others) = rest.split_at_checked(shape.len()).unwrap_or((rest, &[]));
            rest = others;
            (shape, own)
        })
    }

    /// Each parameter with its values, to be written.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&ParameterShape, &mut [f32])> {
        let mut rest = self.values.as_mut_slice();
        self.layout.iter().map(move |shape| {
            let all = std::mem::take(&mut rest);
            let length = shape.len().min(all.len());
            let (own, others) = all.split_at_mut(length);
            rest = others;
            (shape, own)
        })
    }

    /// Takes the values over from a flat array.
    ///
    /// # Errors
    /// If it has another length; `what` names it then.
    pub fn fill(&mut self, what: &str, values: &[f32]) -> Result<(), BackendError> {
        self.check(what, values)?;
        self.values.copy_from_slice(values);
        Ok(())
    }

    /// Adds the values of a flat array.
    ///
    /// # Errors
    /// If it has another length; `what` names it then.
    pub fn add(&mut self, what: &str, values: &[f32]) -> Result<(), BackendError> {
        self.check(what, values)?;
        for (sum, value) in self.values.iter_mut().zip(values) {
            *sum += value;
        }
        Ok(())
    }

    fn check(&self, what: &str, values: &[f32]) -> Result<(), BackendError> {
        let (expected, got) = (self.values.len(), values.len());
        if expected == got {
            return Ok(());
        }
        Err(BackendError::Layout {
            what: what.to_owned(),
            expected,
            got,
        })
    }
}

/// The gradients pushed since the last step, added up.
#[derive(Debug)]
pub(super) struct Pushed {
    sum: ParameterSet,
    count: u32,
}

impl Pushed {
    /// None yet, for parameters of this layout.
    pub(super) fn none(weights: &ParameterSet) -> Self {
        Self {
            sum: weights.zeroes_like(),
            count: 0,
        }
    }

    /// Values of all parameters together.
    pub(super) fn len(&self) -> usize {
        self.sum.values().len()
    }

    pub(super) fn add(&mut self, gradients: &ParameterSet) -> Result<(), BackendError> {
        if self.count == 0 {
            self.sum.fill("the gradients", gradients.values())?;
            self.sum.buffers.fill(0.0);
        } else {
            self.sum.add("the gradients", gradients.values())?;
        }
        self.sum
            .buffers
            .iter_mut()
            .zip(&gradients.buffers)
            .for_each(|(sum, value)| *sum += value);
        self.count += 1;
        Ok(())
    }

    /// The sum of the buffers after each batch.
    pub(super) fn buffers(&self) -> &[f32] {
        self.sum.buffers()
    }

    /// Their sum and how many they are; nothing if there are none.
    pub(super) fn sum(&self) -> Option<(&[f32], u32)> {
        (self.count > 0).then(|| (self.sum.values(), self.count))
    }

    /// The step was made.
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_has_its_part() {
        let shape = |name: &str, shape: &[usize]| ParameterShape {
            name: name.into(),
            shape: shape.to_vec(),
        };
        let mut set = ParameterSet::zeroes(vec![shape("a", &[2, 2]), shape("b", &[3])]);
        for (index, (_, values)) in set.iter_mut().enumerate() {
            values.fill(index as f32 + 1.0);
        }
        assert_eq!(set.values(), [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(
            set.iter()
                .map(|(shape, values)| (shape.name.as_str(), values.len()))
                .last(),
            Some(("b", 3))
        );
        assert!(
            set.fill("weights", &[0.0; 6])
                .unwrap_err()
                .to_string()
                .contains("6 values, the model has 7")
        );
    }
}
