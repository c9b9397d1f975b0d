//! CG-1 to CG-8 over random event orders, with instances that fail, join and leave, and switches
//! that are thrown: the harness checks each at every action.

mod harness;

use std::time::Duration;

use harness::{
    Harness, backup_config, coded_config, coded_hedged_config, core_config, hedge_config,
    replicate_config, unmodified_config,
};
use parapet_frontend_core::{
    ClassId, CodedConfig, FailureKind, HoldBackOverride, HoldBackPolicy, InstanceId, PoolId,
    StrategyConfig,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Arrive {
        class: u8,
        key: u64,
        allow_approximate: bool,
        deadline_ms: u64,
    },
    Complete {
        index: usize,
    },
    Fail {
        index: usize,
        kind: FailureKind,
    },
    Encode {
        index: usize,
        works: bool,
    },
    Decode {
        index: usize,
        works: bool,
    },
    Abandon {
        back: usize,
    },
    SetUp {
        pool: u8,
        index: u32,
        up: bool,
    },
    Join {
        pool: u8,
    },
    Leave {
        pool: u8,
        index: u32,
    },
    Advance {
        micros: u64,
    },
    Switch {
        redundancy: bool,
        hold_back: Option<HoldBackOverride>,
    },
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
    let hold_back = prop_oneof![
        Just(None),
        (0u64..50).prop_map(|millis| Some(HoldBackOverride::Fixed(Duration::from_millis(millis)))),
        (0.5..0.999).prop_map(|quantile| Some(HoldBackOverride::Percentile(quantile))),
    ];
    prop_oneof![
        6 => (0u8..3, 0u64..2, prop::bool::weighted(0.8), 2u64..120)
            .prop_map(|(class, key, allow_approximate, deadline_ms)| {
            Op::Arrive { class, key, allow_approximate, deadline_ms }
        }),
        6 => index.clone().prop_map(|index| Op::Complete { index }),
        1 => (index.clone(), kind).prop_map(|(index, kind)| Op::Fail { index, kind }),
        4 => (index.clone(), prop::bool::weighted(0.95))
            .prop_map(|(index, works)| Op::Encode { index, works }),
        4 => (index.clone(), prop::bool::weighted(0.9))
            .prop_map(|(index, works)| Op::Decode { index, works }),
        1 => (0usize..6).prop_map(|back| Op::Abandon { back }),
        2 => (0u8..3, 0u32..6, prop::bool::weighted(0.75))
            .prop_map(|(pool, index, up)| Op::SetUp { pool, index, up }),
        1 => prop_oneof![
            (0u8..3).prop_map(|pool| Op::Join { pool }),
            (0u8..3, 0u32..6).prop_map(|(pool, index)| Op::Leave { pool, index }),
        ],
        1 => (prop::bool::weighted(0.6), hold_back)
            .prop_map(|(redundancy, hold_back)| Op::Switch { redundancy, hold_back }),
        5 => prop_oneof![0u64..2_000, 0u64..30_000].prop_map(|micros| Op::Advance { micros }),
    ]
}

fn run(mut harness: Harness, ops: Vec<Op>) {
    for op in ops {
        match op {
            Op::Arrive {
                class,
                key,
                allow_approximate,
                deadline_ms,
            } => {
                let class = ClassId(class % harness.classes());
                let deadline = Duration::from_millis(deadline_ms);
                let _ = harness.arrive_in(class, key, allow_approximate, deadline);
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
            Op::SetUp { pool, index, up } => harness.set_up(
                InstanceId {
                    pool: PoolId(pool),
                    index,
                },
                up,
            ),
            Op::Join { pool } => drop(harness.join(PoolId(pool))),
            Op::Leave { pool, index } => harness.leave(InstanceId {
                pool: PoolId(pool),
                index,
            }),
            Op::Switch {
                redundancy,
                hold_back,
            } => harness.switch(redundancy, hold_back),
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
    fn coded_k3_r1_without_parity_models(ops in ops()) {
        run(Harness::coded(4, 1, unmodified_config(3, 1)), ops);
    }

    #[test]
    fn coded_k4_r2_without_parity_models(ops in ops()) {
        run(Harness::coded(6, 2, unmodified_config(4, 2)), ops);
    }

    #[test]
    fn coded_hedged_k2_r1_without_parity_models(ops in ops()) {
        let hedged = CodedConfig {
            hedge: coded_hedged_config(2, 1).hedge,
            ..unmodified_config(2, 1)
        };
        run(Harness::of(3, 1, StrategyConfig::CodedHedged(hedged)), ops);
    }

    #[test]
    fn without_hold_back_as_in_parm(ops in ops()) {
        // The harness demands HOLD_BACK of every reconstruction, so a longer one must hold, too.
        let mut config = coded_config(2, 1);
        config.hold_back = HoldBackPolicy::Learned {
            percentile: 0.9,
            min: harness::HOLD_BACK,
            max: Duration::from_millis(60),
            max_over_median: HoldBackPolicy::MAX_OVER_MEDIAN,
        };
        run(Harness::coded(4, 2, config), ops);
    }

    #[test]
    fn no_redundancy(ops in ops()) {
        run(Harness::plain(4, 2), ops);
    }

    #[test]
    fn two_copies(ops in ops()) {
        run(
            Harness::of(4, 2, StrategyConfig::Replicate(replicate_config(2))),
            ops,
        );
    }

    #[test]
    fn three_copies_of_one_slot_each(ops in ops()) {
        run(
            Harness::of(4, 1, StrategyConfig::Replicate(replicate_config(3))),
            ops,
        );
    }

    #[test]
    fn hedge(ops in ops()) {
        run(
            Harness::of(4, 1, StrategyConfig::Hedge(hedge_config())),
            ops,
        );
    }

    #[test]
    fn hedge_twice_at_once(ops in ops()) {
        let mut config = hedge_config();
        config.delay = HoldBackPolicy::Fixed(Duration::ZERO);
        config.max_copies = 2;
        config.share = 1.0;
        run(Harness::of(3, 2, StrategyConfig::Hedge(config)), ops);
    }

    #[test]
    fn approximate_backup_asked_at_arrival(ops in ops()) {
        run(
            Harness::of(4, 1, StrategyConfig::ApproximateBackup(backup_config(true))),
            ops,
        );
    }

    #[test]
    fn approximate_backup_asked_when_late(ops in ops()) {
        let mut config = backup_config(false);
        config.share = Some(0.3);
        run(
            Harness::of(4, 2, StrategyConfig::ApproximateBackup(config)),
            ops,
        );
    }

    #[test]
    fn coded_hedged_k2_r1(ops in ops()) {
        run(
            Harness::of(4, 2, StrategyConfig::CodedHedged(coded_hedged_config(2, 1))),
            ops,
        );
    }

    #[test]
    fn coded_hedged_k3_r2(ops in ops()) {
        run(
            Harness::of(4, 1, StrategyConfig::CodedHedged(coded_hedged_config(3, 2))),
            ops,
        );
    }

    #[test]
    fn classes_with_strategies_of_their_own(ops in ops()) {
        let mut backup = backup_config(true);
        backup.pool = PoolId(2);
        let strategies = vec![
            StrategyConfig::CodedHedged(coded_hedged_config(2, 1)),
            StrategyConfig::Replicate(replicate_config(2)),
            StrategyConfig::ApproximateBackup(backup),
        ];
        run(Harness::build(core_config(4, 2, 2), strategies), ops);
    }
}
