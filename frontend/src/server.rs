//! A frontend from start to drain.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parapet_net::server::{DrainReport, Limits, Server, listen};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::{FrontendConfig, ServerSettings};
use crate::metrics::Metrics;
use crate::traces::Traces;
use crate::{admin, grpc, http};

/// Interval at which recorded samples are moved into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);
/// Time until an instance of each model that is in no repository has to be there.
const DESCRIBED_WITHIN: Duration = Duration::from_secs(60);
/// Connections of operators, scrapers and the page that is open in their browsers.
const ADMIN_CONNECTIONS: usize = 64;
/// Time that the admin listener stays for its requests in flight once the data listener is gone.
const ADMIN_GRACE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct Frontend {
    listener: TcpListener,
    admin: Option<TcpListener>,
    grpc: Option<TcpListener>,
    app: Arc<App>,
    settings: ServerSettings,
}

impl Frontend {
    /// Has instances describe the models that are in no repository, binds the listeners, and starts
    /// the models' drivers.
    pub async fn bind(config: FrontendConfig) -> io::Result<Self> {
        let config = config.describe(DESCRIBED_WITHIN).await.map_err(io::Error::other)?;
        let settings = config.server.clone();
        let listener = listen_on(settings.listen, "server.listen")?;
        let grpc = settings.grpc_listen;
        let grpc = grpc.map(|address| listen_on(address, "server.grpc_listen")).transpose()?;
        let admin = config.admin.as_ref();
        let admin = admin.map(|admin| listen_on(admin.listen, "admin.listen")).transpose()?;
        let traces = config.traces.as_ref().map(Traces::export).transpose().map_err(|error| {
            io::Error::other(format!(
                "traces: the exporter cannot be made: {error}; check traces.endpoint"
            ))
        })?;
        let app = Arc::new(App::start(config, Metrics::new().map_err(io::Error::other)?, traces));
        Ok(Self { listener, admin, grpc, app, settings })
    }

    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub fn is_secure(&self) -> bool {
        self.app.tls.data.is_some()
    }

    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref()?.local_addr().ok()
    }

    pub fn grpc_address(&self) -> io::Result<Option<SocketAddr>> {
        self.grpc.as_ref().map(TcpListener::local_addr).transpose()
    }

    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Serves until `shutdown` resolves. Then, in order: it says it is not ready and serves on for
    /// the drain's delay, asking clients to go elsewhere; accepts no more; lets requests in flight
    /// finish within the grace period, and with them their coding groups; and drops what is left.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> DrainReport {
        let Self { app, settings, .. } = self;
        let mut tasks = JoinSet::new();
        tasks.spawn(upkeep(Arc::clone(&app)));
        tasks.spawn(watch_certificates(Arc::clone(&app)));
        let stopped = CancellationToken::new();
        let admin = self.admin.map(|listener| {
            let limits = Limits::of_connections(ADMIN_CONNECTIONS);
            let server = Server::new(admin::router(Arc::clone(&app)), limits)
                .with_tls(app.tls.admin.clone())
                .telling_peers();
            tokio::spawn(server.run(listener, stopped.clone().cancelled_owned(), ADMIN_GRACE))
        });
        let draining = CancellationToken::new();
        let drain = async {
            shutdown.await;
            app.drain();
            tokio::time::sleep(settings.drain_delay).await;
            draining.cancel();
        };
        let (limits, grace) = (limits(&settings), settings.drain_grace);
        let server = Server::new(http::service(Arc::clone(&app)), limits)
            .counting(Arc::clone(&app.connections))
            .with_tls(app.tls.data.clone());
        let over_http = server.run(self.listener, drain, grace);
        let over_grpc = async {
            let Some(listener) = self.grpc else { return DrainReport::default() };
            let service = grpc::service(Arc::clone(&app));
            let server = Server::over_http2(service, limits, settings.grpc_max_streams)
                .counting(Arc::clone(&app.connections))
                .with_tls(app.tls.data.clone());
            server.run(listener, draining.cancelled(), grace).await
        };
        let (mut report, over_grpc) = tokio::join!(over_http, over_grpc);
        report.drained += over_grpc.drained;
        report.aborted += over_grpc.aborted;
        stopped.cancel();
        if let Some(admin) = admin {
            let _ = admin.await;
        }
        for model in app.serving().models.values() {
            model.driver.stop();
        }
        if app.traces.is_some() {
            let app = Arc::clone(&app);
            // It waits for the collector, which this thread serves.
            let shutdown = move || app.traces.as_ref().map(Traces::shutdown);
            let _ended = tokio::task::spawn_blocking(shutdown).await;
        }
        tasks.shutdown().await;
        report
    }
}

fn listen_on(address: SocketAddr, field: &str) -> io::Result<TcpListener> {
    listen(address).map_err(|error| {
        let reason = format!("cannot listen on {address}: {error}; set {field} to a free address");
        io::Error::new(error.kind(), reason)
    })
}

fn limits(server: &ServerSettings) -> Limits {
    let per_peer = server.max_connections_per_peer;
    Limits {
        max_connections: server.max_connections,
        max_connections_per_peer: per_peer
            .unwrap_or(Limits::share_of_one_peer(server.max_connections)),
        max_connection_age: server.max_connection_age,
        header_read_timeout: server.header_read_timeout,
        write_timeout: server.write_timeout,
        min_write_rate: server.min_write_rate,
        max_header_bytes: server.max_header_bytes,
        max_headers: server.max_headers,
    }
}

/// Certificates are renewed by others, who need not know of this process.
async fn watch_certificates(app: Arc<App>) {
    loop {
        tokio::time::sleep(parapet_net::tls::LOOK_AGAIN).await;
        app.reload_certificates();
    }
}

async fn upkeep(app: Arc<App>) {
    let mut interval = tokio::time::interval(UPKEEP);
    loop {
        interval.tick().await;
        app.metrics.upkeep();
    }
}
