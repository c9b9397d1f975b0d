//! Checks of the invariants at every action, as far as a driver sees them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parapet_frontend_core::{Answer, ClassId, GroupId, QueryId, Row, SendParity};

use super::*;

impl Client {
    /// Checks that it may be answered by another than its own prediction now.
    fn check_approximation(&self, now: Time) {
        assert!(self.allow_approximate, "approximated against its word");
        assert!(!self.exact_seen, "CG-2: its prediction is in hand");
        let last_call = now + Duration::from_millis(1) >= self.deadline;
        let late = now.since(self.arrived) >= self.hold_back;
        assert!(late || self.lost || last_call, "CG-4: not late yet");
    }
}

impl Harness {
    /// Checks that a request may go to `instance`.
    pub(super) fn check_send(&mut self, instance: InstanceId, input: &Input) {
        let up = !self.down.contains(&instance);
        assert!(up, "sent to {instance:?}, which is down");
        let here = !self.leaving.contains(&instance) && !self.gone.contains(&instance);
        assert!(here, "sent to {instance:?}, which has left");
        let mut slots = self.config.pools[usize::from(instance.pool.0)].slots;
        if instance.pool == PoolId::DEPLOYED {
            slots = slots.max(self.config.max_slots);
        }
        let there = self.sent.iter().filter(|sent| sent.instance == instance);
        assert!(there.count() < slots as usize, "{instance:?} has no free slot");
        let to_model = instance.pool == PoolId::DEPLOYED;
        if let (Some(group), true) = (input.group, to_model) {
            let coded = self.coded.as_ref();
            let unmodified = coded.is_some_and(|coded| coded.first_parity == PoolId::DEPLOYED);
            assert!(unmodified, "a parity query for parity models");
            let shares = |sent: &Sent| {
                let number = sent.input.number;
                let is_member = number.is_some_and(|number| self.groups[&group].contains(&number));
                sent.instance == instance && (is_member || sent.input.group == Some(group))
            };
            let apart = !self.sent.iter().any(shares);
            assert!(apart, "a parity query where a member is in flight");
        } else {
            let to_backup = Some(instance.pool) == self.backup;
            assert_eq!(input.number.is_some(), to_model || to_backup);
        }
        if let Some(number) = input.number.filter(|_| to_model) {
            let here = self.places(number).contains(&instance.index);
            assert!(!here, "query {number} is in flight there already");
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
            let by_class = self.engine.core().redundancy_outcomes(class).issued;
            let (share, burst) = budget(strategy);
            let allowed = share * stats.accepted as f64 + burst + 1e-9;
            let name = strategy.name();
            assert!(by_class as f64 <= allowed, "CG-7: {by_class} issued by {name}");
            issued += by_class;
        }
        assert_eq!(issued, stats.redundant.issued);
    }

    pub(super) fn check_encode(&mut self, group: GroupId, row: Row, inputs: Vec<Arc<Input>>) {
        let coded = self.coded.as_ref();
        let coded = coded.expect("only the coded strategies encode");
        let (k, share, burst) = (coded.k, coded.redundant_share, coded.redundant_burst);
        assert_eq!(inputs.len(), k);
        let alike = inputs.iter().all(|input| input.key == inputs[0].key);
        assert!(alike, "CG-6: kinds of query mixed");
        let numbers: Vec<usize> = inputs.iter().filter_map(|input| input.number).collect();
        let different = numbers.iter().collect::<BTreeSet<_>>();
        // CG-5: with slots a group is filled up with its first one's input.
        let repeats = match coded.decoding.needs_siblings() {
            true => 0,
            false => numbers.iter().skip(1).filter(|&n| *n == numbers[0]).count(),
        };
        assert_eq!(different.len() + repeats, k, "a query twice in one group");
        let mut clients = numbers.iter().filter_map(|&number| self.clients.get(number));
        let coded = clients.all(|client| !client.plain);
        assert!(coded, "although redundancy was switched off");
        self.groups.insert(group, numbers);
        self.encoded_total += 1;
        let accepted = self.clients.len() as f64 + 1.0;
        let within = self.encoded_total as f64 <= share * accepted + burst;
        assert!(within, "CG-7: more parity queries than the budget allows");
        self.encodes.push(PendingEncode { group, row, inputs });
    }

    pub(super) fn check_answer(&mut self, query: QueryId, answer: &Answer<Output>) {
        let now = self.now;
        let mut clients = self.clients.iter_mut();
        let client = clients.find(|client| client.id == query);
        let client = client.expect("CG-1: answer to no query");
        assert_eq!(client.fate, Fate::Waiting, "CG-1: a second answer");
        assert!(now <= client.deadline, "CG-1: answered after the deadline");
        client.answered_at = Some(now);
        let own = matches!(answer, Answer::Exact(_) | Answer::Failed(_));
        let redundant = !own && client.plain;
        assert!(!redundant, "{answer:?} although it was switched off");
        client.fate = match answer {
            Answer::Exact(output) => {
                assert_eq!(**output, [model(client.value)]);
                Fate::Exact
            }
            Answer::Hedged(output) => {
                assert_eq!(**output, [model(client.value)]);
                Fate::Hedged
            }
            Answer::Backup(output) => {
                client.check_approximation(now);
                assert_eq!(**output, [backup_model(client.value)]);
                Fate::Backup
            }
            Answer::Reconstructed(output) => {
                client.check_approximation(now);
                let expected = model(client.value);
                let error = (output[0] - expected).abs();
                assert!(error < 1e-2, "CG-6: {output:?} instead of {expected}");
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
        let mut coded = self.strategies.iter().filter_map(coded_part);
        let defers = coded.any(|coded| coded.send_parity != SendParity::AtOnce);
        let waits = |client: &Client| client.fate == Fate::Waiting && client.allow_approximate;
        let may_be_needed = defers && self.clients.iter().any(waits);
        let withdrawn = !self.is_in_flight(number);
        assert!(needed || may_be_needed || withdrawn, "CG-8: it keeps its work");
    }
}
