//! Bad input and compressed bodies.

use super::*;

fn input(shape: &str, dtype: &str, data: &str) -> String {
    format!(
        r#"{{"inputs":[{{"name":"input","datatype":"{dtype}","shape":{shape},"data":{data}}}]}}"#
    )
}

/// A request that asks for `outputs`.
fn asking_for(outputs: &str) -> String {
    let outputs = format!(r#""outputs":[{outputs}],"inputs""#);
    body(&[1.0; 4], "").replacen(r#""inputs""#, &outputs, 1)
}

/// Sends bad input between two good requests, which share a group with it if it gets into one.
async fn is_refused_alone(cluster: &Cluster, headers: &[(&str, &str)], body: &[u8], status: u16) {
    let samples = [SAMPLE, [4.0, 3.0, 2.0, 1.0]];
    let (before, error, after) = tokio::join!(
        infer(cluster.address, &samples[0], ""),
        cluster.refused(headers, body, status),
        infer(cluster.address, &samples[1], ""),
    );
    assert!(!error.is_empty() && !error.contains('\n'), "{error:?}");
    for (answer, sample) in [before, after].iter().zip(&samples) {
        answer.is_right(sample);
    }
}

#[tokio::test]
async fn bad_input_gets_the_error_object_and_harms_no_other_request() {
    let cluster = Cluster::start().await;
    let nothing = asking_for(r#"{"name":"nothing"}"#);
    let classes = asking_for(r#"{"name":"output","parameters":{"classification":-1}}"#);
    let past = body(&[1.0; 4], r#""deadline_unix_ms":1000"#);
    for (body, status) in [
        ("{", 400),
        ("", 400),
        ("{\"inputs\":[]}", 400),
        (&input("[1,3]", "FP32", "[1,2,3]"), 400),
        (&input("[1,4]", "FP32", "[1,2,3]"), 400),
        (&input("[1,4]", "INT32", "[1,2,3,4]"), 400),
        (&input("[1,4]", "FP31", "[1,2,3,4]"), 400),
        (&input("[1,4]", "FP32", "[1e60,1,1,1]"), 400),
        (&input("[1152921504606846976,64]", "FP32", "[1]"), 400),
        (&nothing, 400),
        (&classes, 400),
        (&past, 504),
        (&" ".repeat(100_001), 413),
    ] {
        is_refused_alone(&cluster, &[], body.as_bytes(), status).await;
    }
    for model in ["other", "linear/versions/9"] {
        let path = format!("/v2/models/{model}/infer");
        let answer = cluster.post(&path, &[], body(&[1.0; 4], "")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{}", answer.error());
    }
}

#[tokio::test]
async fn bad_framing_gets_the_error_object_and_harms_no_other_request() {
    let cluster = Cluster::start().await;
    let good = body(&[1.0; 4], "").into_bytes();
    let unfolds = gzipped(&[b' '; 100_001]);
    let nan = infer_request(&[0.0, f32::NAN, 0.0, 0.0]);
    let nan = encode_request(&nan, Encoding::Binary).unwrap();
    let length = nan.header_length.unwrap().to_string();
    let cut = &nan.body[..nan.body.len() - 3];
    let (header_length, coding) = ("inference-header-content-length", "content-encoding");
    for (name, value, body, status) in [
        (header_length, length.as_str(), &nan.body[..], 400),
        (header_length, &length, cut, 400),
        (header_length, "100000", &good, 400),
        (header_length, "ten", &good, 400),
        (coding, "br", &good, 415),
        (coding, "gzip", &good, 400),
        (coding, "gzip", &unfolds, 413),
    ] {
        is_refused_alone(&cluster, &[(name, value)], body, status).await;
    }
}

#[tokio::test]
async fn compressed_bodies_are_read_and_long_answers_compressed_on_request() {
    use std::io::Read as _;
    let cluster = Cluster::start().await;
    let rows = [0, 1, 2, 3, 4, 5, 6, 7].map(|row| format!("[{row},1.25,0.5,0.125]"));
    // An id as long as this makes the answer worth compressing.
    let id = "q".repeat(2000);
    let body = format!(
        r#"{{"id":"{id}","parameters":{{"allow_approximate":false}},"inputs":[{{"name":"input","datatype":"FP32","shape":[8,4],"data":[{}]}}]}}"#,
        rows.join(",")
    );
    let plain = cluster.post(INFER, &[], &body).await;
    assert_eq!(plain.status, StatusCode::OK);
    assert_eq!(plain.header("content-encoding"), None);
    let headers = [("content-encoding", "gzip"), ("accept-encoding", "gzip")];
    let body = gzipped(body.as_bytes());
    let answer = cluster.post(INFER, &headers, body).await;
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(answer.header("vary"), Some("accept-encoding"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&answer.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text.as_bytes(), plain.body);
}
