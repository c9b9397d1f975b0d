//! The live page: what it is given, and what it may switch.

use http::{Method, StatusCode};
use parapet_frontend::tenants::Key;
use serde_json::{Value, json};

use crate::served::{
    LIMIT, SAMPLE, Served, bearer, metrics, reload, serve, serve_plain, with_admin,
};
use crate::support::instance::{self, HANG};
use crate::support::{Answer, INPUTS, coded_toml, get, infer, repository, request, wait_until};

const JSON: (&str, &str) = ("content-type", "application/json");

async fn coded() -> Served {
    let repository = repository();
    let [first, second, parity] = [
        instance::start(None).await,
        instance::start(None).await,
        instance::start(None).await,
    ];
    let text = with_admin(&coded_toml(
        repository.path(),
        &[first, second],
        &[parity],
        "",
    ));
    serve(repository, &text).await
}

async fn state(served: &Served) -> Value {
    let answer = get(served.admin, "/live/state").await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    answer.json()["models"][0].clone()
}

async fn switch(served: &Served, path: &str, body: &Value) -> Answer {
    let path = format!("/live/models/linear/{path}");
    request(
        served.admin,
        Method::POST,
        &path,
        &[JSON],
        body.to_string().as_bytes(),
    )
    .await
}

/// Two at once, one of which its instance never answers.
async fn with_a_straggler(served: &Served) -> [Answer; 2] {
    let (quick, late) = tokio::join!(
        infer(served.address, &SAMPLE, ""),
        infer(served.address, &[HANG; INPUTS], r#""timeout":400000"#)
    );
    [quick, late]
}

#[tokio::test]
async fn the_state_shows_what_coding_does() {
    let served = coded().await;
    wait_until("all up", LIMIT, async || {
        let state = state(&served).await;
        state["instances"]
            .as_array()
            .unwrap()
            .iter()
            .all(|instance| instance["state"] == "up")
    })
    .await;
    // A group takes the straggler and the query that comes beside it.
    let [_, late] = with_a_straggler(&served).await;
    assert_eq!(
        late.header("parapet-provenance"),
        Some("reconstructed"),
        "{:?}",
        late.body
    );
    let state = state(&served).await;
    assert_eq!(state["name"], "linear");
    assert_eq!(
        state["switches"],
        json!({"redundancy": true, "hold_back": null, "has_redundancy": true,
            "has_hold_back": true})
    );
    assert_eq!(
        (
            &state["totals"]["accepted"],
            &state["totals"]["reconstructed"]
        ),
        (&json!(2), &json!(1))
    );
    assert_eq!(state["hold_back_ms"], 30.0);
    let latency = &state["latency"];
    assert_eq!(
        (&latency["answered"]["count"], &latency["approximated"]),
        (&json!(2), &json!(1))
    );
    assert!(
        latency["answered"]["p999_ms"].as_f64().unwrap() >= 29.0,
        "{latency}"
    );
    let class = &state["classes"][0];
    assert_eq!(
        (&class["class"], &class["strategy"]),
        (&json!("default"), &json!("coded"))
    );
    assert!(class["budget"]["left"].as_f64().unwrap() < class["budget"]["burst"].as_f64().unwrap());
    let instances = state["instances"].as_array().unwrap();
    let pools: Vec<&str> = instances
        .iter()
        .filter_map(|instance| instance["pool"].as_str())
        .collect();
    assert_eq!(pools, ["deployed", "deployed", "parity0"]);
    // The straggler's own request is awaited still, to compare.
    assert!(
        instances
            .iter()
            .any(|each| each["in_flight"] == 1 && each["oldest_ms"].as_f64().unwrap() > 29.0)
    );
    let groups = state["groups"].as_array().unwrap();
    let members = groups
        .iter()
        .flat_map(|group| group["members"].as_array().unwrap());
    assert_eq!(
        members
            .filter(|member| member["reconstructed"] == true)
            .count(),
        1,
        "{groups:?}"
    );
}

#[tokio::test]
async fn switches_hold_until_a_reload_and_are_seen_in_the_metrics() {
    let served = coded().await;
    let off = switch(&served, "redundancy", &json!({"on": false})).await;
    assert_eq!(
        (off.status, off.json()["redundancy"].clone()),
        (StatusCode::OK, json!(false))
    );
    let changed = switch(&served, "hold_back", &json!({"fixed_ms": 12.5})).await;
    assert_eq!(changed.json()["hold_back"], json!({"fixed_ms": 12.5}));
    assert_eq!(state(&served).await["hold_back_ms"], 12.5);
    let [quick, late] = with_a_straggler(&served).await;
    assert_eq!(
        (quick.status, late.status),
        (StatusCode::OK, StatusCode::GATEWAY_TIMEOUT),
        "nothing stands in for it"
    );
    let text = metrics(served.admin).await;
    for line in [
        r#"parapet_redundancy_on{model="linear"} 0"#,
        r#"parapet_hold_back_overridden{model="linear"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    let after = state(&served).await;
    assert_eq!(
        (
            &after["switches"]["redundancy"],
            &after["switches"]["hold_back"]
        ),
        (&json!(true), &Value::Null)
    );
    assert_eq!(after["hold_back_ms"], 30.0);
    assert!(
        metrics(served.admin)
            .await
            .contains(r#"parapet_redundancy_on{model="linear"} 1"#)
    );
    let [_, late] = with_a_straggler(&served).await;
    assert_eq!(
        late.header("parapet-provenance"),
        Some("reconstructed"),
        "{:?}",
        late.body
    );
}

#[tokio::test]
async fn what_is_no_switch_is_refused_with_the_reason() {
    let served = coded().await;
    for (path, body, status, reason) in [
        ("redundancy", json!({}), 400, "on"),
        ("redundancy", json!({"on": "no"}), 400, "boolean"),
        ("hold_back", json!({"percentile": 97}), 400, "0.97"),
        (
            "hold_back",
            json!({"fixed_ms": 20, "percentile": 0.9}),
            400,
            "one of",
        ),
        (
            "hold_back",
            json!({"fixed_ms": 20, "more": "x".repeat(4096)}),
            413,
            "larger",
        ),
    ] {
        let refused = switch(&served, path, &body).await;
        let error = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(
            refused.status.as_u16() == status && error.contains(reason),
            "{body}: {error}"
        );
    }
    let path = "/live/models/linear/redundancy";
    let untyped = request(served.admin, Method::POST, path, &[], br#"{"on": false}"#).await;
    assert_eq!(
        untyped.status,
        StatusCode::BAD_REQUEST,
        "any page may send what is not called JSON"
    );
    let elsewhere = request(
        served.admin,
        Method::POST,
        "/live/models/no/redundancy",
        &[JSON],
        br#"{"on": true}"#,
    )
    .await;
    assert_eq!(elsewhere.status, StatusCode::NOT_FOUND);
    assert_eq!(
        state(&served).await["switches"]["redundancy"],
        true,
        "nothing was switched"
    );

    let repository = repository();
    let plain = serve_plain(repository, &[instance::start(None).await]).await;
    for (path, body) in [
        ("redundancy", json!({"on": false})),
        ("hold_back", json!({"configured": true})),
    ] {
        let refused = switch(&plain, path, &body).await;
        assert_eq!(
            refused.status,
            StatusCode::BAD_REQUEST,
            "there is nothing to switch"
        );
    }
}

#[tokio::test]
async fn the_page_is_for_everybody_and_what_it_shows_is_not() {
    let key = Key::generate();
    let repository = repository();
    let [deployed, parity] = [instance::start(None).await, instance::start(None).await];
    let text = with_admin(&format!("key_sha256 = [\"{}\"]\n", key.hash()))
        + &coded_toml(repository.path(), &[deployed], &[parity], "");
    let served = serve(repository, &text).await;
    for path in ["/", "/live"] {
        let page = get(served.admin, path).await;
        assert_eq!(
            (page.status, page.header("content-type")),
            (StatusCode::OK, Some("text/html; charset=utf-8"))
        );
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'sha256-")
                && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(page.header("x-frame-options"), Some("DENY"));
        assert_eq!(
            get(served.address, path).await.status,
            StatusCode::NOT_FOUND,
            "not for clients"
        );
    }
    let authorization = bearer(&key);
    let with = [("authorization", authorization.as_str()), JSON];
    let wrong = bearer(&Key::generate());
    let redundancy = (
        "/live/models/linear/redundancy",
        Method::POST,
        br#"{"on": false}"#.as_slice(),
    );
    for (path, method, body) in [("/live/state", Method::GET, b"".as_slice()), redundancy] {
        let without = request(served.admin, method.clone(), path, &[JSON], body).await;
        assert_eq!(without.status, StatusCode::UNAUTHORIZED, "{path}");
        let with_wrong = [("authorization", wrong.as_str()), JSON];
        let refused = request(served.admin, method.clone(), path, &with_wrong, body).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(
            request(served.admin, method, path, &with, body)
                .await
                .status,
            StatusCode::OK,
            "{path}"
        );
    }
}

#[tokio::test]
async fn without_a_key_other_sites_and_other_names_of_this_machine_are_refused() {
    let served = coded().await;
    let path = "/live/models/linear/redundancy";
    let origin = [JSON, ("origin", "http://evil.example")];
    let refused = request(
        served.admin,
        Method::POST,
        path,
        &origin,
        br#"{"on": false}"#,
    )
    .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    // A name that was made to resolve to this machine: the browser takes it for the page's own
    // site.
    let renamed = [JSON, ("host", "evil.example")];
    for (method, path) in [
        (Method::POST, path),
        (Method::GET, "/live/state"),
        (Method::POST, "/admin/reload"),
    ] {
        let refused = request(served.admin, method, path, &renamed, br#"{"on": false}"#).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(state(&served).await["switches"]["redundancy"], true);
}
