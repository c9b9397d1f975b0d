//! From a checkpoint to servers that need not be as many.
//!
//! Each server is given the shards it is to hold in the pieces in which a shard is copied to a server that joins a chain
//! ([`parapet_parameter_server::Message::Snapshot`]), as if from a server that is there no more, under an epoch that no table
//! has had. Then the registry names the chains under the next one ([`Restore::table`]), which lets the servers in. Each can
//! read its own shards itself. Make the arrays known to the registry together with this table, or after it: an array without
//! shards is born empty.

use parapet_parameter_server::{
    ArrayId, Epoch, KeyRange, Keys, Route, Routing, RoutingError, Seq, ShardRef, Snapshot, SnapshotEnd,
    SnapshotPhase, TransferId,
};

use crate::{Manifest, ShardEntry, ShardState};

/// Why a checkpoint does not fit the servers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Keys that should be served are not in the checkpoint.
    #[error("{array}, keys {range}, are not in the checkpoint: restore it to arrays of the size they had")]
    Missing {
        /// The array.
        array: ArrayId,
        /// The keys, from the first that is missing on.
        range: KeyRange,
    },
    /// The cluster knows the array.
    #[error("the cluster knows {array} already: restore it to another cluster")]
    Known {
        /// The array.
        array: ArrayId,
    },
    /// The table is malformed.
    #[error(transparent)]
    Routing(#[from] RoutingError),
}

/// A checkpoint on its way to servers.
#[derive(Debug, Clone)]
pub struct Restore {
    manifest: Manifest,
    piece_rows: usize,
}

impl Restore {
    /// Of this checkpoint, with so many rows in a piece at most.
    pub fn new(manifest: Manifest, piece_rows: usize) -> Self {
        Self { manifest, piece_rows: piece_rows.max(1) }
    }

    /// The shards to read for keys of an array.
    pub fn needed(&self, array: ArrayId, range: KeyRange) -> impl Iterator<Item = &ShardEntry> {
        let shards = self.manifest.shards.iter();
        shards.filter(move |entry| entry.array() == array && entry.range().intersect(range).is_some())
    }

    /// The table after `table` that lets the servers in, with the shards and chains of `wanted`, if they were sent them under
    /// `sent`. Other arrays stay.
    ///
    /// # Errors
    /// [`RestoreError::Known`] if `table` has one of the arrays; or if it cannot be a table.
    pub fn table(&self, table: &Routing, sent: Epoch, wanted: &Routing) -> Result<Routing, RestoreError> {
        let epoch = Epoch(sent.0.saturating_add(1));
        let mut known = table.routes().iter().map(|route| route.array);
        if let Some(array) = known.find(|array| self.manifest.set().contains(array)) {
            return Err(RestoreError::Known { array });
        }
        let others = table.routes().iter().cloned();
        let restored = wanted.routes().iter().map(|route| Route { epoch, ..route.clone() });
        Ok(Routing::new(table.version().saturating_add(1), others.chain(restored).collect())?)
    }

    /// What a server that is to hold these keys is sent, in order; `shards` are those that are needed, or their parts, in any
    /// order. The epoch must be one that no table and no earlier attempt has had; a later attempt needs a higher `transfer`.
    ///
    /// # Errors
    /// [`RestoreError::Missing`] if there are keys in none of them.
    pub fn pieces(
        &self,
        at: ShardRef,
        transfer: TransferId,
        shards: &[ShardState],
    ) -> Result<Vec<Snapshot>, RestoreError> {
        let state = assemble(at.array, at.range, shards)?;
        let mut clocks = Some(state.clocks.clone());
        let ranges = self.piece_ranges(&state);
        let last = ranges.len().saturating_sub(1);
        let piece = |(part, piece): (usize, KeyRange)| Snapshot {
            at,
            transfer,
            part: u32::try_from(part).unwrap_or(u32::MAX),
            phase: SnapshotPhase::Delta,
            rows: state.part(piece).rows,
            end: (part == last).then(|| SnapshotEnd {
                seq: Seq(0),
                members: 0,
                clocks: clocks.take().unwrap_or_default(),
            }),
        };
        Ok(ranges.into_iter().enumerate().map(piece).collect())
    }

    fn piece_ranges(&self, state: &ShardState) -> Vec<KeyRange> {
        let range = state.range();
        let borders: Vec<u64> = match &state.rows.keys {
            Keys::All => (range.start..range.end).step_by(self.piece_rows).skip(1).collect(),
            Keys::List(keys) => keys.iter().copied().step_by(self.piece_rows).skip(1).collect(),
        };
        let starts = [range.start].into_iter().chain(borders.iter().copied());
        let ends = borders.iter().copied().chain([range.end]);
        starts.zip(ends).map(|(start, end)| KeyRange::new(start, end)).collect()
    }
}

/// The state of `range`, cut out of whatever it is spread over.
fn assemble(array: ArrayId, range: KeyRange, shards: &[ShardState]) -> Result<ShardState, RestoreError> {
    let mut parts: Vec<ShardState> = shards
        .iter()
        .filter(|shard| shard.array == array && shard.range().intersect(range).is_some())
        .map(|shard| shard.part(range))
        .collect();
    parts.sort_by_key(|part| part.range());
    let mut next = range.start;
    for part in &parts {
        if part.range().start != next {
            break;
        }
        next = part.range().end;
    }
    let missing = RestoreError::Missing { array, range: KeyRange::new(next, range.end) };
    if next != range.end {
        return Err(missing);
    }
    ShardState::joined(&parts).ok_or(missing)
}
