//! HTTP/1.1 messages of known length, byte for byte: a client's library would hide what comes
//! beside an answer.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::{Instant, sleep, sleep_until};

/// No message of this run is longer.
const LONGEST: usize = 1 << 20;
/// Time within which the runtime notices what has come to a socket.
const NOTICE: Duration = Duration::from_millis(1);

/// A request or a response.
#[derive(Debug)]
pub struct Message {
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Message {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// Of a response.
    pub fn status(&self) -> Option<u16> {
        let rest = self.line.strip_prefix("HTTP/1.1 ")?;
        rest.split(' ').next()?.parse().ok()
    }

    /// As it goes over the wire, but for the length, which is that of the body now.
    pub fn head(&self) -> String {
        let kept = self.headers.iter().filter(|(name, _)| name != "content-length");
        let headers = kept.map(|(name, value)| format!("{name}: {value}\r\n"));
        let (headers, length) = (headers.collect::<String>(), self.body.len());
        format!("{}\r\n{headers}content-length: {length}\r\n\r\n", self.line)
    }

    /// All of it, as it goes over the wire.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head().as_bytes(), &self.body[..]].concat()
    }
}

pub fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(other, _)| other == name);
    found.map(|(_, value)| value.as_str())
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

    /// Returns the number of bytes that belong to no message that was asked for.
    pub fn left_over(&self) -> usize {
        self.buffer.len()
    }

    /// The next message; `None` if the other side has closed the connection before any of it.
    pub async fn next(&mut self) -> io::Result<Option<Message>> {
        let end = loop {
            let mut windows = self.buffer.windows(4);
            if let Some(position) = windows.position(|window| window == b"\r\n\r\n") {
                break position + 4;
            }
            match (self.more().await?, self.buffer.is_empty()) {
                (true, _) => {}
                (false, true) => return Ok(None),
                (false, false) => return Err(broken("it ends within its header")),
            }
        };
        let head = String::from_utf8_lossy(&self.buffer.split_to(end)).into_owned();
        let mut lines = head.split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers =
            headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
        let mut message = Message { line, headers: headers.collect(), body: Bytes::new() };
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

    /// Returns the next message, and the moment at which it was looked for in vain: once, at
    /// `limit` or later.
    ///
    /// A reader that is scheduled late finds a message that has come meanwhile. So its own delay
    /// makes no message late.
    pub async fn next_by(
        &mut self,
        limit: Instant,
    ) -> (io::Result<Option<Message>>, Option<Instant>) {
        let next = self.next();
        tokio::pin!(next);
        tokio::select! {
            biased;
            message = &mut next => return (message, None),
            () = sleep_until(limit) => {}
        }
        let looked = Instant::now();
        // The timer may run before the runtime has asked which sockets are readable.
        tokio::select! {
            biased;
            message = &mut next => return (message, None),
            () = sleep(NOTICE) => {}
        }
        (next.await, Some(looked))
    }

    async fn more(&mut self) -> io::Result<bool> {
        if self.buffer.len() > LONGEST {
            return Err(broken("it is longer than anything here"));
        }
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }
}

fn broken(reason: &str) -> io::Error {
    let said = format!("a broken message: {reason}");
    io::Error::new(io::ErrorKind::InvalidData, said)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, DuplexStream};

    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    const DEADLINE: Duration = Duration::from_millis(400);

    fn connected() -> (DuplexStream, Reader<DuplexStream>) {
        let (server, client) = tokio::io::duplex(1024);
        (server, Reader::new(client))
    }

    #[tokio::test(start_paused = true)]
    async fn message_that_comes_before_the_limit_was_never_missing() {
        let (mut server, mut reader) = connected();
        let limit = Instant::now() + DEADLINE;
        let answers = async {
            sleep(DEADLINE / 2).await;
            server.write_all(ANSWER).await.unwrap();
        };
        let ((message, missing_at), ()) = tokio::join!(reader.next_by(limit), answers);
        assert_eq!(message.unwrap().unwrap().status(), Some(200));
        assert_eq!(missing_at, None);
    }

    #[tokio::test(start_paused = true)]
    async fn message_without_its_end_is_missing_at_the_limit() {
        let (mut server, mut reader) = connected();
        let limit = Instant::now() + DEADLINE;
        let (head, body) = ANSWER.split_at(ANSWER.len() - 1);
        let answers = async {
            server.write_all(head).await.unwrap();
            sleep(2 * DEADLINE).await;
            server.write_all(body).await.unwrap();
        };
        let ((message, missing_at), ()) = tokio::join!(reader.next_by(limit), answers);
        assert_eq!(&message.unwrap().unwrap().body[..], b"{}");
        assert_eq!(missing_at, Some(limit));
    }

    #[tokio::test(start_paused = true)]
    async fn reader_that_is_scheduled_late_finds_a_message_that_came_in_time() {
        let (mut server, mut reader) = connected();
        let limit = Instant::now() + DEADLINE;
        server.write_all(ANSWER).await.unwrap();
        tokio::time::advance(2 * DEADLINE).await;
        let (message, missing_at) = reader.next_by(limit).await;
        assert_eq!(message.unwrap().unwrap().status(), Some(200));
        assert_eq!(missing_at, None);
    }
}
