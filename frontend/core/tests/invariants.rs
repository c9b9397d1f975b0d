//! CG-1 to CG-8 over random event orders: the harness checks each at every action.

mod harness;

use std::time::Duration;

use harness::{Harness, coded_config};
use parapet_frontend_core::{FailureKind, HoldBackPolicy, InstanceId, PoolId};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Arrive { key: u64, allow_approximate: bool, deadline_ms: u64 },
    Complete { index: usize },
    Fail { index: usize, kind: FailureKind },
    Encode { index: usize, works: bool },
    Decode { index: usize, works: bool },
    Abandon { back: usize },
    SetUp { pool: u8, index: u32, up: bool },
    Advance { micros: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        Just(FailureKind::Unreachable),
        Just(FailureKind::ConnectionLost),
        Just(FailureKind::InstanceBusy),
        Just(FailureKind::InstanceError),
        Just(FailureKind::Refused),
        Just(FailureKind::InvalidOutput),
    ];
    let index = 0usize..8;
    prop_oneof![
        6 => (0u64..2, prop::bool::weighted(0.8), 2u64..120).prop_map(|(key, allow_approximate, deadline_ms)| {
            Op::Arrive { key, allow_approximate, deadline_ms }
        }),
        6 => index.clone().prop_map(|index| Op::Complete { index }),
        1 => (index.clone(), kind).prop_map(|(index, kind)| Op::Fail { index, kind }),
        4 => (index.clone(), prop::bool::weighted(0.95)).prop_map(|(index, works)| Op::Encode { index, works }),
        4 => (index.clone(), prop::bool::weighted(0.9)).prop_map(|(index, works)| Op::Decode { index, works }),
        1 => (0usize..6).prop_map(|back| Op::Abandon { back }),
        2 => (0u8..2, 0u32..4, prop::bool::weighted(0.75)).prop_map(|(pool, index, up)| Op::SetUp { pool, index, up }),
        5 => prop_oneof![0u64..2_000, 0u64..30_000].prop_map(|micros| Op::Advance { micros }),
    ]
}

fn run(mut harness: Harness, ops: Vec<Op>) {
    for op in ops {
        match op {
            Op::Arrive { key, allow_approximate, deadline_ms } => {
                let _ = harness.arrive(key, allow_approximate, Duration::from_millis(deadline_ms));
            }
            Op::Complete { index } => harness.complete(index, None),
            Op::Fail { index, kind } => harness.complete(index, Some(kind)),
            Op::Encode { index, works } => harness.encode(index, works),
            Op::Decode { index, works } => harness.decode(index, works),
            Op::Abandon { back } => {
                if let Some(number) = harness.clients.len().checked_sub(back + 1) {
                    harness.abandon(number);
                }
            }
            Op::SetUp { pool, index, up } => harness.set_up(InstanceId { pool: PoolId(pool), index }, up),
            Op::Advance { micros } => harness.advance(Duration::from_micros(micros)),
        }
    }
    harness.finish();
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn coded_k2_r1(ops in ops()) {
        run(Harness::coded(4, 2, coded_config(2, 1)), ops);
    }

    #[test]
    fn coded_k3_r2(ops in ops()) {
        run(Harness::coded(4, 1, coded_config(3, 2)), ops);
    }

    #[test]
    fn coded_k4_r1_with_a_tight_budget(ops in ops()) {
        let mut config = coded_config(4, 1);
        config.redundant_share = 0.2;
        config.redundant_burst = 1.0;
        config.max_keys = 1;
        run(Harness::coded(3, 2, config), ops);
    }

    #[test]
    fn without_hold_back_as_in_parm(ops in ops()) {
        // The harness demands HOLD_BACK of every reconstruction, so a longer one must hold, too.
        let mut config = coded_config(2, 1);
        config.hold_back = HoldBackPolicy::Learned {
            percentile: 0.9,
            min: harness::HOLD_BACK,
            max: Duration::from_millis(60),
        };
        run(Harness::coded(4, 2, config), ops);
    }

    #[test]
    fn no_redundancy(ops in ops()) {
        run(Harness::plain(4, 2), ops);
    }
}
