//! How far a reconstruction can be trusted, and whether it agrees with the deployed model's answer.

/// The probability that softmax gives the top class: `max_c exp(y_c) / sum_c exp(y_c)`, in `(0, 1]`.
///
/// `outputs` is one sample's logits (or log-probabilities). For several samples take the least. It is not calibrated:
/// a reconstruction is a difference of logits and tends to be surer of itself than it is right.
/// Returns 0 for no outputs or a NaN.
pub fn confidence(outputs: &[f32]) -> f32 {
    let Some(top) = top_class(outputs).and_then(|class| outputs.get(class)) else {
        return 0.0;
    };
    let sum: f32 = outputs.iter().map(|y| (y - top).exp()).sum();
    if sum.is_finite() && sum > 0.0 { 1.0 / sum } else { 0.0 }
}

/// Index of the largest output, the first among equals; `None` for no outputs.
pub fn top_class(outputs: &[f32]) -> Option<usize> {
    let mut best: Option<(usize, f32)> = None;
    for (class, &value) in outputs.iter().enumerate() {
        if best.is_none_or(|(_, top)| value > top) {
            best = Some((class, value));
        }
    }
    best.map(|(class, _)| class)
}

/// Whether two outputs of `rows` samples each name the same top class for every sample.
///
/// This is the agreement that ParM's accuracy of reconstructions is about; a single output per sample (a regression)
/// has no class and always agrees, so callers should not read this for such models.
pub fn agrees(a: &[f32], b: &[f32], rows: usize) -> bool {
    if rows == 0 || a.len() != b.len() || !a.len().is_multiple_of(rows) || a.is_empty() {
        return false;
    }
    let classes = a.len() / rows;
    a.chunks(classes).zip(b.chunks(classes)).all(|(a, b)| top_class(a) == top_class(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_top_softmax_probability() {
        assert!((confidence(&[0.0, 0.0]) - 0.5).abs() < 1e-6);
        assert!(confidence(&[1000.0, 0.0]) > 0.999);
        assert!((confidence(&[f32::ln(3.0), 0.0]) - 0.75).abs() < 1e-6);
        assert_eq!(confidence(&[]), 0.0);
    }

    #[test]
    fn top_class_takes_the_first_among_equals() {
        assert_eq!(top_class(&[1.0, 3.0, 3.0]), Some(1));
        assert_eq!(top_class(&[]), None);
    }

    #[test]
    fn agreement_is_per_sample() {
        assert!(agrees(&[0.0, 1.0, 5.0, 2.0], &[3.0, 4.0, 1.0, 0.0], 2));
        assert!(!agrees(&[0.0, 1.0, 5.0, 2.0], &[3.0, 4.0, 0.0, 1.0], 2));
        assert!(!agrees(&[0.0, 1.0], &[0.0, 1.0, 2.0], 1));
    }
}
