//! Compatibility of a model with the data's samples.

/// Returns true if samples of shape `data` can be given to a model that wants `model` (-1 for a
/// free axis), and as what shape.
///
/// Axes of length 1 move no value in memory, and neither does a flat view, so `[28, 28]`, `[1, 28,
/// 28]`, `[28, 28, 1]` and `[784]` are the same samples.
pub(super) fn fit(model: &[i64], data: &[usize]) -> Option<Vec<usize>> {
    let length: usize = data.iter().product();
    let fixed = |axes: &[i64]| {
        axes.iter()
            .map(|&axis| usize::try_from(axis).ok())
            .collect::<Option<Vec<_>>>()
    };
    if let Some(shape) = fixed(model) {
        let squeezed = |shape: &[usize]| {
            shape
                .iter()
                .copied()
                .filter(|&axis| axis != 1)
                .collect::<Vec<_>>()
        };
        let flat = shape == [length] || data == [shape.iter().product::<usize>()];
        return (squeezed(&shape) == squeezed(data) || flat).then_some(shape);
    }
    let like = |data: &[usize]| {
        let same = |(&axis, &own): (&i64, &usize)| axis < 0 || usize::try_from(axis) == Ok(own);
        (model.len() == data.len() && model.iter().zip(data).all(same)).then(|| data.to_vec())
    };
    let one_axis_more: Vec<usize> = std::iter::once(1).chain(data.iter().copied()).collect();
    let flat = like(&[length]).filter(|_| model.len() == 1);
    like(data)
        .or_else(|| like(&one_axis_more))
        .or_else(|| like(data.strip_prefix(&[1])?))
        .or(flat)
}

/// A graph's axes for a message.
pub(super) fn describe(axes: &[i64]) -> String {
    let axes: Vec<String> = axes
        .iter()
        .map(|&axis| {
            if axis < 0 {
                "?".to_owned()
            } else {
                axis.to_string()
            }
        })
        .collect();
    format!("[{}]", axes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_hold_the_same_samples_fit() {
        let image = [1, 28, 28];
        assert_eq!(fit(&[28, 28], &image), Some(vec![28, 28]));
        assert_eq!(fit(&[28, 28, 1], &image), Some(vec![28, 28, 1]));
        assert_eq!(fit(&[784], &image), Some(vec![784]));
        assert_eq!(fit(&[1, -1, -1], &image), Some(vec![1, 28, 28]));
        assert_eq!(fit(&[-1, -1], &image), Some(vec![28, 28]));
        assert_eq!(fit(&[1, -1, -1], &[28, 28]), Some(vec![1, 28, 28]));
        assert_eq!(fit(&[-1], &image), Some(vec![784]));
        assert_eq!(fit(&[3, 28, 28], &image), None);
        assert_eq!(fit(&[28, 29], &image), None);
        assert_eq!(fit(&[3, -1, -1], &image), None);
        assert_eq!(fit(&[28, 3, 32], &[3, 28, 32]), None);
    }
}
