//! Queue of events, in order of time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use parapet_frontend_core::{FailureKind, GroupId, JobId, QueryId, Row};

#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    /// A request reaches an instance.
    Delivered { instance: u32, job: JobId },
    /// An instance ends its batch, unless it was restarted meanwhile.
    BatchEnded { instance: u32, life: u32 },
    /// The frontend has an instance's response.
    Responded {
        job: JobId,
        failure: Option<FailureKind>,
    },
    /// A parity query is computed.
    Encoded { group: GroupId, row: Row },
    /// A reconstruction is computed.
    Decoded { query: QueryId },
    /// The frontend checks an instance, unless another check was set since.
    Checked { instance: u32, round: u32 },
    /// An instance's process ends.
    Crashed { instance: u32 },
    /// An instance's process is there again.
    Restarted { instance: u32 },
    /// An instance's process ends by an [`Outage`](super::Outage).
    Killed { instance: u32 },
    /// That is over.
    Revived { instance: u32 },
}

#[derive(Debug)]
struct Entry {
    at: u64,
    /// Among events of one time, first come first served: the order is the same in every run.
    number: u64,
    event: Event,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed: the heap's greatest is the earliest.
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

/// Events by time, in nanoseconds since the start.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Entry>,
    count: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.heap.push(Entry {
            at,
            number: self.count,
            event,
        });
    }

    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at)
    }

    pub(super) fn pop(&mut self) -> Option<Event> {
        self.heap.pop().map(|entry| entry.event)
    }
}
