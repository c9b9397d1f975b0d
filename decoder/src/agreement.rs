//! Kinds of outputs, and when two outputs of one kind agree.

use serde::{Deserialize, Serialize};
use strum::VariantNames;
use thiserror::Error;

use crate::{Calibration, Score};

/// Most that a confidence says that was not measured: a parity model may be as sure as it likes.
const MOST_UNMEASURED: f32 = 0.99;

/// Kind of a model's output: its measure of error between an approximation and the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display, strum::EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum OutputKind {
    /// A score per class, on the only axis beside the batch: 0 where the top classes agree, else 1.
    Classes,
    /// Probabilities of labels that exclude each other not (sigmoids): the part of the labels that
    /// are on different sides of 0.5.
    MultiLabel,
    /// Numbers: the root of their mean squared difference, in the model's own unit.
    Regression,
    /// A direction: 1 less the cosine.
    Embedding,
    /// Corners `x1, y1, x2, y2` along the last axis: 1 less the least intersection over union.
    Boxes,
    /// A score per class (first axis) and position: the part of positions whose top classes differ.
    Map,
}

impl OutputKind {
    /// The tolerance where none is given; a regression's unit is the model's, so it has none.
    const fn usual_tolerance(self) -> Option<f32> {
        match self {
            Self::Classes | Self::MultiLabel => Some(0.0),
            Self::Regression => None,
            Self::Embedding | Self::Map => Some(0.1),
            Self::Boxes => Some(0.5),
        }
    }

    fn fits(self, shape: &[usize]) -> bool {
        match self {
            Self::Classes => matches!(shape, &[classes] if classes > 1),
            Self::MultiLabel | Self::Regression | Self::Embedding => true,
            Self::Boxes => shape.last() == Some(&4),
            Self::Map => shape.len() > 1 && shape[0] > 1,
        }
    }
}

/// The table `[output]` of a model's `model.toml`: what its first output is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputSpec {
    /// Kind of the output.
    pub kind: OutputKind,
    /// Largest error of an approximation that agrees with the truth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f32>,
}

impl std::str::FromStr for OutputSpec {
    type Err = String;

    /// Parses `KIND` or `KIND:TOLERANCE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, tolerance) = match text.split_once(':') {
            Some((name, tolerance)) => (name, Some(tolerance)),
            None => (text, None),
        };
        let kind = name.parse().map_err(|_| {
            let known = OutputKind::VARIANTS.join(", ");
            format!("{name:?} is no kind of output; there are {known}")
        })?;
        let tolerance = tolerance.map(str::parse).transpose();
        Ok(Self { kind, tolerance: tolerance.map_err(|error| format!("tolerance: {error}"))? })
    }
}

/// A table `[output]` that does not fit the output. Found at start-up, never on a request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("output.{field}: {problem}; {fix}")]
pub struct OutputError {
    /// Field within the table.
    pub field: &'static str,
    /// Value, and the problem with it.
    pub problem: String,
    /// Remedy.
    pub fix: &'static str,
}

/// The comparison of outputs of one kind and shape.
///
/// Every figure about approximations (agreement, confidence, calibration) goes through it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Agreement {
    kind: OutputKind,
    tolerance: f32,
    /// Values of one sample's output.
    len: usize,
    /// Length of the first axis.
    first: usize,
}

impl Agreement {
    /// Outputs of the kind `spec`, a sample's having `shape`; class scores if there is no `spec`.
    ///
    /// # Errors
    /// [`OutputError`]: a shape that does not fit the kind, or no tolerance, or a senseless one.
    pub fn of(spec: Option<&OutputSpec>, shape: &[usize]) -> Result<Self, OutputError> {
        let wrong = |field, problem: String, fix| OutputError { field, problem, fix };
        let kind = spec.map_or(OutputKind::Classes, |spec| spec.kind);
        if !kind.fits(shape) {
            let given = spec.map_or("missing".to_owned(), |_| format!("\"{kind}\""));
            let problem = format!("{given}, for an output of shape {shape:?}");
            let fix = "classes are one axis of two or more, boxes end in an axis of 4, maps begin \
                with an axis of two or more classes; others are multi_label, regression, embedding";
            return Err(wrong("kind", problem, fix));
        }
        let given = spec.and_then(|spec| spec.tolerance);
        let Some(tolerance) = given.or(kind.usual_tolerance()) else {
            let fix = "give the largest error that counts as agreement, in the output's unit";
            return Err(wrong("tolerance", "missing".to_owned(), fix));
        };
        if !(tolerance.is_finite() && tolerance >= 0.0) {
            return Err(wrong("tolerance", tolerance.to_string(), "give a number of 0 or more"));
        }
        Ok(Self {
            kind,
            tolerance,
            len: shape.iter().product(),
            first: shape.first().copied().unwrap_or(1),
        })
    }

