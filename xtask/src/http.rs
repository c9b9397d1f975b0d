//! Requests of checks to servers on this machine: HTTP/1.0, one connection each.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

const TIMEOUT: Duration = Duration::from_secs(10);

/// The body of `GET url`, if the status is 200.
pub(crate) fn get(url: &str) -> Result<String> {
    request("GET", url, "")
}

/// The JSON in the body of `GET url`, if the status is 200.
pub(crate) fn get_json(url: &str) -> Result<serde_json::Value> {
    serde_json::from_str(&get(url)?).with_context(|| format!("{url}: no JSON"))
}

/// The body that `POST url` is answered with, if the status is 200.
pub(crate) fn post(url: &str, body: &str) -> Result<String> {
    request("POST", url, body)
}

/// The whole answer to `GET url`, head and body, if the status is 200.
pub(crate) fn get_whole(url: &str) -> Result<String> {
    exchange("GET", url, "")
}

fn request(method: &str, url: &str, body: &str) -> Result<String> {
    let answer = exchange(method, url, body)?;
    Ok(answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned())
        .unwrap_or_default())
}

fn exchange(method: &str, url: &str, body: &str) -> Result<String> {
    let bare = url
        .strip_prefix("http://")
        .with_context(|| format!("{url}: not http"))?;
    let (authority, path) = bare.split_at(bare.find('/').unwrap_or(bare.len()));
    let path = if path.is_empty() { "/" } else { path };
    let asking = || -> Result<Vec<u8>> {
        let mut stream = TcpStream::connect(authority)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nhost: {authority}\r\ncontent-type: \
                application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = asking().with_context(|| format!("{method} {url}"))?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("{url}: no HTTP"))?;
    if head.split(' ').nth(1) != Some("200") {
        bail!(
            "{method} {url}: {}: {}",
            head.lines().next().unwrap_or_default(),
            body.trim()
        );
    }
    Ok(answer)
}

/// `text` as part of a query string.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                encoded.push(char::from(byte))
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
