//! Axes: from values to places, and where to put ticks.

const MANTISSAS: [f64; 3] = [1.0, 2.0, 5.0];
/// Beyond so many factors of ten, only powers of ten are ticks.
const DECADES_WITH_STEPS: f64 = 3.3;
const LINEAR_TICKS: f64 = 6.0;

/// One axis of a plot.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    /// Label of the plot, with its unit.
    pub(super) label: String,
    /// Values with what is written there.
    pub(super) ticks: Vec<(f64, String)>,
    low: f64,
    high: f64,
    log: bool,
}

impl Axis {
    /// A logarithmic axis from the tick below the least of `values` to the one above the greatest.
    pub(super) fn log(label: &str, values: impl Iterator<Item = f64>) -> Self {
        let values = values.filter(|value| value.is_finite() && *value > 0.0);
        let (least, greatest) = range(values).unwrap_or((1.0, 10.0));
        let steps: Vec<f64> = (-7..13)
            .flat_map(|power| MANTISSAS.map(|mantissa| mantissa * 10_f64.powi(power)))
            .collect();
        let low = steps
            .iter()
            .rev()
            .find(|step| **step <= least * 1.0001)
            .copied()
            .unwrap_or(least);
        let high = steps
            .iter()
            .find(|step| **step >= greatest * 0.9999)
            .copied()
            .unwrap_or(greatest);
        let high = if high <= low { low * 10.0 } else { high };
        let coarse = (high / low).log10() > DECADES_WITH_STEPS;
        let wanted = |step: &f64| {
            let power = step.log10();
            (low * 0.9999..=high * 1.0001).contains(step)
                && (!coarse || (power - power.round()).abs() < 1e-6)
        };
        let ticks = steps
            .into_iter()
            .filter(wanted)
            .map(|step| (step, number(step)))
            .collect();
        Self {
            label: label.to_owned(),
            ticks,
            low,
            high,
            log: true,
        }
    }

    /// A linear axis from zero, or from the tick below the least of `values`.
    pub(super) fn linear(label: &str, values: impl Iterator<Item = f64>, from_zero: bool) -> Self {
        let (least, greatest) =
            range(values.filter(|value| value.is_finite())).unwrap_or((0.0, 1.0));
        let least = if from_zero { least.min(0.0) } else { least };
        let span = if greatest > least {
            greatest - least
        } else {
            greatest.abs().max(1.0)
        };
        let rough = span / LINEAR_TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|mantissa| mantissa * power);
        let step = step
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(power);
        let (first, last) = (
            (least / step + 1e-9).floor(),
            ((least + span) / step - 1e-9).ceil(),
        );
        let digits = (-step.log10().floor()).max(0.0) as usize;
        let ticks = (first as i64..=last as i64).map(|count| {
            let value = count as f64 * step;
            (value, format!("{value:.digits$}"))
        });
        Self {
            label: label.to_owned(),
            ticks: ticks.collect(),
            low: first * step,
            high: last * step,
            log: false,
        }
    }

    /// An axis from zero that ends where `greatest` is.
    pub(super) fn up_to(label: &str, greatest: f64) -> Self {
        let mut axis = Self::linear(label, [0.0, greatest].into_iter(), true);
        if greatest > 0.0 {
            axis.high = greatest;
            axis.ticks.retain(|(value, _)| *value <= greatest * 1.0001);
        }
        axis
    }

    /// The axis of a percentile spectrum: `1 / (1 - q)`, logarithmic, labelled with percentiles.
    pub(super) fn percentiles(label: &str, greatest: f64) -> Self {
        let nines = (1..9).map(|nines| {
            let decimals = usize::try_from(nines - 2).unwrap_or(0);
            let percentile = 100.0 - 100.0 * 10_f64.powi(-nines);
            (10_f64.powi(nines), format!("{percentile:.decimals$} %"))
        });
        let ticks = [(1.0, "0 %".to_owned()), (2.0, "50 %".to_owned())]
            .into_iter()
            .chain(nines);
        let high = greatest.max(10.0) * 1.1;
        Self {
            label: label.to_owned(),
            ticks: ticks.filter(|(value, _)| *value <= high).collect(),
            low: 1.0,
            high,
            log: true,
        }
    }

    /// Place of a value between the axis' ends, `0.0..=1.0`; what lies outside is put at the end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let place = if self.log {
            (value.max(f64::MIN_POSITIVE).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        };
        place.clamp(0.0, 1.0)
    }
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, value| {
        let (least, greatest) = range.unwrap_or((value, value));
        Some((f64::min(least, value), f64::max(greatest, value)))
    })
}

/// A number with no more digits than it needs, and its thousands apart.
pub(super) fn number(value: f64) -> String {
    if value < 1000.0 || value.fract() != 0.0 {
        let text = format!("{value:.7}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let places = digits.char_indices().map(|(place, digit)| {
        let gap = place > 0 && (digits.len() - place).is_multiple_of(3);
        if gap {
            format!(",{digit}")
        } else {
            digit.to_string()
        }
    });
    places.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        let labels = |axis: &Axis| {
            axis.ticks
                .iter()
                .map(|tick| tick.1.clone())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            labels(&Axis::log("ms", [3.0, 60.0].into_iter())),
            "2 5 10 20 50 100"
        );
        assert_eq!(
            labels(&Axis::log("ms", [0.3, 6000.0].into_iter())),
            "1 10 100 1,000 10,000"
        );
        assert_eq!(
            labels(&Axis::linear("%", [0.1, 50.0].into_iter(), true)),
            "0 10 20 30 40 50"
        );
        assert_eq!(
            labels(&Axis::linear("%", [96.2, 97.0].into_iter(), false)),
            "96.2 96.4 96.6 96.8 97.0"
        );
        assert_eq!(
            labels(&Axis::percentiles("%", 20_000.0)),
            "0 % 50 % 90 % 99 % 99.9 % 99.99 %"
        );
    }

    proptest! {
        #[test]
        fn every_value_has_a_place(
            values in proptest::collection::vec(-1e9_f64..1e9, 0..5),
            value in any::<f64>(),
        ) {
            for axis in [
                Axis::log("", values.iter().copied()),
                Axis::linear("", values.iter().copied(), true),
                Axis::linear("", values.iter().copied(), false),
            ] {
                prop_assert!(axis.ticks.len() < 30);
                for value in values
                    .iter()
                    .copied()
                    .chain([value])
                    .filter(|value| value.is_finite())
                {
                    prop_assert!(
                        (0.0..=1.0).contains(&axis.place(value)),
                        "{:?} {}",
                        axis,
                        value
                    );
                }
            }
        }
    }
}
