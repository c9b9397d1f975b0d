//! etcd's JSON gateway on one connection: keys and values in base64, numbers as strings, a watch as
//! a line for each event.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use parapet_net::tls::client::TlsStream;
use parapet_net::tls::{Application, ClientTls, TlsFailure};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_util::either::Either;

/// For connecting, and for one response; a watch goes on for longer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Of a response, and of a line of a watch.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// A connection to one member.
pub(super) struct Gateway {
    host: String,
    sender: SendRequest<Full<Bytes>>,
    /// Task that drives the connection; it ends with this.
    driver: JoinSet<()>,
}

/// Entries under a prefix, at a revision.
pub(super) struct Found {
    pub(super) entries: Vec<(String, String)>,
    pub(super) revision: i64,
}

#[derive(Deserialize)]
struct RangeResponse {
    header: Header,
    #[serde(default)]
    kvs: Vec<Entry>,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

#[derive(Deserialize)]
struct Entry {
    key: String,
    /// Left out when it is empty.
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct WatchLine {
    result: Option<WatchResult>,
}

#[derive(Deserialize)]
struct WatchResult {
    #[serde(default)]
    created: bool,
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    events: Vec<serde::de::IgnoredAny>,
}

impl Gateway {
    /// Connects to `host`, `HOST:PORT`, within TLS if there is any.
    pub(super) async fn connect(host: &str, tls: Option<&ClientTls>) -> Result<Self, String> {
        let connecting = async {
            let stream = TcpStream::connect(host)
                .await
                .map_err(|error| error.to_string())?;
            let stream = match tls {
                None => Either::Left(stream),
                Some(tls) => Either::Right(within_tls(tls, host, stream).await?),
            };
            http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| error.to_string())
        };
        let (sender, connection) = in_time(connecting).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // Its errors are those of the request.
            let _ = connection.await;
        });
        Ok(Self {
            host: host.to_owned(),
            sender,
            driver,
        })
    }

    /// At most `limit` entries under `prefix`.
    pub(super) async fn range(&mut self, prefix: &str, limit: usize) -> Result<Found, String> {
        let question =
            json!({ "key": encode(prefix), "range_end": encode(end_of(prefix)), "limit": limit });
        let asking = async {
            let response = self.post("/v3/kv/range", &question).await?;
            let body = Limited::new(response.into_body(), MAX_BYTES)
                .collect()
                .await;
            body.map(|body| body.to_bytes())
                .map_err(|error| error.to_string())
        };
        let body = in_time(asking).await?;
        let response: RangeResponse = serde_json::from_slice(&body)
            .map_err(|error| format!("no answer of etcd's: {error}"))?;
        let revision = response
            .header
            .revision
            .parse()
            .map_err(|_| "no revision in the answer")?;
        let entries = response
            .kvs
            .iter()
            .map(|entry| (decode(&entry.key), decode(&entry.value)))
            .collect();
        Ok(Found { entries, revision })
    }

    pub(super) async fn watch(mut self, prefix: &str, revision: i64) -> Result<Watch, String> {
        let question = json!({ "create_request": {
            "key": encode(prefix), "range_end": encode(end_of(prefix)), "start_revision": revision.to_string(),
        }});
        let asking = async {
            let response = self.post("/v3/watch", &question).await?;
            let mut watch = Watch {
                body: response.into_body(),
                line: Vec::new(),
                _driver: self.driver,
            };
            let first = watch.next_line().await?;
            if first.created && !first.canceled {
                Ok(watch)
            } else {
                Err("the watch was refused".to_owned())
            }
        };
        in_time(asking).await
    }

    async fn post(
        &mut self,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<Response<Incoming>, String> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, &self.host)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .map_err(|error| error.to_string())?;
        // In TLS 1.3 a server refuses a client's certificate after the handshake.
        let response = self
            .sender
            .send_request(request)
            .await
            .map_err(|error| said(&error))?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(format!("{path}: {}", response.status()))
        }
    }
}

/// A watch that was begun.
pub(super) struct Watch {
    body: Incoming,
    /// The beginning of a line that is not complete.
    line: Vec<u8>,
    _driver: JoinSet<()>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Watch {
    /// Waits for a change under the prefix. Dropping the future loses nothing.
    pub(super) async fn changed(&mut self) -> Result<(), String> {
        loop {
            let line = self.next_line().await?;
            if line.canceled {
                return Err("the watch was cancelled".to_owned());
            }
            if !line.events.is_empty() {
                return Ok(());
            }
        }
    }

    async fn next_line(&mut self) -> Result<WatchResult, String> {
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                let line: WatchLine = serde_json::from_slice(&line)
                    .map_err(|error| format!("no line of a watch: {error}"))?;
                return line
                    .result
                    .ok_or_else(|| "the watch ended with an error".to_owned());
            }
            if self.line.len() > MAX_BYTES {
                return Err("a line of the watch is too long".to_owned());
            }
            let frame = self
                .body
                .frame()
                .await
                .ok_or("the watch ended")?
                .map_err(|error| error.to_string())?;
            self.line
                .extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    }
}

async fn within_tls(
    tls: &ClientTls,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, String> {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let name = tls
        .name_of(name)
        .ok_or_else(|| format!("{name:?} is no name of a server"))?;
    tls.connector(Application::Http1)
        .connect(name, stream)
        .await
        .map_err(|error| said(&error))
}

/// An error in words, of TLS if that is what it is about.
fn said(error: &(dyn std::error::Error + 'static)) -> String {
    TlsFailure::of(error).map_or_else(
        || error.to_string(),
        |failure| format!("no TLS connection: {failure}"),
    )
}

async fn in_time<T>(asking: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = |_| Err(format!("no answer within {} s", TIMEOUT.as_secs()));
    tokio::time::timeout(TIMEOUT, asking)
        .await
        .unwrap_or_else(late)
}

fn encode(text: impl AsRef<[u8]>) -> String {
    STANDARD.encode(text)
}

fn decode(text: &str) -> String {
    let bytes = STANDARD.decode(text).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The first key after all that begin with `prefix`; a zero byte, which stands for the end, if
/// there is none.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_range_holds_exactly_the_keys_with_the_prefix(
            prefix in "[a-z/]{1,6}",
            key in "[a-z/]{0,8}",
        ) {
            let end = end_of(&prefix);
            let within = key.as_bytes() >= prefix.as_bytes() && key.as_bytes() < end.as_slice();
            prop_assert_eq!(within, key.starts_with(&prefix));
            let longer = format!("{prefix}{key}");
            prop_assert!(longer.as_bytes() < end.as_slice());
        }
    }
}
