//! Errors of the registry.

use parapet_parameter_server::ArrayId;

pub type Result<T, E = RegistryError> = std::result::Result<T, E>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what they are")]
pub enum RegistryError {
    #[error(
        "the registry at {endpoints} does not answer ({cause}): start it, or name its addresses \
            in --registry"
    )]
    Unreachable { endpoints: String, cause: String },
    #[error("the registry at {endpoints} refuses: {cause}")]
    Refused { endpoints: String, cause: String },
    #[error(
        "`{0}` names no registry: write `parapet://HOST:PORT` (a coordinator that serves one) \
            or `etcd://HOST:PORT[,HOST:PORT..][/CLUSTER]`, such as `etcd://10.0.0.5:2379/mnist`"
    )]
    Address(String),
    #[error("{what} has {bytes} bytes, {limit} are allowed: cut the arrays into fewer shards")]
    TooLarge {
        what: &'static str,
        bytes: usize,
        limit: usize,
    },
    #[error("{0} was changed by others again and again meanwhile: try again")]
    Contended(&'static str),
    #[error(
        "{0} is there with other keys or another number of shards: take another number for \
            the new array"
    )]
    OtherArray(ArrayId),
    #[error("{limit} reports of this member stand already: retract some")]
    TooManyReports { limit: usize },
    #[error("another member leads: campaign again when the view has no leader")]
    Deposed,
    #[error("the routing table has changed meanwhile: decide anew on what it is now")]
    Conflict,
    #[error(
        "the registry's {key} cannot be read ({cause}): it was written by another version, or by \
            something else"
    )]
    Malformed { key: String, cause: String },
    #[error("the registry is closed in this process")]
    Closed,
}

impl RegistryError {
    pub const fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Contended(_) | Self::Conflict
        )
    }

    pub(crate) fn malformed(key: &str, cause: impl ToString) -> Self {
        let (key, cause) = (key.to_owned(), cause.to_string());
        Self::Malformed { key, cause }
    }
}
