//! A state for tests of what needs no model.

use std::path::PathBuf;

use super::*;

pub(crate) fn without_models() -> App {
    let config = FrontendConfig {
        path: PathBuf::new(),
        server: ServerSettings::default(),
        server_tls: None,
        admin: None,
        tenants: Vec::new(),
        models: Vec::new(),
        undescribed: Vec::new(),
        traces: None,
    };
    App::start(config, Metrics::new().unwrap(), None)
}
