//! Control plane: requests to a running server. Parameters pass only for a training's checkpoints.

use std::io;
use std::time::Duration;

use parapet_parameter_server::{ArrayId, Clock, KeyRange, NodeId, Server, ShardRef, WorkerId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::node::{Counters, ServerHandle};
use crate::registry::frames::{self, Frames};
use crate::roles::{ClusterError, Result};

const PATIENCE: Duration = Duration::from_secs(10);

/// Numbers in one piece of rows, about: the server does nothing else while it copies them.
const PIECE: usize = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
enum Question {
    Status,
    /// Asks for pieces of the optimiser's state, each followed by its numbers, and `None`.
    State(ArrayId, KeyRange),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Status {
    pub received: u64,
    pub sent: u64,
    /// Messages for which there was no connection or no room.
    pub dropped: u64,
    pub shards: Vec<ShardStatus>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardStatus {
    pub at: ShardRef,
    /// The last log entry it contains.
    pub applied: u64,
    /// The last log entry that is known to be in the whole chain.
    pub committed: u64,
    pub memory: u64,
    /// Clock of each worker that every row contains.
    pub clocks: Vec<(WorkerId, Clock)>,
}

impl Status {
    fn look(server: &Server, counters: &Counters) -> Self {
        let shards = server.shards().map(|view| {
            let clock = |worker| Some((worker, view.clocks.lowest_of(worker, view.at.range)?));
            ShardStatus {
                at: view.at,
                applied: view.applied.0,
                committed: view.committed.0,
                memory: view.store.memory() as u64,
                clocks: view.clocks.workers().filter_map(clock).collect(),
            }
        });
        Self {
            received: counters.received,
            sent: counters.sent,
            dropped: counters.dropped,
            shards: shards.collect(),
        }
    }
}

/// Rows of which a server holds the optimiser's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) range: KeyRange,
    /// Every worker's updates up to this clock are in it.
    pub(crate) finished: Clock,
}

#[derive(Debug, Clone)]
pub struct Control {
    node: NodeId,
    address: String,
}

impl Control {
    /// Of the server at this control address; connects when it is asked something.
    pub const fn new(node: NodeId, address: String) -> Self {
        Self { node, address }
    }

    fn silent(&self, cause: String) -> ClusterError {
        let node = self.node;
        let text = format!("{node} does not answer questions ({cause}): see whether it runs");
        ClusterError::Failed(text)
    }

    async fn ask<T: DeserializeOwned>(&self, question: Question) -> Result<(T, Frames)> {
        let asked = frames::ask(&self.address, question, PATIENCE).await;
        asked.map_err(|cause| self.silent(cause))
    }

    pub async fn status(&self) -> Result<Status> {
        Ok(self.ask(Question::Status).await?.0)
    }

    /// The optimiser's state of a dense array's rows that are held there, slot by slot.
    pub(crate) async fn state(
        &self,
        array: ArrayId,
        range: KeyRange,
        mut take: impl FnMut(Piece, &[f32]),
    ) -> Result<()> {
        let asked = self.ask(Question::State(array, range)).await?;
        let (mut next, mut frames): (Option<Piece>, Frames) = asked;
        while let Some(piece) = next {
            let bytes = frames::within(PATIENCE, frames.receive_bytes()).await;
            let bytes = bytes.map_err(|cause| self.silent(cause))?;
            let (words, _) = bytes.as_chunks::<4>();
            let state: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
            take(piece, &state);
            let received = frames::within(PATIENCE, frames.receive()).await;
            next = received.map_err(|cause| self.silent(cause))?;
        }
        Ok(())
    }
}

pub(crate) async fn serve(listener: TcpListener, handle: ServerHandle) {
    let answer = |frames| answer(handle.clone(), frames);
    frames::serve(listener, answer, std::future::pending()).await;
}

async fn answer(handle: ServerHandle, mut frames: Frames) -> io::Result<()> {
    let gone = || io::Error::other("the server has stopped");
    let (array, mut left) = match timeout(PATIENCE, frames.receive()).await?? {
        Question::Status => {
            let look = handle.look(|server, counters| Status::look(server, &counters));
            return frames.send(&look.await.ok_or_else(gone)?).await;
        }
        Question::State(array, range) => (array, range),
    };
    while !left.is_empty() {
        let look = handle.look(move |server, _| first_piece(server, array, left));
        let Some((piece, state)) = look.await.ok_or_else(gone)? else {
            // The rest is held by others.
            break;
        };
        left = KeyRange::new(piece.range.end.max(left.start + 1), left.end);
        frames.send(&Some(piece)).await?;
        frames.send_bytes(state.into()).await?;
    }
    frames.send(&None::<Piece>).await
}

/// The state of the first rows of `range` that are held here.
fn first_piece(server: &Server, array: ArrayId, range: KeyRange) -> Option<(Piece, Vec<u8>)> {
    let shards = server.shards().filter(|view| view.at.array == array);
    let held = shards.filter_map(|view| Some((view.at.range.intersect(range)?, view)));
    let (held, view) = held.min_by_key(|(held, _)| held.start)?;
    let layout = view.store.layout();
    let row = layout.width * (1 + layout.rule.slots());
    let rows = view.store.extract(held, (PIECE / row.max(1)).max(1));
    let piece =
        Piece { range: rows.range, finished: view.clocks.finished(rows.range).unwrap_or_default() };
    Some((piece, rows.state.as_bytes().to_vec()))
}
