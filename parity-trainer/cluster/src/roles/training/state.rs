//! The optimiser's state, as the servers have it.

use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::Route;
use tokio::time::{Instant, timeout};

use super::{ROW, Training};
use crate::registry::View;
use crate::roles::control::Control;
use crate::roles::{ClusterError, Result};

/// For how long a server that does not answer may be succeeded by another, before it is an error.
const SUCCESSION: Duration = Duration::from_secs(10);

impl Training {
    /// Returns the servers' optimiser state, slot by slot, each as long as the parameters.
    pub async fn optimiser_state(&mut self) -> Result<Vec<Vec<f32>>> {
        let until = Instant::now() + SUCCESSION;
        loop {
            self.view.mark_unchanged();
            match self.state_now().await {
                Ok(state) => return Ok(state),
                Err(error) if Instant::now() >= until => return Err(error),
                // Its successor has it, too.
                Err(error) => tracing::debug!(%error, "asked again"),
            }
            // With the next table, or a little later.
            let _ = timeout(SUCCESSION / 50, self.view.changed()).await;
        }
    }

    /// The same, from the servers as they are now.
    pub(super) async fn state_now(&self) -> Result<Vec<Vec<f32>>> {
        let slots = self.job.training.rule.optimiser.slots();
        let mut state = vec![vec![0.0; self.job.length]; slots];
        let view = Arc::clone(&self.view.borrow());
        self.read_all(&view, &mut state).await?;
        Ok(state)
    }

    async fn read_all(&self, view: &View, state: &mut [Vec<f32>]) -> Result<()> {
        for route in self.job.routes(view) {
            self.read(view, route, state).await?;
        }
        Ok(())
    }

    async fn read(&self, view: &View, route: &Route, state: &mut [Vec<f32>]) -> Result<()> {
        let node = route.head().unwrap_or_default();
        let server = view.servers.get(&node).cloned().unwrap_or_default();
        let control = Control::new(node, server.control);
        let (mut torn, mut held) = (None, 0);
        let read = control.state(route.array, route.range, |piece, numbers| {
            if piece.finished != self.job.clock_of(self.step) {
                torn = Some((self.job.steps_at(piece.finished), piece.range));
            }
            held += piece.range.len();
            let start = piece.range.start as usize * ROW;
            let slots = numbers.chunks_exact(piece.range.len().max(1) as usize * ROW);
            for (own, slot) in state.iter_mut().zip(slots) {
                let own = own.iter_mut().skip(start);
                own.zip(slot).for_each(|(own, number)| *own = *number);
            }
        });
        read.await?;
        let (found, keys) = match torn {
            // Each push is an update by itself, so that there are no whole steps.
            Some((found, keys)) if self.adds_up() => (self.job.training.done + found, keys),
            _ if held < route.range.len() => (0, route.range),
            _ => return Ok(()),
        };
        let step = self.steps_done();
        Err(ClusterError::Failed(format!(
            "the servers hold step {found} of keys {keys}, not step {step}: the leader of the \
                training has been replaced"
        )))
    }
}
