//! nginx as the proxy to compare with: what a proxy in C that knows nothing of predictions adds on
//! this machine.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::cluster::pinned;
use crate::process::{Processes, wait_for};
use crate::workspace::shell;

/// Starts one worker of nginx, called `nginx` among `processes`, that passes every request on over
/// kept-alive connections to the servers at `upstreams`, in turns, on one core if that is said;
/// returns its address. Its files lie in `folder`.
pub(super) fn start(
    processes: &mut Processes,
    folder: &Path,
    upstreams: &[String],
    core: Option<usize>,
) -> Result<String> {
    let (sh, address) = (shell()?, TcpListener::bind(("127.0.0.1", 0))?.local_addr()?);
    let servers: String = upstreams
        .iter()
        .map(|address| format!("server {address}; "))
        .collect();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {}/{kind};\n", folder.display()))
        .concat();
    let configuration = format!(
        "daemon off;\nmaster_process off;\npid {}/nginx.pid;\nerror_log stderr error;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n  access_log off;\n  client_body_buffer_size 1m;\n\
         \x20 keepalive_requests 100000000;\n{temporary}\
         \x20 upstream instances {{ {servers}keepalive 64; keepalive_requests 100000000; }}\n\
         \x20 server {{\n    listen {address};\n    location / {{\n\
         \x20     proxy_pass http://instances;\n      proxy_http_version 1.1;\n\
         \x20     proxy_set_header Connection \"\";\n    }}\n  }}\n}}\n",
        folder.display()
    );
    let file = folder.join("nginx.conf");
    sh.write_file(&file, configuration)?;
    let command = pinned(&sh, core, "nginx".as_ref())
        .arg("-p")
        .arg(folder)
        .arg("-c")
        .arg(file);
    processes.start("nginx", command.args(["-e", "stderr"]))?;
    wait_for("listening nginx", Duration::from_secs(5), || {
        Ok(TcpStream::connect(address).ok())
    })?;
    Ok(address.to_string())
}
