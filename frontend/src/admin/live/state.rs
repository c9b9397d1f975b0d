//! State that the page shows, as JSON. Of each model at most [`MOST_INSTANCES`] instances and
//! [`MOST_GROUPS`] groups, of at most [`MOST_MODELS`] models; totals since the model was started,
//! from which the page takes rates.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use http::HeaderValue;
use http::header::CACHE_CONTROL;
use parapet_frontend_core::{HoldBackOverride, InstanceView, LatencyView, Percentiles, Switches};
use serde_json::{Value, json};

use crate::admin::group;
use crate::app::App;
use crate::driver::Snapshot;
use crate::http::json as json_response;
use crate::model::ServedModel;

pub(super) const MOST_MODELS: usize = 32;
pub(super) const MOST_INSTANCES: usize = 128;
pub(super) const MOST_GROUPS: usize = 32;

pub(super) async fn state(State(app): State<Arc<App>>) -> Response {
    let serving = app.serving();
    let models: Vec<Value> = serving
        .models()
        .take(MOST_MODELS)
        .map(|served| model(served))
        .collect();
    let mut response = json_response(&json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ready": app.is_ready(),
        "draining": app.is_draining(),
        "window_s": LatencyView::WINDOW.as_secs(),
        "models": models,
        "models_left_out": serving.models().count().saturating_sub(MOST_MODELS),
    }));
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn model(model: &ServedModel) -> Value {
    let now = model.driver().snapshot(MOST_INSTANCES, MOST_GROUPS);
    let stats = &now.stats;
    json!({
        "name": model.name(),
        "model_version": model.version(),
        "at_ms": millis(now.at),
        "switches": switches(model, &now.switches),
        "totals": {
            "accepted": stats.accepted,
            "rejected": stats.rejected,
            "exact": stats.exact,
            "hedged": stats.hedged,
            "backup": stats.backup,
            "reconstructed": stats.reconstructed,
            "failed": stats.failed,
            "deadline_exceeded": stats.deadline_exceeded,
            "abandoned": stats.abandoned,
            "retries": stats.retries,
            "shed": stats.redundant_shed,
            "late_unrecoverable": stats.late_unrecoverable,
            "groups_encoded": stats.groups_encoded,
            "groups_filled": stats.groups_completed_with_fillers,
            "groups_spared": stats.groups_spared,
            "violations": stats.cg1_violations,
        },
        "in_flight": stats.queries_tracked,
        "queued": stats.queued,
        "queue_limit": stats.queue_limit,
        "hold_back_ms": stats.hold_back_us as f64 / 1e3,
        "latency": latency(&now.latency),
        "classes": classes(model, &now),
        "instances": now.instances.iter().map(|view| instance(model, view)).collect::<Vec<_>>(),
        "groups_in_memory": stats.groups_tracked,
        "groups": now.groups.iter().map(|view| group(view, now.at)).collect::<Vec<_>>(),
        "decoded": now.decoded.iter().map(|view| group(view, now.at)).collect::<Vec<_>>(),
    })
}

/// Returns the switches that the model has, and their state.
pub(super) fn switches(model: &ServedModel, switches: &Switches) -> Value {
    let hold_back = switches.hold_back.map(|hold_back| match hold_back {
        HoldBackOverride::Fixed(delay) => json!({ "fixed_ms": millis(delay) }),
        HoldBackOverride::Percentile(percentile) => json!({ "percentile": percentile }),
    });
    json!({
        "redundancy": switches.redundancy,
        "hold_back": hold_back,
        "has_redundancy": model.has_redundancy(),
        "has_hold_back": model.has_hold_back(),
    })
}

fn latency(view: &LatencyView) -> Value {
    let percentiles = |of: &Percentiles| {
        json!({
            "count": of.count, "p50_ms": millis(of.p50), "p99_ms": millis(of.p99), "p999_ms": millis(of.p999),
        })
    };
    json!({
        "answered": percentiles(&view.answered),
        "approximated": view.approximated,
        "without": percentiles(&view.without),
    })
}

fn classes(model: &ServedModel, now: &Snapshot) -> Value {
    let meters = model.driver().meters();
    let classes = model
        .class_labels()
        .into_iter()
        .zip(now.redundancy_outcomes.iter().zip(&now.budgets))
        .enumerate();
    classes
        .map(|(index, (labels, (redundancy_outcomes, budget)))| {
            let [late_agrees, late_not, audit_agrees, audit_not] = meters.agreement(index);
            json!({
                "class": labels.class,
                "strategy": labels.strategy,
                "code": labels.code,
                "issued": redundancy_outcomes.issued,
                "won": redundancy_outcomes.won,
                "wasted": redundancy_outcomes.wasted,
                "shed": redundancy_outcomes.shed,
                "failed": redundancy_outcomes.failed,
                "budget": budget.map(|budget| json!({ "share": budget.share, "burst": budget.burst, "left": budget.left })),
                "agreement": { "late_truth": [late_agrees, late_not], "audit": [audit_agrees, audit_not] },
            })
        })
        .collect()
}

fn instance(
    model: &ServedModel,
    (view, name, unready): &(InstanceView, String, Option<String>),
) -> Value {
    json!({
        "name": name,
        "pool": model.pool_label(view.id.pool),
        "state": view.state.name(),
        "unready": unready,
        "in_flight": view.in_flight,
        "oldest_ms": view.oldest.map(millis),
        "latency_ms": view.latency.map(millis),
        "failed": view.failed.0,
        "of": view.failed.1,
        "ejections": view.ejections,
    })
}

/// To the microsecond.
pub(in crate::admin) fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
