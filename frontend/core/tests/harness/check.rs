//! Checks of the invariants at every action, as far as a driver sees them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{Answer, ClassId, GroupId, QueryId, Row};

use super::*;

impl Harness {
    /// Checks that a request may go to `instance`.
    pub(super) fn check_send(&mut self, instance: InstanceId, input: &Input) {
        assert!(
            !self.down.contains(&instance),
            "sent to {instance:?}, which is down"
        );
        let here = !self.leaving.contains(&instance) && !self.gone.contains(&instance);
        assert!(here, "sent to {instance:?}, which has left");
        let slots = self.config.pools[usize::from(instance.pool.0)].slots as usize;
        let load = self
            .sent
            .iter()
            .filter(|sent| sent.instance == instance)
            .count();
        assert!(load < slots, "{instance:?} has no free slot");
        let to_model = instance.pool == PoolId::DEPLOYED;
        if let (Some(group), true) = (input.group, to_model) {
            let coded = self.coded.as_ref();
            let unmodified = coded.is_some_and(|coded| coded.first_parity == PoolId::DEPLOYED);
            assert!(
                unmodified,
                "a parity query for parity models was sent to the deployed one"
            );
            let shares = |sent: &Sent| {
                let number = sent.input.number;
                let is_member = number.is_some_and(|number| self.groups[&group].contains(&number));
                sent.instance == instance && (is_member || sent.input.group == Some(group))
            };
            assert!(
                !self.sent.iter().any(shares),
                "a parity query where a member is in flight"
            );
        } else {
            assert_eq!(
                input.number.is_some(),
                to_model || Some(instance.pool) == self.backup
            );
        }
        if let Some(number) = input.number.filter(|_| to_model) {
            let here = self.places(number).contains(&instance.index);
            assert!(
                !here,
                "a copy of query {number} where it is in flight already"
            );
            // It is not in the table yet when this is its first send.
            if let Some(client) = self.clients.get_mut(number) {
                client.lost = false;
            }
        }
    }

    /// CG-7, for each class: what was issued is within its strategy's budget.
    pub(super) fn check_budget(&mut self) {
        let stats = self.engine.stats();
        let mut issued = 0;
        for (strategy, class) in self.strategies.iter().zip((0u8..).map(ClassId)) {
            let redundancy_outcomes = self.engine.core().redundancy_outcomes(class);
            let (share, burst) = budget(strategy);
            let allowed = share * stats.accepted as f64 + burst + 1e-9;
            assert!(
                redundancy_outcomes.issued as f64 <= allowed,
                "CG-7: {} issued by {}",
                redundancy_outcomes.issued,
                strategy.name()
            );
            issued += redundancy_outcomes.issued;
        }
        assert_eq!(issued, stats.redundant_issued);
    }

    pub(super) fn check_encode(&mut self, group: GroupId, row: Row, inputs: Vec<Arc<Input>>) {
        let coded = self
            .coded
            .as_ref()
            .expect("only the coded strategies encode");
        let (k, share, burst) = (coded.k, coded.redundant_share, coded.redundant_burst);
        assert_eq!(inputs.len(), k);
        assert!(
            inputs.iter().all(|input| input.key == inputs[0].key),
            "CG-6: kinds of query mixed"
        );
        let numbers: Vec<usize> = inputs.iter().filter_map(|input| input.number).collect();
        assert_eq!(
            numbers.iter().collect::<BTreeSet<_>>().len(),
            k,
            "a query twice in one group"
        );
        let is_plain =
            |number: &usize| self.clients.get(*number).is_some_and(|client| client.plain);
        assert!(
            !numbers.iter().any(is_plain),
            "a query coded although redundancy was switched off"
        );
        self.groups.insert(group, numbers);
        self.encoded_total += 1;
        let accepted = self.clients.len() as f64 + 1.0;
        let allowed = share * accepted + burst;
        assert!(
            self.encoded_total as f64 <= allowed,
            "CG-7: more parity queries than the budget allows"
        );
        self.encodes.push(PendingEncode { group, row, inputs });
    }

    pub(super) fn check_answer(&mut self, query: QueryId, answer: &Answer<Output>) {
        let now = self.now;
        let client = self
            .clients
            .iter_mut()
            .find(|client| client.id == query)
            .expect("CG-1: answer for nobody");
        assert_eq!(client.fate, Fate::Waiting, "CG-1: a second answer");
        assert!(now <= client.deadline, "CG-1: answered after the deadline");
        client.answered_at = Some(now);
        let own = matches!(answer, Answer::Exact(_) | Answer::Failed(_));
        assert!(
            own || !client.plain,
            "{answer:?} although redundancy was switched off"
        );
        client.fate = match answer {
            Answer::Exact(output) => {
                assert_eq!(**output, model(client.value));
                Fate::Exact
            }
            Answer::Hedged(output) => {
                assert_eq!(**output, model(client.value));
                Fate::Hedged
            }
            Answer::Backup(output) => {
                assert!(
                    client.allow_approximate,
                    "approximated against the client's word"
                );
                assert!(
                    !client.exact_seen,
                    "CG-2: a backup's prediction although the model's is in hand"
                );
                let last_call = now + Duration::from_millis(1) >= client.deadline;
                let late = now.since(client.arrived) >= client.hold_back;
                assert!(
                    late || client.lost || last_call,
                    "CG-4: answered by the backup before it was late"
                );
                assert_eq!(**output, backup_model(client.value));
                Fate::Backup
            }
            Answer::Reconstructed(output) => {
                assert!(
                    client.allow_approximate,
                    "reconstructed against the client's word"
                );
                assert!(
                    !client.exact_seen,
                    "CG-2: a reconstruction although the prediction is in hand"
                );
                let last_call = now + Duration::from_millis(1) >= client.deadline;
                let late = now.since(client.arrived) >= client.hold_back;
                assert!(
                    late || client.lost || last_call,
                    "CG-4: reconstructed before it was late"
                );
                let error = (**output - model(client.value)).abs();
                assert!(
                    error < 1e-2,
                    "CG-6: {} instead of {}",
                    output,
                    model(client.value)
                );
                Fate::Reconstructed
            }
            Answer::Failed(failure) => Fate::Failed(failure.kind),
        };
    }

    /// CG-8: the work of an abandoned query is withdrawn unless a waiting member of its group
    /// can use it.
    pub(super) fn check_cg8(&self, number: usize) {
        let needed = self.groups.values().any(|members| {
            members.contains(&number)
                && members
                    .iter()
                    .any(|&other| other != number && self.clients[other].fate == Fate::Waiting)
        });
        // A group whose parity queries are not due is not known outside the engine yet.
        let defers = self
            .strategies
            .iter()
            .filter_map(coded_part)
            .any(|coded| coded.defer_parity);
        let waits = |client: &Client| client.fate == Fate::Waiting && client.allow_approximate;
        let may_be_needed = defers && self.clients.iter().any(waits);
        assert!(
            needed || may_be_needed || !self.is_in_flight(number),
            "CG-8: an abandoned query keeps its work"
        );
    }
}
