//! Metrics: every name is declared in [`names`], every label and bucket here, and nowhere else.
//!
//! `parapet_invariant_violations_total` should alert at any increase;
//! `parapet_reconstruction_agreement_total` gives the live accuracy of reconstructions, with no
//! labels of data needed.

pub mod names;
mod presence;
mod server;
mod total;

pub use presence::ShownCertificate;
pub use server::ServerMeters;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use parapet_frontend_core::{ClassId, InstanceId, PoolId, RedundancyOutcomes, Stats, Switches};

use self::names::*;
use self::presence::Presence;
use self::total::Total;
use crate::error::ErrorKind;
use crate::provenance::Provenance;

/// The registry of one frontend. It is not global, so that tests can run several side by side.
#[derive(Debug)]
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    presence: Arc<Presence>,
}

impl Metrics {
    /// An empty registry.
    ///
    /// # Errors
    /// [`BuildError`] never, since the buckets are not empty.
    pub fn new() -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(REQUEST_SECONDS.to_owned()), &SECONDS)?
            .set_buckets_for_metric(Matcher::Full(UPSTREAM_SECONDS.to_owned()), &SECONDS)?
            .build_recorder();
        let handle = recorder.handle();
        with_local_recorder(&recorder, names::describe);
        Ok(Self {
            recorder,
            handle,
            presence: Arc::default(),
        })
    }

    /// The text that Prometheus scrapes.
    pub fn render(&self) -> String {
        self.handle.render() + &self.presence.render()
    }

    /// Moves recorded samples into their buckets; without it they pile up between scrapes.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    /// The meters of the server itself.
    pub fn server(&self) -> ServerMeters {
        with_local_recorder(&self.recorder, ServerMeters::new)
    }

    /// Counts the requests of a tenant: those admitted, and those over its quota.
    pub fn tenant(&self, name: &str) -> (Counter, Counter) {
        let requests = |outcome: &'static str| {
            counter!(TENANT_REQUESTS, "tenant" => name.to_owned(),
                "outcome" => outcome)
        };
        with_local_recorder(&self.recorder, || {
            (requests("admitted"), requests("over_quota"))
        })
    }

    /// Certificates that are shown now, in place of those of before.
    pub fn certificates(&self, shown: Vec<ShownCertificate>) {
        self.presence.certificates(shown);
    }

    /// Counts requests without a known key.
    pub fn unauthenticated(&self) -> Counter {
        with_local_recorder(&self.recorder, || counter!(UNAUTHENTICATED))
    }

    /// The meters of one model.
    pub fn model(
        &self,
        model: &str,
        classes: &[ClassLabels],
        pool_labels: &[String],
    ) -> ModelMeters {
        let presence = Arc::clone(&self.presence);
        with_local_recorder(&self.recorder, || {
            ModelMeters::new(model, classes, pool_labels, presence)
        })
    }
}

/// Where a comparison of a reconstruction with the truth comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The exact prediction came after the approximation had been sent.
    LateTruth,
    /// A sampled group in which nothing straggled.
    Audit,
}

/// Labels of a class of requests.
#[derive(Debug, Clone)]
pub struct ClassLabels {
    pub class: String,
    pub strategy: &'static str,
    /// Source of approximations: the code's short name, `backup`, or `none`.
    pub code: String,
}

#[derive(Debug)]
struct ClassMeters {
    /// Late truth agrees, disagrees; audit agrees, disagrees. Once for the scrape, and once to
    /// be read here.
    agreement: [(Counter, AtomicU64); 4],
    redundant: [Total; 5],
}

