//! A frontend to operate on.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use parapet_frontend::Frontend;
use parapet_frontend::config::FrontendConfig;
use parapet_frontend::tenants::Key;
use tokio::sync::oneshot;

use crate::support::{Answer, INPUTS, body, get, plain_toml, request, wait_until};

pub const INFER: &str = "/v2/models/linear/infer";
pub const SAMPLE: [f32; INPUTS] = [1.0, 2.0, 3.0, 4.0];
pub const LIMIT: Duration = Duration::from_secs(10);

/// A frontend in this process, with its configuration in a file.
pub struct Served {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    pub grpc: Option<SocketAddr>,
    pub config: PathBuf,
    _shutdown: oneshot::Sender<()>,
    pub repository: tempfile::TempDir,
}

pub async fn serve(repository: tempfile::TempDir, text: &str) -> Served {
    let config = repository.path().join("parapet.toml");
    fs::write(&config, text).unwrap();
    let frontend = Frontend::bind(FrontendConfig::load(&config).unwrap())
        .await
        .unwrap();
    let (address, admin) = (
        frontend.address().unwrap(),
        frontend.admin_address().unwrap(),
    );
    let grpc = frontend.grpc_address().unwrap();
    let (shutdown, asked) = oneshot::channel::<()>();
    tokio::spawn(async move { frontend.run(async move { drop(asked.await) }).await });
    wait_until("ready", LIMIT, async || {
        get(admin, "/v2/health/ready").await.status == 200
    })
    .await;
    Served {
        address,
        admin,
        grpc,
        config,
        _shutdown: shutdown,
        repository,
    }
}

pub fn with_admin(text: &str) -> String {
    format!("[admin]\nlisten = \"127.0.0.1:0\"\n{text}")
}

pub fn tenant(name: &str, key: &Key, more: &str) -> String {
    format!(
        "[[tenants]]\nname = \"{name}\"\nkey_sha256 = [\"{}\"]\n{more}\n",
        key.hash()
    )
}

pub fn bearer(key: &Key) -> String {
    format!("Bearer {}", key.text())
}

pub async fn ask_as(address: SocketAddr, key: &Key, sample: &[f32]) -> Answer {
    let authorization = bearer(key);
    let headers = [("authorization", authorization.as_str())];
    request(
        address,
        Method::POST,
        INFER,
        &headers,
        body(sample, "").as_bytes(),
    )
    .await
}

pub async fn reload(admin: SocketAddr) -> Answer {
    request(admin, Method::POST, "/admin/reload", &[], b"").await
}

pub async fn metrics(admin: SocketAddr) -> String {
    String::from_utf8_lossy(&get(admin, "/metrics").await.body).into_owned()
}

pub async fn serve_plain(repository: tempfile::TempDir, instances: &[SocketAddr]) -> Served {
    let text = with_admin(&plain_toml(repository.path(), instances, ""));
    serve(repository, &text).await
}
