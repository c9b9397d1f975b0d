//! Measured agreement of reconstructions with the deployed model, by their score.
//!
//! A reconstruction is a difference of outputs and tends to be surer of itself than it is right.
//! Training measures, on validation data, the share of reconstructions of each score that name the
//! deployed model's class, and writes the table beside the code. Histogram binning (Zadrozny and
//! Elkan, ICML 2001), made monotone by pooling neighbours that violate the order (their *isotonic
//! regression*, KDD 2002).

use parapet_encoder::CodeError;
use serde::{Deserialize, Serialize};

use crate::Score;

/// Most bins of a table.
pub const MAX_BINS: usize = 256;

/// A table from scores to measured agreement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// Score that the table is for.
    #[serde(default)]
    pub score: Score,
    /// Where bins meet, strictly rising, between 0 and 1; a score at an edge is in the upper bin.
    pub edges: Vec<f32>,
    /// The part of each bin's reconstructions that agreed, never falling; one more than edges.
    pub agreement: Vec<f32>,
    /// Error ([`crate::OutputKind`]) that nine of ten reconstructions keep to; none for classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<f32>,
}

impl Calibration {
    /// Checks the table.
    ///
    /// # Errors
    /// [`CodeError`] names the first entry that is wrong.
    pub fn validate(&self) -> Result<(), CodeError> {
        let (edges, agreement) = (self.edges.len(), self.agreement.len());
        if agreement != edges + 1 || agreement > MAX_BINS {
            let problem = format!("{edges} edges and {agreement} agreements");
            let fix = format!("give one agreement more than edges, and at most {MAX_BINS}");
            return Err(CodeError::new("calibration", problem, fix));
        }
        let wrong = |list: &str, (index, value): (usize, f32), fix: &str| {
            CodeError::new(format!("calibration.{list}[{index}]"), value.to_string(), fix)
        };
        let rises = |before: f32, value: f32| value > before && value < 1.0;
        if let Some(found) = first_out_of_order(&self.edges, rises) {
            return Err(wrong("edges", found, "edges rise between 0 and 1"));
        }
        let keeps = |before: f32, value: f32| value >= before && value <= 1.0;
        if let Some(found) = first_out_of_order(&self.agreement, keeps) {
            return Err(wrong("agreement", found, "agreements lie between 0 and 1 and never fall"));
        }
        if let Some(error) = self.error.filter(|error| error.is_nan() || *error < 0.0) {
            let fix = "give a number of 0 or more";
            return Err(CodeError::new("calibration.error", error.to_string(), fix));
        }
        Ok(())
    }

    /// The measured agreement of reconstructions with this score.
    pub fn look_up(&self, score: f32) -> f32 {
        let bin = self.edges.partition_point(|&edge| edge <= score);
        self.agreement.get(bin).copied().unwrap_or_default()
    }

    /// The table for `measured`, each a reconstruction's score and whether it agreed: at most
    /// `bins` bins of about as many of them each. `None` without measurements or with a NaN score.
    pub fn fit(score: Score, measured: &[(f32, bool)], bins: usize) -> Option<Self> {
        let bins = bins.clamp(1, MAX_BINS);
        let mut sorted = measured.to_vec();
        if sorted.is_empty() || sorted.iter().any(|(score, _)| score.is_nan()) {
            return None;
        }
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Each: its lowest score, how many agreed, how many there are.
        let mut pooled: Vec<(f32, usize, usize)> = Vec::new();
        for bin in sorted.chunks(sorted.len().div_ceil(bins)) {
            let Some(&(lowest, _)) = bin.first() else { continue };
            let agreed = bin.iter().filter(|(_, agreed)| *agreed).count();
            pooled.push((lowest, agreed, bin.len()));
            while let [.., (lower, agreed_below, below), (lowest, agreed, count)] =
                *pooled.as_slice()
            {
                let falls = agreed * below <= agreed_below * count;
                if !(falls || lowest <= lower || lowest <= 0.0 || lowest >= 1.0) {
                    break;
                }
                pooled.truncate(pooled.len() - 2);
                pooled.push((lower, agreed_below + agreed, below + count));
            }
        }
        let agreement = |&(_, agreed, count): &(f32, usize, usize)| agreed as f32 / count as f32;
        Some(Self {
            score,
            edges: pooled.iter().skip(1).map(|(lowest, ..)| *lowest).collect(),
            agreement: pooled.iter().map(agreement).collect(),
            error: None,
        })
    }
}

