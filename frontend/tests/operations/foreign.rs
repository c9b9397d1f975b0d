//! Models of other servers, which no repository describes.

use std::fs;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parapet_frontend::upstream::{Instances, Transport as _, Unready};
use parking_lot::Mutex;
use support::instance::{describing, describing_input, metadata};
use support::memory::id;
use support::process::FRONTEND;
use tokio::process::Command;
use tokio::time::Instant;

use super::*;

const FITS: &[i64] = &[-1, INPUTS as i64];
const OTHER: &[i64] = &[-1, 3, 32];
const DIFFERS: &str = r#"its input "input" is FP32 [-1, 3, 32], where the model has FP32 [-1, 4]"#;

fn empty() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

async fn serve_foreign(instances: &[SocketAddr]) -> Served {
    serve(empty(), &with_admin(&foreign_toml(instances, ""))).await
}

#[tokio::test]
async fn without_a_repository_replicas_describe_the_model_and_one_that_differs_is_never_ready() {
    let instances = [describing_input(FITS).await, describing_input(OTHER).await];
    let served = serve_foreign(&instances).await;
    infer(served.address, &SAMPLE, "").await.is_right(&SAMPLE);
    let described = get(served.address, "/v2/models/linear").await.json();
    assert_eq!(described["inputs"][0]["shape"], serde_json::json!(FITS));
    assert_eq!(
        (&described["versions"][0], &described["platform"]),
        (&"3".into(), &"tensorrt_plan".into())
    );
    let said = async || {
        let state = get(served.admin, "/live/state").await.json().to_string();
        state.contains(&DIFFERS.replace('"', "\\\""))
    };
    wait_until("said to differ", LIMIT, said).await;
    assert_eq!(served.instances_up().await, 1);
    served.ask_all([SAMPLE; 20]).await;
}

#[tokio::test]
async fn replicas_may_take_samples_of_any_length() {
    let free: &[i64] = &[-1, -1, 4];
    let instances = [describing_input(free).await, describing_input(&[-1, 3, 4]).await];
    let served = serve_foreign(&instances).await;
    let described = get(served.address, "/v2/models/linear").await.json();
    assert_eq!(described["inputs"][0]["shape"], serde_json::json!(free));
    let flat = body(&SAMPLE, "");
    let answer = post(served.address, INFER, &[], flat.replace("[1,4]", "[1,1,4]")).await;
    answer.is_right(&SAMPLE);
    let error = post(served.address, INFER, &[], flat.replace("[1,4]", "[1,4,1]")).await.error();
    assert!(error.contains("shape [1, 4, 1], expected [batch, -1, 4]"), "{error}");
    let said = async || {
        let state = get(served.admin, "/live/state").await.json().to_string();
        state.contains("FP32 [-1, 3, 4], where the model has FP32 [-1, -1, 4]")
    };
    wait_until("said to differ", LIMIT, said).await;
    assert_eq!(served.instances_up().await, 1);
}

