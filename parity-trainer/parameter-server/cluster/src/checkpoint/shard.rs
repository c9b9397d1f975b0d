//! What a server does for a checkpoint: one shard at a time, and never for so long that others miss its signs of life. What takes
//! the processor for longer than a piece does is done on a thread for such things.

use std::time::Duration;

use parapet_parameter_server::{ArrayConfig, Layout, ShardRef, Snapshot, TransferId};
use parapet_parameter_server_checkpoint::{Checkpoints, Restore, ShardEntry, ShardFile, ShardState};
use parapet_parameter_server_node::{NotTaken, ServerHandle};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tonic::Status;

use crate::ArraySpec;

/// Floats in one piece, about: the server does nothing else while it copies one or takes one over.
const PIECE: usize = 1 << 20;
/// How much later than the others a server may hear of a restore, and how often it is asked.
const HEARD: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

fn piece_rows(layout: &Layout) -> usize {
    let row = layout.width.saturating_mul(1 + layout.rule.slots());
    (PIECE / row.max(1)).max(1)
}

/// Writes a shard as it is now; fails if it changes meanwhile.
pub(crate) async fn write_shard(
    handle: &ServerHandle,
    checkpoints: &Checkpoints,
    checkpoint: u64,
    at: ShardRef,
) -> Result<ShardEntry, Status> {
    let pieces = copy(handle, at).await?;
    let encode = move || {
        let state = ShardState::joined(&pieces);
        drop(pieces);
        state.map(|state| ShardFile::of(&state))
    };
    let file = aside(encode).await?;
    let file = file.ok_or_else(|| Status::internal("a shard without keys"))?.map_err(refuse)?;
    checkpoints.write_file(checkpoint, file).await.map_err(refuse)
}

/// A shard's pieces, all of the same moment.
async fn copy(handle: &ServerHandle, at: ShardRef) -> Result<Vec<ShardState>, Status> {
    let (mut pieces, mut first) = (Vec::new(), None);
    let mut from = at.range.start;
    while from < at.range.end {
        let look = handle.look(move |server, _| {
            let view = server.shards().find(|view| view.at == at)?;
            Some((view.applied, ShardState::piece(&view, from, piece_rows(view.store.layout()))))
        });
        let found = look.await.ok_or_else(gone)?;
        let (applied, piece) =
            found.ok_or_else(|| Status::aborted(format!("it does not hold {} any more", name(at))))?;
        if *first.get_or_insert(applied) != applied {
            return Err(Status::aborted(format!("{} was updated while it was copied", name(at))));
        }
        from = piece.range().end.max(from.saturating_add(1));
        pieces.push(piece);
    }
    Ok(pieces)
}

/// Reads a shard, and keeps it until the routing table lets this server in, or the restore has ended.
pub(crate) async fn restore_shard(
    handle: &ServerHandle,
    checkpoints: &Checkpoints,
    checkpoint: u64,
    at: ShardRef,
    transfer: TransferId,
) -> Result<(), Status> {
    let manifest = checkpoints.manifest(checkpoint).await.map_err(refuse)?;
    let array = manifest.arrays.iter().find(|entry| entry.array() == at.array);
    let array = array.ok_or_else(|| Status::invalid_argument(format!("no {} in it", at.array)))?;
    let config = ArraySpec::parse(at.array, &array.description).map_err(refuse)?.server();
    let restore = Restore::new(manifest, piece_rows(&config.layout));
    let needed: Vec<ShardEntry> = restore.needed(at.array, at.range).cloned().collect();
    let mut parts = Vec::with_capacity(needed.len());
    for entry in needed {
        // One after the other: of each, only what is needed stays.
        let contents = checkpoints.read_file(checkpoint, &entry).await.map_err(refuse)?;
        let part = aside(move || entry.decode(&contents).map(|shard| shard.part(at.range))).await?;
        parts.push(part.map_err(refuse)?);
    }
    let pieces = aside(move || restore.pieces(at, transfer, &parts)).await?.map_err(refuse)?;
    for piece in pieces {
        take_over(handle, &config, piece).await?;
    }
    Ok(())
}

async fn take_over(handle: &ServerHandle, config: &ArrayConfig, piece: Snapshot) -> Result<(), Status> {
    let (at, asked) = (piece.at, Instant::now());
    loop {
        match handle.take_over(config.clone(), piece.clone()).await.ok_or_else(gone)? {
            Ok(()) => return Ok(()),
            Err(NotTaken::NotRestoring) if piece.part == 0 && asked.elapsed() < HEARD => sleep(LOOK).await,
            Err(cause) => return Err(refuse(format!("{}: {cause}", name(at)))),
        }
    }
}

/// Does what takes the processor for long.
async fn aside<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> Result<R, Status> {
    spawn_blocking(work).await.map_err(|error| Status::internal(error.to_string()))
}

fn name(at: ShardRef) -> String {
    format!("{}, keys {}", at.array, at.range)
}

fn gone() -> Status {
    Status::unavailable("the server has stopped")
}

/// What a server will say again if it is asked again.
fn refuse(error: impl ToString) -> Status {
    Status::failed_precondition(error.to_string())
}
