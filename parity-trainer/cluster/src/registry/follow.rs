//! From a store's news to watch channels.

use std::sync::Arc;

use parapet_parameter_server::Routing;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::registry::view::{View, ViewBuilder};
use crate::registry::{Batch, RegistryError};

/// The newest of everything.
#[derive(Debug, Clone)]
pub(crate) struct Feeds {
    pub(crate) view: watch::Receiver<Arc<View>>,
    pub(crate) routing: watch::Receiver<Routing>,
}

/// Follows the store, once it has told of everything for the first time.
pub(crate) async fn follow(
    mut batches: mpsc::Receiver<Batch>,
) -> Result<(Feeds, AbortOnDropHandle<()>), RegistryError> {
    let mut builder = ViewBuilder::default();
    loop {
        let batch = batches.recv().await.ok_or(RegistryError::Closed)?;
        let is_all = matches!(batch, Batch::All(_));
        builder.apply(batch);
        if is_all {
            break;
        }
    }
    let (view, view_feed) = watch::channel(Arc::new(builder.view().clone()));
    let (routing, routing_feed) = watch::channel(builder.view().table.routing.clone());
    let task = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Some(batch) = batches.recv().await {
            builder.apply(batch);
            let new = builder.view();
            routing.send_if_modified(|held| {
                let changed = held.version() != new.table.routing.version();
                if changed {
                    *held = new.table.routing.clone();
                }
                changed
            });
            view.send_if_modified(|held| {
                let changed = **held != *new;
                if changed {
                    *held = Arc::new(new.clone());
                }
                changed
            });
        }
    }));
    Ok((
        Feeds {
            view: view_feed,
            routing: routing_feed,
        },
        task,
    ))
}
