//! The points of the plots: distributions and time series, bounded in number.

use std::collections::BTreeMap;

use super::pool::Pool;
use super::{Bin, Comparison, Series, SpectrumPoint};
use crate::report::charged_us;
use crate::run::{Record, Recording};

const POINTS_PER_DECADE: i32 = 10;
/// Most bins that a comparison's whole time is cut into.
const MAX_BINS: f64 = 300.0;
const LEAST_BIN_S: f64 = 1.0;

/// The distribution at `1 - 10^(-i / 10)`, up to the largest sample.
pub(super) fn spectrum(pool: &Pool) -> Vec<SpectrumPoint> {
    let last = (pool.len() as f64).log10() * f64::from(POINTS_PER_DECADE);
    let quantiles =
        (0..).map(|step| 1.0 - 10_f64.powf(-f64::from(step) / f64::from(POINTS_PER_DECADE)));
    let quantiles = quantiles.take(if last.is_finite() {
        last.ceil() as usize
    } else {
        0
    });
    let point = |quantile| {
        pool.quantile_ms(quantile)
            .map(|ms| SpectrumPoint { quantile, ms })
    };
    quantiles.chain([1.0]).filter_map(point).collect()
}

/// Seconds in each bin of a comparison's time series.
pub(super) fn bin_s(comparison: &Comparison) -> f64 {
    let blocks = comparison
        .strategies
        .iter()
        .flat_map(|strategy| &strategy.blocks);
    let end = blocks.map(|block| block.started_s + block.recording.sending_ended.as_secs_f64());
    bin_of(end.fold(0.0, f64::max))
}

fn bin_of(end_s: f64) -> f64 {
    (end_s / MAX_BINS).ceil().max(LEAST_BIN_S)
}

/// Latency by the time at which requests were due.
pub(super) fn series<'a>(
    blocks: impl Iterator<Item = (f64, &'a Recording)>,
    timeout_us: u64,
    bin_s: f64,
) -> Series {
    let mut bins: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (started_s, recording) in blocks {
        for record in &recording.records {
            if let Some(charged) = charged_us(record, timeout_us, recording) {
                let due_s = started_s + record.planned_us as f64 / 1e6;
                bins.entry((due_s / bin_s) as u64)
                    .or_default()
                    .push(charged);
            }
        }
    }
    let bin = |(number, times): (u64, Vec<u64>)| {
        let pool = Pool::new([times.as_slice()]);
        Some(Bin {
            at_s: number as f64 * bin_s,
            count: times.len(),
            p50: pool.quantile_ms(0.5)?,
            p99: pool.quantile_ms(0.99)?,
            max: pool.quantile_ms(1.0)?,
        })
    };
    Series {
        bin_s,
        bins: bins.into_iter().filter_map(bin).collect(),
    }
}

/// Data for the plots of a single run.
pub(crate) struct RecordingPlots {
    /// Number and distribution of all requests that were due.
    pub(crate) all: (u64, Vec<SpectrumPoint>),
    /// Number and distribution of answers.
    pub(crate) answered: (u64, Vec<SpectrumPoint>),
    pub(crate) series: Series,
}

/// The plots of a run's recording.
pub(crate) fn recording_plots(recording: &Recording, timeout_us: u64) -> RecordingPlots {
    let distribution = |times: Vec<u64>| {
        let pool = Pool::new([times.as_slice()]);
        (pool.len() as u64, spectrum(&pool))
    };
    let records = &recording.records;
    let all = records
        .iter()
        .filter_map(|record| charged_us(record, timeout_us, recording));
    let answers = records.iter().filter(|record| record.answer().is_some());
    RecordingPlots {
        all: distribution(all.collect()),
        answered: distribution(answers.filter_map(Record::latency_us).collect()),
        series: series(
            [(0.0, recording)].into_iter(),
            timeout_us,
            bin_of(recording.sending_ended.as_secs_f64()),
        ),
    }
}