/// One model's meters, registered once.
#[derive(Debug)]
pub struct ModelMeters {
    model: String,
    presence: Arc<Presence>,
    answers: [(&'static str, Counter, Histogram); 4],
    errors: Vec<(ErrorKind, Counter)>,
    pools: Vec<PoolMeters>,
    classes: Vec<ClassMeters>,
    groups: [Total; 2],
    groups_spared: Total,
    uncoded: Total,
    retries: Total,
    unrecoverable: Total,
    in_flight: Gauge,
    groups_open: Gauge,
    kept_bytes: Gauge,
    hold_back: Gauge,
    queued: Gauge,
    queue_limit: Gauge,
    ejected: Gauge,
    ejections: Total,
    cg1: Total,
    redundancy_on: Gauge,
    hold_back_overridden: Gauge,
}

#[derive(Debug)]
struct PoolMeters {
    seconds: Histogram,
    failures: Counter,
    label: String,
}

impl ClassMeters {
    fn new(model: &str, labels: &ClassLabels) -> Self {
        let ClassLabels {
            class,
            strategy,
            code,
        } = labels;
        let agreement = |source: &'static str, agrees: &'static str| {
            let counter = counter!(AGREEMENT, "model" => model.to_owned(), "code" => code.clone(),
                "source" => source, "agrees" => agrees);
            (counter, AtomicU64::new(0))
        };
        let redundant = |fate: &'static str| {
            counter!(REDUNDANT, "model" => model.to_owned(),
                "class" => class.clone(), "strategy" => *strategy, "fate" => fate)
        };
        Self {
            agreement: [
                agreement("late_truth", "true"),
                agreement("late_truth", "false"),
                agreement("audit", "true"),
                agreement("audit", "false"),
            ],
            redundant: ["issued", "won", "wasted", "shed", "failed"]
                .map(|fate| Total::new(redundant(fate))),
        }
    }
}

impl ModelMeters {
    fn new(
        model: &str,
        classes: &[ClassLabels],
        pool_labels: &[String],
        presence: Arc<Presence>,
    ) -> Self {
        let model = model.to_owned();
        let answers = |provenance: &'static str| {
            (
                provenance,
                counter!(REQUESTS, "model" => model.clone(), "outcome" => provenance),
                histogram!(REQUEST_SECONDS, "model" => model.clone(), "provenance" => provenance),
            )
        };
        let pool = |pool: &String| PoolMeters {
            seconds: histogram!(UPSTREAM_SECONDS, "model" => model.clone(), "pool" => pool.clone()),
            failures: counter!(UPSTREAM_FAILURES, "model" => model.clone(), "pool" => pool.clone()),
            label: pool.clone(),
        };
        Self {
            answers: Provenance::KINDS.map(answers),
            errors: ErrorKind::ALL
                .iter()
                .map(|kind| {
                    (
                        *kind,
                        counter!(REQUESTS, "model" => model.clone(), "outcome" => kind.name()),
                    )
                })
                .collect(),
            pools: pool_labels.iter().map(pool).collect(),
            classes: classes
                .iter()
                .map(|labels| ClassMeters::new(&model, labels))
                .collect(),
            groups: ["false", "true"].map(|fillers| {
                Total::new(counter!(GROUPS, "model" => model.clone(), "fillers" => fillers))
            }),
            retries: Total::new(counter!(RETRIES, "model" => model.clone())),
            unrecoverable: Total::new(counter!(UNRECOVERABLE, "model" => model.clone())),
            in_flight: gauge!(IN_FLIGHT, "model" => model.clone()),
            groups_spared: Total::new(counter!(GROUPS_SPARED, "model" => model.clone())),
            uncoded: Total::new(counter!(UNCODED, "model" => model.clone())),
            groups_open: gauge!(GROUPS_OPEN, "model" => model.clone()),
            kept_bytes: gauge!(KEPT_BYTES, "model" => model.clone()),
            hold_back: gauge!(HOLD_BACK, "model" => model.clone()),
            queued: gauge!(QUEUED, "model" => model.clone()),
            queue_limit: gauge!(QUEUE_LIMIT, "model" => model.clone()),
            ejected: gauge!(EJECTED, "model" => model.clone()),
            ejections: Total::new(counter!(EJECTIONS, "model" => model.clone())),
            cg1: Total::new(counter!(VIOLATIONS, "model" => model.clone(), "invariant" => "CG-1")),
            redundancy_on: gauge!(REDUNDANCY_ON, "model" => model.clone()),
            hold_back_overridden: gauge!(HOLD_BACK_OVERRIDDEN, "model" => model.clone()),
            presence,
            model,
        }
    }

    /// A request was answered with a prediction.
    pub fn answered(&self, provenance: &Provenance, took: Duration) {
        if let Some((_, count, seconds)) = self
            .answers
            .iter()
            .find(|(kind, ..)| *kind == provenance.kind)
        {
            count.increment(1);
            seconds.record(took.as_secs_f64());
        }
    }

    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    /// A request was answered with an error.
    pub fn failed(&self, kind: ErrorKind) {
        if let Some((_, count)) = self.errors.iter().find(|(known, _)| *known == kind) {
            count.increment(1);
        }
    }

