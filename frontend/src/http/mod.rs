//! The Open Inference Protocol's server side: routes, bodies, error objects, request ids.

mod body;
mod guard;
mod infer;
mod response;
mod routes;

pub(crate) use response::{error, json};
pub use routes::router;
pub(crate) use routes::{metrics, server_ready};
