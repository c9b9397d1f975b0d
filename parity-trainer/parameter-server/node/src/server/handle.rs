//! A look into a server that runs, for metrics, checkpoints and tests; and what checkpoints ask of it.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use parapet_parameter_server::{ArrayConfig, ArrayId, Clock, Refusal, Server, Snapshot};
use tokio::sync::{mpsc, oneshot};

use crate::Counters;

/// Requests that wait for their turn.
const WAITING: usize = 16;

pub(super) type Look = Box<dyn FnOnce(&Server, Counters) + Send>;

/// What a server that runs is asked from within its process.
pub(super) enum Ask {
    Look(Look),
    Hold { arrays: BTreeSet<ArrayId>, after: Option<Clock>, lasts: Duration, answer: oneshot::Sender<Clock> },
    TakeOver { config: ArrayConfig, piece: Box<Snapshot>, answer: oneshot::Sender<Result<(), NotTaken>> },
}

/// Why a server did not take over a piece of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// It knows of no such restore: not yet, or not any longer.
    #[error("the server knows of no such restore")]
    NotRestoring,
    /// It holds the array already.
    #[error("the server holds the array already")]
    Held,
    /// It refuses the piece.
    #[error("the server refuses it ({0:?})")]
    Refused(Refusal),
    /// It does nothing about the piece: an earlier one is missing, or another copy of these keys is in the way.
    #[error("the server has another copy of these keys, or an earlier piece did not come")]
    Ignored,
}

/// Reaches a server while it runs. Clones reach the same one.
#[derive(Clone)]
pub struct ServerHandle(mpsc::Sender<Ask>);

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerHandle")
    }
}

impl ServerHandle {
    pub(super) fn new() -> (Self, mpsc::Receiver<Ask>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self(sender), receiver)
    }

    /// What `look` makes of the state machine and the counters, between two messages; the server does nothing else
    /// meanwhile. `None` if it does not run any more.
    pub async fn look<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Server, Counters) -> R + Send + 'static,
    ) -> Option<R> {
        let (answer, result) = oneshot::channel();
        let look: Look = Box::new(move |server, counters| {
            let _ = answer.send(look(server, counters));
        });
        self.ask(Ask::Look(look), result).await
    }

    /// Has it take no push to these arrays after this clock ([`Server::hold`]) until it is told otherwise (`None`), or `lasts`
    /// is over: whoever asks for a checkpoint may die. Gives the latest clock that it has taken of them. `None` if it does
    /// not run any more.
    pub async fn hold(
        &self,
        arrays: BTreeSet<ArrayId>,
        after: Option<Clock>,
        lasts: Duration,
    ) -> Option<Clock> {
        let (answer, result) = oneshot::channel();
        self.ask(Ask::Hold { arrays, after, lasts, answer }, result).await
    }

    /// Has it take over a piece of a shard as if another server had sent it: a checkpoint's, while the registry says that it is
    /// restored. The array need not be known. `None` if it does not run any more.
    pub async fn take_over(&self, config: ArrayConfig, piece: Snapshot) -> Option<Result<(), NotTaken>> {
        let (answer, result) = oneshot::channel();
        self.ask(Ask::TakeOver { config, piece: Box::new(piece), answer }, result).await
    }

    async fn ask<R>(&self, ask: Ask, result: oneshot::Receiver<R>) -> Option<R> {
        self.0.send(ask).await.ok()?;
        result.await.ok()
    }
}
