//! One client that has at most one request out: the time of one request, and nothing else.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// A kept-alive connection and a request to repeat.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
    response: Vec<u8>,
}

impl Client {
    /// A client of `authority` (host:port) that sends `body`, of which the first `header_length`
    /// bytes are JSON.
    pub(super) fn connect(
        authority: &str,
        path: &str,
        body: &[u8],
        header_length: usize,
    ) -> Result<Self> {
        let stream = TcpStream::connect(authority)
            .with_context(|| format!("cannot connect to {authority}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: \
                application/octet-stream\r\n\
             Inference-Header-Content-Length: {header_length}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        Ok(Self {
            stream: BufReader::new(stream),
            request,
            response: Vec::new(),
        })
    }

    /// Sends the request; the whole response, head and body.
    pub(super) fn ask(&mut self) -> Result<&[u8]> {
        self.stream.get_mut().write_all(&self.request)?;
        self.response.clear();
        let mut length = 0;
        loop {
            let begin = self.response.len();
            self.stream.read_until(b'\n', &mut self.response)?;
            let line = std::str::from_utf8(self.response.get(begin..).unwrap_or_default())?;
            ensure!(
                begin > 0 || line.starts_with("HTTP/1.1 200"),
                "the server answered {line:?}"
            );
            if line.trim_end().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value
                    .trim()
                    .parse()
                    .context("a content-length that is no number")?;
            }
        }
        let head = self.response.len();
        self.response.resize(head + length, 0);
        self.stream
            .read_exact(self.response.get_mut(head..).unwrap_or_default())?;
        Ok(&self.response)
    }
}

/// When a request is sent.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pace {
    /// When the last one was answered.
    Closed,
    /// So many a second, at equal distances; those that the answer to the last one delays are sent
    /// at once after it.
    PerSecond(u32),
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed loop"),
            Self::PerSecond(rate) => write!(f, "{rate} requests/s"),
        }
    }
}

/// Sends requests for `span`, to the clients in turns as a frontend does to its instances; returns
/// the time of each.
pub(super) fn time_requests(
    clients: &mut [Client],
    pace: Pace,
    span: Duration,
) -> Result<Vec<Duration>> {
    let started = Instant::now();
    let mut times = Vec::new();
    for index in 0.. {
        if let Pace::PerSecond(rate) = pace {
            let due = Duration::from_secs(1) * index / rate;
            std::thread::sleep(due.saturating_sub(started.elapsed()));
        }
        if started.elapsed() >= span {
            break;
        }
        let turn = index as usize % clients.len();
        let client = clients.get_mut(turn).context("no target")?;
        let sent = Instant::now();
        client.ask()?;
        times.push(sent.elapsed());
    }
    Ok(times)
}

/// The median in microseconds.
pub(super) fn p50_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times
        .get(times.len() / 2)
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}
