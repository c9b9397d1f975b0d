//! Reading a request's body. Its bytes, the bytes that it unpacks to and the contents that these
//! decode to count in `max_bodies_bytes`, each before memory is set aside for it.

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use parapet_net::server::{BodyError, Reserved, read_body_within};
use parapet_open_inference::compression::{Coding, Reader, decode, in_turn};
use parapet_open_inference::{HEADER_CONTENT_LENGTH, InferRequest, Room, decode_request_within};

use crate::app::App;
use crate::error::ServeError;
use crate::model::ServedModel;

/// JSON from this length on (some milliseconds of work) is read away from the thread that serves.
const LONG_JSON: usize = 256 * 1024;

/// Reads a request to `model`, and returns the memory that it holds beside it.
pub(super) async fn read(
    app: &App,
    model: &ServedModel,
    headers: &HeaderMap,
    body: Body,
) -> Result<(InferRequest, Reserved), ServeError> {
    let coding = Coding::of_request(headers)?;
    let header_length = header_length(headers)?;
    let serving = app.serving();
    let (max_bytes, limit) = (
        serving.server.max_body_bytes,
        serving.server.body_read_timeout,
    );
    let (body, reserved) = read_body_within(body, max_bytes, limit, &app.body_memory).await?;
    let max_contents = model.max_contents();
    let reading = Reading {
        header_length,
        max_contents,
        held: body.len(),
        contents: 0,
        reserved,
    };
    let json = header_length.unwrap_or(body.len());
    if coding.is_none() && json < LONG_JSON {
        return reading.read(body);
    }
    let reading = async {
        match coding {
            Some(coding) => decode(coding, body, max_bytes, reading).await,
            None => {
                let unreadable = || ServeError::Input("the body could not be read".to_owned());
                let read = in_turn(json, move || reading.read(body)).await;
                read.unwrap_or_else(|| Err(unreadable()))
            }
        }
    };
    // Bodies are read in turn, so that this takes time as receiving does.
    let late = |_| BodyError::Timeout { limit };
    tokio::time::timeout(limit, reading).await.map_err(late)?
}

/// Reads a body, and counts what it holds.
struct Reading {
    header_length: Option<usize>,
    max_contents: usize,
    /// Bytes of the body, and of the body that it unpacks to.
    held: usize,
    /// Bytes that it decodes to, beside those.
    contents: usize,
    reserved: Reserved,
}

impl Reader for Reading {
    type Read = (InferRequest, Reserved);
    type Error = ServeError;

    fn hold(&mut self, bytes: usize) -> Result<(), ServeError> {
        self.held = self.held.saturating_add(bytes);
        Ok(self.reserved.hold(self.held)?)
    }

    fn read(mut self, body: Bytes) -> Result<Self::Read, ServeError> {
        let request = decode_request_within(body, self.header_length, &mut self)?;
        self.reserved.decoded();
        if self.header_length.is_none() {
            // The text is gone; binary tensors are parts of their body.
            self.reserved.shrink_to(self.contents);
        }
        Ok((request, self.reserved))
    }
}

impl Room for Reading {
    fn max_contents(&self) -> usize {
        self.max_contents
    }

    fn hold(&mut self, bytes: usize) -> bool {
        self.contents = bytes;
        self.reserved.hold(self.held.saturating_add(bytes)).is_ok()
    }
}

fn header_length(headers: &HeaderMap) -> Result<Option<usize>, ServeError> {
    let Some(value) = headers.get(HEADER_CONTENT_LENGTH) else {
        return Ok(None);
    };
    let length = value
        .to_str()
        .ok()
        .and_then(|value| value.trim().parse().ok());
    length.map(Some).ok_or_else(|| {
        let problem = format!("header {HEADER_CONTENT_LENGTH} must be a number of bytes");
        ServeError::Input(problem)
    })
}
