//! The Open Inference Protocol over gRPC: what [`crate::http`] does, in the other form.

mod guard;
mod service;

pub(crate) use guard::service;
