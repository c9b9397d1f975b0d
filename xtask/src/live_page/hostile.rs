//! A server that serves the very page, and says things of which a page that took them for markup
//! would fall to pieces.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result};
use serde_json::{Value, json};

pub(super) const NAME: &str =
    "<img src=x onerror=\"window.hostile=1\"><script>window.hostile=2</script>";

pub(super) struct Hostile {
    pub(super) url: String,
}

impl Hostile {
    /// Serves `page`, head and body as the frontend sent them, until the process ends.
    pub(super) fn start(page: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no port")?;
        let url = format!("http://{}/live", listener.local_addr()?);
        let page = page.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let page = page.clone();
                // Browsers open connections before they need them; these must not keep the others
                // waiting.
                std::thread::spawn(move || answer(stream, &page));
            }
        });
        Ok(Self { url })
    }
}

fn answer(mut stream: TcpStream, page: &str) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    match first.split(' ').nth(1) {
        Some("/live") => stream.write_all(page.as_bytes()),
        Some("/live/state") => {
            write!(
                stream,
                "HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{}",
                state()
            )
        }
        _ => write!(stream, "HTTP/1.0 404 Not Found\r\n\r\n"),
    }
}

/// Text wherever the page shows any.
fn state() -> Value {
    let percentiles = json!({ "count": 1, "p50_ms": 1.0, "p99_ms": 1.0, "p999_ms": 1.0 });
    let member =
        json!({ "status": NAME, "predicted": false, "reconstructed": false, "late": false });
    let group = json!({ "id": NAME, "class": 0, "k": 2, "age_ms": 1.0, "sealed": true,
        "members": [member], "parity": [NAME] });
    let instance = json!({
        "name": NAME, "pool": NAME, "state": "up", "unready": NAME, "in_flight": 1, "oldest_ms": 1.0, "latency_ms": 1.0, "failed": 1, "of": 2,
        "ejections": 1,
    });
    let class = json!({
        "class": NAME, "strategy": NAME, "code": NAME, "issued": 1, "won": 0, "wasted": 0, "shed": 0, "failed": 0,
        "budget": null, "agreement": { "late_truth": [1, 0], "audit": [0, 0] },
    });
    let totals = [
        "accepted",
        "rejected",
        "exact",
        "hedged",
        "backup",
        "reconstructed",
        "failed",
        "deadline_exceeded",
        "abandoned",
        "retries",
        "shed",
        "late_unrecoverable",
        "groups_encoded",
        "groups_filled",
        "groups_spared",
        "violations",
    ];
    let totals: serde_json::Map<String, Value> = totals
        .into_iter()
        .map(|name| (name.to_owned(), 1.into()))
        .collect();
    json!({
        "version": NAME, "ready": true, "draining": false, "window_s": 30, "models_left_out": 0,
        "models": [{
            "name": NAME, "model_version": NAME, "at_ms": 1.0, "totals": totals, "in_flight": 1, "queued": 0, "queue_limit": 1,
            "hold_back_ms": 1.0, "classes": [class], "instances": [instance], "groups_in_memory": 1, "groups": [group],
            "decoded": [group],
            "switches": { "redundancy": true, "hold_back": null, "has_redundancy": true, "has_hold_back": true },
            "latency": { "answered": percentiles, "approximated": 0, "without": percentiles },
        }],
    })
}
