//! State that the live page shows, as JSON. Of each model at most [`MOST_INSTANCES`] instances and
//! [`MOST_GROUPS`] groups, of at most [`MOST_MODELS`] models; totals since the model was started,
//! from which the page takes rates.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::header::CACHE_CONTROL;
use parapet_frontend_core::{
    BudgetView, GroupView, HoldBackOverride, InstanceView, LatencyView, Percentiles,
    RedundancyOutcomes, Stats, Switches, Time,
};
use serde_json::{Value, json};

use crate::app::App;
use crate::driver::{Snapshot, class_labels};
use crate::http::answer;
use crate::metrics::ClassLabels;
use crate::model::ServedModel;

const MOST_MODELS: usize = 32;
const MOST_INSTANCES: usize = 128;
const MOST_GROUPS: usize = 32;

pub(super) async fn state(State(app): State<Arc<App>>) -> Response {
    let serving = app.serving();
    let models = serving.models.values().take(MOST_MODELS);
    let models: Vec<Value> = models.map(|served| model(served)).collect();
    let state = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ready": app.is_ready(),
        "draining": app.is_draining(),
        "window_s": LatencyView::WINDOW.as_secs(),
        "models": models,
        "models_left_out": serving.models.len().saturating_sub(MOST_MODELS),
    });
    ([(CACHE_CONTROL, "no-store")], answer(&state)).into_response()
}

fn model(model: &ServedModel) -> Value {
    let now = model.driver.snapshot(MOST_INSTANCES, MOST_GROUPS);
    let stats = &now.stats;
    let groups =
        |views: &[GroupView]| -> Value { views.iter().map(|view| group(view, now.at)).collect() };
    let instances: Value = now.instances.iter().map(|of| instance(model, of)).collect();
    json!({
        "name": model.name(),
        "model_version": model.config.version,
        "at_ms": millis(now.at),
        "switches": switches(model, &now.switches),
        "totals": totals(stats),
        "in_flight": stats.queries_tracked,
        "queued": stats.queued,
        "queue_limit": stats.queue_limit,
        "slots_per_instance": stats.slots_per_instance,
        "hold_back_ms": stats.hold_back_us as f64 / 1e3,
        "latency": {
            "answered": percentiles(&now.latency.answered),
            "approximated": now.latency.approximated,
            "without": percentiles(&now.latency.without),
        },
        "classes": classes(model, &now),
        "instances": instances,
        "groups_in_memory": stats.groups_tracked,
        "groups": groups(&now.groups),
        "decoded": groups(&now.decoded),
    })
}

fn totals(stats: &Stats) -> Value {
    json!({
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
        "shed": stats.redundant.shed,
        "late_unrecoverable": stats.late_unrecoverable,
        "groups_encoded": stats.groups_encoded,
        "groups_filled": stats.groups_completed_with_fillers,
        "groups_spared": stats.groups_spared,
        "violations": stats.cg1_violations,
    })
}

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

fn percentiles(of: &Percentiles) -> Value {
    let (p50, p99, p999) = (millis(of.p50), millis(of.p99), millis(of.p999));
    json!({ "count": of.count, "p50_ms": p50, "p99_ms": p99, "p999_ms": p999 })
}

fn classes(model: &ServedModel, now: &Snapshot) -> Value {
    let labels = class_labels(&model.config).into_iter().enumerate();
    let class = |(((index, labels), of), budget): (((_, ClassLabels), &RedundancyOutcomes), _)| {
        let budget: &Option<BudgetView> = budget;
        let [late_agrees, late_not, audit_agrees, audit_not] = model.driver.meters.agreement(index);
        json!({
            "class": labels.class,
            "strategy": labels.strategy,
            "code": labels.code,
            "issued": of.issued,
            "won": of.won,
            "wasted": of.wasted,
            "shed": of.shed,
            "failed": of.failed,
            "budget": budget,
            "agreement": {
                "late_truth": [late_agrees, late_not],
                "audit": [audit_agrees, audit_not],
            },
        })
    };
    labels.zip(&now.outcomes).zip(&now.budgets).map(class).collect()
}

fn instance(
    model: &ServedModel,
    (view, name, unready): &(InstanceView, String, Option<String>),
) -> Value {
    json!({
        "name": name,
        "pool": model.pool_label(view.id.pool),
        "state": view.state.to_string(),
        "unready": unready,
        "in_flight": view.in_flight,
        "oldest_ms": view.oldest.map(millis),
        "latency_ms": view.latency.map(millis),
        "failed": view.failed.0,
        "of": view.failed.1,
        "ejections": view.ejections,
    })
}

/// A group as it stands, or stood, so long after the driver's start.
pub(super) fn group(view: &GroupView, at: Duration) -> Value {
    let closed = view.closed.map_or(at, |closed| closed.since(Time::ZERO));
    json!({
        "id": view.id.to_string(),
        "age_ms": millis(closed.saturating_sub(view.opened.since(Time::ZERO))),
        "class": view.id.class().0,
        "k": view.k,
        "sealed": view.sealed,
        "members": view.members,
        "parity": view.parity,
    })
}

/// To the microsecond.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
