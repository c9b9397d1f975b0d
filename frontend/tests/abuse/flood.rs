//! Floods of small compressed bodies that unpack to 16 MB, at the default limits.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tokio::task::JoinSet;

use crate::site::{INFER, Site, status_of};

/// Just below the default `max_body_bytes`.
pub const UNPACKED: usize = (16 << 20) - 4096;
/// Connections that send at the same time.
const CONNECTIONS: usize = 40;
/// The longest reply to a request that is refused, with its header.
pub const REPLY: usize = 4096;

/// Text of a body: a start, a part as often as it fits, and an end.
type Text = (&'static str, &'static str, &'static str);

fn write((start, part, end): Text, mut to: impl Write) {
    to.write_all(start.as_bytes()).unwrap();
    let block = part.repeat(UNPACKED / part.len() / 64);
    for _ in 0..64 {
        to.write_all(block.as_bytes()).unwrap();
    }
    to.write_all(end.as_bytes()).unwrap();
}

fn packed(text: Text) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    write(text, &mut encoder);
    request("content-encoding: gzip\r\n", &encoder.finish().unwrap())
}

fn unpacked(text: Text) -> Bytes {
    let mut body = Vec::new();
    write(text, &mut body);
    request("", &body)
}

fn request(field: &str, body: &[u8]) -> Bytes {
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{field}content-length: \
            {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat().into()
}

/// Sends each of these bodies, packed, over many connections at a time; all are refused
/// in few words.
async fn flood(site: &Site, bodies: &'static [Text]) {
    flood_of(site, bodies, packed).await;
}

async fn flood_of(site: &Site, bodies: &'static [Text], request: fn(Text) -> Bytes) {
    // The instance lives on this thread.
    let requests = move || bodies.iter().map(|&text| request(text)).collect();
    let requests: Vec<Bytes> = tokio::task::spawn_blocking(requests).await.unwrap();
    let mut abusers = JoinSet::new();
    for i in 0..CONNECTIONS {
        let (site, request) = (site.abuser().await, requests[i % requests.len()].clone());
        abusers.spawn(async move { crate::site::send_over(site, request).await });
    }
    let mut statuses = Vec::new();
    while let Some(said) = abusers.join_next().await {
        let said = said.unwrap();
        assert!(
            said.len() < REPLY,
            "a reply of {} bytes: {}",
            said.len(),
            &said[..200]
        );
        statuses.push(status_of(&said));
    }
    // The last ones may wait for longer than a body may take, or for memory.
    assert!(
        statuses
            .iter()
            .all(|status| [400, 408, 503].contains(status)),
        "{statuses:?}"
    );
    assert!(statuses.contains(&400), "{statuses:?}");
}

/// Text that an error could repeat: U+200B grows from three bytes to eight where it is escaped.
pub async fn error_bodies(site: &Site) {
    flood(
        site,
        &[(
            r#"{"inputs":[{"name":"input","datatype":""#,
            "\u{200b}",
            r#"","shape":[1,4],"data":[1]}]}"#,
        )],
    )
    .await;
}

/// The same in every other place that has text.
pub async fn long_names(site: &Site) {
    flood(
        site,
        &[
            (
                r#"{"inputs":[{"name":""#,
                "\u{200b}",
                r#"","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}"#,
            ),
            (
                r#"{"inputs":[{"name":""#,
                r"\u0007",
                r#"","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}"#,
            ),
            (
                r#"{"inputs":[],"outputs":[{"name":""#,
                "\u{200b}",
                r#""}]}"#,
            ),
            (r#"{"inputs":[],"id":""#, "\u{200b}", r#""}"#),
            (
                r#"{"inputs":[],"parameters":{"timeout":""#,
                "\u{200b}",
                r#""}}"#,
            ),
            (r#"{"inputs":[],"parameters":{""#, "\u{200b}", r#"":{}}}"#),
            (
                r#"{"inputs":[{"name":"input","datatype":"FP32","shape":""#,
                "\u{200b}",
                r#"","data":[1]}]}"#,
            ),
            (r#"{"inputs":""#, "\u{200b}", r#""}"#),
            (r#"""#, "\u{200b}", r#"""#),
        ],
    )
    .await;
}

/// Lists of many parts, each of which takes more memory than its text.
pub async fn wide_lists(site: &Site) {
    flood(
        site,
        &[
            (
                r#"{"inputs":[{"name":"input","datatype":"FP32","shape":[1"#,
                ",1",
                r#"],"data":[1]}]}"#,
            ),
            (
                r#"{"inputs":[],"outputs":[{"name":""}"#,
                r#",{"name":""}"#,
                "]}",
            ),
            (
                r#"{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}"#,
                r#",{"name":"","datatype":"FP32","shape":[0],"data":[]}"#,
                "]}",
            ),
            (r#"{"inputs":[],"unknown":["#, "[", ""),
        ],
    )
    .await;
}

/// Elements that take two bytes in JSON and eight in memory.
pub async fn wide_data(site: &Site) {
    flood(
        site,
        &[
            (
                r#"{"inputs":[{"name":"input","datatype":"FP64","shape":[1,8386560],"data":[1"#,
                ",1",
                "]}]}",
            ),
            (
                r#"{"inputs":[{"datatype":"INT64","shape":[8386560],"name":"x","data":[1"#,
                ",1",
                "]}]}",
            ),
        ],
    )
    .await;
}

/// Elements as long as the body, which a parser would copy.
pub async fn long_elements(site: &Site) {
    flood(
        site,
        &[
            ("", "9", ""),
            (
                r#"{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":["#,
                "9",
                "]}]}",
            ),
            (
                r#"{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[0."#,
                "9",
                "]}]}",
            ),
            (
                r#"{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":[""#,
                r"\u0007",
                r#""]}]}"#,
            ),
            (
                r#"{"inputs":[{"name":"input","datatype":"FP32","shape":[1,4],"data":["\n"#,
                "n",
                r#""]}]}"#,
            ),
            (
                r#"{"inputs":[{"name":"input","datatype":"BYTES","shape":[1,4],"data":["\n"#,
                "n",
                r#""]}]}"#,
            ),
        ],
    )
    .await;
}

/// Bodies that come as long as they are.
pub async fn long_bodies(site: &Site) {
    let bodies = &[
        (
            r#"{"inputs":[{"name":"input","datatype":"FP32","shape":[1"#,
            ",1",
            r#"],"data":[1]}]}"#,
        ),
        (
            r#"{"inputs":[{"name":"input","datatype":"FP64","shape":[1,8386560],"data":[1"#,
            ",1",
            "]}]}",
        ),
        (r#"{"inputs":[{"name":""#, "\u{200b}", r#""}]}"#),
    ];
    flood_of(site, bodies, unpacked).await;
}
