//! The latencies of several blocks, ready for quantiles under any weighting of the blocks.
//!
//! A bootstrap asks thousands of times for quantiles of the same samples, each time with every
//! block counted some number of times. The samples are sorted once; every [`CHUNK`] of them it is
//! noted how many came from each block. A quantile is then a binary search over these notes and a
//! walk over one chunk, whatever the number of samples.

const CHUNK: usize = 512;

/// Sorted samples of some blocks, in microseconds.
#[derive(Debug)]
pub(super) struct Pool {
    samples: Vec<(u64, u32)>,
    before: Vec<Vec<u64>>,
    sizes: Vec<u64>,
}

impl Pool {
    pub(super) fn new<'a>(blocks: impl IntoIterator<Item = &'a [u64]>) -> Self {
        let (mut samples, mut sizes) = (Vec::new(), Vec::new());
        for (block, values) in (0_u32..).zip(blocks) {
            samples.extend(values.iter().map(|value| (*value, block)));
            sizes.push(values.len() as u64);
        }
        samples.sort_unstable();
        let mut seen = vec![0; sizes.len()];
        let mut before = Vec::with_capacity(samples.len() / CHUNK + 1);
        for chunk in samples.chunks(CHUNK) {
            before.push(seen.clone());
            for (_, block) in chunk {
                seen[*block as usize] += 1;
            }
        }
        Self { samples, before, sizes }
    }

    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    /// The smallest value, ms, that at least a share `quantile` of the samples do not exceed.
    pub(super) fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let place = usize::try_from(rank(self.len() as u64, quantile) - 1).ok()?;
        let (value, _) = self.samples.get(place)?;
        Some(*value as f64 / 1e3)
    }

    pub(super) fn mean_ms(&self) -> f64 {
        let values = self.samples.iter().map(|(value, _)| *value as f64 / 1e3);
        values.sum::<f64>() / self.samples.len() as f64
    }

    /// As [`Self::quantile_ms`], had block `i` occurred `times[i]` times.
    pub(super) fn weighted_quantile_ms(&self, quantile: f64, times: &[u32]) -> Option<f64> {
        let weigh = |counts: &[u64]| -> u64 {
            counts.iter().zip(times).map(|(count, times)| count * u64::from(*times)).sum()
        };
        let wanted = rank(weigh(&self.sizes), quantile);
        let chunk = self.before.partition_point(|before| weigh(before) < wanted).checked_sub(1)?;
        let mut below = weigh(&self.before[chunk]);
        let found = self.samples[chunk * CHUNK..].iter().find(|(_, block)| {
            below += u64::from(times[*block as usize]);
            below >= wanted
        });
        found.map(|(value, _)| *value as f64 / 1e3)
    }
}

/// Rank, from 1, of the least of `count` samples that a share `quantile` of them does not exceed.
pub(super) fn rank(count: u64, quantile: f64) -> u64 {
    // 0.999 is no sum of powers of two: p99.9 of 1000 is the 999th, not that of plain rounding up.
    let exact = count as f64 * quantile;
    ((exact - exact * 1e-12).ceil() as u64).clamp(1, count.max(1))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranks_are_the_least_that_reach_the_share() {
        for (count, quantile, expected) in
            [(1000, 0.999, 999), (10, 0.5, 5), (11, 0.5, 6), (1, 0.999, 1), (100, 1.0, 100)]
        {
            assert_eq!(rank(count, quantile), expected, "{quantile} of {count}");
        }
    }

    proptest! {
        #[test]
        fn a_weighted_quantile_is_that_of_blocks_written_out(
            blocks in vec((vec(0_u64..50_000, 0..900), 0_u32..4), 1..6),
            quantile in 0.001_f64..=1.0,
        ) {
            let pool = Pool::new(blocks.iter().map(|(block, _)| block.as_slice()));
            let times: Vec<u32> = blocks.iter().map(|(_, times)| *times).collect();
            let written = blocks.iter();
            let written = written.flat_map(|(block, times)| vec![&block[..]; *times as usize]);
            let expected = Pool::new(written).quantile_ms(quantile);
            prop_assert_eq!(pool.weighted_quantile_ms(quantile, &times), expected);
        }
    }
}
