//! Summary of several runs.

/// The middle one of the runs, and the ends; `NaN` of none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) lowest: f64,
    pub(super) median: f64,
    pub(super) highest: f64,
}

impl Spread {
    pub(super) fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
        let last = values.len().saturating_sub(1);
        let median = f64::midpoint(at(last / 2), at(last.div_ceil(2)));
        Self {
            lowest: at(0),
            median,
            highest: at(last),
        }
    }

    pub(super) fn text(&self, digits: usize) -> String {
        let Self {
            lowest,
            median,
            highest,
        } = self;
        format!("{median:.digits$} ({lowest:.digits$}-{highest:.digits$})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_number_is_between_the_middle_two() {
        for (values, expected) in [
            (&[7.0][..], [7.0; 3]),
            (&[9.0, 1.0, 2.0], [1.0, 2.0, 9.0]),
            (&[9.0, 1.0, 2.0, 4.0], [1.0, 3.0, 9.0]),
        ] {
            let Spread {
                lowest,
                median,
                highest,
            } = Spread::new(values.iter().copied());
            assert_eq!([lowest, median, highest], expected);
        }
        let Spread {
            lowest,
            median,
            highest,
        } = Spread::new([]);
        assert!([lowest, median, highest].iter().all(|value| value.is_nan()));
    }
}
