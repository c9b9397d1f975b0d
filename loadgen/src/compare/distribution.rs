//! The points of the plots: distributions and time series, bounded in number.

use std::collections::BTreeMap;

use super::pool::Pool;
use super::{Bin, Block, Comparison, Series, SpectrumPoint};
use crate::report::charged_us;

const POINTS_PER_DECADE: i32 = 10;
/// Most bins that a comparison's whole time is cut into.
const MAX_BINS: f64 = 300.0;
const LEAST_BIN_S: f64 = 1.0;

/// The distribution at `1 - 10^(-i / 10)`, up to the largest sample.
pub(super) fn spectrum(pool: &Pool) -> Vec<SpectrumPoint> {
    let last = (pool.len() as f64).log10() * f64::from(POINTS_PER_DECADE);
    let quantiles = (0..).map(|step| 1.0 - 10_f64.powf(-f64::from(step) / f64::from(POINTS_PER_DECADE)));
    let quantiles = quantiles.take(if last.is_finite() { last.ceil() as usize } else { 0 });
    let point = |quantile| pool.quantile_ms(quantile).map(|ms| SpectrumPoint { quantile, ms });
    quantiles.chain([1.0]).filter_map(point).collect()
}

/// Seconds in each bin of a comparison's time series.
pub(super) fn bin_s(comparison: &Comparison) -> f64 {
    let blocks = comparison.strategies.iter().flat_map(|strategy| &strategy.blocks);
    let end = blocks.map(|block| block.started_s + block.recording.sending_ended.as_secs_f64());
    (end.fold(0.0, f64::max) / MAX_BINS).ceil().max(LEAST_BIN_S)
}

/// Latency by the time at which requests were due.
pub(super) fn series<'a>(blocks: impl Iterator<Item = &'a Block>, timeout_us: u64, bin_s: f64) -> Series {
    let mut bins: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for block in blocks {
        for record in &block.recording.records {
            if let Some(charged) = charged_us(record, timeout_us, &block.recording) {
                let due_s = block.started_s + record.planned_us as f64 / 1e6;
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
