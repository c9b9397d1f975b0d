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
            None if from_backup => Ok(vec![backup_model(sent.input.values[0])]),
            None => Ok(predictions(&sent.input.values)),
            Some(kind) => Err(Failure::new(kind, "injected")),
        };
        let number = sent.input.number.filter(|_| !from_backup);
        let others = number.is_some_and(|number| self.is_in_flight(number));
        if let Some(client) = number.and_then(|number| self.clients.get_mut(number)) {
            client.exact_seen |= outcome.is_ok();
            client.lost = outcome.is_err() && !others;
        }
        if failure.is_some_and(FailureKind::suspects_instance) {
            self.down.insert(sent.instance);
        }
        self.act(|engine, now, actions| engine.finished(now, sent.job, outcome, actions));
    }

    fn complete_first(&mut self, meant: impl Fn(&Sent) -> bool, failure: Option<FailureKind>) {
        let position = self.sent.iter().position(meant);
        self.complete(position.expect("such a request is in flight"), failure);
    }

    /// Ends the oldest request of this client.
    pub fn complete_client(&mut self, number: usize, failure: Option<FailureKind>) {
        let at_model = |sent: &Sent| sent.instance.pool == PoolId::DEPLOYED;
        let meant = |sent: &Sent| sent.input.number == Some(number) && at_model(sent);
        self.complete_first(meant, failure);
    }

    /// Ends the oldest parity request.
    pub fn complete_parity(&mut self, failure: Option<FailureKind>) {
        self.complete_first(|sent| sent.input.number.is_none(), failure);
    }

    /// Ends the request of this client at the deployed model's instance `index`.
    pub fn complete_at(&mut self, number: usize, index: u32, failure: Option<FailureKind>) {
        let at = instance(0, index);
        let meant = |sent: &Sent| sent.input.number == Some(number) && sent.instance == at;
        self.complete_first(meant, failure);
    }

    /// Ends the oldest request to the backup model.
    pub fn complete_backup(&mut self, failure: Option<FailureKind>) {
        let backup = self.backup;
        self.complete_first(|sent| Some(sent.instance.pool) == backup, failure);
    }

    pub fn encode(&mut self, index: usize, works: bool) {
        if self.encodes.is_empty() {
            return;
        }
        let index = index % self.encodes.len();
        let PendingEncode { group, row, inputs } = self.encodes.swap_remove(index);
        let coders = self.coders.as_ref();
        let (encoder, _) = coders.expect("only the coded strategies encode");
        let queries: Vec<&[f32]> = inputs.iter().map(|input| &input.values[..]).collect();
        let mut values = vec![0.0; encoder.code().stacked()];
        encoder
            .encode(usize::from(row.0), &queries, &mut values)
            .expect("a group that can be encoded");
        let parity = works.then(|| {
            Arc::new(Input { number: None, key: inputs[0].key, values, group: Some(group) })
        });
        self.act(|engine, now, actions| engine.encoded(now, group, row, parity, actions));
    }

    pub fn decode(&mut self, index: usize, works: bool) {
        if self.decodes.is_empty() {
            return;
        }
        let index = index % self.decodes.len();
        let pending = self.decodes.swap_remove(index);
        fn views(outputs: &[Option<Arc<Output>>]) -> Vec<Option<&[f32]>> {
            let outputs = outputs.iter().map(Option::as_deref);
            outputs.map(|output| output.map(Vec::as_slice)).collect()
        }
        let (predictions, parity) = (views(&pending.predictions), views(&pending.parity));
        let mut out = vec![0.0];
        let coders = self.coders.as_ref();
        let (_, decoder) = coders.expect("only the coded strategies decode");
        decoder
            .decode(&predictions, &parity, usize::from(pending.slot.0), &mut out)
            .expect("the engine asked for a reconstruction that cannot be decoded");
        let output = works.then_some(out);
        let query = pending.query;
        self.act(|engine, now, actions| engine.reconstructed(now, query, output, actions));
    }

    pub fn abandon(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else {
            return;
        };
        if client.fate != Fate::Waiting {
            return;
        }
        client.fate = Fate::Abandoned;
        let id = client.id;
        self.act(|engine, now, actions| engine.abandoned(now, id, actions));
        self.check_cg8(number);
    }

    pub fn set_up(&mut self, instance: InstanceId, up: bool) {
        if up {
            self.down.remove(&instance);
        } else {
            self.down.insert(instance);
        }
        self.act(|engine, now, actions| engine.instance_up(now, instance, up, actions));
    }

    /// Moves time on, stopping at every timer on the way.
    pub fn advance(&mut self, by: Duration) {
        let until = self.now + by;
        while let Some(next) = self.engine.next_timer().filter(|&next| next <= until) {
            self.now = self.now.max(next);
            self.act(Engine::tick);
            let next_after = self.engine.next_timer();
            let pending = next_after.is_some_and(|after| after <= self.now);
            assert!(!pending, "a due timer was left pending");
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
