//! A frontend from start to drain.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parapet_http_serve::{DrainReport, Limits, listen, serve};
use parapet_open_inference_grpc::Drained;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::FrontendConfig;
use crate::grpc;
use crate::http::{App, router};
use crate::metrics::Metrics;
use crate::model::ServedModel;

/// How often recorded samples are moved into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// A frontend that listens.
#[derive(Debug)]
pub struct Frontend {
    listener: TcpListener,
    grpc: Option<TcpListener>,
    app: Arc<App>,
    limits: Limits,
    grace: Duration,
}

impl Frontend {
    /// Binds the listener and starts the models' drivers. Async because it starts tasks.
    ///
    /// # Errors
    /// When the address cannot be listened on, or the metrics registry cannot be made.
    pub async fn bind(config: FrontendConfig) -> io::Result<Self> {
        let FrontendConfig { server, models } = config;
        let listener = bind("listen", server.listen)?;
        let grpc = server.grpc_listen.map(|address| bind("grpc_listen", address)).transpose()?;
        let metrics = Metrics::new().map_err(io::Error::other)?;
        let models = models.into_iter().map(|model| ServedModel::start(model, &metrics)).collect();
        let limits = Limits {
            max_connections: server.max_connections,
            header_read_timeout: server.header_read_timeout,
            write_timeout: server.write_timeout,
            max_header_bytes: server.max_header_bytes,
        };
        let grace = server.drain_grace;
        Ok(Self { listener, grpc, app: Arc::new(App::new(models, metrics, server)), limits, grace })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The address that it listens on for gRPC, if it does.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn grpc_address(&self) -> io::Result<Option<SocketAddr>> {
        self.grpc.as_ref().map(TcpListener::local_addr).transpose()
    }

    /// The application, to look at.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Serves until `shutdown` resolves, then drains: not ready, no new connections, requests in flight finish within
    /// the grace period.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> DrainReport {
        let Self { listener, grpc, app, limits, grace } = self;
        let upkeep = tokio::spawn(upkeep(Arc::clone(&app)));
        let polling = app.busy_poll().is_enabled().then(|| {
            let app = Arc::clone(&app);
            tokio::spawn(async move { app.busy_poll().run().await })
        });
        let draining = CancellationToken::new();
        let drain = {
            let (app, draining) = (Arc::clone(&app), draining.clone());
            async move {
                shutdown.await;
                app.drain();
                draining.cancel();
            }
        };
        let over_http = serve(listener, router(Arc::clone(&app)), limits, drain, grace);
        let over_grpc = serve_grpc(grpc, Arc::clone(&app), draining.cancelled_owned(), grace);
        let (mut report, over_grpc) = tokio::join!(over_http, over_grpc);
        report.drained += over_grpc.drained;
        report.aborted += over_grpc.aborted;
        for model in app.models() {
            model.driver().stop();
        }
        upkeep.abort();
        if let Some(polling) = polling {
            polling.abort();
        }
        report
    }
}

fn bind(field: &str, address: SocketAddr) -> io::Result<TcpListener> {
    listen(address).map_err(|error| {
        let reason = format!("cannot listen on {address}: {error}; set server.{field} to a free address");
        io::Error::new(error.kind(), reason)
    })
}

async fn serve_grpc(
    listener: Option<TcpListener>,
    app: Arc<App>,
    shutdown: impl Future<Output = ()>,
    grace: Duration,
) -> Drained {
    let Some(listener) = listener else { return Drained::default() };
    let limits = grpc::limits(&app);
    parapet_open_inference_grpc::serve(listener, grpc::server(app), limits, shutdown, grace).await
}

async fn upkeep(app: Arc<App>) {
    let mut interval = tokio::time::interval(UPKEEP);
    loop {
        interval.tick().await;
        app.metrics().upkeep();
    }
}
