//! Events in any order, for property tests.

use std::ops::Range;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
pub enum Op {
    /// Class, kind of query, leave to approximate, time to the deadline.
    Arrive(u8, u64, bool, Duration),
    Complete(usize, Option<FailureKind>),
    Encode(usize, bool),
    Decode(usize, bool),
    Compute,
    /// The client that came so many before the last one.
    Abandon(usize),
    SetUp(InstanceId, bool),
    Join(PoolId),
    Leave(InstanceId),
    Advance(Duration),
    Switch(bool, Option<HoldBackOverride>),
}

impl Harness {
    pub fn run(&mut self, ops: Vec<Op>) {
        for op in ops {
            match op {
                Op::Arrive(class, key, allow_approximate, deadline) => {
                    let class = ClassId(class % self.strategies.len() as u8);
                    let _ = self.arrive_in(class, key, allow_approximate, deadline);
                }
                Op::Complete(index, failure) => self.complete(index, failure),
                Op::Encode(index, works) => self.encode(index, works),
                Op::Decode(index, works) => self.decode(index, works),
                Op::Compute => self.compute(),
                Op::Abandon(back) => {
                    if let Some(number) = self.clients.len().checked_sub(back + 1) {
                        self.abandon(number);
                    }
                }
                Op::SetUp(instance, up) => self.set_up(instance, up),
                Op::Join(pool) => drop(self.join(pool)),
                Op::Leave(instance) => self.leave(instance),
                Op::Advance(by) => self.advance(by),
                Op::Switch(redundancy, hold_back) => self.switch(redundancy, hold_back),
            }
        }
    }
}

pub fn arrive(classes: Range<u8>, keys: Range<u64>) -> impl Strategy<Value = Op> {
    let deadline = (2u64..120).prop_map(Duration::from_millis);
    (classes, keys, prop::bool::weighted(0.8), deadline)
        .prop_map(|(class, key, approximate, by)| Op::Arrive(class, key, approximate, by))
}

/// Instances of any pool, with indices that may not be there.
pub fn instances(indices: Range<u32>) -> impl Strategy<Value = InstanceId> {
    (0u8..3, indices).prop_map(|(pool, index)| instance(pool, index))
}

pub fn set_up(indices: Range<u32>) -> impl Strategy<Value = Op> {
    (instances(indices), prop::bool::weighted(0.75)).prop_map(|(at, up)| Op::SetUp(at, up))
}

pub fn abandon() -> impl Strategy<Value = Op> {
    (0usize..6).prop_map(Op::Abandon)
}

pub fn advance() -> impl Strategy<Value = Op> {
    prop_oneof![0u64..2_000, 0u64..30_000]
        .prop_map(|micros| Op::Advance(Duration::from_micros(micros)))
}
