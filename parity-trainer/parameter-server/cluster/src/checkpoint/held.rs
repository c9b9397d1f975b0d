//! Servers that take no pushes to some arrays after a clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parapet_parameter_server::{ArrayId, Clock, NodeId};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::ask_each;
use super::take::Failure;
use crate::ClusterError;
use crate::control::Control;

/// How long servers are held without being asked again; whoever asked may have died.
const HOLD: Duration = Duration::from_secs(5);
/// Rounds until all are held at one clock. The second finds nothing new, but for heads that have just taken over.
const ROUNDS: usize = 4;

/// Servers, and what they are held for.
#[derive(Debug, Clone)]
struct Servers {
    controls: BTreeMap<NodeId, Control>,
    arrays: BTreeSet<ArrayId>,
}

impl Servers {
    /// All at once, and waits for all: none is on its way any longer when this is done. Gives the latest clock taken.
    async fn hold(&self, after: Option<Clock>) -> Result<Clock, ClusterError> {
        let ask = |control: Control| {
            let arrays = self.arrays.clone();
            async move { control.hold(&arrays, after, HOLD).await }
        };
        Ok(ask_each(&self.controls, ask).await?.into_values().max().unwrap_or_default())
    }

    /// Holds all at the last clock that any of them has taken.
    async fn hold_at_latest(&self) -> Result<Clock, Failure> {
        let mut at = Clock(0);
        for _ in 0..ROUNDS {
            let latest = self.hold(Some(at)).await?;
            if latest <= at {
                return Ok(at);
            }
            at = latest;
        }
        Err(Failure::Passing("workers are faster than the servers can be held".into()))
    }

    async fn release(&self) {
        if let Err(error) = self.hold(None).await {
            tracing::debug!(%error, "a server goes on when its hold is over");
        }
    }

    /// Asks again and again, so that the hold lasts.
    async fn hold_on(self, at: Clock) {
        loop {
            sleep(HOLD / 5).await;
            if let Err(error) = self.hold(Some(at)).await {
                tracing::debug!(%error, "a server cannot be held");
            }
        }
    }
}

/// The servers, which take no push to these arrays after a clock until [`Held::end`], or for some seconds after this is dropped.
pub(super) struct Held {
    servers: Servers,
    /// Where they are held.
    pub(super) at: Clock,
    pub(super) since: Instant,
    again: AbortOnDropHandle<()>,
}

impl Held {
    /// Holds all of these servers at the last clock that any of them has taken, or none of them.
    pub(super) async fn begin(
        controls: BTreeMap<NodeId, Control>,
        arrays: BTreeSet<ArrayId>,
    ) -> Result<Self, Failure> {
        // Nobody is held for the sake of a server that does not answer.
        ask_each(&controls, |control: Control| async move { control.status().await }).await?;
        let (servers, since) = (Servers { controls, arrays }, Instant::now());
        match servers.hold_at_latest().await {
            Ok(at) => {
                let again = AbortOnDropHandle::new(tokio::spawn(servers.clone().hold_on(at)));
                Ok(Self { servers, at, since, again })
            }
            Err(failure) => {
                servers.release().await;
                Err(failure)
            }
        }
    }

    pub(super) const fn controls(&self) -> &BTreeMap<NodeId, Control> {
        &self.servers.controls
    }

    /// Has them take pushes again.
    pub(super) async fn end(self) {
        // What is on its way holds nobody after that.
        self.again.abort();
        let _ = self.again.await;
        self.servers.release().await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use tokio::net::TcpListener;
    use tokio::sync::Mutex;
    use tokio_stream::wrappers::ReceiverStream;
    use tonic::transport::server::TcpIncoming;
    use tonic::{Request, Response, Status};

    use super::*;
    use crate::control::proto;
    use crate::control::proto::control_server::{Control as Answers, ControlServer};

    /// A server that has taken clock 7, and remembers what it was told.
    #[derive(Clone, Default)]
    struct Server {
        told: Arc<Mutex<Vec<Option<u64>>>>,
        refuses: bool,
    }

    #[tonic::async_trait]
    impl Answers for Server {
        type RowsStream = ReceiverStream<Result<proto::RowsReply, Status>>;

        async fn status(
            &self,
            _: Request<proto::StatusRequest>,
        ) -> Result<Response<proto::StatusReply>, Status> {
            Ok(Response::new(proto::StatusReply::default()))
        }

        async fn hold(
            &self,
            request: Request<proto::HoldRequest>,
        ) -> Result<Response<proto::HoldReply>, Status> {
            let proto::HoldRequest { after, arrays, .. } = request.into_inner();
            assert_eq!(arrays, [3]);
            if self.refuses {
                return Err(Status::unavailable("it has stopped"));
            }
            self.told.lock().await.push(after);
            Ok(Response::new(proto::HoldReply { latest: 7 }))
        }

        async fn rows(&self, _: Request<proto::RowsRequest>) -> Result<Response<Self::RowsStream>, Status> {
            Err(Status::unimplemented(""))
        }

        async fn write_shard(
            &self,
            _: Request<proto::WriteShardRequest>,
        ) -> Result<Response<proto::WriteShardReply>, Status> {
            Err(Status::unimplemented(""))
        }

        async fn restore_shard(
            &self,
            _: Request<proto::RestoreShardRequest>,
        ) -> Result<Response<proto::RestoreShardReply>, Status> {
            Err(Status::unimplemented(""))
        }
    }

    async fn start(node: u64, server: &Server) -> (NodeId, Control) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serving = tonic::transport::Server::builder().add_service(ControlServer::new(server.clone()));
        tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));
        (NodeId(node), Control::new(NodeId(node), &address).unwrap())
    }

    fn arrays() -> BTreeSet<ArrayId> {
        [ArrayId(3)].into()
    }

    #[tokio::test]
    async fn all_are_held_at_the_latest_clock_until_the_end() {
        let (one, other) = (Server::default(), Server::default());
        let controls = [start(1, &one).await, start(2, &other).await].into();
        let held = Held::begin(controls, arrays()).await.ok().unwrap();
        assert_eq!(held.at, Clock(7));
        held.end().await;
        for server in [one, other] {
            assert_eq!(*server.told.lock().await, [Some(0), Some(7), None]);
        }
    }

    #[tokio::test]
    async fn nobody_stays_held_when_one_cannot_be() {
        let (one, other) = (Server::default(), Server { refuses: true, ..Server::default() });
        let controls = [start(1, &one).await, start(2, &other).await].into();
        assert!(matches!(Held::begin(controls, arrays()).await, Err(Failure::Passing(_))));
        assert_eq!(*one.told.lock().await, [Some(0), None], "it goes on");
    }

    #[tokio::test]
    async fn nobody_is_held_for_one_that_does_not_answer() {
        let one = Server::default();
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = nobody.local_addr().unwrap().to_string();
        drop(nobody);
        let absent = (NodeId(2), Control::new(NodeId(2), &address).unwrap());
        let controls = [start(1, &one).await, absent].into();
        assert!(matches!(Held::begin(controls, arrays()).await, Err(Failure::Passing(_))));
        assert_eq!(*one.told.lock().await, []);
    }
}
