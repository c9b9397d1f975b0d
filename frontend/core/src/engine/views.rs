//! Views of the engine for operators, and the switches that they set.

use super::Engine;
use crate::{
    BudgetView, ClassId, GroupView, HoldBackOverride, InstanceView, LatencyView, Stats, Switches,
    Time,
};

impl<I, O> Engine<I, O> {
    /// Returns true if queries get redundancy from now on ([`Switches::redundancy`]).
    pub fn set_redundancy(&mut self, on: bool) {
        self.switches.redundancy = on;
    }

    /// Sets the hold-back of all classes from now on; `None` restores the configured one. Queries
    /// that have arrived keep to what held then.
    pub fn set_hold_back(&mut self, hold_back: Option<HoldBackOverride>) {
        self.switches.hold_back = hold_back;
        for strategy in self.strategies.all_mut() {
            strategy.set_hold_back(hold_back);
        }
    }

    /// Returns the state of the switches.
    pub fn switches(&self) -> Switches {
        self.switches
    }

    /// Running totals and gauges.
    pub fn stats(&mut self) -> Stats {
        self.core.stats.queries_tracked = self.core.tracked() as u64;
        self.core.report_pool();
        let stats = &mut self.core.stats;
        (stats.groups_tracked, stats.kept_bytes, stats.hold_back_us) = (0, 0, 0);
        for strategy in self.strategies.all() {
            strategy.report(&mut self.core);
        }
        self.core.stats
    }

    /// At most `limit` of the coding groups in memory.
    pub fn groups(&self, limit: usize) -> Vec<GroupView> {
        let mut groups = Vec::new();
        for strategy in self.strategies.all() {
            strategy.view_groups(&mut groups, limit);
        }
        groups
    }

    /// The last groups in which a prediction was reconstructed, as they ended; the latest is last.
    pub fn decoded_groups(&self) -> Vec<GroupView> {
        self.core.decoded_groups().cloned().collect()
    }

    /// At most `limit` instances of all pools, in the order of their ids.
    pub fn instances(&self, now: Time, limit: usize) -> Vec<InstanceView> {
        self.core.view_instances(now, limit)
    }

    /// Latency in the last half minute.
    pub fn latency(&mut self, now: Time) -> LatencyView {
        self.core.latency.view(now)
    }

    /// Returns the redundancy budget of a class, and what is left; `None` without one.
    pub fn budget(&self, class: ClassId) -> Option<BudgetView> {
        self.strategies.of(class).view_budget()
    }
}
