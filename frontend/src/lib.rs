//! The frontend: takes inference requests over HTTP and gRPC, has instances of the deployed model
//! answer them, and answers late ones from their coding group.
//!
//! The rules of coding, dispatch and deadlines are in [`parapet_frontend_core`]; here is the IO
//! around them: [`config`] reads and validates, `http` and `grpc` speak the protocol with clients,
//! [`upstream`] with instances, which [`online`] asks before they serve, and [`driver`] feeds one
//! engine for each model; [`traces`] shows where the time went. [`app`] holds what a [`reload`]
//! replaces, [`tenants`] who may ask, `admin` what operators ask.

#![allow(missing_docs, reason = "the programs build on it alone")]

/// Returns the error unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $error:expr) => {
        if !$holds {
            return Err($error);
        }
    };
}

mod admin;
pub mod app;
pub mod coding;
pub mod config;
pub mod discovery;
pub mod driver;
pub mod error;
mod grpc;
mod http;
pub mod metrics;
pub mod model;
pub mod online;
pub mod payload;
pub mod reload;
mod request_context;
mod server;
pub mod tenants;
pub mod traces;
pub mod upstream;

pub use server::Frontend;
