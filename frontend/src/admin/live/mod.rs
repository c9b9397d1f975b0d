//! The live page: how the models do, and the switches that change it, in a browser.
//!
//! | | |
//! |---|---|
//! | `GET /`, `GET /live` | the page; no key, since there is nothing in it |
//! | `GET /live/state` | what it shows, as JSON ([`state`]) |
//! | `POST /live/models/NAME/redundancy` | `{"on": false}`: queries get no redundancy from now on |
//! | `POST /live/models/NAME/hold_back` | `{"fixed_ms": 20}`, `{"percentile": 0.95}`, or `{"configured": true}` |
//!
//! The page is one document without anything from elsewhere, and its policy lets it run its own
//! script only. It asks for the key and sends it as any other client does; what it gets it shows as
//! text. It adds up nothing here: rates are differences between two states, which the page takes.

mod page;
mod state;
mod switches;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

pub(super) use self::page::page;
pub(super) use self::state::millis;
use crate::app::App;

pub(super) fn guarded() -> Router<Arc<App>> {
    Router::new()
        .route("/live/state", get(state::state))
        .route(
            "/live/models/{model}/redundancy",
            post(switches::redundancy),
        )
        .route("/live/models/{model}/hold_back", post(switches::hold_back))
}
