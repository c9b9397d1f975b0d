//! HTTP/1.1 messages of known length, byte for byte: a client's library would hide what comes beside an answer.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// No message of this run is longer.
const LONGEST: usize = 1 << 20;

/// A request or a response.
#[derive(Debug)]
pub struct Message {
    /// Its first line.
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Message {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Of a response.
    pub fn status(&self) -> Option<u16> {
        self.line.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok()
    }

    /// As it goes over the wire, but for the length, which is that of the body now.
    pub fn head(&self) -> String {
        let kept = self.headers.iter().filter(|(name, _)| name != "content-length");
        let headers: String = kept.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("{}\r\n{headers}content-length: {}\r\n\r\n", self.line, self.body.len())
    }
}

/// One side of a connection, with what has come of the next message.
#[derive(Debug)]
pub struct Reader<S> {
    pub stream: S,
    buffer: BytesMut,
}

impl<S: AsyncRead + Unpin> Reader<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// What has come that belongs to no message that was asked for.
    pub fn left_over(&self) -> usize {
        self.buffer.len()
    }

    /// The next message; `None` if the other side has closed the connection before any of it.
    pub async fn next(&mut self) -> io::Result<Option<Message>> {
        let end = loop {
            if let Some(position) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break position + 4;
            }
            if !self.more().await? {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(broken("it ends within its header"))
                };
            }
        };
        let head = String::from_utf8_lossy(&self.buffer.split_to(end)).into_owned();
        let mut lines = head.split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut message = Message { line, headers, body: Bytes::new() };
        let length = match message.header("content-length").map(str::parse) {
            None => 0,
            Some(Ok(length)) if length <= LONGEST => length,
            Some(_) => return Err(broken("its length is none that anybody sends here")),
        };
        while self.buffer.len() < length {
            if !self.more().await? {
                return Err(broken("it ends within its body"));
            }
        }
        message.body = self.buffer.split_to(length).freeze();
        Ok(Some(message))
    }

    async fn more(&mut self) -> io::Result<bool> {
        if self.buffer.len() > LONGEST {
            return Err(broken("it is longer than anything here"));
        }
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }
}

fn broken(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a broken message: {reason}"))
}
