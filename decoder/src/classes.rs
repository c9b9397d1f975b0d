//! Outputs that are class scores. Only of those can a top class be asked for.

use thiserror::Error;

/// The axis of an output that has one score for each class: the only axis beside the batch, of at
/// least two values.
///
/// Every figure by top class (agreement, confidence, calibration) goes through it. An output of one
/// value always has the same top class, and the largest value of several axes is no class at all:
/// figures of those would say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassAxis(usize);

/// An output that has no class scores; says what it has instead.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotClassScores {
    /// A regression, or one sigmoid.
    #[error("one value a sample")]
    OneValue,
    /// A map, a sequence, boxes.
    #[error("the shape {shape:?} a sample")]
    Axes {
        /// Shape of one sample's output, without the batch axis.
        shape: Vec<usize>,
    },
}

impl ClassAxis {
    /// Axis of an output whose samples have `shape`, without the batch axis. An axis of length 1
    /// is an axis, too: whether `[1, 10]` is one position of ten classes or ten values of one map,
    /// its shape does not say.
    ///
    /// # Errors
    /// [`NotClassScores`] for an output of one value, or of several axes.
    pub fn of(shape: &[usize]) -> Result<Self, NotClassScores> {
        match shape {
            [] | [0 | 1] => Err(NotClassScores::OneValue),
            [classes] => Ok(Self(*classes)),
            shape => Err(NotClassScores::Axes {
                shape: shape.to_vec(),
            }),
        }
    }

    /// Number of classes, at least two.
    pub const fn count(self) -> usize {
        self.0
    }

    /// The scores of one sample; `None` if there are not as many as classes.
    pub fn scores(self, sample: &[f32]) -> Option<ClassScores<'_>> {
        (sample.len() == self.0).then_some(ClassScores(sample))
    }

    /// The scores of each of several samples, which lie one after another.
    pub fn samples(self, outputs: &[f32]) -> impl Iterator<Item = ClassScores<'_>> {
        outputs.chunks_exact(self.0).map(ClassScores)
    }

    /// Tells whether two outputs of the same samples name the same top class for every sample: the
    /// agreement that ParM's accuracy of reconstructions is about. `false` for no samples, or for
    /// outputs of different or broken lengths.
    pub fn agrees(self, a: &[f32], b: &[f32]) -> bool {
        let whole = a.len() == b.len() && !a.is_empty() && a.len().is_multiple_of(self.0);
        whole
            && self
                .samples(a)
                .zip(self.samples(b))
                .all(|(a, b)| a.top_class() == b.top_class())
    }
}

/// One sample's scores, two or more: logits, log-probabilities, or what keeps their order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassScores<'a>(&'a [f32]);

impl<'a> ClassScores<'a> {
    /// The scores, by class.
    pub const fn values(self) -> &'a [f32] {
        self.0
    }

    /// Index of the largest score, the first among equals.
    pub fn top_class(self) -> usize {
        let mut best = (0, f32::NEG_INFINITY);
        for (class, &value) in self.0.iter().enumerate() {
            if value > best.1 {
                best = (class, value);
            }
        }
        best.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_of_one_value_has_no_top_class() {
        for shape in [&[][..], &[1]] {
            assert_eq!(
                ClassAxis::of(shape),
                Err(NotClassScores::OneValue),
                "{shape:?}"
            );
        }
    }

    #[test]
    fn an_output_of_several_axes_has_no_top_class() {
        for shape in [&[2, 3][..], &[1, 10], &[10, 1], &[1, 10, 1], &[1, 1]] {
            let refused = ClassAxis::of(shape).unwrap_err();
            assert_eq!(refused.to_string(), format!("the shape {shape:?} a sample"));
        }
    }

    #[test]
    fn scores_are_those_of_whole_samples() {
        let classes = ClassAxis::of(&[3]).unwrap();
        assert_eq!(classes.scores(&[1.0, 2.0]), None);
        assert_eq!(
            classes.scores(&[1.0, 2.0, 3.0]).map(ClassScores::top_class),
            Some(2)
        );
        let tops: Vec<usize> = classes
            .samples(&[1.0, 0.0, 0.0, 0.0, 0.0, 1.0])
            .map(ClassScores::top_class)
            .collect();
        assert_eq!(tops, [0, 2]);
    }

    #[test]
    fn top_class_takes_the_first_among_equals() {
        let top = |sample: &[f32]| {
            ClassAxis::of(&[3])
                .unwrap()
                .scores(sample)
                .unwrap()
                .top_class()
        };
        assert_eq!(top(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(top(&[f32::NEG_INFINITY; 3]), 0);
    }

    #[test]
    fn agreement_is_per_sample() {
        let (two, three) = (ClassAxis::of(&[2]).unwrap(), ClassAxis::of(&[3]).unwrap());
        assert!(two.agrees(&[0.0, 1.0, 5.0, 2.0], &[3.0, 4.0, 1.0, 0.0]));
        assert!(!two.agrees(&[0.0, 1.0, 5.0, 2.0], &[3.0, 4.0, 0.0, 1.0]));
        assert!(!two.agrees(&[0.0, 1.0], &[0.0, 1.0, 2.0]));
        assert!(!three.agrees(&[0.0, 1.0], &[0.0, 1.0]), "no whole sample");
        assert!(!two.agrees(&[], &[]), "nothing was compared");
    }
}
