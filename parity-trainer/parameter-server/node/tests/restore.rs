//! A server that runs takes over a checkpoint's shards while its registry says that they are restored.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use parapet_parameter_server::{
    Add, ArrayConfig, ArrayId, Consistency, Epoch, KeyRange, Keys, Layout, NodeId, Rows, ShardRef, Snapshot,
    SnapshotPhase, TransferId, Values,
};
use parapet_parameter_server_node::transport::Memory;
use parapet_parameter_server_node::{Embedded, NotTaken, ServerHandle, ServerNode, ServerNodeConfig, View};
use tokio::sync::watch;

const RANGE: KeyRange = KeyRange { start: 0, end: 2 };

async fn start() -> (ServerHandle, watch::Sender<Arc<View>>) {
    let embedded = Embedded::new(View::default());
    let config = ServerNodeConfig { listen: "server".into(), ..ServerNodeConfig::new(NodeId(1), Vec::new()) };
    let mut node = ServerNode::bind(config, Memory::default(), embedded.membership()).await.unwrap();
    let handle = node.handle();
    tokio::spawn(async move { node.run(std::future::pending()).await });
    (handle, embedded.view())
}

fn piece(transfer: u64, part: u32) -> Snapshot {
    Snapshot {
        at: ShardRef { array: ArrayId(3), range: RANGE, epoch: Epoch(transfer) },
        transfer: TransferId(transfer),
        part,
        phase: SnapshotPhase::Delta,
        rows: Rows {
            range: RANGE,
            keys: Keys::All,
            values: Values::from(vec![1.0, 2.0]),
            state: Values::none(),
            steps: Vec::new(),
        },
        end: None,
    }
}

async fn offer(server: &ServerHandle, piece: Snapshot) -> Result<(), NotTaken> {
    let config = ArrayConfig { layout: Layout::dense(1, Add), policy: Arc::new(Consistency::Eventual) };
    server.take_over(config, piece).await.unwrap()
}

async fn copies(server: &ServerHandle) -> usize {
    server.look(|server, _| server.copies().count()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn only_what_is_acknowledged_counts_as_taken() {
    let (server, view) = start().await;
    assert_eq!(offer(&server, piece(7, 0)).await, Err(NotTaken::NotRestoring));
    view.send_replace(Arc::new(View { restoring: Some(TransferId(7)), ..View::default() }));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(offer(&server, piece(7, 0)).await, Ok(()));
    assert_eq!(offer(&server, piece(7, 0)).await, Ok(()), "once more");
    assert_eq!(offer(&server, piece(7, 2)).await, Err(NotTaken::Ignored), "one is missing");
    assert_eq!(offer(&server, piece(7, 1)).await, Ok(()));
    assert_eq!(offer(&server, piece(6, 0)).await, Err(NotTaken::NotRestoring), "another restore");
    assert_eq!(copies(&server).await, 1);
    view.send_replace(Arc::new(View::default()));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(copies(&server).await, 0, "it has ended");
}
