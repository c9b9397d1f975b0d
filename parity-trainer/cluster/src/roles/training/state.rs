//! The optimiser's state, as the servers have it.

use std::sync::Arc;
use std::time::Duration;

use crate::node::transport::Transport;
use crate::registry::View;
use parapet_parameter_server::{Clock, Route};
use tokio::time::{Instant, timeout};

use super::Training;
use crate::roles::ClusterError;
use crate::roles::control::Control;

/// For how long a server that does not answer may be succeeded by another, before it is an error.
const SUCCESSION: Duration = Duration::from_secs(10);

impl<T: Transport> Training<T> {
    /// Returns the servers' optimiser state, slot by slot, each as long as the parameters.
    ///
    /// # Errors
    /// If a server does not answer, or the state is not that of the last step: a process without
    /// executors cannot ask. Under models other than BSP it is what there is about then.
    pub async fn optimiser_state(&mut self) -> Result<Vec<Vec<f32>>, ClusterError> {
        let slots = self.job.training.rule.optimiser.slots();
        let mut state = vec![vec![0.0; self.job.length]; slots];
        let until = Instant::now() + SUCCESSION;
        loop {
            let view = Arc::clone(&self.view.borrow_and_update());
            match self.read_all(&view, &mut state).await {
                Ok(()) => return Ok(state),
                Err(error) if Instant::now() >= until => return Err(error),
                // Its successor has it, too.
                Err(error) => tracing::debug!(%error, "asked again"),
            }
            // With the next table, or a little later.
            let _ = timeout(SUCCESSION / 50, self.view.changed()).await;
        }
    }

    async fn read_all(&self, view: &View, state: &mut [Vec<f32>]) -> Result<(), ClusterError> {
        for route in view
            .table
            .routing
            .overlapping(self.job.array(), self.job.keys())
        {
            self.read(view, route, state).await?;
        }
        Ok(())
    }

    async fn read(
        &self,
        view: &View,
        route: &Route,
        state: &mut [Vec<f32>],
    ) -> Result<(), ClusterError> {
        let node = route.head().unwrap_or_default();
        let address = view
            .servers
            .get(&node)
            .map(|server| server.control.as_str())
            .unwrap_or_default();
        let control = Control::new(node, address)?;
        let wanted = Clock(self.job.training.set_up() + self.step);
        let (mut torn, mut held) = (None, 0);
        control
            .rows(route.array, route.range, |rows| {
                if rows.finished != wanted {
                    torn = Some((rows.finished, rows.range));
                }
                held += rows.range.len();
                let start = usize::try_from(rows.range.start)
                    .unwrap_or(usize::MAX)
                    .saturating_mul(super::ROW);
                let slots = rows.state.chunks_exact(rows.values.len().max(1));
                for (own, slot) in state.iter_mut().zip(slots) {
                    let end = own.len();
                    let own = own.get_mut(start.min(end)..).unwrap_or_default();
                    own.iter_mut()
                        .zip(slot)
                        .for_each(|(own, value)| *own = *value);
                }
            })
            .await?;
        let step = self.steps_done();
        match torn {
            // Each push is an update by itself, so that there are no whole steps.
            Some((found, keys)) if self.adds_up() => {
                let found =
                    (self.job.training.done + found.0).saturating_sub(self.job.training.set_up());
                Err(ClusterError::Torn { step, found, keys })
            }
            _ if held < route.range.len() => Err(ClusterError::Torn {
                step,
                found: 0,
                keys: route.range,
            }),
            _ => Ok(()),
        }
    }
}
