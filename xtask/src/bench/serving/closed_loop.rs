//! One client that sends its next request when it has the answer to the last: the time of one request, and nothing else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// A kept-alive connection and a request to repeat.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Client {
    /// A client of `authority` (host:port) that sends `body`, of which the first `header_length` bytes are JSON.
    pub(super) fn connect(authority: &str, path: &str, body: &[u8], header_length: usize) -> Result<Self> {
        let stream =
            TcpStream::connect(authority).with_context(|| format!("cannot connect to {authority}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/octet-stream\r\n\
             Inference-Header-Content-Length: {header_length}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        Ok(Self { stream: BufReader::new(stream), request })
    }

    /// Sends requests for `span`; returns the time of each.
    pub(super) fn run(&mut self, span: Duration) -> Result<Vec<Duration>> {
        let started = Instant::now();
        let mut times = Vec::new();
        while started.elapsed() < span {
            let sent = Instant::now();
            self.exchange()?;
            times.push(sent.elapsed());
        }
        Ok(times)
    }

    /// The same while `other`, a parity instance, works as it does behind a coding frontend: each `k`-th of its requests
    /// goes out together with one of ours and is answered meanwhile, by itself.
    pub(super) fn run_beside(&mut self, other: &mut Self, k: usize, span: Duration) -> Result<Vec<Duration>> {
        let started = Instant::now();
        let mut times = Vec::new();
        let mut awaited = false;
        while started.elapsed() < span {
            let completes_a_group = (times.len() + 1).is_multiple_of(k);
            if completes_a_group && std::mem::take(&mut awaited) {
                other.receive()?;
            }
            let sent = Instant::now();
            self.send()?;
            if completes_a_group {
                other.send()?;
                awaited = true;
            }
            self.receive()?;
            times.push(sent.elapsed());
        }
        if awaited {
            other.receive()?;
        }
        Ok(times)
    }

    fn exchange(&mut self) -> Result<()> {
        self.send()?;
        self.receive()
    }

    fn send(&mut self) -> Result<()> {
        Ok(self.stream.get_mut().write_all(&self.request)?)
    }

    fn receive(&mut self) -> Result<()> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        ensure!(line.starts_with("HTTP/1.1 200"), "the server answered {line:?}");
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let header = line.trim_end();
            if header.is_empty() {
                break;
            }
            if let Some((name, value)) = header.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().context("a content-length that is no number")?;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(())
    }
}

/// The median in microseconds.
pub(super) fn p50_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}