    /// An upstream request ended.
    pub fn upstream(&self, instance: InstanceId, took: Duration, failed: bool) {
        if let Some(pool) = self.pools.get(usize::from(instance.pool.0)) {
            pool.seconds.record(took.as_secs_f64());
            if failed {
                pool.failures.increment(1);
            }
        }
    }

    /// A health check's result.
    pub fn instance_up(&self, pool: PoolId, name: &str, up: bool) {
        self.presence
            .instance(&self.model, self.pool_label(pool), name, up);
    }

    pub fn instance_left(&self, pool: PoolId, name: &str) {
        self.presence.gone(&self.model, self.pool_label(pool), name);
    }

    /// Returns true if the backend that says where a pool's instances are answers.
    pub fn discovery_up(&self, pool: PoolId, up: bool) {
        self.presence
            .discovery(&self.model, self.pool_label(pool), up);
    }

    /// No backend says any more where a pool's instances are.
    pub fn not_discovered(&self, pool: PoolId) {
        self.presence
            .not_discovered(&self.model, self.pool_label(pool));
    }

    fn pool_label(&self, pool: PoolId) -> &str {
        self.pools
            .get(usize::from(pool.0))
            .map_or("", |pool| &pool.label)
    }

    /// An approximate answer was compared with the truth.
    pub fn compared(&self, class: ClassId, source: Source, agrees: bool) {
        let Some(class) = self.classes.get(usize::from(class.0)) else {
            return;
        };
        let [late_true, late_false, audit_true, audit_false] = &class.agreement;
        let (counter, count) = match (source, agrees) {
            (Source::LateTruth, true) => late_true,
            (Source::LateTruth, false) => late_false,
            (Source::Audit, true) => audit_true,
            (Source::Audit, false) => audit_false,
        };
        counter.increment(1);
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the comparisons of a class's approximations with the truth: late truths that agreed
    /// and that did not, audits that agreed and that did not.
    pub fn agreement(&self, class: usize) -> [u64; 4] {
        let count = |(_, count): &(Counter, AtomicU64)| count.load(Ordering::Relaxed);
        self.classes
            .get(class)
            .map_or([0; 4], |class| class.agreement.each_ref().map(count))
    }

    /// Publishes the core's totals, and those of each class.
    pub fn publish_totals(&self, stats: &Stats, redundancy_outcomes: &[RedundancyOutcomes]) {
        for (class, redundancy_outcomes) in self.classes.iter().zip(redundancy_outcomes) {
            let totals = [
                redundancy_outcomes.issued,
                redundancy_outcomes.won,
                redundancy_outcomes.wasted,
                redundancy_outcomes.shed,
                redundancy_outcomes.failed,
            ];
            for (counter, total) in class.redundant.iter().zip(totals) {
                counter.publish(total);
            }
        }
        let [plain, with_fillers] = &self.groups;
        with_fillers.publish(stats.groups_completed_with_fillers);
        plain.publish(
            stats
                .groups_encoded
                .saturating_sub(stats.groups_completed_with_fillers),
        );
        self.groups_spared.publish(stats.groups_spared);
        self.uncoded.publish(stats.uncoded);
        self.retries.publish(stats.retries);
        self.unrecoverable.publish(stats.late_unrecoverable);
        self.ejections.publish(stats.ejections);
        self.cg1.publish(stats.cg1_violations);
    }

    pub fn publish_state(&self, stats: &Stats, switches: &Switches) {
        self.redundancy_on.set(f64::from(switches.redundancy));
        self.hold_back_overridden
            .set(f64::from(switches.hold_back.is_some()));
        self.queued.set(stats.queued as f64);
        self.queue_limit.set(stats.queue_limit as f64);
        self.ejected.set(stats.ejected as f64);
        self.in_flight.set(stats.queries_tracked as f64);
        self.groups_open.set(stats.groups_tracked as f64);
        self.kept_bytes.set(stats.kept_bytes as f64);
        self.hold_back.set(stats.hold_back_us as f64 / 1e6);
    }
}
