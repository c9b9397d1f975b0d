//! Why an instance is not ready, for logs and for operators.

use std::time::Duration;

use parapet_net::client::SendError;
use parapet_net::tls::TlsFailure;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    /// It did not answer in time.
    #[error("no answer within {0:?}")]
    TooLate(Duration),
    /// It and this frontend do not agree on TLS.
    #[error("no TLS connection: {0}")]
    Tls(TlsFailure),
    /// There is no connection, or it was lost.
    #[error("{0}")]
    Unreachable(String),
    /// It answered that it is not ready.
    #[error("it answers {0}")]
    Says(String),
    /// Its address or its model's name makes no valid request; or it is not there any more.
    #[error("its address or model name makes no valid request")]
    Unaddressable,
}

impl From<SendError> for Unready {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Tls(failure) => Self::Tls(failure),
            other => Self::Unreachable(other.to_string()),
        }
    }
}
