//! A backend in memory, for tests: it says what it is told to, and can be lost.

use tokio::sync::watch;

use crate::discovery::{Addresses, Discovery, DiscoveryError};

/// A backend that says what its sender says; an error stands for an outage.
#[derive(Debug)]
pub struct Memory {
    says: watch::Receiver<Result<Addresses, String>>,
    /// True if the present word has been passed on.
    said: bool,
}

impl Memory {
    /// A backend and who says what it knows.
    pub fn new(addresses: Addresses) -> (watch::Sender<Result<Addresses, String>>, Self) {
        let (sender, says) = watch::channel(Ok(addresses));
        (sender, Self { says, said: false })
    }
}

impl Discovery for Memory {
    async fn next(&mut self) -> Result<Addresses, DiscoveryError> {
        if self.said && self.says.changed().await.is_err() {
            // No more news will come.
            std::future::pending::<()>().await;
        }
        let says = self.says.borrow_and_update().clone();
        // As the others do, an outage is told again and again.
        self.said = says.is_ok();
        says.map_err(|reason| DiscoveryError::new("memory", reason))
    }
}
