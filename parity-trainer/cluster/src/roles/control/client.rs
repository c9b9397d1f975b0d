//! Questions.

use std::time::Duration;

use parapet_parameter_server::{ArrayId, Clock, Epoch, KeyRange, NodeId, ShardRef, WorkerId};
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use super::{MAX_MESSAGE, ShardStatus, Status, proto};
use crate::roles::ClusterError;

/// Time that an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server's control plane.
#[derive(Debug, Clone)]
pub struct Control {
    node: NodeId,
    client: proto::control_client::ControlClient<Channel>,
}

/// Rows as a server holds them: `keys x width` values, and as many for each slot of the optimiser,
/// slot by slot.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRows {
    /// Their keys, all of them.
    pub range: KeyRange,
    pub values: Vec<f32>,
    pub state: Vec<f32>,
    /// Every worker's updates up to this clock are in it.
    pub finished: Clock,
}

impl Control {
    /// Of the server at this control address; connects when it is asked something.
    ///
    /// # Errors
    /// If it is no address.
    pub fn new(node: NodeId, address: &str) -> Result<Self, ClusterError> {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(|error| {
            ClusterError::Control {
                node,
                cause: error.to_string(),
            }
        })?;
        let channel = endpoint.connect_timeout(PATIENCE).connect_lazy();
        let client = proto::control_client::ControlClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        Ok(Self { node, client })
    }

    fn explain(&self, status: &tonic::Status) -> ClusterError {
        let (node, cause) = (self.node, status.message().to_owned());
        match status.code() {
            tonic::Code::FailedPrecondition | tonic::Code::InvalidArgument => {
                ClusterError::Refused { node, cause }
            }
            _ => ClusterError::Control { node, cause },
        }
    }

    fn late(&self, patience: Duration) -> ClusterError {
        ClusterError::Control {
            node: self.node,
            cause: format!("nothing came within {patience:?}"),
        }
    }

    /// Asks the server for its status.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn status(&self) -> Result<Status, ClusterError> {
        let mut client = self.client.clone();
        let asked = timeout(PATIENCE, client.status(proto::StatusRequest {})).await;
        let reply = asked
            .map_err(|_| self.late(PATIENCE))?
            .map_err(|status| self.explain(&status))?
            .into_inner();
        let shard = |shard: proto::Shard| ShardStatus {
            at: ShardRef {
                array: ArrayId(shard.array),
                range: KeyRange::new(shard.start, shard.end),
                epoch: Epoch(shard.epoch),
            },
            applied: shard.applied,
            committed: shard.committed,
            memory: shard.memory,
            clocks: shard
                .clocks
                .iter()
                .map(|c| (WorkerId(c.worker), Clock(c.clock)))
                .collect(),
        };
        Ok(Status {
            received: reply.received,
            sent: reply.sent,
            dropped: reply.dropped,
            lost: reply.lost,
            shards: reply.shards.into_iter().map(shard).collect(),
        })
    }

    /// The rows of a dense array in `range`, as far as they are held there, piece by piece.
    ///
    /// # Errors
    /// If it does not answer, or the array is sparse.
    pub async fn rows(
        &self,
        array: ArrayId,
        range: KeyRange,
        mut take: impl FnMut(StoredRows),
    ) -> Result<(), ClusterError> {
        let mut client = self.client.clone();
        let request = proto::RowsRequest {
            array: array.0,
            start: range.start,
            end: range.end,
        };
        let asked = timeout(PATIENCE, client.rows(request)).await;
        let mut pieces = asked
            .map_err(|_| self.late(PATIENCE))?
            .map_err(|status| self.explain(&status))?
            .into_inner();
        loop {
            let piece = timeout(PATIENCE, pieces.message())
                .await
                .map_err(|_| self.late(PATIENCE))?;
            let Some(piece) = piece.map_err(|status| self.explain(&status))? else {
                return Ok(());
            };
            if !piece.keys.is_empty() {
                let cause = format!("{array} is sparse");
                return Err(ClusterError::Control {
                    node: self.node,
                    cause,
                });
            }
            take(StoredRows {
                range: KeyRange::new(piece.start, piece.end),
                values: floats(&piece.values),
                state: floats(&piece.state),
                finished: Clock(piece.finished),
            });
        }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| f32::from_le_bytes(*word)).collect()
}
