//! The Open Inference Protocol's server side: routes, bodies, error objects, request ids.

mod infer;
mod response;
mod routes;

pub use routes::{App, router};