#[tokio::test]
async fn a_code_for_a_foreign_model_of_any_length_is_refused() {
    let instances = [describing_input(&[-1, -1, 4]).await; 2];
    let text = coded_toml(std::path::Path::new("nowhere"), &instances, &[instances[0]], "");
    let text = text.replace("[repository]\npath = \"nowhere\"\n", "");
    let text = text.replacen(&format!(", \"{}\"", instances[0]), "", 1);
    let refused = config(&text).unwrap().describe(LIMIT).await.unwrap_err().to_string();
    for part in [
        "parapet.toml: models[0].strategy.kind: \"input\" of linear/model.toml has shape [-1, 4]",
        "set kind = \"hedge\", or write the length of every axis there",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
}

#[tokio::test]
async fn over_grpc_replicas_describe_the_model() {
    let repository = repository();
    let flags = ["--grpc-listen", "127.0.0.1:0"];
    let instance = instance_of(repository.path(), "linear", &flags).await;
    let text = foreign_toml(&[instance.grpc_address.unwrap()], "");
    let served = serve(empty(), &with_scheme(&text, "grpc")).await;
    infer(served.address, &SAMPLE, "").await.is_right(&SAMPLE);
}

#[tokio::test]
async fn discovered_replicas_describe_the_model() {
    let instance = describing_input(FITS).await;
    let looked_up = format!("{{ dns = \"localhost\", port = {} }}", instance.port());
    let text = foreign_toml(&[instance], "").replace(&format!("[\"{instance}\"]"), &looked_up);
    let served = serve(empty(), &text).await;
    infer(served.address, &SAMPLE, "").await.is_right(&SAMPLE);
}

#[tokio::test]
async fn a_replica_that_comes_to_differ_is_not_ready_from_the_next_check_on() {
    let told = Arc::new(Mutex::new(metadata(FITS)));
    let text = foreign_toml(&[describing(&told).await], "");
    let config = config(&text).unwrap().describe(LIMIT).await.unwrap();
    let instances = Instances::new(&config.models[0]);
    assert_eq!(instances.ready(id(0, 0)).await, Ok(()));
    *told.lock() = metadata(OTHER);
    assert_eq!(instances.ready(id(0, 0)).await, Err(Unready::Differs(DIFFERS.to_owned())));
    // What says nothing of tensors is taken to fit.
    for nothing in ["{}", "<html>", r#"{"name":"linear","inputs":[],"outputs":[]}"#] {
        *told.lock() = nothing.to_owned();
        assert_eq!(instances.ready(id(0, 0)).await, Ok(()), "{nothing}");
    }
}

#[tokio::test]
async fn every_strategy_without_parity_models_needs_no_repository() {
    let instance = describing_input(FITS).await;
    let backup = format!("instances = [\"{}\"]", describing_input(FITS).await);
    for strategy in [
        "kind = \"none\"",
        "kind = \"hedge\"",
        "kind = \"replicate\"",
        &format!("kind = \"approximate_backup\"\nmodel = \"cheap\"\n{backup}"),
    ] {
        let instances = [instance, describing_input(FITS).await];
        let text = foreign_toml(&instances, "") + "[models.strategy]\n" + strategy;
        let config = config(&text).unwrap().describe(LIMIT).await.unwrap();
        let transport = Instances::new(&config.models[0]);
        for pool in (0u8..).take(config.models[0].pools().count()) {
            assert_eq!(transport.ready(id(pool, 0)).await, Ok(()), "{strategy}");
        }
    }
    let coded = coded_toml(std::path::Path::new("nowhere"), &[instance, instance], &[instance], "");
    let coded = coded.replace("[repository]\npath = \"nowhere\"\n", "");
    let coded = coded.replacen(&format!(", \"{instance}\""), "", 1);
    let refused = config(&coded).unwrap().describe(LIMIT).await.unwrap_err().to_string();
    assert!(
        refused.contains("parity[0].model") && refused.contains("[repository] path"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_model_that_no_instance_describes_is_refused_after_the_wait() {
    let nowhere = free_address();
    let config = config(&foreign_toml(&[nowhere], "")).unwrap();
    assert_eq!(config.undescribed().collect::<Vec<_>>(), ["linear"]);
    let (wait, started) = (Duration::from_secs(60), Instant::now());
    let refused = config.describe(wait).await.unwrap_err().to_string();
    assert_eq!(started.elapsed(), wait);
    for part in [
        "parapet.toml: models[0].instances: none of them answered GET /v2/models/linear",
        " within 60 s ",
        &format!("({nowhere}: "),
        "start them, or describe the model in linear/model.toml",
    ] {
        assert!(refused.contains(part), "{part:?} is not in {refused:?}");
    }
}

#[tokio::test]
async fn a_reload_takes_another_description_and_keeps_the_old_one_where_that_is_not_sound() {
    let told = Arc::new(Mutex::new(metadata(FITS)));
    let served = serve_foreign(&[describing(&told).await]).await;
    let kept = reload(served.admin).await;
    assert_eq!(kept.json()["models_kept"][0], "linear", "{}", kept.text());
    *told.lock() = metadata(&[4]);
    let refused = reload(served.admin).await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    let error = refused.error();
    assert!(error.contains("models[0].instances") && error.contains("batch axis"), "{error}");
    *told.lock() = metadata(OTHER);
    let taken = reload(served.admin).await;
    assert_eq!(taken.json()["models_started"][0], "linear", "{}", taken.text());
    let described = get(served.address, "/v2/models/linear").await.json();
    assert_eq!(described["inputs"][0]["shape"], serde_json::json!(OTHER));
}

/// Standard output, standard error, and the status.
async fn check(text: &str, flags: &[&str]) -> (String, String, Option<i32>) {
    let folder = empty();
    let config = folder.path().join("parapet.toml");
    fs::write(&config, text).unwrap();
    let mut command = Command::new(FRONTEND);
    command.arg("--config").arg(&config).args(flags).stdin(Stdio::null());
    let output = command.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[tokio::test]
async fn an_online_check_names_each_instance_and_what_is_wrong_with_it() {
    let [right, other] = [describing_input(FITS).await, describing_input(OTHER).await];
    let gone = free_address();
    let online = ["--check", "--online"];
    let (lines, error, status) = check(&foreign_toml(&[right, other, gone], ""), &online).await;
    let mut lines = lines.lines();
    assert_eq!(lines.next(), Some(&*format!("linear deployed {right}: ok")));
    assert_eq!(lines.next(), Some(&*format!("linear deployed {other}: {DIFFERS}")));
    let last = lines.next().unwrap();
    assert!(last.starts_with(&format!("linear deployed {gone}: ")), "{last}");
    assert!(last.contains("refused") && lines.next().is_none(), "{last}");
    assert!(error.contains("2 instances are not ready"), "{error}");
    assert_eq!(status, Some(2));

    let (lines, error, status) = check(&foreign_toml(&[right], ""), &online).await;
    assert_eq!((lines, status), (format!("linear deployed {right}: ok\n"), Some(0)), "{error}");
    let (lines, _, status) = check(&foreign_toml(&[other], ""), &["--check"]).await;
    assert!(lines.contains("linear (to be asked with --online)") && status == Some(0), "{lines}");
    let (_, error, status) = check(&foreign_toml(&[right], ""), &["--online"]).await;
    assert!(error.contains("--check") && status == Some(2), "{error}");
}
