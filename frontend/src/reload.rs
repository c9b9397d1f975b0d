//! Reading the configuration again while serving: what is sound replaces what is there, at once and
//! as a whole; what is not changes nothing.

use std::path::Path;
use std::time::Duration;

use parapet_net::tls::TlsError;
use thiserror::Error;
use tokio::time::{Instant, sleep};

use crate::app::{App, ListenersTls};
use crate::config::{ConfigError, FrontendConfig};
use crate::serving::Serving;

#[derive(Debug, Error)]
pub enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{field} has changed, which takes a restart; nothing was reloaded")]
    NeedsRestart { field: &'static str },
    #[error("{0}")]
    NotNow(&'static str),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Models that went on as they were.
    pub kept: Vec<String>,
    /// Models that are new, or configured otherwise than before.
    pub started: Vec<String>,
    /// Models that are gone, or served anew. Their requests in flight were let end.
    pub stopped: Vec<String>,
}

/// The longest that new models are waited for until an instance of each is up. The old
/// ones serve meanwhile.
const WARM_UP: Duration = Duration::from_secs(3);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl App {
    /// Reads the configuration file again.
    ///
    /// # Errors
    /// [`ReloadError`]; all is as it was then.
    pub async fn reload(&self) -> Result<Reloaded, ReloadError> {
        let Ok(_one_at_a_time) = self.reloading().try_lock() else {
            return Err(ReloadError::NotNow(
                "another reload is under way; try again",
            ));
        };
        if self.is_draining() {
            return Err(ReloadError::NotNow("the server is shutting down"));
        }
        let result = self.reload_alone().await;
        match &result {
            Ok(done) => {
                tracing::info!(kept = ?done.kept, started = ?done.started, stopped = ?done.stopped,
                    "reloaded")
            }
            Err(error) => {
                tracing::error!(%error, "not reloaded; the configuration of before stays")
            }
        }
        self.count_reload(result.is_ok());
        result
    }

    async fn reload_alone(&self) -> Result<Reloaded, ReloadError> {
        let path = self.config_path().to_owned();
        // It reads files and looks names up.
        let config = tokio::task::spawn_blocking(move || FrontendConfig::load(&path))
            .await
            .map_err(|_| ReloadError::NotNow("the configuration could not be read"))??;
        let before = self.serving();
        check_fixed(&before, &config)?;
        self.check_tls(&config)?;
        self.reload_certificates();
        let after = Serving::start(config, Some(&*before), self.metrics());
        wait_until_ready(&after).await;
        let done = difference(&before, &after);
        self.serve(after);
        let after = self.serving();
        for model in after.models() {
            if model.driver().reset_switches() {
                tracing::warn!(
                    model = model.name(),
                    "its switches stand as configured again"
                );
            }
        }
        for model in before.models() {
            let stays = after
                .models()
                .any(|other| std::sync::Arc::ptr_eq(model, other));
            if !stays {
                model.retire(after.model(model.name()).map(|model| &**model));
            }
        }
        Ok(done)
    }
}

impl App {
    /// The listeners keep the files that they were started with; what is in them may change.
    fn check_tls(&self, config: &FrontendConfig) -> Result<(), ReloadError> {
        let files = |tls: &ListenersTls| tls.each().map(|tls| tls.map(|tls| tls.files().clone()));
        if files(&ListenersTls::of(config)) != files(self.tls()) {
            return Err(ReloadError::NeedsRestart {
                field: "the file of a certificate or key",
            });
        }
        Ok(())
    }

    /// Reads the listeners' certificates again, and those for instances. Those of before stay where
    /// the new ones are not sound.
    pub fn reload_certificates(&self) {
        for tls in self.tls().each().into_iter().flatten() {
            tell(&tls.files().identity.certificate, tls.reload());
        }
        let serving = self.serving();
        for tls in serving.models().flat_map(|model| model.tls()) {
            tell(&tls.files().ca, tls.reload());
        }
    }
}

fn tell(file: &Path, reloaded: Result<bool, TlsError>) {
    let file = file.display();
    match reloaded {
        Ok(false) => {}
        Ok(true) => tracing::info!(%file, "new certificates"),
        Err(error) => tracing::error!(%file, %error, "the certificates of before stay"),
    }
}

/// Sockets and threads are what they are.
fn check_fixed(before: &Serving, after: &FrontendConfig) -> Result<(), ReloadError> {
    let (old, new) = (before.server(), &after.server);
    let fixed = [
        ("server.listen", old.listen == new.listen),
        ("server.grpc_listen", old.grpc_listen == new.grpc_listen),
        (
            "server.grpc_max_streams",
            old.grpc_max_streams == new.grpc_max_streams,
        ),
        (
            "server.max_connections",
            old.max_connections == new.max_connections,
        ),
        (
            "server.max_connections_per_peer",
            old.max_connections_per_peer == new.max_connections_per_peer,
        ),
        (
            "server.max_connection_age_ms",
            old.max_connection_age == new.max_connection_age,
        ),
        (
            "server.header_read_timeout_ms",
            old.header_read_timeout == new.header_read_timeout,
        ),
        (
            "server.write_timeout_ms",
            old.write_timeout == new.write_timeout,
        ),
        (
            "server.min_write_bytes_per_s",
            old.min_write_rate == new.min_write_rate,
        ),
        (
            "server.max_header_bytes",
            old.max_header_bytes == new.max_header_bytes,
        ),
        ("server.max_headers", old.max_headers == new.max_headers),
        (
            "server.max_bodies_bytes",
            old.max_bodies_bytes == new.max_bodies_bytes,
        ),
        ("server.drain_delay_ms", old.drain_delay == new.drain_delay),
        ("server.drain_grace_ms", old.drain_grace == new.drain_grace),
        ("server.busy_poll_us", old.busy_poll == new.busy_poll),
        ("server.log_format", old.log_format == new.log_format),
        ("[traces]", before.traces() == after.traces.as_ref()),
        (
            "admin.listen",
            before.admin().map(|admin| admin.listen)
                == after.admin.as_ref().map(|admin| admin.listen),
        ),
    ];
    match fixed.into_iter().find(|(_, same)| !same) {
        Some((field, _)) => Err(ReloadError::NeedsRestart { field }),
        None => Ok(()),
    }
}

/// Requests must not find a model that has just been started, and thinks all its instances down.
async fn wait_until_ready(serving: &Serving) {
    let end = Instant::now() + WARM_UP;
    while Instant::now() < end && !serving.models().all(|model| model.driver().is_ready()) {
        sleep(LOOK_AGAIN).await;
    }
}

fn difference(before: &Serving, after: &Serving) -> Reloaded {
    let mut done = Reloaded::default();
    for model in after.models() {
        let stayed = before
            .models()
            .any(|other| std::sync::Arc::ptr_eq(model, other));
        let list = if stayed {
            &mut done.kept
        } else {
            &mut done.started
        };
        list.push(model.name().to_owned());
    }
    let gone = before
        .models()
        .filter(|model| !done.kept.iter().any(|kept| kept == model.name()));
    done.stopped = gone.map(|model| model.name().to_owned()).collect();
    done
}
