//! A look into a server that runs, for metrics and tests.

use std::fmt;

use parapet_parameter_server::Server;
use tokio::sync::{mpsc, oneshot};

use crate::node::Counters;

/// Requests that wait for their turn.
const WAITING: usize = 16;

pub(super) type Look = Box<dyn FnOnce(&Server, Counters) + Send>;

/// Reaches a server while it runs. Clones reach the same one.
#[derive(Clone)]
pub struct ServerHandle(mpsc::Sender<Look>);

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerHandle")
    }
}

impl ServerHandle {
    pub(super) fn new() -> (Self, mpsc::Receiver<Look>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// Returns what `look` makes of the state machine and the counters, between two messages; the
    /// server does nothing else meanwhile. `None` if it does not run any more.
    pub async fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Server, Counters) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, result) = oneshot::channel();
        let look: Look = Box::new(move |server, counters| {
            let _ = answer.send(look(server, counters));
        });
        self.0.send(look).await.ok()?;
        result.await.ok()
    }
}
