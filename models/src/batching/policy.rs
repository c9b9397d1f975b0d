//! When a batch is closed.

use std::time::{Duration, Instant};

/// Bounds of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPolicy {
    /// Rows of a batch at most. No request has more: they are refused on arrival.
    pub max_rows: usize,
    /// Longest wait of the oldest request for others to come.
    pub max_delay: Duration,
}

/// Decision about the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Idle,
    /// Wait for more until then.
    WaitUntil(Instant),
    /// Run so many requests from the front.
    Run(usize),
}

impl BatchPolicy {
    /// Decides on the requests that wait, first come first: each one's rows, and when it came.
    ///
    /// A batch is the longest run from the front that fits into `max_rows`. It is closed when it is
    /// full or the next request does not fit (waiting longer could not improve it), or when the
    /// oldest has waited for `max_delay`.
    pub(crate) fn decide(
        &self,
        waiting: impl IntoIterator<Item = (usize, Instant)>,
        now: Instant,
    ) -> Decision {
        let mut oldest = None;
        let (mut count, mut rows) = (0, 0);
        for (more, arrived) in waiting {
            if count > 0 && rows + more > self.max_rows {
                return Decision::Run(count);
            }
            oldest.get_or_insert(arrived);
            count += 1;
            rows += more;
            if rows >= self.max_rows {
                return Decision::Run(count);
            }
        }
        match oldest {
            None => Decision::Idle,
            Some(arrived) if now >= arrived + self.max_delay => Decision::Run(count),
            Some(arrived) => Decision::WaitUntil(arrived + self.max_delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_single_request_waits_for_nothing_without_delay() {
        let now = Instant::now();
        let policy = BatchPolicy {
            max_rows: 8,
            max_delay: Duration::ZERO,
        };
        assert_eq!(policy.decide([(1, now)], now), Decision::Run(1));
        assert_eq!(policy.decide([], now), Decision::Idle);
    }

    proptest! {
        #[test]
        fn batches_are_full_overdue_or_still_waited_for(
            max_rows in 1_usize..10,
            delay in 0_u32..20,
            waiting in prop::collection::vec((1_usize..10, 0_u32..30), 0..20),
        ) {
            let start = Instant::now();
            let now = start + 30 * MS;
            let policy = BatchPolicy {
                max_rows,
                max_delay: delay * MS,
            };
            let mut ages: Vec<u32> = waiting.iter().map(|&(_, age)| age).collect();
            ages.sort_unstable();
            let rows: Vec<usize> = waiting.iter().map(|&(rows, _)| rows.min(max_rows)).collect();
            let queue = rows.iter().zip(&ages);
            let queue: Vec<_> = queue.map(|(&rows, &age)| (rows, start + age * MS)).collect();
            let total: usize = rows.iter().sum();
            match policy.decide(queue.clone(), now) {
                Decision::Idle => prop_assert!(queue.is_empty()),
                Decision::WaitUntil(until) => {
                    prop_assert!(until > now && until == queue[0].1 + policy.max_delay);
                    prop_assert!(total < max_rows);
                }
                Decision::Run(count) => {
                    let taken: usize = rows[..count].iter().sum();
                    prop_assert!(count > 0 && taken <= max_rows);
                    let cannot_grow = taken == max_rows
                        || rows.get(count).is_some_and(|next| taken + next > max_rows);
                    let overdue = count == rows.len() && now >= queue[0].1 + policy.max_delay;
                    prop_assert!(cannot_grow || overdue);
                }
            }
        }
    }
}
