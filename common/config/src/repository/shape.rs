//! Shapes of samples, where an axis may have any length.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Shape of one sample, without the batch axis. -1 is an axis of any length, as in the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<i64>")]
pub struct Shape(pub(super) Vec<i64>);

impl Shape {
    /// Length of each axis, -1 for any.
    pub fn axes(&self) -> &[i64] {
        &self.0
    }

    /// Returns true if a sample may have these lengths.
    pub fn matches(&self, lengths: &[usize]) -> bool {
        let fits = |(&axis, &length)| axis == -1 || usize::try_from(axis) == Ok(length);
        self.0.len() == lengths.len() && self.0.iter().zip(lengths).all(fits)
    }

    /// Returns true if what has `axes` (negative: any length) takes every sample of this shape.
    pub fn fits(&self, axes: &[i64]) -> bool {
        let fits = |(own, &axis): (&i64, &i64)| axis < 0 || *own == axis;
        self.0.len() == axes.len() && self.0.iter().zip(axes).all(fits)
    }

    /// The shape behind a batch axis, in words: `[batch, -1, 64]`.
    pub fn behind(&self, batch: impl fmt::Display) -> String {
        let axes = self.0.iter().map(|axis| format!(", {axis}"));
        format!("[{batch}{}]", axes.collect::<String>())
    }

    /// The same with an axis of `count` in front, if there are several.
    #[must_use]
    pub fn with_axis(&self, count: usize) -> Self {
        let front = if count > 1 { Self::from(vec![count]).0 } else { Vec::new() };
        Self([front, self.0.clone()].concat())
    }

    /// The same with an axis that may have any length.
    #[must_use]
    pub fn free(mut self, axis: usize) -> Self {
        if let Some(axis) = self.0.get_mut(axis) {
            *axis = -1;
        }
        self
    }

    /// The one axis of any length that stands behind axes of length 1 alone: a sample's contents
    /// are so many steps, one after another.
    pub fn steps_axis(&self) -> Option<usize> {
        let axis = self.0.iter().position(|&axis| axis != 1)?;
        let is_only = self.0.get(axis + 1..)?.iter().all(|&axis| axis != -1);
        (is_only && self.0.get(axis) == Some(&-1)).then_some(axis)
    }

    /// The lengths, unless an axis has any.
    pub fn fixed(&self) -> Option<Vec<usize>> {
        self.0.iter().map(|&axis| usize::try_from(axis).ok()).collect()
    }

    /// The lengths, 1 for any: of the smallest sample.
    pub fn smallest(&self) -> Vec<usize> {
        self.0.iter().map(|&axis| usize::try_from(axis).unwrap_or(1)).collect()
    }
}

impl From<Vec<usize>> for Shape {
    fn from(lengths: Vec<usize>) -> Self {
        Self(lengths.into_iter().map(|length| i64::try_from(length).unwrap_or(i64::MAX)).collect())
    }
}

impl TryFrom<Vec<i64>> for Shape {
    type Error = String;

    fn try_from(axes: Vec<i64>) -> Result<Self, String> {
        match axes.iter().find(|axis| **axis < -1) {
            None => Ok(Self(axes)),
            Some(axis) => {
                Err(format!("{axis} is no length; give 1 or more, or -1 for an axis of any length"))
            }
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(axes: &[i64]) -> Shape {
        axes.to_vec().try_into().unwrap()
    }

    proptest! {
        #[test]
        fn a_shape_takes_exactly_the_lengths_that_fit(
            axes in prop::collection::vec(prop::sample::select(vec![-1_i64, 1, 2, 3]), 0..4),
            lengths in prop::collection::vec(0_usize..4, 0..4),
        ) {
            let shape = shape(&axes);
            let mut fits = axes.len() == lengths.len();
            for (&axis, &length) in axes.iter().zip(&lengths) {
                fits &= axis == -1 || axis == length as i64;
            }
            prop_assert_eq!(shape.matches(&lengths), fits);
            prop_assert_eq!(Shape::from(lengths).fits(&axes), fits);
            prop_assert!(shape.matches(&shape.smallest()) && shape.fits(&axes));
            prop_assert_eq!(shape.fixed().is_none(), axes.contains(&-1));
        }
    }

    #[test]
    fn steps_are_the_one_free_axis_that_no_other_is_outside_of() {
        for (axes, steps) in [
            (&[-1][..], Some(0)),
            (&[1, -1, 40], Some(1)),
            (&[2, -1, 40], None),
            (&[-1, -1], None),
            (&[1, 40], None),
            (&[], None),
        ] {
            assert_eq!(shape(axes).steps_axis(), steps, "{axes:?}");
        }
        assert_eq!(shape(&[-1, 4]).with_axis(3).axes(), [3, -1, 4]);
        assert_eq!(shape(&[-1, 4]).with_axis(1).axes(), [-1, 4]);
    }

    #[test]
    fn a_free_axis_fits_a_free_one_alone() {
        assert!(shape(&[-1, 8]).fits(&[-1, 8]) && shape(&[-1, 8]).fits(&[-1, -1]));
        assert!(!shape(&[-1, 8]).fits(&[4, 8]) && !shape(&[-1]).fits(&[-1, 8]));
    }

    #[test]
    fn a_shape_is_written_with_minus_one() {
        assert_eq!(shape(&[-1, 64]).to_string(), "[-1, 64]");
        assert_eq!(
            (shape(&[-1, 64]).behind(3), shape(&[]).behind("batch")),
            ("[3, -1, 64]".into(), "[batch]".into())
        );
        let error = Shape::try_from(vec![3_i64, -2]).unwrap_err();
        assert!(error.starts_with("-2 is no length; give 1 or more"), "{error}");
    }
}
