//! Summary of several runs.

/// The middle one of the runs, and the ends; `NaN` of none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) lowest: f64,
    pub(super) median: f64,
    pub(super) highest: f64,
}

impl Spread {
    pub(super) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        let (middle, last) = (values.len() / 2, values.len().saturating_sub(1));
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(at(middle.saturating_sub(1)), at(middle))
        } else {
            at(middle)
        };
        Self {
            lowest: at(0),
            median,
            highest: at(last),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_even_number_the_median_is_between_the_middle_two() {
        let spread = |values: &[f64]| {
            let Spread {
                lowest,
                median,
                highest,
            } = Spread::new(values.to_vec());
            [lowest, median, highest]
        };
        assert_eq!(spread(&[7.0]), [7.0; 3]);
        assert_eq!(spread(&[9.0, 1.0, 2.0]), [1.0, 2.0, 9.0]);
        assert_eq!(spread(&[9.0, 1.0, 2.0, 4.0]), [1.0, 3.0, 9.0]);
        assert!(spread(&[]).iter().all(|value| value.is_nan()));
    }
}
