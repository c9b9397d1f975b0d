//! Checkpoints that a cluster's servers write themselves, and start from: for arrays that no training leads, whose own
//! checkpoints are its run's.
//!
//! - [`take`] holds the servers of some arrays at one clock, has each tail write its shards, and writes the manifest.
//!   Workers go on up to that clock; what they push to these arrays after it waits, for a bounded time.
//! - [`restore`] has the servers that are there read the shards, then writes the table that lets them in, together with the
//!   arrays. A cluster takes one restore at a time, and only of arrays that it does not know: nothing that is there is
//!   replaced.
//!
//! Servers write into and read from the place they were started with, never one that a question names: whoever reaches the
//! control plane must not choose which files a server writes.

mod held;
mod restore;
mod settle;
mod shard;
mod take;

use std::collections::BTreeMap;
use std::time::Duration;

use parapet_parameter_server::NodeId;
use parapet_parameter_server_registry::View;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::ClusterError;
use crate::control::Control;

pub use restore::{RestoreSettings, restore};
pub(crate) use shard::{restore_shard, write_shard};
pub use take::{TakeSettings, take};

/// What is done so far: shards, of so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Those that are written or read.
    pub done: usize,
    /// All.
    pub of: usize,
}

/// The control planes of all servers that are there.
fn controls(view: &View) -> Result<BTreeMap<NodeId, Control>, ClusterError> {
    let known = view.servers.iter().filter(|(_, server)| !server.control.is_empty());
    known.map(|(&node, server)| Ok((node, Control::new(node, &server.control)?))).collect()
}

/// Asks all servers the same at the same time, and waits for all. Gives what they answered, or why one did not.
async fn ask_each<R, F>(
    controls: &BTreeMap<NodeId, Control>,
    ask: impl Fn(Control) -> F,
) -> Result<BTreeMap<NodeId, R>, ClusterError>
where
    R: Send + 'static,
    F: Future<Output = Result<R, ClusterError>> + Send + 'static,
{
    let mut asked = JoinSet::new();
    for (&node, control) in controls {
        let answer = ask(control.clone());
        asked.spawn(async move { (node, answer.await) });
    }
    let mut answers = BTreeMap::new();
    while let Some(answer) = asked.join_next().await {
        match answer {
            Ok((node, answer)) => {
                answers.insert(node, answer);
            }
            Err(error) => {
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
    answers.into_iter().map(|(node, answer)| Ok((node, answer?))).collect()
}

/// Asks each server for one thing after the other, all servers at once, until `deadline`. Gives what all of them answered.
async fn ask_all<Q, R, F>(
    questions: BTreeMap<NodeId, Vec<Q>>,
    controls: &BTreeMap<NodeId, Control>,
    deadline: Instant,
    progress: &mut impl FnMut(Progress),
    ask: impl Fn(Control, Q) -> F + Clone + Send + 'static,
) -> Result<Vec<R>, ClusterError>
where
    Q: Send + 'static,
    R: Send + 'static,
    F: Future<Output = Result<R, ClusterError>> + Send,
{
    let of = questions.values().map(Vec::len).sum();
    let (answers, mut answered) = tokio::sync::mpsc::channel(16);
    let mut asking = JoinSet::new();
    for (node, questions) in questions {
        let (answers, ask) = (answers.clone(), ask.clone());
        let gone = || ClusterError::Control { node, cause: "it has left".into() };
        let control = controls.get(&node).cloned().ok_or_else(gone)?;
        asking.spawn(async move {
            for question in questions {
                if answers.send(ask(control.clone(), question).await).await.is_err() {
                    return;
                }
            }
        });
    }
    drop(answers);
    let begun = Instant::now();
    let mut all = Vec::with_capacity(of);
    loop {
        match tokio::time::timeout_at(deadline, answered.recv()).await {
            Ok(Some(answer)) => {
                all.push(answer?);
                progress(Progress { done: all.len(), of });
            }
            Ok(None) => return Ok(all),
            Err(_) => return Err(ClusterError::SlowShards { waited: begun.elapsed(), done: all.len(), of }),
        }
    }
}

/// What is left of the time.
fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}
