//! Configurations that are replaced while requests go on.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

/// Writes a configuration with these instances.
fn write(served: &Served, instances: &[SocketAddr]) {
    let text = plain_toml(served.repository.path(), instances, "");
    fs::write(&served.config, with_admin(&text)).unwrap();
}

/// Requests go on without a pause while the configuration is replaced, and none fails.
#[tokio::test]
async fn a_sound_configuration_replaces_the_old_one_and_no_request_is_lost() {
    let mut instances = instance::start_all::<2>().await.to_vec();
    let served = serve_plain(repository(), &instances).await;
    let address = served.address;
    let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
        clients.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                infer(address, &SAMPLE, "").await.is_right(&SAMPLE);
                answered.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    for round in 0..5 {
        // Other instances each time: the old ones leave.
        instances.remove(0);
        instances.push(instance::start(None).await);
        write(&served, &instances);
        let done = reload(served.admin).await;
        assert_eq!(done.status, StatusCode::OK, "{}", done.text());
        assert_eq!(done.json()["models_started"][0], "linear", "round {round}");
        let enough = answered.load(Ordering::SeqCst) + 10;
        let go_on = async || answered.load(Ordering::SeqCst) > enough;
        wait_until("answered", LIMIT, go_on).await;
    }
    let again = reload(served.admin).await.json();
    assert_eq!(again["models_kept"][0], "linear");
    assert_eq!(again["models_started"].as_array().map(Vec::len), Some(0));
    stop.store(true, Ordering::SeqCst);
    clients.join_all().await;
    // Instances that are gone are not up.
    assert_eq!(served.instances_up().await, 2);
}

/// The client of a reload need not wait for it.
#[tokio::test]
async fn a_reload_goes_on_when_its_client_has_gone() {
    let served = serve_plain(repository(), &[instance::start(None).await]).await;
    let silent = free_address();
    write(&served, &[silent]);
    // It waits for an instance that does not come.
    let impatient = tokio::time::timeout(Duration::from_millis(300), reload(served.admin)).await;
    assert!(impatient.is_err(), "at once: {impatient:?}");
    let replaced =
        format!("parapet_instance_up{{model=\"linear\",pool=\"deployed\",address=\"{silent}\"}} 0");
    let reloads = "parapet_config_reloads_total{outcome=\"taken\"} 1";
    let is_done = async || {
        let text = served.metrics().await;
        let one = text.matches("parapet_instance_up{").count() == 1;
        one && text.contains(reloads) && text.contains(&replaced)
    };
    wait_until("reloaded", LIMIT, is_done).await;
}

/// A pool whose instances were looked up and are now given has no backend that could be away.
#[tokio::test]
async fn a_backend_that_is_used_no_more_is_not_reported() {
    let instance = instance::start(None).await;
    let repository = repository();
    let given = with_admin(&plain_toml(repository.path(), &[instance], ""));
    let looked_up = format!("{{ dns = \"localhost\", port = {} }}", instance.port());
    let discovered = given.replace(&format!("[\"{instance}\"]"), &looked_up);
    let served = serve(repository, &discovered).await;
    let is_reported = async || served.metrics().await.contains("parapet_discovery_up{");
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
    let mistakes = r#"
        [server] => not TOML => line
        name = "linear" => name = "../linear" => model name "../linear"
        max_body_bytes = 100000 => max_body_bytes = 0 => server.max_body_bytes
        [server] => [server]\nmax_connections = 7 => server.max_connections has changed
        [admin]\nlisten = "127.0.0.1:0" => => admin.listen has changed
    "#;
    for [from, to, part] in rows(mistakes) {
        fs::write(&served.config, text(&new).replace(&from, &to)).unwrap();
        let refused = reload(served.admin).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.text());
        let error = refused.error();
        assert!(error.contains(&part) && !error.contains('\n'), "{error}");
        assert_eq!(status_as(served.address, &old).await, 200, "{part}");
        assert_eq!(status_as(served.address, &new).await, 401, "{part}");
    }
    fs::write(&served.config, text(&new)).unwrap();
    assert_eq!(reload(served.admin).await.status, StatusCode::OK);
    assert_eq!(status_as(served.address, &old).await, 401);
    assert_eq!(status_as(served.address, &new).await, 200);
}
