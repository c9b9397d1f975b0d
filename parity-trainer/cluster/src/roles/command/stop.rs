//! When a process is to end.

use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::CommandError;

/// Ctrl-C and SIGTERM ask for an end; a second one ends at once, with exit code 130.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Listens from now on.
    ///
    /// # Errors
    /// If the operating system does not let it.
    pub fn listen() -> Result<Self, CommandError> {
        let listen = |kind| signal(kind).map_err(CommandError::Runtime);
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the first.
    pub async fn asked(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(130);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Waits until the process that started this one has ended, if `attached`: its end of the standard
/// input is closed then.
pub(crate) async fn abandoned(attached: bool) {
    if !attached {
        return std::future::pending().await;
    }
    let mut input = tokio::io::stdin();
    let mut byte = [0; 1];
    while !matches!(input.read(&mut byte).await, Ok(0) | Err(_)) {}
}

/// Time that a cluster's processes have for their own end.
pub(crate) const LAST: Duration = Duration::from_secs(10);