    /// Kind of the output.
    pub const fn kind(&self) -> OutputKind {
        self.kind
    }

    /// Number of values of one sample's output.
    pub const fn output_len(&self) -> usize {
        self.len
    }

    /// The error of one sample's approximation `made`; infinite for no number or unfit lengths.
    pub fn error(&self, made: &[f32], truth: &[f32]) -> f32 {
        let is_number = |values: &[f32]| !values.iter().any(|value| value.is_nan());
        if made.len() != self.len || truth.len() != self.len || !is_number(made) {
            return f32::INFINITY;
        }
        let pairs = || made.iter().copied().zip(truth.iter().copied());
        let sum = |of: fn(f32, f32) -> f32| pairs().map(|(a, b)| of(a, b)).sum::<f32>();
        let len = self.len.max(1) as f32;
        let error = match self.kind {
            OutputKind::Classes => f32::from(top_class(made) != top_class(truth)),
            OutputKind::MultiLabel => sum(|a, b| f32::from((a >= 0.5) != (b >= 0.5))) / len,
            OutputKind::Regression => (sum(|a, b| (a - b) * (a - b)) / len).sqrt(),
            OutputKind::Embedding => {
                let lengths = sum(|a, _| a * a).sqrt() * sum(|_, b| b * b).sqrt();
                1.0 - sum(|a, b| a * b) / lengths.max(f32::MIN_POSITIVE)
            }
            OutputKind::Boxes => {
                let boxes = made.chunks_exact(4).zip(truth.chunks_exact(4));
                1.0 - boxes.map(|(a, b)| overlap(a, b)).fold(1.0, f32::min)
            }
            OutputKind::Map => {
                let positions = self.len / self.first;
                let differs = |at: &usize| top(made, *at, positions) != top(truth, *at, positions);
                (0..positions).filter(differs).count() as f32 / positions.max(1) as f32
            }
        };
        if error.is_nan() { f32::INFINITY } else { error }
    }

    /// Returns true if one sample's approximation `made` agrees with the truth.
    pub fn agrees(&self, made: &[f32], truth: &[f32]) -> bool {
        self.error(made, truth) <= self.tolerance
    }

    /// Returns true if approximation and truth agree for each of several samples, which lie one
    /// after another. `false` for no samples, or for outputs of different or broken lengths.
    pub fn all_agree(&self, made: &[f32], truth: &[f32]) -> bool {
        let is_whole = !made.is_empty() && made.len().is_multiple_of(self.len);
        let pairs = || made.chunks(self.len).zip(truth.chunks(self.len));
        is_whole && made.len() == truth.len() && pairs().all(|(a, b)| self.agrees(a, b))
    }

    /// Score of one sample's approximation, to look calibrations up; 0 for kinds that do not say.
    pub fn score(&self, score: Score, made: &[f32]) -> f32 {
        match self.kind {
            OutputKind::Classes => score.of(made),
            _ => 0.0,
        }
    }

    /// Probability that an approximation agrees: as measured; without a measurement the top
    /// class's, and none for other kinds.
    pub fn confidence(&self, measured: Option<&Calibration>, made: &[f32]) -> Option<f32> {
        match measured {
            Some(table) => Some(table.look_up(self.score(table.score, made))),
            None => (self.kind == OutputKind::Classes)
                .then(|| Score::TopProbability.of(made).min(MOST_UNMEASURED)),
        }
    }
}

/// Index of the largest score, the first among equals.
pub fn top_class(scores: &[f32]) -> usize {
    top(scores, 0, 1)
}

/// Index of the largest of the values at `at`, `at + step`, ...: the first among equals.
fn top(values: &[f32], at: usize, step: usize) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (class, &value) in values.iter().skip(at).step_by(step).enumerate() {
        if value > best.1 {
            best = (class, value);
        }
    }
    best.0
}

/// Intersection over union of two boxes; 0 where one is empty.
fn overlap(a: &[f32], b: &[f32]) -> f32 {
    let area = |corners: &[f32]| match *corners {
        [x1, y1, x2, y2] if x2 > x1 && y2 > y1 => (x2 - x1) * (y2 - y1),
        _ => 0.0,
    };
    let common: Vec<f32> =
        (0..4).map(|at| if at < 2 { a[at].max(b[at]) } else { a[at].min(b[at]) }).collect();
    let common = area(&common);
    common / (area(a) + area(b) - common).max(f32::MIN_POSITIVE)
}

#[cfg(test)]
mod tests;
