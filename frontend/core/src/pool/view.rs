//! A pool's instances, to look at.

use std::time::Duration;

use super::{Instance, Pool};
use crate::{InstanceId, InstanceState, InstanceView};

impl Instance {
    fn state(&self) -> InstanceState {
        match self {
            Self { leaving: true, .. } => InstanceState::Leaving,
            Self { up: false, .. } => InstanceState::Down,
            Self { ejected: true, .. } => InstanceState::Ejected,
            _ => InstanceState::Up,
        }
    }
}

impl Pool {
    /// Moving average of the latency of an instance's requests.
    pub(crate) fn latency(&self, instance: InstanceId) -> Option<Duration> {
        self.instances.get(&instance.index)?.latency
    }

    pub(crate) fn took(&mut self, instance: InstanceId, took: Duration) {
        if let Some(state) = self.instances.get_mut(&instance.index) {
            state.latency = Some(state.latency.map_or(took, |before| (before * 7 + took) / 8));
        }
    }

    pub(crate) fn view(&self) -> impl Iterator<Item = InstanceView> {
        self.instances.iter().map(|(&index, instance)| InstanceView {
            id: self.id_of(index),
            state: instance.state(),
            in_flight: instance.in_flight,
            oldest: None,
            latency: instance.latency,
            failed: (0, 0),
            ejections: 0,
        })
    }
}
