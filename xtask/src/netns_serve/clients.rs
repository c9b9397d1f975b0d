//! Clients that ask without a pause, and note how they were answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use crate::http;
use crate::sample::{MODEL, query};

/// For each frontend.
const CLIENTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(25);

#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) exact: u64,
    pub(super) reconstructed: u64,
    pub(super) errors: u64,
    pub(super) unanswered: u64,
    pub(super) longest: Duration,
    /// The last of what was not a prediction.
    pub(super) said: String,
}

impl Seen {
    pub(super) fn rows(&self) -> [(&'static str, u64); 4] {
        [
            ("exact", self.exact),
            ("reconstructed", self.reconstructed),
            ("answered with an error", self.errors),
            ("without an answer", self.unanswered),
        ]
    }

    pub(super) fn less(&self, other: &Self) -> Self {
        Self {
            exact: self.exact - other.exact,
            reconstructed: self.reconstructed - other.reconstructed,
            errors: self.errors - other.errors,
            unanswered: self.unanswered - other.unanswered,
            ..self.clone()
        }
    }

    fn note(&mut self, answer: Result<String>, took: Duration) {
        self.longest = self.longest.max(took);
        match answer {
            Ok(provenance) if provenance == "exact" => self.exact += 1,
            Ok(provenance) if provenance == "reconstructed" => self.reconstructed += 1,
            Ok(other) => {
                self.errors += 1;
                self.said = other;
            }
            Err(error) => {
                self.said = format!("{error:#}");
                // One that has a status has said so.
                if self.said.contains("HTTP/1.") {
                    self.errors += 1
                } else {
                    self.unanswered += 1
                }
            }
        }
    }
}

/// Asks the frontend at `url` once; how the answer came about.
pub(super) fn ask(url: &str) -> Result<String> {
    let answer = http::post(&format!("{url}/v2/models/{MODEL}/infer"), &query(0.5))?;
    let answer: Value = serde_json::from_str(&answer).context("an answer that is no JSON")?;
    let provenance = answer
        .pointer("/parameters/provenance")
        .and_then(Value::as_str);
    Ok(provenance
        .unwrap_or("an answer without provenance")
        .to_owned())
}

/// They ask until they are stopped.
pub(super) struct Clients {
    stop: Arc<AtomicBool>,
    seen: mpsc::Receiver<(Result<String>, Duration)>,
    so_far: std::cell::RefCell<Seen>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Of these frontends. They are where this thread is.
    pub(super) fn start(frontends: &[String]) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, seen) = mpsc::channel();
        let mut threads = Vec::new();
        for url in frontends {
            ask(url)?;
            for _ in 0..CLIENTS {
                let (url, stop, sender) = (url.clone(), Arc::clone(&stop), sender.clone());
                threads.push(std::thread::spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        let asked = Instant::now();
                        let answer = ask(&url);
                        if sender.send((answer, asked.elapsed())).is_err() {
                            return;
                        }
                        std::thread::sleep(PAUSE);
                    }
                }));
            }
        }
        Ok(Self {
            stop,
            seen,
            so_far: Default::default(),
            threads,
        })
    }

    /// Returns the events seen until now.
    pub(super) fn so_far(&self) -> Seen {
        let mut so_far = self.so_far.borrow_mut();
        for (answer, took) in self.seen.try_iter() {
            so_far.note(answer, took);
        }
        so_far.clone()
    }

    /// All that was seen.
    pub(super) fn stop(mut self) -> Result<Seen> {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| anyhow!("a client ended"))?;
        }
        Ok(self.so_far())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}
