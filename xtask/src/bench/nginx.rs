//! nginx as the proxy to compare with: what a proxy in C that knows nothing of predictions adds on
//! this machine.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::servers::Server;
use crate::processes::{Servers, wait_for};
use crate::resources::pinned;
use crate::workspace;

/// One worker of nginx that passes every request on over kept-alive connections.
pub(super) struct Nginx {
    running: Servers,
    authority: String,
}

impl Nginx {
    /// In front of the servers at `upstreams`, in turns, on one core if that is said; `None` where
    /// nginx is not installed. Its files lie in `folder`.
    pub(super) fn start(
        folder: &Path,
        upstreams: &[String],
        core: Option<usize>,
    ) -> Result<Option<Self>> {
        workspace::make_folder(folder)?;
        let address = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
        let configuration = folder.join("nginx.conf");
        fs::write(
            &configuration,
            text(folder, &address.to_string(), upstreams),
        )?;
        if Command::new("nginx")
            .arg("-v")
            .stderr(Stdio::null())
            .status()
            .is_err()
        {
            return Ok(None);
        }
        let child = pinned("nginx", core)
            .arg("-p")
            .arg(folder)
            .arg("-c")
            .arg(&configuration)
            .args(["-e", "stderr"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start nginx")?;
        let mut running = Servers::default();
        running.adopt(child);
        wait_for("listening nginx", Duration::from_secs(5), || {
            Ok(TcpStream::connect(address).ok())
        })?;
        Ok(Some(Self {
            running,
            authority: address.to_string(),
        }))
    }

    /// Where it listens, and its process.
    pub(super) fn server(&self) -> Server {
        Server {
            authority: self.authority.clone(),
            pid: self.running.last_pid(),
        }
    }

    /// Where it listens, host:port.
    pub(super) fn authority(&self) -> &str {
        &self.authority
    }
}

fn text(folder: &Path, address: &str, upstreams: &[String]) -> String {
    let folder = folder.display();
    let servers: String = upstreams
        .iter()
        .map(|url| format!("server {}; ", url.trim_start_matches("http://")))
        .collect();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr error;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n  access_log off;\n  client_body_buffer_size 1m;\n  keepalive_requests 100000000;\n\
         \x20 client_body_temp_path {folder}/body;\n  proxy_temp_path {folder}/proxy;\n\
         \x20 fastcgi_temp_path {folder}/fastcgi;\n  uwsgi_temp_path {folder}/uwsgi;\n  \
         scgi_temp_path {folder}/scgi;\n\
         \x20 upstream instances {{ {servers}keepalive 64; keepalive_requests 100000000; }}\n\
         \x20 server {{\n    listen {address};\n    location / {{\n      proxy_pass http://instances;\n\
         \x20     proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n    }}\n  \
         }}\n}}\n"
    )
}
