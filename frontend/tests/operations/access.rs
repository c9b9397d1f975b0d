//! Permissions of keys.

use super::*;

#[tokio::test]
async fn tenants_have_keys_and_quotas() {
    let (a, b) = (Key::generate(), Key::generate());
    let repository = repository();
    let instances = [instance::start(None).await];
    let text = with_admin(&tenant("a", &a, "requests_per_second = 0.01\nburst = 2"))
        + &tenant("b", &b, "")
        + &plain_toml(repository.path(), &instances, "");
    let served = serve(repository, &text).await;

    let refused = infer(served.address, &SAMPLE, "").await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    assert_eq!(status_as(served.address, &Key::generate()).await, 401);
    assert_eq!(get(served.address, "/v2/models/linear").await.status, 401);
    // Health needs no key.
    assert_eq!(get(served.address, "/v2/health/ready").await.status, 200);

    let (a_s, b_s) = ([200, 200, 429].map(|status| (&a, status)), [(&b, 200); 3]);
    for (key, status) in a_s.into_iter().chain(b_s) {
        let answer = ask_as(served.address, key, &SAMPLE).await;
        assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
        assert_eq!(answer.header("retry-after").is_some(), status == 429);
    }
    let key = bearer(&b);
    let with_key = [("authorization", key.as_str())];
    // Tenants do not see each other.
    for path in ["/metrics", "/v2/models/stats", "/v2/models/linear/stats"] {
        let hidden = request(served.address, Method::GET, path, &with_key, b"").await;
        assert_eq!(hidden.status, StatusCode::NOT_FOUND, "{path}");
    }
    let text = served.metrics().await;
    for expected in [
        r#"parapet_tenant_requests_total{tenant="a",outcome="admitted"} 2"#,
        r#"parapet_tenant_requests_total{tenant="a",outcome="over_quota"} 1"#,
        r#"parapet_tenant_requests_total{tenant="b",outcome="admitted"} 3"#,
        "parapet_requests_unauthenticated_total 3",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

/// The coding groups that two tenants' queries come to be in, by their numbers of members.
async fn groups_of_two_tenants(mix: [bool; 2]) -> Vec<usize> {
    let keys = [Key::generate(), Key::generate()];
    let repository = repository();
    let [deployed, parity] = instance::start_all().await;
    let slots = "timeout_ms = 60000\nslots_per_instance = 8";
    let coded = coded_toml(repository.path(), &[deployed], &[parity], slots)
        .replace("k = 2", "k = 2\nflush_after_ms = 60000")
        .replace("fixed_ms = 30", "fixed_ms = 60000");
    let text = with_admin(&tenant("a", &keys[0], &format!("may_mix = {}", mix[0])))
        + &tenant("b", &keys[1], &format!("may_mix = {}", mix[1]))
        + &coded;
    let served = serve(repository, &text).await;
    let mut asked = tokio::task::JoinSet::new();
    for key in keys {
        asked.spawn(async move { ask_as(served.address, &key, &[HANG; INPUTS]).await });
    }
    let members = async || {
        let state = get(served.admin, "/debug/groups").await.json();
        let groups = state["models"]["linear"]["groups"].as_array().unwrap();
        let members = |group: &serde_json::Value| group["members"].as_array().unwrap().len();
        groups.iter().map(members).collect::<Vec<_>>()
    };
    let in_groups = async || members().await.iter().sum::<usize>() == 2;
    wait_until("in groups", LIMIT, in_groups).await;
    members().await
}

#[tokio::test]
async fn only_tenants_that_allow_it_share_a_group() {
    for mix in [[false, false], [true, false]] {
        assert_eq!(groups_of_two_tenants(mix).await, [1, 1], "{mix:?}");
    }
    assert_eq!(groups_of_two_tenants([true, true]).await, [2]);
}

#[tokio::test]
async fn the_admin_listener_asks_for_its_key() {
    let key = Key::generate();
    let repository = repository();
    let instances = [instance::start(None).await];
    let text = with_admin(&format!("key_sha256 = [\"{}\"]\n", key.hash()))
        + &plain_toml(repository.path(), &instances, "");
    let served = serve(repository, &text).await;
    let authorization = bearer(&key);
    for (method, path) in [(Method::GET, "/debug/groups"), (Method::POST, "/admin/reload")] {
        let with_key = [("authorization", authorization.as_str())];
        for (headers, status) in [(&[][..], 401), (&with_key, 200)] {
            let answer = request(served.admin, method.clone(), path, headers, b"").await;
            assert_eq!(answer.status, status, "{path}");
        }
        // Not for clients.
        assert_eq!(get(served.address, path).await.status, 404, "{path}");
    }
    let metrics = served.metrics().await;
    assert!(metrics.contains("parapet_config_reloads_total"));
    // Predictions are not for operators.
    assert_eq!(get(served.admin, INFER).await.status, 404);
}

#[tokio::test]
async fn without_a_key_pages_of_other_sites_are_refused() {
    let served = serve_plain(repository(), &[instance::start(None).await]).await;
    let other = [("origin", "http://evil.example")];
    let refused = post(served.admin, "/admin/reload", &other, "").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
}

#[tokio::test]
async fn instances_hear_how_long_a_client_waits() {
    let served = serve_plain(repository(), &[instance::start(None).await]).await;
    let sample = SAMPLE.map(|value| value + 0.125);
    let left = async |parameters: &str| {
        infer(served.address, &sample, parameters).await.is_right(&sample);
        instance::TIMEOUTS_US.lock()[&sample[0].to_bits()]
    };
    assert!((1..=700_000).contains(&left(r#""timeout":700000"#).await));
    // The configured one.
    assert!((700_000..=1_000_000).contains(&left("").await));
}
