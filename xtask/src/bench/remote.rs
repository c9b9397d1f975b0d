//! An instance on a machine of its own, emulated: it answers what a real one has answered, after
//! the time that one took, and takes no processor meanwhile.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

/// Listens until the process ends.
pub(super) struct RemoteInstance {
    address: String,
}

impl RemoteInstance {
    /// Answers predictions with `response`, a whole HTTP response, after `service_time`, and
    /// everything else with status 200 and the JSON `metadata`.
    pub(super) fn start(response: &[u8], metadata: &str, service_time: Duration) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?.to_string();
        let response: Arc<[u8]> = response.into();
        let other = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: \
                {}\r\n\r\n{metadata}",
            metadata.len()
        );
        let other: Arc<[u8]> = other.as_bytes().into();
        thread::Builder::new()
            .name("remote instance".to_owned())
            .spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (response, other) = (Arc::clone(&response), Arc::clone(&other));
                    // A connection that ends is the frontend's own business.
                    thread::spawn(move || serve(stream, &response, &other, service_time));
                }
            })?;
        Ok(Self { address })
    }

    /// Where it listens, host:port.
    pub(super) fn address(&self) -> &str {
        &self.address
    }
}

fn serve(stream: TcpStream, response: &[u8], other: &[u8], service_time: Duration) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let is_prediction = line.starts_with("POST ");
        let mut length = 0;
        while !line.trim_end().is_empty() {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value
                    .trim()
                    .parse()
                    .context("a content-length that is no number")?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if is_prediction {
            thread::sleep(service_time);
            reader.get_mut().write_all(response)?;
        } else {
            reader.get_mut().write_all(other)?;
        }
    }
}
