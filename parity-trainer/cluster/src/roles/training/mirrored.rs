//! Rows whose gradients are pushed as factors, and that are kept here by the servers' updates.

use std::ops::Range;

use parapet_parameter_server::{Clock, Factors, Key, KeyRange, Keys, Mirror, Rows, Values};

use super::{Job, ROW, Training};

/// Steps after which the optimiser's state is asked for again, if the servers did not tell it.
const AGAIN: u64 = 16;

#[derive(Debug)]
pub(super) struct Mirrored {
    pub(super) mirror: Mirror,
    /// Each is pushed and pulled by itself; ascending.
    ranges: Vec<KeyRange>,
    /// The step after which the state is asked for.
    due: u64,
}

impl Mirrored {
    pub(super) fn new(job: &Job) -> Self {
        let mirror = Mirror::new(job.spec().server().layout);
        Self { mirror, ranges: Vec::new(), due: 0 }
    }

    /// Takes note of ranges that are pushed as factors.
    fn add(&mut self, ranges: impl Iterator<Item = KeyRange>) {
        for range in ranges {
            if let Err(place) = self.ranges.binary_search(&range) {
                self.ranges.insert(place, range);
                self.mirror.clear();
            }
        }
    }

    /// Cuts `keys` around the ranges that go by themselves; the last piece first.
    pub(super) fn pieces(&self, keys: KeyRange) -> Vec<KeyRange> {
        let within = self.ranges.iter().filter(|range| keys.covers(**range));
        let mut borders = vec![keys.start, keys.end];
        borders.extend(within.flat_map(|range| [range.start, range.end]));
        borders.sort_unstable();
        borders.dedup();
        let pieces = borders.iter().zip(borders.iter().skip(1)).rev();
        pieces.map(|(&start, &end)| KeyRange::new(start, end)).collect()
    }
}

/// The rows that lie within these numbers.
pub(super) fn whole_rows(numbers: &Range<usize>) -> KeyRange {
    let start = numbers.start.div_ceil(ROW);
    KeyRange::new(start as u64, (numbers.end / ROW).max(start) as u64)
}

/// Cuts a gradient of all numbers from row `from` on into pieces, the last rows first; those of
/// factors have whole rows of theirs.
pub(super) fn cut(
    mirrored: &mut Mirrored,
    from: Key,
    gradient: Vec<f32>,
    factors: Vec<(usize, Factors)>,
) -> Vec<(KeyRange, Values)> {
    let mut inner = Vec::new();
    for (at, factors) in factors {
        let range = whole_rows(&(at..at + factors.len()));
        let numbers = range.start as usize * ROW - at..range.end as usize * ROW - at;
        inner.push((range, Values::Factors(factors).slice(numbers)));
    }
    inner.retain(|(range, _)| !range.is_empty());
    mirrored.add(inner.iter().map(|&(range, _)| range));
    let all = KeyRange::new(from, from + (gradient.len() / ROW) as u64);
    let gradient = Values::from(gradient);
    let pieces = mirrored.pieces(all).into_iter().map(|piece| {
        let factors = inner.iter().find(|(range, _)| *range == piece);
        let numbers = (piece.start - from) as usize * ROW..(piece.end - from) as usize * ROW;
        (piece, factors.map_or_else(|| gradient.slice(numbers), |(_, values)| values.clone()))
    });
    pieces.collect()
}

impl Training {
    /// Returns how many shards the rows of these numbers are spread over.
    pub fn shards(&self, numbers: Range<usize>) -> usize {
        let routing = &self.view.borrow().table.routing;
        routing.overlapping(self.job.array(), whole_rows(&numbers)).count()
    }

    /// Copies the rows with the optimiser's state, once the servers can tell it: those of the step
    /// that is done.
    pub(super) async fn mirror_rows(&mut self) {
        let is_due = self.mirrored.mirror.held() == Clock(0) && self.step >= self.mirrored.due;
        if !is_due || self.mirrored.ranges.is_empty() || !self.adds_up() {
            return;
        }
        self.mirrored.due = self.step + AGAIN;
        let state = match self.state_now().await {
            Ok(state) => state,
            Err(error) => return tracing::debug!(%error, "rows are pulled in place of updates"),
        };
        let clock = self.job.clock_of(self.step);
        let rows = self.mirrored.ranges.iter().map(|&range| {
            let numbers = range.start as usize * ROW..range.end as usize * ROW;
            let of = |all: &[f32]| all.get(numbers.clone()).unwrap_or_default().to_vec();
            let steps = vec![u32::try_from(clock.0).unwrap_or(u32::MAX); range.len() as usize];
            Rows {
                range,
                keys: Keys::All,
                values: of(self.weights()).into(),
                state: state.iter().map(|slot| of(slot)).collect::<Vec<_>>().concat().into(),
                steps: steps.into(),
            }
        });
        let rows = Vec::from_iter(rows);
        if !self.mirrored.mirror.set(clock, &rows) {
            tracing::warn!(
                "the optimiser's state does not fit: rows are pulled in place of updates"
            );
        }
    }
}
