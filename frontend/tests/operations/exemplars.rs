//! Exemplars in the scrape that lead from a slow bucket to a trace.

use http::{Method, StatusCode};

use crate::served::{SAMPLE, Served, serve, serve_plain, with_admin};
use crate::support::instance;
use crate::support::{Answer, infer, plain_toml, repository, request};

const ACCEPT: &str =
    "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

async fn scrape(served: &Served) -> Answer {
    request(
        served.admin,
        Method::GET,
        "/metrics",
        &[("accept", ACCEPT)],
        b"",
    )
    .await
}

#[tokio::test]
async fn a_bucket_names_the_trace_of_the_request_that_fell_into_it() {
    let repository = repository();
    // The port is closed: the spans are dropped.
    let traces = "[traces]\nendpoint = \"http://127.0.0.1:9\"\nshare = 1.0\n";
    let instances = [instance::start(None).await];
    let text = with_admin(traces) + &plain_toml(repository.path(), &instances, "");
    let served = serve(repository, &text).await;
    let answer = infer(served.address, &SAMPLE, "").await;
    assert_eq!(answer.status, StatusCode::OK);
    let trace = answer.header("parapet-trace-id").unwrap().to_owned();

    let scraped = scrape(&served).await;
    assert_eq!(
        scraped.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    let text = String::from_utf8_lossy(&scraped.body).into_owned();
    let exemplars: Vec<&str> = text.lines().filter(|line| line.contains(" # {")).collect();
    let [line] = exemplars.as_slice() else {
        panic!("one exemplar, not {exemplars:?}\n{text}")
    };
    let (sample, exemplar) = line.split_once(" # ").unwrap();
    assert!(
        sample.starts_with(
            "parapet_request_duration_seconds_bucket{model=\"linear\",provenance=\"exact\",le="
        ),
        "{line}"
    );
    let (labels, numbers) = exemplar.split_once(' ').unwrap();
    assert_eq!(labels, format!("{{trace_id=\"{trace}\"}}"));
    let (seconds, _at) = numbers.split_once(' ').unwrap();
    let bound: f64 = sample
        .split("le=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(
        seconds.parse::<f64>().unwrap() <= bound,
        "it lies in its bucket: {line}"
    );
    assert!(text.contains("# TYPE parapet_requests counter") && text.ends_with("# EOF\n"));
    let plain = request(served.admin, Method::GET, "/metrics", &[], b"").await;
    assert!(
        plain
            .header("content-type")
            .unwrap()
            .starts_with("text/plain")
            && !plain.body.ends_with(b"# EOF\n")
    );
}

#[tokio::test]
async fn without_traces_the_scrape_is_as_ever() {
    let served = serve_plain(repository(), &[instance::start(None).await]).await;
    let scraped = scrape(&served).await;
    assert!(
        scraped
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
}
