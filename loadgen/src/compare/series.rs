//! The points of the plots: distributions and time series, bounded in number.

use std::collections::BTreeMap;

use super::pool::Pool;
use super::{Bin, Comparison, Series, SpectrumPoint};
use crate::report::charged_us;
use crate::run::Recording;

const POINTS_PER_DECADE: f64 = 10.0;
const MAX_BINS: f64 = 300.0;
const LEAST_BIN_S: f64 = 1.0;

/// The distribution at `1 - 10^(-i / 10)`, up to the largest sample.
pub(super) fn spectrum(pool: &Pool) -> Vec<SpectrumPoint> {
    // Negative infinity, and so no steps, without samples.
    let steps = ((pool.len() as f64).log10() * POINTS_PER_DECADE).ceil() as u32;
    let quantile = |step: u32| 1.0 - 10_f64.powf(-f64::from(step) / POINTS_PER_DECADE);
    let point = |quantile| Some(SpectrumPoint { quantile, ms: pool.quantile_ms(quantile)? });
    (0..steps).map(quantile).chain([1.0]).filter_map(point).collect()
}

pub(crate) fn spectrum_of(times: Vec<u64>) -> (u64, Vec<SpectrumPoint>) {
    let pool = Pool::new([times.as_slice()]);
    (pool.len() as u64, spectrum(&pool))
}

pub(super) fn bin_s(comparison: &Comparison) -> f64 {
    let blocks = comparison.strategies.iter().flat_map(|strategy| &strategy.blocks);
    let end = blocks.map(|block| block.started_s + block.recording.sending_ended.as_secs_f64());
    bin_of(end.fold(0.0, f64::max))
}

fn bin_of(end_s: f64) -> f64 {
    (end_s / MAX_BINS).ceil().max(LEAST_BIN_S)
}

pub(crate) fn recording_series(recording: &Recording, timeout_us: u64) -> Series {
    let bin_s = bin_of(recording.sending_ended.as_secs_f64());
    series([(0.0, recording)].into_iter(), timeout_us, bin_s)
}

/// Latency by the time at which requests were due; recordings come with their starts.
pub(super) fn series<'a>(
    recordings: impl Iterator<Item = (f64, &'a Recording)>,
    timeout_us: u64,
    bin_s: f64,
) -> Series {
    let mut bins: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (started_s, recording) in recordings {
        for record in &recording.records {
            if let Some(charged) = charged_us(record, timeout_us, recording) {
                let due_s = started_s + record.planned_us as f64 / 1e6;
                bins.entry((due_s / bin_s) as u64).or_default().push(charged);
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
    Series { bin_s, bins: bins.into_iter().filter_map(bin).collect() }
}
