//! The client that asks as often as it is answered: wrk, with a script that says what in one line.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cluster::pinned;
use crate::models::binary_query;
use crate::workspace::shell;

/// wrk with its script and the body to send.
pub(super) struct Wrk {
    script: PathBuf,
    connections: u32,
    seconds: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Full {
    pub(super) per_second: f64,
    pub(super) p99_ms: f64,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} requests/s, p99 {:.2} ms",
            self.per_second, self.p99_ms
        )
    }
}

/// Times are in microseconds.
const SCRIPT: &str = r#"
local file = assert(io.open("BODY", "rb"))
wrk.method = "POST"
wrk.path = "/v2/models/MODEL/infer"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.headers["Inference-Header-Content-Length"] = "HEADER"
function done(summary, latency, requests)
  local e = summary.errors
  local errors = e.connect + e.read + e.write + e.status + e.timeout
  local p99 = latency:percentile(99)
  io.write(string.format("RESULT %d %d %d %d\n", summary.requests, summary.duration, p99, errors))
end
"#;

impl Wrk {
    /// Asks `model` about the first image over `connections` connections for `seconds` seconds.
    pub(super) fn new(folder: &Path, model: &str, connections: u32, seconds: u32) -> Result<Self> {
        let (sh, (body, header_length)) = (shell()?, binary_query()?);
        let (file, script) = (folder.join("query.bin"), folder.join("wrk.lua"));
        sh.write_file(&file, body)?;
        let text = SCRIPT
            .replace("MODEL", model)
            .replace("BODY", &file.display().to_string())
            .replace("HEADER", &header_length.to_string());
        sh.write_file(&script, text)?;
        Ok(Self {
            script,
            connections,
            seconds,
        })
    }

    /// Asks the server at `address`, from one core if that is said.
    pub(super) fn run(&self, address: &str, core: Option<usize>) -> Result<Full> {
        let sh = shell()?;
        let wrk = pinned(&sh, core, "wrk".as_ref())
            .args([
                "-t1",
                &format!("-c{}", self.connections),
                &format!("-d{}s", self.seconds),
            ])
            .arg("-s")
            .arg(&self.script)
            .arg(format!("http://{address}"));
        let text = wrk.quiet().read()?;
        let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
        let line = line.with_context(|| format!("wrk said {text}"))?;
        let numbers: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [requests, duration, p99, errors] = numbers[..] else {
            anyhow::bail!("wrk said {line:?}");
        };
        ensure!(
            errors == 0.0,
            "{address}: {errors} of {requests} requests failed"
        );
        Ok(Full {
            per_second: requests / duration * 1e6,
            p99_ms: p99 / 1e3,
        })
    }
}
