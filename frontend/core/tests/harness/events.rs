//! Events that a test causes: ends of requests, and of encoding and decoding.

use super::*;

impl Harness {
    /// Ends the request at `index` (modulo what is in flight) as its model would, or
    /// with a failure.
    pub fn complete(&mut self, index: usize, failure: Option<FailureKind>) {
        if self.sent.is_empty() {
            return;
        }
        let sent = self.sent.remove(index % self.sent.len());
        let from_backup = self.backup == Some(sent.instance.pool);
        let outcome = match failure {
            None if from_backup => Ok(backup_model(sent.input.value)),
            None => Ok(model(sent.input.value)),
            Some(kind) => Err(Failure::new(kind, "injected")),
        };
        let others = sent
            .input
            .number
            .is_some_and(|number| self.is_in_flight(number));
        if let Some(client) = sent
            .input
            .number
            .and_then(|number| self.clients.get_mut(number))
            && !from_backup
        {
            client.exact_seen |= outcome.is_ok();
            client.lost = outcome.is_err() && !others;
        }
        if failure.is_some_and(FailureKind::suspects_instance) {
            self.down.insert(sent.instance);
        }
        let mut actions = Vec::new();
        self.engine
            .finished(self.now, sent.job, outcome, &mut actions);
        self.apply(actions);
    }

    /// Ends the oldest request of this client, if there is one in flight.
    pub fn complete_client(&mut self, number: usize, failure: Option<FailureKind>) {
        let position = self.sent.iter().position(|sent| {
            sent.input.number == Some(number) && sent.instance.pool == PoolId::DEPLOYED
        });
        self.complete(
            position.expect("a request of this client is in flight"),
            failure,
        );
    }

    /// Ends the oldest parity request.
    pub fn complete_parity(&mut self, failure: Option<FailureKind>) {
        let position = self
            .sent
            .iter()
            .position(|sent| sent.input.number.is_none());
        self.complete(position.expect("a parity request is in flight"), failure);
    }

    /// Ends the request of this client at the deployed model's instance `index`.
    pub fn complete_at(&mut self, number: usize, index: u32, failure: Option<FailureKind>) {
        let instance = InstanceId {
            pool: PoolId::DEPLOYED,
            index,
        };
        let position = self
            .sent
            .iter()
            .position(|sent| sent.input.number == Some(number) && sent.instance == instance);
        self.complete(position.expect("this client has a request there"), failure);
    }

    /// Ends the oldest request to the backup model.
    pub fn complete_backup(&mut self, failure: Option<FailureKind>) {
        let position = self
            .sent
            .iter()
            .position(|sent| Some(sent.instance.pool) == self.backup);
        self.complete(
            position.expect("a request to the backup model is in flight"),
            failure,
        );
    }

    pub fn encode(&mut self, index: usize, works: bool) {
        if self.encodes.is_empty() {
            return;
        }
        let index = index % self.encodes.len();
        let PendingEncode { group, row, inputs } = self.encodes.swap_remove(index);
        let code = self
            .code
            .as_ref()
            .expect("only the coded strategies encode");
        let terms = inputs.iter().enumerate();
        let value = terms
            .map(|(slot, input)| code.coefficient(usize::from(row.0), slot) * input.value)
            .sum();
        let parity = works.then(|| {
            Arc::new(Input {
                number: None,
                key: inputs[0].key,
                value,
                group: Some(group),
            })
        });
        let mut actions = Vec::new();
        self.engine
            .encoded(self.now, group, row, parity, &mut actions);
        self.apply(actions);
    }

    pub fn decode(&mut self, index: usize, works: bool) {
        if self.decodes.is_empty() {
            return;
        }
        let index = index % self.decodes.len();
        let PendingDecode {
            query,
            slot,
            predictions,
            parity,
        } = self.decodes.swap_remove(index);
        let mut out = [0.0];
        let views = |outputs: &[Option<Arc<f32>>]| -> Vec<Option<[f32; 1]>> {
            outputs
                .iter()
                .map(|output| output.as_ref().map(|value| [**value]))
                .collect()
        };
        let (predictions, parity) = (views(&predictions), views(&parity));
        let slices = |outputs: &'_ [Option<[f32; 1]>]| -> Vec<Option<Vec<f32>>> {
            outputs
                .iter()
                .map(|output| output.map(|value| value.to_vec()))
                .collect()
        };
        let (predictions, parity) = (slices(&predictions), slices(&parity));
        let predictions: Vec<Option<&[f32]>> = predictions.iter().map(Option::as_deref).collect();
        let parity: Vec<Option<&[f32]>> = parity.iter().map(Option::as_deref).collect();
        let decoder = self
            .decoder
            .as_ref()
            .expect("only the coded strategies decode");
        decoder
            .decode(&predictions, &parity, usize::from(slot.0), &mut out)
            .expect("the engine asked for a reconstruction that cannot be decoded");
        let mut actions = Vec::new();
        self.engine
            .reconstructed(self.now, query, works.then_some(out[0]), &mut actions);
        self.apply(actions);
    }

    pub fn abandon(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else {
            return;
        };
        if client.fate != Fate::Waiting {
            return;
        }
        client.fate = Fate::Abandoned;
        let mut actions = Vec::new();
        self.engine.abandoned(self.now, client.id, &mut actions);
        self.apply(actions);
        self.check_cg8(number);
    }

    pub fn set_up(&mut self, instance: InstanceId, up: bool) {
        if up {
            self.down.remove(&instance);
        } else {
            self.down.insert(instance);
        }
        let mut actions = Vec::new();
        self.engine
            .instance_up(self.now, instance, up, &mut actions);
        self.apply(actions);
    }

    /// Moves time on, stopping at every timer on the way.
    pub fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        while let Some(next) = self.engine.next_timer().filter(|&next| next <= until) {
            self.now = self.now.max(next);
            let mut actions = Vec::new();
            self.engine.tick(self.now, &mut actions);
            self.apply(actions);
            let next_after = self.engine.next_timer();
            assert!(
                next_after.is_none_or(|after| after > self.now),
                "a due timer was left pending"
            );
        }
        self.now = until;
    }

    /// Does all pure work that is pending, in order.
    pub fn compute(&mut self) {
        while !self.encodes.is_empty() || !self.decodes.is_empty() {
            self.encode(0, true);
            self.decode(0, true);
        }
    }
}
