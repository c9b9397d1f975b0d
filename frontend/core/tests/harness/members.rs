//! Instances that join and leave, and what must hold of those that left.

use parapet_frontend_core::{InstanceId, PoolId};

use super::Harness;

impl Harness {
    /// A new instance, down until it is set up.
    pub fn join(&mut self, pool: PoolId) -> Option<InstanceId> {
        let instance = self.engine.instance_joined(pool)?;
        let is_new = !self.leaving.contains(&instance) && !self.gone.contains(&instance);
        assert!(is_new, "an index given twice");
        self.down.insert(instance);
        Some(instance)
    }

    /// Tells an instance to leave; one that is not there is ignored by the engine, too.
    pub fn leave(&mut self, instance: InstanceId) {
        let pool = self.engine.core().pool(instance.pool);
        if pool.is_some_and(|pool| pool.contains(instance)) {
            self.leaving.insert(instance);
        }
        self.act(|engine, now, actions| engine.instance_left(now, instance, actions));
    }

    pub(super) fn check_left(&mut self, instance: InstanceId) {
        // It was told to leave, and has not left already.
        assert!(self.leaving.remove(&instance), "{instance:?}");
        let works = self.sent.iter().any(|sent| sent.instance == instance);
        assert!(!works, "{instance:?} left with work in hand");
        self.gone.insert(instance);
    }
}
