//! Why an instance is not ready, for logs and for operators.

use std::time::Duration;

use parapet_net::client::SendError;
use parapet_net::tls::TlsFailure;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unready {
    #[error("no answer within {0:?}")]
    TooLate(Duration),
    #[error("no TLS connection: {0}")]
    Tls(TlsFailure),
    #[error("{0}")]
    Unreachable(String),
    #[error("it answers {0}")]
    Says(String),
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
