//! Floods of small compressed bodies that unpack to 16 MB, at the default limits.

use bytes::Bytes;
use tokio::task::JoinSet;

use crate::site::{Site, send_over, status_of, whole};
use crate::support::gzipped;

/// Just below the default `max_body_bytes`.
pub const UNPACKED: usize = (16 << 20) - 4096;
/// Connections that send at the same time.
const CONNECTIONS: usize = 40;
/// The longest reply to a request that is refused, with its header.
pub const REPLY: usize = 4096;

/// Text of a body: a start, a part as often as it fits, and an end.
type Text = (&'static str, &'static str, &'static str);

fn body((start, part, end): Text) -> Vec<u8> {
    let middle = part.repeat(UNPACKED / part.len());
    [start, &middle, end].concat().into_bytes()
}

fn packed(text: Text) -> Bytes {
    let fields = "connection: close\r\ncontent-encoding: gzip\r\n";
    whole(fields, gzipped(&body(text))).into()
}

fn unpacked(text: Text) -> Bytes {
    whole("connection: close\r\n", body(text)).into()
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
        let (stream, request) = (site.abuser().await, requests[i % requests.len()].clone());
        abusers.spawn(send_over(stream, request));
    }
    let mut statuses = Vec::new();
    for said in abusers.join_all().await {
        let length = said.len();
        assert!(length < REPLY, "{length} bytes: {}", &said[..200]);
        statuses.push(status_of(&said));
    }
    // The last ones may wait for longer than a body may take, or for memory.
    let allowed = [400, 408, 503];
    let refused = statuses.iter().all(|status| allowed.contains(status));
    assert!(refused && statuses.contains(&400), "{statuses:?}");
}

/// The JSON of an input up to its data.
macro_rules! input {
    ($datatype:literal, $shape:literal) => {
        concat!(
            r#"{"inputs":[{"name":"input","datatype":""#,
            $datatype,
            r#"","shape":"#,
            $shape,
            r#","data":["#
        )
    };
}

/// U+200B grows from three bytes to eight where it is escaped.
const GROWING: &str = "\u{200b}";
const NAMED: &str = r#"","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}"#;
const LONG_SHAPE: Text =
    (r#"{"inputs":[{"name":"input","datatype":"FP32","shape":[1"#, ",1", r#"],"data":[1]}]}"#);
const WIDE_DATA: &str = concat!(input!("FP64", "[1,8386560]"), "1");

/// Text that an error could repeat.
pub async fn error_bodies(site: &Site) {
    const BODIES: &[Text] = &[(
        r#"{"inputs":[{"name":"input","datatype":""#,
        GROWING,
        r#"","shape":[1,4],"data":[1]}]}"#,
    )];
    flood(site, BODIES).await;
}

/// The same in every other place that has text.
pub async fn long_names(site: &Site) {
    const SHAPE: &str = r#"{"inputs":[{"name":"input","datatype":"FP32","shape":""#;
    const TIMEOUT: &str = r#"{"inputs":[],"parameters":{"timeout":""#;
    const BODIES: &[Text] = &[
        (r#"{"inputs":[{"name":""#, GROWING, NAMED),
        (r#"{"inputs":[{"name":""#, r"\u0007", NAMED),
        (r#"{"inputs":[],"outputs":[{"name":""#, GROWING, r#""}]}"#),
        (r#"{"inputs":[],"id":""#, GROWING, r#""}"#),
        (TIMEOUT, GROWING, r#""}}"#),
        (r#"{"inputs":[],"parameters":{""#, GROWING, r#"":{}}}"#),
        (SHAPE, GROWING, r#"","data":[1]}]}"#),
        (r#"{"inputs":""#, GROWING, r#""}"#),
        (r#"""#, GROWING, r#"""#),
    ];
    flood(site, BODIES).await;
}

/// Lists of many parts, each of which takes more memory than its text.
pub async fn wide_lists(site: &Site) {
    const OUTPUT: &str = r#"{"inputs":[],"outputs":[{"name":""}"#;
    const INPUT: &str = r#",{"name":"","datatype":"FP32","shape":[0],"data":[]}"#;
    const BODIES: &[Text] = &[
        LONG_SHAPE,
        (OUTPUT, r#",{"name":""}"#, "]}"),
        (concat!(input!("FP32", "[1,4]"), "1,2,3,4]}"), INPUT, "]}"),
        (r#"{"inputs":[],"unknown":["#, "[", ""),
    ];
    flood(site, BODIES).await;
}

/// Elements that take two bytes in JSON and eight in memory.
pub async fn wide_data(site: &Site) {
    const NAME_LAST: &str =
        r#"{"inputs":[{"datatype":"INT64","shape":[8386560],"name":"x","data":[1"#;
    const BODIES: &[Text] = &[(WIDE_DATA, ",1", "]}]}"), (NAME_LAST, ",1", "]}]}")];
    flood(site, BODIES).await;
}

/// Elements as long as the body, which a parser would copy.
pub async fn long_elements(site: &Site) {
    const END: &str = r#""]}]}"#;
    const BODIES: &[Text] = &[
        ("", "9", ""),
        (input!("FP32", "[1,4]"), "9", "]}]}"),
        (concat!(input!("FP32", "[1,4]"), "0."), "9", "]}]}"),
        (concat!(input!("FP32", "[1,4]"), "\""), r"\u0007", END),
        (concat!(input!("FP32", "[1,4]"), r#""\n"#), "n", END),
        (concat!(input!("BYTES", "[1,4]"), r#""\n"#), "n", END),
    ];
    flood(site, BODIES).await;
}

/// Bodies that come as long as they are.
pub async fn long_bodies(site: &Site) {
    const BODIES: &[Text] =
        &[LONG_SHAPE, (WIDE_DATA, ",1", "]}]}"), (r#"{"inputs":[{"name":""#, GROWING, r#""}]}"#)];
    flood_of(site, BODIES, unpacked).await;
}
