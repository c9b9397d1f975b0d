//! An API server in memory: slices are listed, watched and listed again after the watch has broken.

use std::collections::VecDeque;
use std::sync::Arc;

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parapet_frontend::discovery::kubernetes::Kubernetes;
use parapet_frontend::discovery::{Discovery, KubernetesSettings};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::addresses;

/// Slice `name`, with endpoints and whether each is ready; `ready` is left out where it
/// is not known.
fn slice(name: &str, endpoints: &[(String, Option<bool>, bool)]) -> Value {
    let endpoint = |(ip, ready, terminating): &(String, Option<bool>, bool)| {
        json!({ "addresses": [ip],
            "conditions": { "ready": ready, "terminating": terminating } })
    };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": { "name": name, "resourceVersion": "7" },
        "addressType": "IPv4",
        "ports": [
            { "name": "metrics", "port": 9090, "protocol": "TCP" },
            { "name": "http", "port": 9001, "protocol": "TCP" },
        ],
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn list(slices: &[Value]) -> String {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList",
        "metadata": { "resourceVersion": "7" }, "items": slices,
    })
    .to_string()
}

fn event(kind: &str, object: &Value) -> String {
    format!("{}\n", json!({ "type": kind, "object": object }))
}

/// A client whose requests are answered with these bodies in turn, and where they went.
fn client(answers: Vec<String>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let (answers, asked) =
        (Arc::new(Mutex::new(VecDeque::from(answers))), Arc::new(Mutex::new(Vec::new())));
    let log = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Body>| {
        log.lock().push(request.uri().to_string());
        let answer = answers.lock().pop_front();
        async move {
            let answer = answer.ok_or("nothing more was expected")?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Response::new(Body::from(
                answer.into_bytes(),
            )))
        }
    });
    (Client::new(service, "default"), asked)
}

fn settings(port: Option<&str>) -> KubernetesSettings {
    KubernetesSettings {
        service: "replicas".to_owned(),
        namespace: Some("serving".to_owned()),
        port: port.map(str::to_owned),
    }
}

#[tokio::test]
async fn endpoints_that_take_requests_are_instances_as_slices_come_and_go() {
    let of = |last: u8, ready, terminating| (format!("10.0.0.{last}"), ready, terminating);
    let unready = of(2, Some(false), false);
    let first = slice("a", &[of(1, Some(true), false), unready, of(3, None, false)]);
    let grown = slice("a", &[of(1, Some(true), true), of(2, Some(true), false)]);
    let second = slice("b", &[of(9, Some(true), false)]);
    let expired = json!({ "kind": "Status", "status": "Failure", "message": "too old",
        "reason": "Expired", "code": 410 });
    let events = [
        event("MODIFIED", &grown),
        event("ADDED", &second),
        event("DELETED", &grown),
        event("ERROR", &expired),
    ];
    let (client, asked) = client(vec![
        list(std::slice::from_ref(&first)),
        events.concat(),
        list(&[first]),
        String::new(),
    ]);
    let mut backend = Kubernetes::with_client(settings(Some("http")), client);

    for found in [
        &["10.0.0.1:9001", "10.0.0.3:9001"][..],
        // One shuts down, one is ready now.
        &["10.0.0.2:9001"],
        &["10.0.0.2:9001", "10.0.0.9:9001"],
        &["10.0.0.9:9001"],
    ] {
        assert_eq!(backend.next().await.unwrap(), addresses(found));
    }
    let error = backend.next().await.unwrap_err().to_string();
    let named = error.contains("service replicas in serving") && error.contains("too old");
    assert!(named, "{error}");
    let listed_anew = backend.next().await.unwrap();
    assert_eq!(listed_anew, addresses(&["10.0.0.1:9001", "10.0.0.3:9001"]));

    let asked = asked.lock();
    assert!(asked[0].contains("/namespaces/serving/endpointslices?"), "{asked:?}");
    assert!(asked.iter().all(|uri| uri.contains("service-name%3Dreplicas")), "{asked:?}");
    for part in ["watch=true", "resourceVersion=7"] {
        assert!(asked[1].contains(part), "{asked:?}");
    }
}

#[tokio::test]
async fn a_port_that_is_not_there_gives_no_instance() {
    let (client, _) = client(vec![
        list(&[slice("a", &[("10.0.0.1".to_owned(), Some(true), false)])]),
        String::new(),
    ]);
    let mut backend = Kubernetes::with_client(settings(Some("grpc")), client);
    assert_eq!(backend.next().await.unwrap(), addresses(&[]));
}
