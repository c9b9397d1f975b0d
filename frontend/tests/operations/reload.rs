//! Configurations that are replaced while requests go on.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use parapet_frontend::tenants::Key;

use crate::served::{
    LIMIT, SAMPLE, ask_as, metrics, reload, serve, serve_plain, tenant, with_admin,
};
use crate::support::{close, infer, instance, linear, plain_toml, repository, wait_until};

/// Requests go on without a pause while the configuration is replaced, and none fails.
#[tokio::test]
async fn a_sound_configuration_replaces_the_old_one_and_no_request_is_lost() {
    let repository = repository();
    let mut instances = vec![instance::start(None).await, instance::start(None).await];
    let text = with_admin(&plain_toml(repository.path(), &instances, ""));
    let served = Arc::new(serve(repository, &text).await);
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicUsize::new(0));
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (served, stop, answered) = (
            Arc::clone(&served),
            Arc::clone(&stop),
            Arc::clone(&answered),
        );
        clients.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let answer = infer(served.address, &SAMPLE, "").await;
                assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
                assert!(close(&answer.values(), &linear(&SAMPLE)));
                answered.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    for round in 0..5 {
        // Other instances each time: the old ones leave.
        instances.remove(0);
        instances.push(instance::start(None).await);
        fs::write(
            &served.config,
            with_admin(&plain_toml(served.repository.path(), &instances, "")),
        )
        .unwrap();
        let done = reload(served.admin).await;
        assert_eq!(done.status, StatusCode::OK, "{:?}", done.body);
        assert_eq!(done.json()["models_started"][0], "linear", "round {round}");
        let so_far = answered.load(Ordering::SeqCst);
        wait_until("answered", LIMIT, async || {
            answered.load(Ordering::SeqCst) > so_far + 10
        })
        .await;
    }
    let again = reload(served.admin).await.json();
    assert_eq!(
        (
            again["models_kept"][0].as_str(),
            again["models_started"].as_array().unwrap().len()
        ),
        (Some("linear"), 0)
    );
    stop.store(true, Ordering::SeqCst);
    clients.join_all().await;
    let text = metrics(served.admin).await;
    let up = text
        .lines()
        .filter(|line| line.starts_with("parapet_instance_up{") && line.ends_with(" 1"))
        .count();
    assert_eq!(up, 2, "instances that are gone are not up\n{text}");
}

/// The client of a reload need not wait for it.
#[tokio::test]
async fn a_reload_goes_on_when_its_client_has_gone() {
    let served = serve_plain(repository(), &[instance::start(None).await]).await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    fs::write(
        &served.config,
        with_admin(&plain_toml(served.repository.path(), &[nobody], "")),
    )
    .unwrap();
    // It waits for an instance that does not come.
    let impatient = tokio::time::timeout(Duration::from_millis(300), reload(served.admin)).await;
    assert!(
        impatient.is_err(),
        "the reload was done at once: {impatient:?}"
    );
    let replaced =
        format!("parapet_instance_up{{model=\"linear\",pool=\"deployed\",address=\"{nobody}\"}} 0");
    let reloads = "parapet_config_reloads_total{outcome=\"taken\"} 1";
    wait_until("reloaded", LIMIT, async || {
        let text = metrics(served.admin).await;
        text.contains(reloads)
            && text.contains(&replaced)
            && text.matches("parapet_instance_up{").count() == 1
    })
    .await;
}

/// A pool whose instances were looked up and are now given has no backend that could be away.
#[tokio::test]
async fn what_is_not_discovered_any_more_is_not_reported() {
    let instances = [instance::start(None).await];
    let repository = repository();
    let given = with_admin(&plain_toml(repository.path(), &instances, ""));
    let list = format!("instances = [\"{}\"]", instances[0]);
    let looked_up = format!(
        "instances = {{ dns = \"localhost\", port = {} }}",
        instances[0].port()
    );
    assert!(given.contains(&list), "{given}");
    let served = serve(repository, &given.replace(&list, &looked_up)).await;
    let is_reported = async || {
        metrics(served.admin)
            .await
            .contains("parapet_discovery_up{")
    };
    wait_until("discovered", LIMIT, is_reported).await;
    fs::write(&served.config, &given).unwrap();
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    assert!(!is_reported().await);
}

#[tokio::test]
async fn a_mistake_leaves_the_old_configuration_in_place() {
    let (old, new) = (Key::generate(), Key::generate());
    let repository = repository();
    let instances = [instance::start(None).await];
    let rest = plain_toml(repository.path(), &instances, "");
    let text = |key: &Key| with_admin(&tenant("a", key, "")) + &rest;
    let served = serve(repository, &text(&old)).await;
    let wrong = [
        ("not TOML".to_owned(), "line"),
        (
            text(&new).replace("name = \"linear\"", "name = \"other\""),
            "no model \"other\"",
        ),
        (
            text(&new).replace("max_body_bytes = 100000", "max_body_bytes = 0"),
            "server.max_body_bytes",
        ),
        (
            text(&new).replace("[server]", "[server]\nmax_connections = 7"),
            "server.max_connections has changed",
        ),
        (
            text(&new).replace("[admin]\nlisten = \"127.0.0.1:0\"", ""),
            "admin.listen has changed",
        ),
    ];
    for (text, part) in wrong {
        fs::write(&served.config, text).unwrap();
        let refused = reload(served.admin).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{:?}", refused.body);
        let error = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(error.contains(part) && !error.contains('\n'), "{error}");
        assert_eq!(
            ask_as(served.address, &old, &SAMPLE).await.status,
            StatusCode::OK,
            "{part}"
        );
        assert_eq!(
            ask_as(served.address, &new, &SAMPLE).await.status,
            StatusCode::UNAUTHORIZED,
            "{part}"
        );
    }
    fs::write(&served.config, text(&new)).unwrap();
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    assert_eq!(
        ask_as(served.address, &old, &SAMPLE).await.status,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        ask_as(served.address, &new, &SAMPLE).await.status,
        StatusCode::OK
    );
}
