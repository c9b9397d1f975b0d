//! The live page: what it is given, and what it may switch.

use serde_json::{Value, json};

use super::*;

const JSON: (&str, &str) = ("content-type", "application/json");
const REDUNDANCY: &str = "/live/models/linear/redundancy";
const OFF: &[u8] = br#"{"on": false}"#;

async fn coded() -> Served {
    coded_with("").await
}

/// Two replicas and a parity instance; `admin` stands in `[admin]`.
async fn coded_with(admin: &str) -> Served {
    let repository = repository();
    let at = instance::start_all::<3>().await;
    let text = coded_toml(repository.path(), &at[..2], &at[2..], "");
    serve(repository, &with_admin(&format!("{admin}{text}"))).await
}

async fn state(served: &Served) -> Value {
    let answer = get(served.admin, "/live/state").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    answer.json()["models"][0].clone()
}

async fn switch(served: &Served, path: &str, body: &Value) -> Answer {
    let path = format!("/live/models/linear/{path}");
    post(served.admin, &path, &[JSON], body.to_string()).await
}

/// Two at once, one of which its instance never answers; provenance and status of that one.
async fn straggler(served: &Served) -> (Option<String>, StatusCode) {
    let (quick, late) = tokio::join!(
        infer(served.address, &SAMPLE, ""),
        infer(served.address, &[HANG; INPUTS], r#""timeout":400000"#)
    );
    assert_eq!(quick.status, StatusCode::OK);
    let provenance = late.header("parapet-provenance");
    (provenance.map(str::to_owned), late.status)
}

fn reconstructed() -> (Option<String>, StatusCode) {
    (Some("reconstructed".to_owned()), StatusCode::OK)
}

#[tokio::test]
async fn the_state_shows_what_coding_does() {
    let served = coded().await;
    let all_up = async || {
        let state = state(&served).await;
        let mut instances = state["instances"].as_array().unwrap().iter();
        instances.all(|instance| instance["state"] == "up")
    };
    wait_until("all up", LIMIT, all_up).await;
    // A group takes the straggler and the query that comes beside it.
    assert_eq!(straggler(&served).await, reconstructed());
    let state = state(&served).await;
    let switches = json!({
        "redundancy": true, "hold_back": null, "has_redundancy": true, "has_hold_back": true,
    });
    for (path, value) in [
        ("/name", json!("linear")),
        ("/switches", switches),
        ("/totals/accepted", json!(2)),
        ("/totals/reconstructed", json!(1)),
        ("/hold_back_ms", json!(30.0)),
        ("/latency/answered/count", json!(2)),
        ("/latency/approximated", json!(1)),
        ("/classes/0/class", json!("default")),
        ("/classes/0/strategy", json!("coded")),
        ("/instances/0/pool", json!("deployed")),
        ("/instances/1/pool", json!("deployed")),
        ("/instances/2/pool", json!("parity0")),
    ] {
        assert_eq!(state.pointer(path), Some(&value), "{path}: {state}");
    }
    let number = |path: &str| state.pointer(path).unwrap().as_f64().unwrap();
    assert!(number("/latency/answered/p999_ms") >= 29.0, "{state}");
    assert!(number("/classes/0/budget/left") < number("/classes/0/budget/burst"));
    // The straggler's own request is awaited still, to compare.
    let awaited = |each: &Value| each["in_flight"] == 1 && each["oldest_ms"].as_f64() > Some(29.0);
    let instances = state["instances"].as_array().unwrap();
    assert_eq!(instances.len(), 3, "{state}");
    assert!(instances.iter().any(awaited), "{state}");
    let groups = state["groups"].as_array().unwrap().iter();
    let members = groups.flat_map(|group| group["members"].as_array().unwrap());
    let given_back = members.filter(|member| member["reconstructed"] == true);
    assert_eq!(given_back.count(), 1, "{state}");
}

#[tokio::test]
async fn switches_hold_until_a_reload_and_are_seen_in_the_metrics() {
    let served = coded().await;
    let off = switch(&served, "redundancy", &json!({"on": false})).await;
    assert_eq!(off.status, StatusCode::OK);
    assert_eq!(off.json()["redundancy"], false);
    let changed = switch(&served, "hold_back", &json!({"fixed_ms": 12.5})).await;
    assert_eq!(changed.json()["hold_back"], json!({"fixed_ms": 12.5}));
    assert_eq!(state(&served).await["hold_back_ms"], 12.5);
    let unanswered = (None, StatusCode::GATEWAY_TIMEOUT);
    // Nothing stands in for it.
    assert_eq!(straggler(&served).await, unanswered);
    let on = r#"parapet_redundancy_on{model="linear"}"#;
    let text = served.metrics().await;
    let overridden = r#"parapet_hold_back_overridden{model="linear"} 1"#;
    assert!(text.contains(&format!("{on} 0")), "{text}");
    assert!(text.contains(overridden), "{text}");
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    let after = state(&served).await;
    assert_eq!(after["switches"]["redundancy"], true);
    assert_eq!(after["switches"]["hold_back"], Value::Null);
    assert_eq!(after["hold_back_ms"], 30.0);
    assert!(served.metrics().await.contains(&format!("{on} 1")));
    assert_eq!(straggler(&served).await, reconstructed());
}

#[tokio::test]
async fn other_bodies_than_switches_are_refused_with_the_reason() {
    let served = coded().await;
    let long = json!({"fixed_ms": 20, "more": "x".repeat(4096)});
    let both = json!({"fixed_ms": 20, "percentile": 0.9});
    for (path, body, status, reason) in [
        ("redundancy", json!({}), 400, "on"),
        ("redundancy", json!({"on": "no"}), 400, "boolean"),
        ("hold_back", json!({"percentile": 97}), 400, "0.97"),
        ("hold_back", both, 400, "one of"),
        ("hold_back", long, 413, "larger"),
    ] {
        let refused = switch(&served, path, &body).await;
        assert_eq!(refused.status, status, "{body}");
        assert!(refused.error().contains(reason), "{body}: {}", refused.error());
    }
    let untyped = post(served.admin, REDUNDANCY, &[], OFF).await;
    // Any page may send what is not called JSON.
    assert_eq!(untyped.status, 400);
    let elsewhere = post(served.admin, "/live/models/no/redundancy", &[JSON], OFF).await;
    assert_eq!(elsewhere.status, StatusCode::NOT_FOUND);
    // Nothing was switched.
    assert_eq!(state(&served).await["switches"]["redundancy"], true);

    let plain = serve_plain(repository(), &[instance::start(None).await]).await;
    for (path, body) in
        [("redundancy", json!({"on": false})), ("hold_back", json!({"configured": true}))]
    {
        let refused = switch(&plain, path, &body).await;
        // There is nothing to switch.
        assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    }
}

#[tokio::test]
async fn the_page_needs_no_key_and_what_it_shows_does() {
    let key = Key::generate();
    let served = coded_with(&format!("key_sha256 = [\"{}\"]\n", key.hash())).await;
    for path in ["/", "/live"] {
        let page = get(served.admin, path).await;
        assert_eq!(page.status, StatusCode::OK);
        let html = Some("text/html; charset=utf-8");
        assert_eq!(page.header("content-type"), html);
        let policy = page.header("content-security-policy").unwrap();
        let hashed = policy.starts_with("default-src 'none'; script-src 'sha256-");
        assert!(hashed && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-frame-options"), Some("DENY"));
        // Not for clients.
        assert_eq!(get(served.address, path).await.status, 404);
    }
    let (own, wrong) = (bearer(&key), bearer(&Key::generate()));
    for (path, method, body) in
        [("/live/state", Method::GET, b"".as_slice()), (REDUNDANCY, Method::POST, OFF)]
    {
        for (key, status) in [(None, 401), (Some(&wrong), 401), (Some(&own), 200)] {
            let key = key.map(|key| ("authorization", key.as_str()));
            let headers: Vec<_> = key.into_iter().chain([JSON]).collect();
            let answer = request(served.admin, method.clone(), path, &headers, body).await;
            assert_eq!(answer.status, status, "{path}");
        }
    }
}

#[tokio::test]
async fn without_a_key_other_sites_and_other_names_of_this_machine_are_refused() {
    let served = coded().await;
    let origin = ("origin", "http://evil.example");
    // A name that was made to resolve to this machine: the browser takes it for the page's own
    // site.
    let renamed = ("host", "evil.example");
    for (header, method, path) in [
        (origin, Method::POST, REDUNDANCY),
        (renamed, Method::POST, REDUNDANCY),
        (renamed, Method::GET, "/live/state"),
        (renamed, Method::POST, "/admin/reload"),
    ] {
        let refused = request(served.admin, method, path, &[JSON, header], OFF).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(state(&served).await["switches"]["redundancy"], true);
}
