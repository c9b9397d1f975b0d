//! Abuse within well-formed HTTP.

use tokio::io::AsyncWriteExt as _;

use crate::site::{self, Site, status_of, whole};
use crate::support::instance::HANG;
use crate::support::{INPUTS, body};

fn input(shape: &str, datatype: &str, rest: &str) -> String {
    format!(r#"{{"inputs":[{{"name":"input","datatype":"{datatype}","shape":{shape},{rest}}}]}}"#)
}

pub async fn deep_json(site: &Site) {
    for bracket in ["[", "{\"a\":"] {
        let deep = bracket.repeat(90_000 / bracket.len());
        let data = input("[1,4]", "FP32", &format!("\"data\":{deep}"));
        let parameter = format!(r#"{{"parameters":{{"a":{deep}"#);
        let unknown = format!(r#"{{"unknown":{deep}"#);
        for body in [&deep, &data, &parameter, &unknown] {
            assert_eq!(site.status("", body).await, 400, "{}", &body[..80]);
        }
    }
    let closed = format!("{}{}", "[".repeat(40_000), "]".repeat(40_000));
    let body = input("[1,4]", "FP32", &format!("\"data\":{closed}"));
    assert_eq!(site.status("", body).await, 400);
}

/// Many small things, each of which takes more memory than its text.
pub async fn wide_json(site: &Site) {
    let many = |part: &str| vec![part; 90_000 / (part.len() + 1)].join(",");
    let inputs = many(r#"{"name":"","datatype":"FP32","shape":[0],"data":[]}"#);
    let (outputs, lists, ones) = (many(r#"{"name":""}"#), many("[]"), many("1"));
    let bodies = [
        format!(r#"{{"inputs":[{inputs}]}}"#),
        format!(r#"{{"inputs":[],"outputs":[{outputs}]}}"#),
        format!(r#"{{"inputs":[],"parameters":{{"a":[{lists}]}}}}"#),
        input(&format!("[{ones}]"), "FP32", r#""data":[]"#),
        input("[1,4]", "FP32", &format!(r#""data":[{ones}]"#)),
    ];
    // The memory that the allocator keeps is a matter of sizes, and of chance, not of how often
    // they are asked for: at some time it has enough.
    let mut most = Vec::new();
    for _ in 0..100 {
        for body in &bodies {
            assert_eq!(site.status("", body).await, 400, "{}", &body[..80]);
        }
        most.push(site.memory_kb("VmHWM:"));
        let latest = most.iter().rev();
        if latest.take_while(|memory| Some(*memory) == most.last()).count() > 8 {
            return;
        }
    }
    panic!("it grows on and on: {most:?} KB");
}

pub async fn claimed_sizes(site: &Site) {
    for shape in [
        "[1152921504606846976,64]",
        "[18446744073709551615,18446744073709551615]",
        "[18446744073709551616]",
        "[-1,4]",
        "[1000000000000,4]",
        "[1.5,4]",
        "[0,4]",
    ] {
        let json = input(shape, "FP32", r#""data":[1]"#);
        assert_eq!(site.status("", &json).await, 400, "{shape}");
        for size in ["16", "18446744073709551615", "-16"] {
            let parameters = format!(r#""parameters":{{"binary_data_size":{size}}}"#);
            let header = input(shape, "FP32", &parameters);
            let length = format!("inference-header-content-length: {}\r\n", header.len());
            let body = [header.as_bytes(), &[0; 16]].concat();
            assert_eq!(site.status(&length, body).await, 400, "{shape} {size}");
        }
    }
    let strings = input("[1,4]", "BYTES", r#""parameters":{"binary_data_size":8}"#);
    let length = format!("inference-header-content-length: {}\r\n", strings.len());
    let claimed = [strings.as_bytes(), &[0xff; 8]].concat();
    assert_eq!(site.status(&length, claimed).await, 400, "a string of 4 GB");
}

pub async fn header_beyond_body(site: &Site) {
    let body = body(&[1.0; INPUTS], "");
    let (largest, larger) = ("18446744073709551615", "18446744073709551616");
    for length in ["100000", largest, larger, "-1", "0", "1e3", ""] {
        let field = format!("inference-header-content-length: {length}\r\n");
        assert_eq!(site.status(&field, &body).await, 400, "{length}");
    }
}

pub async fn numbers(site: &Site) {
    for data in [
        "1e60,1,1,1",
        "1e999,1,1,1",
        "-1e999,1,1,1",
        "NaN,1,1,1",
        "Infinity,1,1,1",
        "0x10,1,1,1",
        "1,1,1,",
    ] {
        let body = input("[1,4]", "FP32", &format!("\"data\":[{data}]"));
        assert_eq!(site.status("", body).await, 400, "{data}");
    }
    for (datatype, data) in
        [("INT8", "128"), ("UINT8", "-1"), ("UINT64", "18446744073709551616"), ("INT64", "1.5")]
    {
        let body = input("[1,1]", datatype, &format!("\"data\":[{data}]"));
        assert_eq!(site.status("", body).await, 400, "{datatype} {data}");
    }
    let long = format!("\"data\":[{},1,1,1]", "1".repeat(90_000));
    assert_eq!(site.status("", input("[1,4]", "FP32", &long)).await, 400);
}

/// A client's deadline is bounded by the server's: an instance that hangs is waited for no longer.
pub async fn deadlines(site: &Site) {
    let hang = async |parameters: &str| site.status("", body(&[HANG; INPUTS], parameters)).await;
    let statuses = tokio::join!(
        hang(r#""timeout":18446744073709551615"#),
        hang(r#""deadline_unix_ms":18446744073709551615"#),
        hang(r#""timeout":18446744073709551615,"deadline_unix_ms":9223372036854775807"#),
    );
    // The first that is given up speaks against the instance: it may count as down by the time of
    // the others.
    let statuses = [statuses.0, statuses.1, statuses.2];
    let late = statuses.iter().all(|status| [503, 504].contains(status));
    assert!(late && statuses.contains(&504), "{statuses:?}");
    for (parameters, status) in [
        (r#""timeout":0"#, 504),
        (r#""timeout":-1"#, 400),
        (r#""timeout":1e300"#, 400),
        (r#""timeout":18446744073709551616"#, 400),
        (r#""deadline_unix_ms":0"#, 504),
        (r#""deadline_unix_ms":"soon""#, 400),
    ] {
        let body = body(&[1.0; INPUTS], parameters);
        assert_eq!(site.status("", body).await, status, "{parameters}");
    }
}

/// Names that clients choose make no series of metrics, and no state.
pub async fn cardinality(site: &Site) {
    let series = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    site.status("", "{").await;
    site.status("", body(&[1.0; INPUTS], "")).await;
    let before = series(&site.metrics().await);
    let body = body(&[1.0; INPUTS], "");
    for i in 0..100 {
        let id = format!("x-request-id: {i}\r\n");
        assert_eq!(site.status(&id, &body).await, 200);
        let class = format!("parapet-class: class-{i}\r\n");
        assert_eq!(site.status(&class, &body).await, 400);
        for path in [
            format!("/v2/models/m{i}/infer"),
            format!("/{i}"),
            format!("/v2/models/linear/versions/{i}x/ready"),
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            let said = site.send(request).await;
            assert!([404, 405].contains(&status_of(&said)), "{said}");
        }
    }
    assert_eq!(series(&site.metrics().await), before);
}

pub async fn given_up(site: &Site) {
    let request = whole("", body(&[HANG; INPUTS], r#""timeout":2500000"#));
    let ask = async || {
        let mut stream = site.abuser().await;
        stream.write_all(&request).await.unwrap();
        stream
    };
    site::given_up(site, ask).await;
}
