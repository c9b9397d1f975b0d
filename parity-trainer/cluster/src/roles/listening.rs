//! Listeners that a process has, whatever its role.

use tokio::net::TcpListener;

use crate::roles::ClusterError;

#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) listener: TcpListener,
    pub(crate) address: String,
}

impl Listening {
    /// Listens at `HOST:PORT`, port 0 for any that is free.
    pub(crate) async fn at(address: &str) -> Result<Self, ClusterError> {
        let failed = |source| ClusterError::Listen {
            address: address.to_owned(),
            source,
        };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        Ok(Self { listener, address })
    }
}
