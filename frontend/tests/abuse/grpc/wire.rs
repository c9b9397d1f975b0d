//! Frames as they are on the wire (RFC 9113), for those that no client would send.

use tokio::io::AsyncReadExt as _;

use super::INFER;
use crate::site::HUNG;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const REFUSED_STREAM: u8 = 7;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface, and settings that change nothing.
pub fn hello() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()
}

/// The fields of a call, without compression.
pub fn fields(path: &str) -> Vec<u8> {
    let literal = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let (path, authority, content) = (literal(path), literal("x"), literal("application/grpc"));
    // POST and http are in HPACK's table, as are the names of the others.
    let start = [0x83, 0x86, 0x04];
    [&start[..], &path, &[0x01], &authority, &[0x0f, 0x10], &content].concat()
}

/// Opens a stream for a prediction.
pub fn open(stream: u32, flags: u8) -> Vec<u8> {
    open_for(INFER, stream, flags)
}

pub fn open_for(path: &str, stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, &fields(path))
}

pub fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])
}

#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub payload: Vec<u8>,
}

impl Frame {
    /// The last of the four bytes that say why a stream was reset, or a connection given up.
    pub fn reason(&self) -> Option<u8> {
        match self.kind {
            RST_STREAM => self.payload.get(3).copied(),
            GOAWAY => self.payload.get(7).copied(),
            _ => None,
        }
    }
}

/// The server's frames until it closes, however it does so. It must close.
pub async fn until_closed(reading: &mut (impl tokio::io::AsyncRead + Unpin)) -> Vec<Frame> {
    let mut frames = Vec::new();
    loop {
        let frame = tokio::time::timeout(HUNG, next(reading)).await;
        match frame.expect("the server closes") {
            Some(frame) => frames.push(frame),
            None => return frames,
        }
    }
}

async fn next(reading: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<Frame> {
    let mut head = [0; 9];
    reading.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; length as usize];
    reading.read_exact(&mut payload).await.ok()?;
    Some(Frame { kind: head[3], payload })
}