fn first_out_of_order(values: &[f32], follows: impl Fn(f32, f32) -> bool) -> Option<(usize, f32)> {
    let before = std::iter::once(0.0).chain(values.iter().copied());
    let mut pairs = before.zip(values.iter().copied()).enumerate();
    pairs.find_map(|(index, (before, value))| (!follows(before, value)).then_some((index, value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(edges: &[f32], agreement: &[f32]) -> Calibration {
        Calibration {
            score: Score::TopProbability,
            edges: edges.to_vec(),
            agreement: agreement.to_vec(),
            error: None,
        }
    }

    #[test]
    fn a_score_is_looked_up_in_its_bin() {
        let table = table(&[0.5, 0.9], &[0.4, 0.7, 0.95]);
        assert_eq!(table.validate(), Ok(()));
        for (score, expected) in
            [(0.0, 0.4), (0.49, 0.4), (0.5, 0.7), (0.89, 0.7), (0.9, 0.95), (1.0, 0.95)]
        {
            assert_eq!(table.look_up(score), expected, "{score}");
        }
    }

    #[test]
    fn tables_that_make_no_sense_are_refused() {
        for (edges, agreement, field) in [
            (&[0.5][..], &[0.4][..], "calibration"),
            (&[], &[], "calibration"),
            (&[0.5, 0.5], &[0.1, 0.2, 0.3], "calibration.edges[1]"),
            (&[1.0], &[0.1, 0.2], "calibration.edges[0]"),
            (&[0.5], &[0.2, 0.1], "calibration.agreement[1]"),
            (&[0.5], &[0.2, 1.1], "calibration.agreement[1]"),
            (&[0.5], &[f32::NAN, 1.0], "calibration.agreement[0]"),
        ] {
            let refused = table(edges, agreement).validate().unwrap_err();
            assert_eq!(refused.field, field);
        }
        for error in [-1.0, f32::NAN] {
            let table = Calibration { error: Some(error), ..table(&[], &[0.5]) };
            assert_eq!(table.validate().unwrap_err().field, "calibration.error");
        }
    }

    #[test]
    fn a_table_of_the_most_bins_is_taken() {
        let bins = |count: usize| {
            let edges: Vec<f32> = (1..count).map(|edge| edge as f32 / count as f32).collect();
            table(&edges, &vec![0.5; count])
        };
        assert_eq!(bins(MAX_BINS).validate(), Ok(()));
        assert!(bins(MAX_BINS + 1).validate().is_err());
        assert!(bins(MAX_BINS + 2).validate().is_err());
    }

    #[test]
    fn a_fit_to_a_score_that_is_no_number_is_none() {
        let measured = [(0.5, true), (f32::NAN, true), (0.7, false)];
        assert_eq!(Calibration::fit(Score::Margin, &measured, 2), None);
    }

    #[test]
    fn a_fit_recovers_what_was_measured() {
        let measured: Vec<(f32, bool)> =
            (0..1000).map(|i| (i as f32 / 1000.0, i % 10 < if i < 500 { 5 } else { 9 })).collect();
        let fitted = Calibration::fit(Score::Margin, &measured, 10).unwrap();
        assert_eq!(
            (fitted.edges.as_slice(), fitted.agreement.as_slice()),
            (&[0.5][..], &[0.5, 0.9][..])
        );
        assert_eq!(Calibration::fit(Score::Margin, &[], 10), None);
    }

    proptest! {
        #[test]
        fn a_fit_is_valid_monotone_and_keeps_the_mean(
            measured in proptest::collection::vec((0.0f32..=1.0, any::<bool>()), 1..300),
            bins in 1usize..40,
        ) {
            let fitted = Calibration::fit(Score::Entropy, &measured, bins).unwrap();
            prop_assert_eq!(fitted.validate(), Ok(()));
            prop_assert!(fitted.agreement.len() <= bins);
            // Ties may straddle an edge; without them the mean is kept exactly.
            let mut scores: Vec<f32> = measured.iter().map(|(score, _)| *score).collect();
            scores.sort_by(f32::total_cmp);
            if scores.windows(2).all(|pair| pair[0] < pair[1]) {
                let mean: f32 = measured.iter().map(|(score, _)| fitted.look_up(*score)).sum();
                let agreed = measured.iter().filter(|(_, agreed)| *agreed).count() as f32;
                prop_assert!((mean - agreed).abs() < 1e-2, "{mean}, {agreed}");
            }
        }
    }
}
