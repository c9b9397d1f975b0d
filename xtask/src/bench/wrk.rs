//! The client that asks as often as it is answered: wrk, with a script that says what in one line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::demo::binary_query;
use crate::resources::pinned;
use crate::workspace;

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
  io.write(string.format("RESULT %d %d %d %d\n", summary.requests, summary.duration,
      latency:percentile(99),
    e.connect + e.read + e.write + e.status + e.timeout))
end
"#;

impl Wrk {
    /// Asks `model` about the first image over `connections` connections for `seconds` seconds;
    /// `None` where wrk is not installed.
    pub(super) fn find(
        folder: &Path,
        model: &str,
        connections: u32,
        seconds: u32,
    ) -> Result<Option<Self>> {
        if Command::new("wrk").arg("-v").output().is_err() {
            return Ok(None);
        }
        let query = binary_query()?;
        let body = folder.join("query.bin");
        workspace::write(&body, &query.bytes)?;
        let script = folder.join("wrk.lua");
        let text = SCRIPT
            .replace("MODEL", model)
            .replace("BODY", &body.display().to_string())
            .replace("HEADER", &query.header_length.to_string());
        workspace::write(&script, text)?;
        Ok(Some(Self {
            script,
            connections,
            seconds,
        }))
    }

    /// Asks the server at `authority`, from one core if that is said.
    pub(super) fn run(&self, authority: &str, core: Option<usize>) -> Result<Full> {
        let output = pinned("wrk", core)
            .args([
                "-t1",
                &format!("-c{}", self.connections),
                &format!("-d{}s", self.seconds),
                "-s",
            ])
            .arg(&self.script)
            .arg(format!("http://{authority}"))
            .output()
            .context("cannot start wrk")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
        let line = line
            .with_context(|| format!("wrk failed: {}", String::from_utf8_lossy(&output.stderr)))?;
        let numbers: Vec<f64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [requests, duration, p99, errors] = numbers[..] else {
            anyhow::bail!("wrk said {line:?}");
        };
        ensure!(
            errors == 0.0,
            "{authority}: {errors} of {requests} requests failed"
        );
        Ok(Full {
            per_second: requests / duration * 1e6,
            p99_ms: p99 / 1e3,
        })
    }
}
