//! Views of a model for operators while it serves, and the switches that they set.

use std::time::Duration;

use parapet_frontend_core::{
    BudgetView, ClassId, GroupView, HoldBackOverride, InstanceView, LatencyView,
    RedundancyOutcomes, Stats, Switches,
};

use super::Driver;
use crate::upstream::Transport;

/// A model as it stands.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Since the driver's start.
    pub(crate) at: Duration,
    pub(crate) stats: Stats,
    pub(crate) switches: Switches,
    pub(crate) latency: LatencyView,
    pub(crate) redundancy_outcomes: Vec<RedundancyOutcomes>,
    pub(crate) budgets: Vec<Option<BudgetView>>,
    /// With their names, and why the last health check failed, if it did.
    pub(crate) instances: Vec<(InstanceView, String, Option<String>)>,
    /// In memory now.
    pub(crate) groups: Vec<GroupView>,
    /// The last ones that reconstructed something.
    pub(crate) decoded: Vec<GroupView>,
}

impl<T: Transport> Driver<T> {
    /// The model now, with so many instances and groups in memory at most.
    pub(crate) fn snapshot(&self, most_instances: usize, most_groups: usize) -> Snapshot {
        let classes: Vec<ClassId> = (0u8..).map(ClassId).take(self.meters.classes()).collect();
        let mut locked = self.locked.lock();
        let (now, engine) = (self.now(), &mut locked.engine);
        let instances = engine.instances(now, most_instances);
        let snapshot = Snapshot {
            at: Duration::from_nanos(now.as_nanos()),
            stats: engine.stats(),
            switches: engine.switches(),
            latency: engine.latency(now),
            redundancy_outcomes: classes
                .iter()
                .map(|class| engine.core().redundancy_outcomes(*class))
                .collect(),
            budgets: classes.iter().map(|class| engine.budget(*class)).collect(),
            instances: Vec::new(),
            groups: engine.groups(most_groups),
            decoded: engine.decoded_groups(),
        };
        drop(locked);
        let members = self.members.lock();
        let named = |view: InstanceView| {
            let member = members.get(&view.id);
            let name = member.map_or_else(|| "left".to_owned(), |member| member.name.clone());
            let unready =
                member.and_then(|member| Some(member.unready.lock().as_ref()?.to_string()));
            (view, name, unready)
        };
        Snapshot {
            instances: instances.into_iter().map(named).collect(),
            ..snapshot
        }
    }

    /// Returns true if queries get redundancy from now on.
    pub(crate) fn set_redundancy(&self, on: bool) {
        self.locked.lock().engine.set_redundancy(on);
    }

    /// Sets the hold-back from now on; `None` restores the configured one.
    pub(crate) fn set_hold_back(&self, hold_back: Option<HoldBackOverride>) {
        self.locked.lock().engine.set_hold_back(hold_back);
    }

    pub(crate) fn switches(&self) -> Switches {
        self.locked.lock().engine.switches()
    }

    /// Puts all switches back to what is configured. Whether any stood otherwise.
    pub(crate) fn reset_switches(&self) -> bool {
        let mut locked = self.locked.lock();
        let changed = locked.engine.switches() != Switches::default();
        locked.engine.set_redundancy(Switches::default().redundancy);
        locked.engine.set_hold_back(Switches::default().hold_back);
        changed
    }
}
