//! CG-1 to CG-8 over random event orders, with instances that fail, join and leave, and switches
//! that are thrown: the harness checks each at every action.

mod harness;

use std::time::Duration;

use harness::ops::{Op, abandon, advance, arrive, instances, set_up};
use harness::*;
use parapet_frontend_core::StrategyConfig::{ApproximateBackup, CodedHedged, Hedge, Replicate};
use parapet_frontend_core::{CodedConfig, FailureKind, HoldBackOverride, HoldBackPolicy, PoolId};
use proptest::prelude::*;

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
        6 => arrive(0..3, 0..2),
        6 => index.clone().prop_map(|index| Op::Complete(index, None)),
        1 => (index.clone(), kind).prop_map(|(index, kind)| Op::Complete(index, Some(kind))),
        4 => (index.clone(), prop::bool::weighted(0.95))
            .prop_map(|(index, works)| Op::Encode(index, works)),
        4 => (index, prop::bool::weighted(0.9)).prop_map(|(index, works)| Op::Decode(index, works)),
        1 => abandon(),
        2 => set_up(0..6),
        1 => prop_oneof![
            (0u8..3).prop_map(|pool| Op::Join(PoolId(pool))),
            instances(0..6).prop_map(Op::Leave),
        ],
        1 => (prop::bool::weighted(0.6), hold_back)
            .prop_map(|(redundancy, hold_back)| Op::Switch(redundancy, hold_back)),
        5 => advance(),
    ]
}

fn run(mut harness: Harness, ops: Vec<Op>) {
    harness.run(ops);
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
    fn slots_k2_r1(ops in ops()) {
        run(Harness::coded(4, 2, slots_config(2, 1)), ops);
    }

    #[test]
    fn slots_k4_r2(ops in ops()) {
        run(Harness::coded(4, 1, slots_config(4, 2)), ops);
    }

    #[test]
    fn slots_k3_r1_when_late(ops in ops()) {
        run(Harness::coded(4, 2, when_late_config(3, 1)), ops);
    }

    #[test]
    fn slots_k2_r2_when_late_and_hedged(ops in ops()) {
        let hedged = CodedConfig {
            hedge: coded_hedged_config(2, 2).hedge,
            ..when_late_config(2, 2)
        };
        run(Harness::of(3, 1, CodedHedged(hedged)), ops);
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
        run(Harness::of(3, 1, CodedHedged(hedged)), ops);
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
        run(Harness::of(4, 2, Replicate(replicate_config(2))), ops);
    }

    #[test]
    fn three_copies_of_one_slot_each(ops in ops()) {
        run(Harness::of(4, 1, Replicate(replicate_config(3))), ops);
    }

    #[test]
    fn hedge(ops in ops()) {
        run(Harness::of(4, 1, Hedge(hedge_config())), ops);
    }

    #[test]
    fn hedge_twice_at_once(ops in ops()) {
        let mut config = hedge_config();
        config.delay = HoldBackPolicy::Fixed(Duration::ZERO);
        config.max_copies = 2;
        config.share = 1.0;
        run(Harness::of(3, 2, Hedge(config)), ops);
    }

    #[test]
    fn approximate_backup_asked_at_arrival(ops in ops()) {
        run(Harness::of(4, 1, ApproximateBackup(backup_config(true))), ops);
    }

    #[test]
    fn approximate_backup_asked_when_late(ops in ops()) {
        let mut config = backup_config(false);
        config.share = Some(0.3);
        run(Harness::of(4, 2, ApproximateBackup(config)), ops);
    }

    #[test]
    fn coded_hedged_k2_r1(ops in ops()) {
        run(Harness::of(4, 2, CodedHedged(coded_hedged_config(2, 1))), ops);
    }

    #[test]
    fn coded_hedged_k3_r2(ops in ops()) {
        run(Harness::of(4, 1, CodedHedged(coded_hedged_config(3, 2))), ops);
    }

    #[test]
    fn classes_with_strategies_of_their_own(ops in ops()) {
        let mut backup = backup_config(true);
        backup.pool = PoolId(2);
        let strategies = vec![
            CodedHedged(coded_hedged_config(2, 1)),
            Replicate(replicate_config(2)),
            ApproximateBackup(backup),
        ];
        run(Harness::build(core_config(4, 2, 2), strategies), ops);
    }
}
