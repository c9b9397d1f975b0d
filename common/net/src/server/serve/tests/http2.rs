//! The same over HTTP/2, and what its streams need beside.

use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::super::*;
use super::{GRACE, SECOND, Site, report, settle};
use crate::server::{RequestBody, read_body};

const STREAMS: u32 = 8;
/// A client's preface and its settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

impl Site {
    /// `/` answers at once, `/slow` when told to, `/large` with a megabyte, `/read` when it has
    /// read the request.
    fn start_http2(limits: Limits) -> Self {
        let answer_slow = Arc::new(Notify::new());
        let told = answer_slow.clone();
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let told = told.clone();
            async move {
                let (parts, body) = request.into_parts();
                let size = match parts.uri.path() {
                    "/large" => 1 << 20,
                    "/slow" => {
                        told.notified().await;
                        2
                    }
                    // What cannot be read is answered at once.
                    path @ ("/read" | "/echo") => {
                        let body = Body::new(body);
                        let read = read_body(body, 1 << 20, GRACE * 100).await;
                        match (path, read) {
                            ("/read", Ok(_)) => std::future::pending().await,
                            ("/read", Err(_)) | (_, Ok(_)) => 2,
                            (_, Err(_)) => 0,
                        }
                    }
                    _ => 2,
                };
                Ok(Response::new(Body::from(vec![b'x'; size])))
            }
        });
        let server = Server::over_http2(service, limits, STREAMS);
        Self::run(server, answer_slow)
    }

    async fn socket(&self) -> DuplexStream {
        let (client, server) = duplex(1 << 16);
        self.arrivals.send(Ok(server)).await.unwrap();
        client
    }

    /// A client whose streams have `window` bytes of room, and its connection's end.
    async fn connect_http2(
        &self,
        window: u32,
    ) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
        let mut builder = Builder::new();
        builder.initial_window_size(window).initial_max_send_streams(100);
        let (client, connection) = builder.handshake(self.socket().await).await.unwrap();
        (client, tokio::spawn(connection))
    }
}

fn ask(client: &mut SendRequest<Bytes>, path: &str) -> ResponseFuture {
    let request = Request::get(format!("http://x{path}")).body(()).unwrap();
    client.send_request(request, true).unwrap().0
}

async fn read(response: ResponseFuture) -> Result<usize, h2::Error> {
    let mut body: RecvStream = response.await?.into_body();
    let mut length = 0;
    while let Some(data) = body.data().await {
        let data = data?;
        length += data.len();
        body.flow_control().release_capacity(data.len())?;
    }
    Ok(length)
}

/// The seconds until the server has closed.
async fn seconds_until_closed(socket: &mut DuplexStream) -> f32 {
    let start = Instant::now();
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said).await;
    start.elapsed().as_secs_f32()
}

