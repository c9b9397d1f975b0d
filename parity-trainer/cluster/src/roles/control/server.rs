//! Answers.

use crate::node::ServerHandle;
use parapet_parameter_server::{ArrayId, KeyRange, Keys, ShardView};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response};

use super::{MAX_MESSAGE, proto};
use crate::roles::ClusterError;
use crate::roles::listening::Listening;

/// Floats in one piece of rows, about: the server does nothing else while it copies them.
const PIECE: usize = 1 << 20;

/// A listener for questions.
#[derive(Debug)]
pub(crate) struct ControlServer(Listening);

impl ControlServer {
    pub(crate) async fn bind(listen: &str) -> Result<Self, ClusterError> {
        Ok(Self(Listening::at(listen).await?))
    }

    pub(crate) fn address(&self) -> &str {
        &self.0.address
    }

    /// Answers until the task is dropped.
    pub(crate) fn start(self, handle: ServerHandle) -> AbortOnDropHandle<()> {
        let service = proto::control_server::ControlServer::new(Service { handle })
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let incoming = TcpIncoming::from(self.0.listener).with_nodelay(Some(true));
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(incoming);
        AbortOnDropHandle::new(tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "questions are not answered any longer");
            }
        }))
    }
}

#[derive(Debug)]
struct Service {
    handle: ServerHandle,
}

fn gone() -> tonic::Status {
    tonic::Status::unavailable("the server has stopped")
}

fn shard(view: &ShardView<'_>) -> proto::Shard {
    let clock = |worker| {
        let clock = view.clocks.lowest_of(worker, view.at.range)?;
        Some(proto::WorkerClock {
            worker: worker.0,
            clock: clock.0,
        })
    };
    proto::Shard {
        array: view.at.array.0,
        start: view.at.range.start,
        end: view.at.range.end,
        epoch: view.at.epoch.0,
        applied: view.applied.0,
        committed: view.committed.0,
        rows: view.store.rows() as u64,
        memory: view.store.memory() as u64,
        accepts_pushes: view.accepts_pushes,
        clocks: view.clocks.workers().filter_map(clock).collect(),
    }
}

#[tonic::async_trait]
impl proto::control_server::Control for Service {
    async fn status(
        &self,
        _: Request<proto::StatusRequest>,
    ) -> Result<Response<proto::StatusReply>, tonic::Status> {
        let look = self.handle.look(|server, counters| proto::StatusReply {
            node: server.node().0,
            received: counters.received,
            sent: counters.sent,
            dropped: counters.dropped,
            connected: counters.connected,
            lost: counters.lost,
            shards: server.shards().map(|view| shard(&view)).collect(),
        });
        Ok(Response::new(look.await.ok_or_else(gone)?))
    }

    type RowsStream = ReceiverStream<Result<proto::RowsReply, tonic::Status>>;

    async fn rows(
        &self,
        request: Request<proto::RowsRequest>,
    ) -> Result<Response<Self::RowsStream>, tonic::Status> {
        let proto::RowsRequest { array, start, end } = request.into_inner();
        let (pieces, stream) = mpsc::channel(2);
        let handle = self.handle.clone();
        tokio::spawn(async move {
            let mut left = KeyRange::new(start, end);
            while !left.is_empty() {
                let range = left;
                let look = handle.look(move |server, _| {
                    let held = server
                        .shards()
                        .filter(|view| view.at.array == ArrayId(array));
                    let first = held.filter(|view| view.at.range.intersect(range).is_some());
                    first
                        .min_by_key(|view| view.at.range.start)
                        .map(|view| piece(&view, range))
                });
                let piece = match look.await {
                    Some(Some(piece)) => piece,
                    // The rest is held by others.
                    Some(None) => return,
                    None => {
                        let _ = pieces.send(Err(gone())).await;
                        return;
                    }
                };
                left = KeyRange::new(piece.end.max(left.start + 1), end);
                if pieces.send(Ok(piece)).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// The first rows of `range` in this shard.
fn piece(view: &ShardView<'_>, range: KeyRange) -> proto::RowsReply {
    let layout = view.store.layout();
    let row = layout.width * (1 + layout.rule.slots());
    let held = view
        .at
        .range
        .intersect(range)
        .unwrap_or(KeyRange::new(range.start, range.start));
    let rows = view.store.extract(held, (PIECE / row.max(1)).max(1));
    let finished = view.clocks.finished(rows.range).unwrap_or_default();
    let keys = if let Keys::List(keys) = &rows.keys {
        keys.to_vec()
    } else {
        Vec::new()
    };
    proto::RowsReply {
        start: rows.range.start,
        end: rows.range.end,
        keys,
        values: rows.values.as_bytes().to_vec(),
        state: rows.state.as_bytes().to_vec(),
        steps: rows
            .steps
            .iter()
            .flat_map(|steps| steps.to_le_bytes())
            .collect(),
        finished: finished.0,
    }
}
