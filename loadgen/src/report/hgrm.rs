//! The percentile distribution in HdrHistogram's text form (`.hgrm`), in milliseconds, for its
//! plotters.

use std::io::{self, Write};

use hdrhistogram::Histogram;

const STEPS_PER_HALF: u32 = 5;

/// Writes a histogram of microseconds.
pub fn write_hgrm(mut out: impl Write, histogram: &Histogram<u64>) -> io::Result<()> {
    writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    let mut total = 0;
    for step in histogram.iter_quantiles(STEPS_PER_HALF) {
        total += step.count_since_last_iteration();
        let (value, quantile) = (
            step.value_iterated_to() as f64 / 1e3,
            step.quantile_iterated_to(),
        );
        if quantile < 1.0 {
            writeln!(
                out,
                "{value:12.3} {quantile:2.12} {total:10} {:14.2}",
                1.0 / (1.0 - quantile)
            )?;
        } else {
            writeln!(out, "{value:12.3} {quantile:2.12} {total:10}")?;
        }
    }
    let (mean, deviation) = (histogram.mean() / 1e3, histogram.stdev() / 1e3);
    writeln!(
        out,
        "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]"
    )?;
    let (max, count) = (histogram.max() as f64 / 1e3, histogram.len());
    writeln!(out, "#[Max     = {max:12.3}, Total count    = {count:12}]")?;
    writeln!(
        out,
        "#[Buckets = {:12}, SubBuckets     = {:12}]",
        histogram.buckets(),
        2048
    )?;
    out.flush()
}
