//! An instance on a machine of its own, emulated: it answers what a real one has answered, after
//! the time that one took, and takes no processor meanwhile.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use ureq::{Agent, Body, http::Response};

use crate::{http, models};

/// The first test image, to be sent again and again over kept-alive connections.
pub(super) struct Query {
    client: Agent,
    body: Vec<u8>,
    header_length: usize,
}

impl Query {
    pub(super) fn new() -> Result<Self> {
        let (body, header_length) = models::binary_query()?;
        Ok(Self {
            client: http::client(),
            body,
            header_length,
        })
    }

    /// Asks `model` of the server at an address; returns the body of its answer, which is read.
    pub(super) fn ask(&self, address: &str, model: &str) -> Result<(Response<Body>, Vec<u8>)> {
        let request = self
            .client
            .post(format!("http://{address}/v2/models/{model}/infer"))
            .content_type("application/octet-stream")
            .header(
                "Inference-Header-Content-Length",
                self.header_length.to_string(),
            );
        let mut answer = request.send(&self.body)?;
        let body = answer.body_mut().read_to_vec()?;
        anyhow::ensure!(
            answer.status() == 200,
            "{address} answered {}",
            answer.status()
        );
        Ok((answer, body))
    }

    /// A whole HTTP response with what the instance at an address answers.
    pub(super) fn response(&self, address: &str, model: &str) -> Result<Vec<u8>> {
        let (answer, body) = self.ask(address, model)?;
        let mut response = b"HTTP/1.1 200 OK\r\n".to_vec();
        for (name, value) in answer.headers() {
            response.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        response.extend(b"\r\n");
        response.extend(body);
        Ok(response)
    }
}

/// Starts an instance that answers predictions with `response`, a whole HTTP response, after
/// `service_time`, and everything else with the JSON `metadata`; returns its address. It listens
/// until the process ends.
pub(super) fn start(response: &[u8], metadata: &str, service_time: Duration) -> Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?.to_string();
    let response: Arc<[u8]> = response.into();
    let length = metadata.len();
    let other = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n\
         {metadata}"
    );
    let other: Arc<[u8]> = other.as_bytes().into();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (response, other) = (Arc::clone(&response), Arc::clone(&other));
            // A connection that ends is the frontend's own business.
            std::thread::spawn(move || serve(stream, &response, &other, service_time));
        }
    });
    Ok(address)
}

fn serve(stream: TcpStream, response: &[u8], other: &[u8], service_time: Duration) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
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
        line.clear();
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        if is_prediction {
            std::thread::sleep(service_time);
        }
        reader
            .get_mut()
            .write_all(if is_prediction { response } else { other })?;
    }
    Ok(())
}
