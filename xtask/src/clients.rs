//! Clients that ask the sample model without a pause, and count how they were answered.

use crate::cluster::query;
use crate::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};

const CLIENTS: u8 = 3;

#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// By provenance, or why there is none.
    counts: BTreeMap<&'static str, u64>,
    pub(crate) longest: Duration,
    /// The last of what was not a prediction.
    pub(crate) said: String,
}

impl Seen {
    pub(crate) fn count(&self, kind: &str) -> u64 {
        self.counts.get(kind).copied().unwrap_or_default()
    }

    fn note(&mut self, answer: Result<String>, took: Duration) {
        self.longest = self.longest.max(took);
        let (kind, said) = match answer {
            Ok(provenance) if provenance == "exact" => ("exact", None),
            Ok(provenance) if provenance == "reconstructed" => ("reconstructed", None),
            Ok(other) => ("error", Some(other)),
            Err(error) => ("unanswered", Some(format!("{error:#}"))),
        };
        *self.counts.entry(kind).or_default() += 1;
        self.said = said.unwrap_or_else(|| std::mem::take(&mut self.said));
    }
}

pub(crate) fn ask(url: &str, value: f32) -> Result<String> {
    let request = http::client().post(url).content_type("application/json");
    let mut answer = request.send(query(value))?;
    let text = answer.body_mut().read_to_string()?;
    if answer.status() != 200 {
        return Ok(format!("status {}: {text}", answer.status()));
    }
    let answer: Value = serde_json::from_str(&text).context("an answer that is no JSON")?;
    let provenance = answer["parameters"]["provenance"].as_str();
    Ok(provenance.unwrap_or("no provenance").to_owned())
}

/// They ask until this value ends, from the network namespace of the thread that started them.
pub(crate) struct Clients {
    stop: Arc<AtomicBool>,
    answers: Receiver<(Result<String>, Duration)>,
    seen: Seen,
}

impl Clients {
    /// Three clients of each URL, which pause so long after an answer.
    pub(crate) fn start(urls: &[String], pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (sender, answers) = channel();
        for url in urls {
            for number in 0..CLIENTS {
                let (url, stop, sender) = (url.clone(), Arc::clone(&stop), sender.clone());
                std::thread::spawn(move || {
                    let mut value = f32::from(number);
                    while !stop.load(Ordering::Relaxed) {
                        value = (value + 0.37) % 17.0;
                        let asked = Instant::now();
                        let answer = ask(&url, value);
                        if sender.send((answer, asked.elapsed())).is_err() {
                            return;
                        }
                        std::thread::sleep(pause);
                    }
                });
            }
        }
        let seen = Seen::default();
        Self {
            stop,
            answers,
            seen,
        }
    }

    pub(crate) fn so_far(&mut self) -> Seen {
        for (answer, took) in self.answers.try_iter() {
            self.seen.note(answer, took);
        }
        self.seen.clone()
    }

    pub(crate) fn stop(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        // The channel ends with the last client.
        while let Ok((answer, took)) = self.answers.recv_timeout(Duration::from_secs(20)) {
            self.seen.note(answer, took);
        }
        self.seen.clone()
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
