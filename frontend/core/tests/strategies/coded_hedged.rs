//! Coding with late copies, and strategies by class.

use super::*;

#[test]
fn coded_hedged_hedges_what_its_group_cannot_recover() {
    let mut harness = coded_hedged();
    let [a, b] = harness.pair();
    harness.compute();
    harness.advance(HOLD_BACK); // two stragglers, one parity query: nothing to decode
    assert_eq!((harness.places(a).len(), harness.places(b).len()), (2, 2));
    let copy_of_a = harness.places(a)[1];
    harness.complete_at(a, copy_of_a, None);
    harness.expect(a, Fate::Hedged);
    harness.complete_parity(None);
    harness.compute();
    // With the prediction that the hedge brought.
    harness.expect(b, Fate::Reconstructed);
}

#[test]
fn coded_hedged_spends_no_copy_on_what_its_group_recovers() {
    let mut harness = coded_hedged();
    let [frozen, other] = harness.pair();
    harness.compute();
    harness.complete_client(other, None);
    harness.complete_parity(None);
    harness.advance(HOLD_BACK);
    assert_eq!(harness.places(frozen).len(), 1);
    harness.compute();
    harness.expect(frozen, Fate::Reconstructed);
}

#[test]
fn coded_hedged_hedges_who_wants_no_approximation() {
    let mut harness = coded_hedged();
    let strict = harness.arrive(0, false, MINUTE).unwrap();
    harness.advance(HOLD_BACK);
    let places = harness.places(strict);
    assert_eq!(places.len(), 2);
    harness.complete_at(strict, places[1], None);
    harness.expect(strict, Fate::Hedged);
}

#[test]
fn each_class_has_its_own_strategy_and_its_own_books() {
    let strategies = vec![StrategyConfig::None, StrategyConfig::Hedge(hedge_config())];
    let mut harness = Harness::build(core_config(2, 2, 0), strategies);
    let plain = harness.arrive_in(ClassId::DEFAULT, 0, true, MINUTE).unwrap();
    let hedged = harness.arrive_in(ClassId(1), 0, true, MINUTE).unwrap();
    harness.advance(HOLD_BACK);
    assert_eq!(harness.places(plain).len(), 1);
    assert_eq!(harness.places(hedged).len(), 2);
    for (class, issued) in [(ClassId::DEFAULT, 0), (ClassId(1), 1)] {
        let outcomes = harness.engine.core().redundancy_outcomes(class);
        assert_eq!(outcomes.issued, issued);
    }
}

#[test]
fn an_overtaken_straggler_must_show_that_it_is_well() {
    let mut harness = hedge(2);
    let query = harness.query();
    harness.advance(60 * MS); // longer than suspect_after
    assert_eq!(harness.now, Time::from_nanos(60_000_001));
    harness.complete_at(query, 1, None);
    assert_eq!(harness.probes, [instance(0, 0)]);
}