#[tokio::test(start_paused = true)]
async fn a_connection_serves_requests_at_the_same_time() {
    let site = Site::start_http2(Limits::default());
    let (mut client, _connection) = site.connect_http2(65_535).await;
    let slow = ask(&mut client, "/slow");
    assert_eq!(read(ask(&mut client, "/")).await.unwrap(), 2);
    assert_eq!(read(ask(&mut client, "/large")).await.unwrap(), 1 << 20);
    site.answer_slow.notify_one();
    assert_eq!(read(slow).await.unwrap(), 2);
    assert_eq!(site.shut_down().await, report(1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_request_is_closed() {
    let site = Site::start_http2(Limits { header_read_timeout: 3 * SECOND, ..Limits::default() });
    // Half a second is given to clients to close themselves.
    for beginning in [&b""[..], b"PRI * HTTP/2.0\r\n", PREFACE] {
        let mut socket = site.socket().await;
        socket.write_all(beginning).await.unwrap();
        assert!((3.0..3.6).contains(&seconds_until_closed(&mut socket).await));
    }
    let (mut client, connection) = site.connect_http2(65_535).await;
    sleep(2 * SECOND).await;
    let slow = ask(&mut client, "/slow");
    sleep(10 * SECOND).await;
    assert!(!connection.is_finished(), "a request is in flight");
    site.answer_slow.notify_one();
    assert_eq!(read(slow).await.unwrap(), 2);
    let start = Instant::now();
    let _ = connection.await;
    let elapsed = start.elapsed().as_secs_f32();
    assert!((3.0..3.6).contains(&elapsed), "{elapsed}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_left_unread_closes_the_connection_whatever_else_goes_on() {
    let site = Site::start_http2(Limits { write_timeout: 4 * SECOND, ..Limits::default() });
    for window in [0, 1] {
        let (mut client, connection) = site.connect_http2(window).await;
        let unread = ask(&mut client, "/large").await.unwrap();
        let start = Instant::now();
        while !connection.is_finished() {
            assert!(
                start.elapsed() < 10 * SECOND,
                "an answer is left unread for as long as one likes"
            );
            site.answer_slow.notify_one();
            let _ = ask(&mut client, "/slow").await;
            sleep(SECOND).await;
            if client.clone().ready().await.is_err() {
                break;
            }
        }
        // Where there is a window, a frame waits in it, which is worth a second.
        assert!((4..=6).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
        drop(unread);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_read_too_slowly_closes_the_connection() {
    let limits = Limits { write_timeout: 2 * SECOND, min_write_rate: 20_000, ..Limits::default() };
    let site = Site::start_http2(limits);
    let (mut client, connection) = site.connect_http2(10_000).await;
    let mut body = ask(&mut client, "/large").await.unwrap().into_body();
    let (start, mut taken) = (Instant::now(), 0);
    while let Some(Ok(data)) = body.data().await {
        taken += data.len();
        sleep(SECOND).await;
        let _ = body.flow_control().release_capacity(data.len());
    }
    let elapsed = start.elapsed().as_secs();
    assert!((3..10).contains(&elapsed), "{elapsed}");
    assert!(taken < 150_000, "{taken}");
    let _ = connection.await;
}

#[tokio::test(start_paused = true)]
async fn streams_opened_to_be_reset_close_the_connection_and_deadlines_that_pass_do_not() {
    let site = Site::start_http2(Limits::default());
    for (path, whole, closed) in [("/read", false, true), ("/read", true, false)] {
        let (mut client, connection) = site.connect_http2(65_535).await;
        for _ in 0..1000 {
            if client.clone().ready().await.is_err() {
                break;
            }
            let request = Request::post(format!("http://x{path}")).body(()).unwrap();
            let Ok((response, mut body)) = client.send_request(request, false) else {
                break;
            };
            let _ = body.send_data(Bytes::from_static(b"x"), whole);
            settle().await;
            drop(response);
            body.send_reset(Reason::CANCEL);
            settle().await;
        }
        assert_eq!(connection.is_finished(), closed);
    }
}

#[tokio::test(start_paused = true)]
async fn frames_without_requests_close_the_connection_and_large_requests_do_not() {
    let site = Site::start_http2(Limits::default());
    let mut socket = site.socket().await;
    socket.write_all(PREFACE).await.unwrap();
    let (mut reading, mut writing) = tokio::io::split(socket);
    let pings = b"\0\0\x08\x06\0\0\0\0\0pingpong".repeat(1000);
    let pinging = async {
        let mut sent = 0;
        while writing.write_all(&pings).await.is_ok() {
            sent += pings.len();
        }
        sent
    };
    let mut said = Vec::new();
    let (sent, _) = tokio::join!(pinging, reading.read_to_end(&mut said));
    assert!((1 << 20..3 << 19).contains(&sent), "{sent}");

    let (client, connection) = site.connect_http2(65_535).await;
    for _ in 0..20 {
        let mut client = client.clone().ready().await.unwrap();
        let request = Request::post("http://x/echo").body(()).unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        body.send_data(Bytes::from(vec![0; 1 << 20]), true).unwrap();
        assert_eq!(read(response).await.unwrap(), 2);
    }
    assert!(!connection.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_old_takes_no_more_requests_and_answers_those_it_has() {
    let limits = Limits {
        max_connection_age: 60 * SECOND,
        header_read_timeout: GRACE * 100,
        ..Limits::default()
    };
    let site = Site::start_http2(limits);
    let (mut client, connection) = site.connect_http2(65_535).await;
    sleep(59 * SECOND).await;
    let slow = ask(&mut client, "/slow");
    sleep(2 * SECOND).await;
    assert!(client.clone().ready().await.is_err(), "it was told to go elsewhere");
    site.answer_slow.notify_one();
    assert_eq!(read(slow).await.unwrap(), 2);
    assert!(connection.await.is_ok());
}

/// It does not say that it has heard, as a client would, and goes on asking.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_old_is_closed_whether_its_client_minds_or_not() {
    let site = Site::start_http2(Limits { max_connection_age: 10 * SECOND, ..Limits::default() });
    let mut socket = site.socket().await;
    socket.write_all(PREFACE).await.unwrap();
    let (mut reading, mut writing) = tokio::io::split(socket);
    let start = Instant::now();
    let asking = async {
        for number in (1_u32..).step_by(2) {
            // GET, http, "/": fields of HPACK's table.
            let header =
                [&[0, 0, 3, 1, 5][..], &number.to_be_bytes(), &[0x82, 0x86, 0x84]].concat();
            if writing.write_all(&header).await.is_err() {
                return;
            }
            sleep(SECOND / 10).await;
        }
    };
    let mut said = Vec::new();
    let (_, ()) = tokio::join!(reading.read_to_end(&mut said), asking);
    let elapsed = start.elapsed().as_secs();
    assert!((10..13).contains(&elapsed), "{elapsed}");
    assert!(said.len() > 90 * 9, "it was answered until then");
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_answered_while_connections_without_one_close() {
    let site = Site::start_http2(Limits::default());
    let silent = site.socket().await;
    let (_idle, idle) = site.connect_http2(65_535).await;
    let (mut client, _connection) = site.connect_http2(65_535).await;
    let slow = ask(&mut client, "/slow");
    settle().await;
    let answer_slow = site.answer_slow.clone();
    let drained = tokio::spawn(site.shut_down());
    assert!(idle.await.is_ok());
    sleep(SECOND).await;
    answer_slow.notify_one();
    assert_eq!(read(slow).await.unwrap(), 2);
    assert_eq!(drained.await.unwrap(), report(3, 0));
    drop(silent);
}

#[tokio::test(start_paused = true)]
async fn the_grace_period_ends_for_streams_as_well() {
    let site = Site::start_http2(Limits::default());
    let (mut client, _connection) = site.connect_http2(65_535).await;
    let slow = ask(&mut client, "/slow");
    settle().await;
    let start = Instant::now();
    assert_eq!(site.shut_down().await, report(0, 1));
    assert_eq!(start.elapsed(), GRACE);
    assert!(read(slow).await.is_err());
}
