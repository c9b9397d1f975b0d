//! Audits of groups in which nothing straggles.

use super::*;

#[test]
fn groups_in_which_nothing_straggles_are_audited() {
    let mut config = coded_config(2, 1);
    config.audit_every = 1;
    let mut harness = Harness::coded(4, 1, config);
    let [a, b] = harness.pair();
    harness.complete_client(a, None);
    harness.complete_client(b, None);
    harness.compute();
    harness.complete_parity(None);
    assert!(matches!(&harness.comparisons[..], [Comparison::Audit { predictions, parity, .. }]
            if predictions.len() == 2 && parity[0].is_some()));
}

#[test]
fn audits_look_at_every_slot_about_equally_often() {
    for (k, audit_every) in [(2, 2), (2, 10), (4, 4), (4, 8)] {
        let mut config = coded_config(k, 1);
        config.audit_every = audit_every;
        let mut harness = coded_with(config);
        const AUDITS: usize = 200;
        while harness.comparisons.len() < AUDITS {
            let members: Vec<usize> = (0..k).map(|_| harness.query()).collect();
            harness.compute();
            for member in members {
                harness.complete_client(member, None);
            }
            harness.complete_parity(None);
        }
        let mut audits = vec![0; k];
        for comparison in &harness.comparisons {
            if let Comparison::Audit { slot, .. } = comparison {
                audits[usize::from(slot.0)] += 1;
            }
        }
        let fair = AUDITS / k;
        let is_fair = |&count: &usize| count > fair / 2 && count < fair * 3 / 2;
        assert!(audits.iter().all(is_fair), "k = {k}, one in {audit_every}: {audits:?}");
    }
}
