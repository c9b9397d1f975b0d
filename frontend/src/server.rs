//! A frontend from start to drain.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parapet_http_serve::{DrainReport, Limits, listen, serve};
use tokio::net::TcpListener;

use crate::config::FrontendConfig;
use crate::http::{App, router};
use crate::metrics::Metrics;
use crate::model::ServedModel;
use crate::traces::Traces;

/// How often recorded samples are moved into their buckets.
const UPKEEP: Duration = Duration::from_secs(5);

/// A frontend that listens.
#[derive(Debug)]
pub struct Frontend {
    listener: TcpListener,
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
        let FrontendConfig { server, models, traces } = config;
        let listener = listen(server.listen).map_err(|error| {
            let reason =
                format!("cannot listen on {}: {error}; set server.listen to a free address", server.listen);
            io::Error::new(error.kind(), reason)
        })?;
        let metrics = Metrics::new().map_err(io::Error::other)?;
        let models = models.into_iter().map(|model| ServedModel::start(model, &metrics)).collect();
        let limits = Limits {
            max_connections: server.max_connections,
            header_read_timeout: server.header_read_timeout,
            write_timeout: server.write_timeout,
            max_header_bytes: server.max_header_bytes,
        };
        let traces = traces.as_ref().map(Traces::export).transpose().map_err(|error| {
            io::Error::other(format!("traces: the exporter cannot be made: {error}; check traces.endpoint"))
        })?;
        let grace = server.drain_grace;
        Ok(Self {
            listener,
            app: Arc::new(App::new(models, metrics, server).with_traces(traces)),
            limits,
            grace,
        })
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The application, to look at.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Serves until `shutdown` resolves, then drains: not ready, no new connections, requests in flight finish within
    /// the grace period.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> DrainReport {
        let Self { listener, app, limits, grace } = self;
        let upkeep = tokio::spawn(upkeep(Arc::clone(&app)));
        let polling = app.busy_poll().is_enabled().then(|| {
            let app = Arc::clone(&app);
            tokio::spawn(async move { app.busy_poll().run().await })
        });
        let draining = {
            let app = Arc::clone(&app);
            async move {
                shutdown.await;
                app.drain();
            }
        };
        let report = serve(listener, router(Arc::clone(&app)), limits, draining, grace).await;
        for model in app.models() {
            model.driver().stop();
        }
        upkeep.abort();
        if app.traces().is_some() {
            let app = Arc::clone(&app);
            // It waits for the collector, to whom this thread talks.
            let _ended = tokio::task::spawn_blocking(move || app.traces().map(Traces::shutdown)).await;
        }
        if let Some(polling) = polling {
            polling.abort();
        }
        report
    }
}

async fn upkeep(app: Arc<App>) {
    let mut interval = tokio::time::interval(UPKEEP);
    loop {
        interval.tick().await;
        app.metrics().upkeep();
    }
}
