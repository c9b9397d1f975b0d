//! Metrics: every name is declared in `names`, every label and bucket here, and nowhere else.
//!
//! `parapet_invariant_violations_total` should alert at any increase;
//! `parapet_reconstruction_agreement_total` gives the live accuracy of reconstructions, with no
//! labels of data needed.

mod names;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram, with_local_recorder};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use parapet_frontend_core::{ClassId, InstanceId, PoolId, RedundancyOutcomes, Stats, Switches};
use parapet_net::server::{BodyMemory, Connections};
use parapet_net::tls::Expiry;
use parking_lot::Mutex;

use self::names::*;
use crate::error::ErrorKind;
use crate::payload::Provenance;

/// The registry of one frontend. It is not global, so that tests can run several side by side.
#[derive(Debug)]
pub struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    presence: Arc<Presence>,
}

impl Metrics {
    pub fn new() -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(REQUEST_SECONDS.to_owned()), &SECONDS)?
            .set_buckets_for_metric(Matcher::Full(UPSTREAM_SECONDS.to_owned()), &SECONDS)?
            .build_recorder();
        let handle = recorder.handle();
        with_local_recorder(&recorder, || {
            names::describe();
            // Series of which an increase is to be seen have to be there before it.
            let _registered = [true, false].map(reloads);
        });
        Ok(Self { recorder, handle, presence: Arc::default() })
    }

    pub fn render(&self) -> String {
        self.handle.render() + &self.presence.render()
    }

    /// Moves recorded samples into their buckets; without it they pile up between scrapes.
    pub fn upkeep(&self) {
        self.handle.run_upkeep();
    }

    pub fn tenant(&self, name: &str) -> [Counter; 2] {
        with_local_recorder(&self.recorder, || {
            ["admitted", "over_quota"].map(|outcome| {
                counter!(TENANT_REQUESTS, "tenant" => name.to_owned(), "outcome" => outcome)
            })
        })
    }

    pub fn unauthenticated(&self) -> Counter {
        with_local_recorder(&self.recorder, || counter!(UNAUTHENTICATED))
    }

    pub fn reloaded(&self, taken: bool) {
        with_local_recorder(&self.recorder, || reloads(taken).increment(1));
    }

    pub fn publish_server(&self, connections: &Connections, bodies: &BodyMemory) {
        with_local_recorder(&self.recorder, || {
            gauge!(CONNECTIONS_OPEN).set(connections.open() as f64);
            counter!(CONNECTIONS).absolute(connections.accepted());
            counter!(CONNECTIONS_REFUSED).absolute(connections.refused());
            gauge!(BODY_BYTES).set(bodies.held() as f64);
        });
    }

    /// Takes the certificates that are presented now in place of those of before: by role, and by
    /// model and pool where they are for instances.
    pub fn certificates(&self, shown: &[(&'static str, Option<[&str; 2]>, Expiry)]) {
        let mut gauges = self.presence.0.lock();
        gauges.retain(|(name, _), _| ![CERTIFICATE_EXPIRY, REVOCATION_LIST_EXPIRY].contains(name));
        for (role, pool, expiry) in shown {
            let mut labels = vec![("role", (*role).to_owned())];
            if let Some([model, pool]) = pool {
                labels.extend([("model", (*model).to_owned()), ("pool", (*pool).to_owned())]);
            }
            let times = [
                (CERTIFICATE_EXPIRY, expiry.certificate),
                (REVOCATION_LIST_EXPIRY, expiry.revocation_lists),
            ];
            for (name, time) in times {
                gauges.extend(time.map(|time| ((name, labels.clone()), time as f64)));
            }
        }
    }

    pub fn model<'a>(
        &self,
        model: &str,
        classes: &[ClassLabels],
        pools: impl Iterator<Item = &'a str>,
    ) -> ModelMeters {
        let presence = Arc::clone(&self.presence);
        with_local_recorder(&self.recorder, || ModelMeters::new(model, classes, pools, presence))
    }
}

fn reloads(taken: bool) -> Counter {
    counter!(RELOADS, "outcome" => if taken { "taken" } else { "refused" })
}

type Labels = Vec<(&'static str, String)>;

/// Gauges of what comes and goes: a series must not outlive its instance, or it would be reported
/// as down for ever. The exporter forgets none, so that these are registered anew for each scrape.
#[derive(Debug, Default)]
struct Presence(Mutex<BTreeMap<(&'static str, Labels), f64>>);

impl Presence {
    fn set(&self, name: &'static str, labels: Labels, up: Option<bool>) {
        let mut gauges = self.0.lock();
        gauges.remove(&(name, labels.clone()));
        gauges.extend(up.map(|up| ((name, labels), f64::from(up))));
    }

    fn render(&self) -> String {
        let recorder = PrometheusBuilder::new().build_recorder();
        with_local_recorder(&recorder, || {
            names::describe();
            for ((name, labels), value) in &*self.0.lock() {
                gauge!(*name, labels).set(*value);
            }
        });
        recorder.handle().render()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The exact prediction came after the approximation had been sent.
    LateTruth,
    /// A sampled group in which nothing straggled.
    Audit,
}

#[derive(Debug, Clone)]
pub struct ClassLabels {
    pub class: String,
    pub strategy: &'static str,
    /// Source of approximations: the code's short name, `backup`, or `none`.
    pub code: String,
}

/// Counter of what an engine sums itself. A model served anew begins at zero; its counters go on.
#[derive(Debug)]
struct Total {
    counter: Counter,
    published: AtomicU64,
}

impl Total {
    fn publish(&self, total: u64) {
        let before = self.published.fetch_max(total, Ordering::Relaxed);
        self.counter.increment(total.saturating_sub(before));
    }
}

impl From<Counter> for Total {
    fn from(counter: Counter) -> Self {
        Self { counter, published: AtomicU64::new(0) }
    }
}

type ReadTotal = fn(&Stats) -> u64;
type ReadGauge = fn(&Stats, &Switches) -> f64;

#[derive(Debug)]
pub struct ModelMeters {
    pub(crate) model: String,
    presence: Arc<Presence>,
    answers: [(&'static str, Counter, Histogram); 4],
    errors: Vec<(ErrorKind, Counter)>,
    pools: Vec<PoolMeters>,
    classes: Vec<ClassMeters>,
    totals: Vec<(Total, ReadTotal)>,
    gauges: Vec<(Gauge, ReadGauge)>,
}

#[derive(Debug)]
struct PoolMeters {
    label: String,
    seconds: Histogram,
    failures: Counter,
}

#[derive(Debug)]
struct ClassMeters {
    /// Late truths that agree and that do not, audits that agree and that do not: once for the
    /// scrape, and once to be read here.
    agreement: [(Counter, AtomicU64); 4],
    redundant: [Total; 5],
}

impl ClassMeters {
    fn new(model: &str, labels: &ClassLabels) -> Self {
        let comparisons = [
            ("late_truth", "true"),
            ("late_truth", "false"),
            ("audit", "true"),
            ("audit", "false"),
        ];
        let agreement = |(source, agrees): (&'static str, &'static str)| {
            let counter = counter!(AGREEMENT, "model" => model.to_owned(),
                "code" => labels.code.clone(), "source" => source, "agrees" => agrees);
            (counter, AtomicU64::new(0))
        };
        let redundant = |fate: &'static str| {
            let counter = counter!(REDUNDANT, "model" => model.to_owned(),
                "class" => labels.class.clone(), "strategy" => labels.strategy, "fate" => fate);
            Total::from(counter)
        };
        Self {
            agreement: comparisons.map(agreement),
            redundant: ["issued", "won", "wasted", "shed", "failed"].map(redundant),
        }
    }
}

impl ModelMeters {
    fn new<'a>(
        model: &str,
        classes: &[ClassLabels],
        pools: impl Iterator<Item = &'a str>,
        presence: Arc<Presence>,
    ) -> Self {
        let model = model.to_owned();
        let requests = |outcome| counter!(REQUESTS, "model" => model.clone(), "outcome" => outcome);
        let answers = |kind| {
            let seconds =
                histogram!(REQUEST_SECONDS, "model" => model.clone(), "provenance" => kind);
            (kind, requests(kind), seconds)
        };
        let pool = |pool: &str| {
            let labels = [("model", model.clone()), ("pool", pool.to_owned())];
            PoolMeters {
                label: pool.to_owned(),
                seconds: histogram!(UPSTREAM_SECONDS, &labels),
                failures: counter!(UPSTREAM_FAILURES, &labels),
            }
        };
        let errors = ErrorKind::ALL.iter().map(|kind| (*kind, requests(kind.name())));
        Self {
            answers: Provenance::KINDS.map(answers),
            errors: errors.collect(),
            pools: pools.map(pool).collect(),
            classes: classes.iter().map(|labels| ClassMeters::new(&model, labels)).collect(),
            totals: totals(&model),
            gauges: gauges(&model),
            presence,
            model,
        }
    }

    pub fn answered(&self, provenance: &Provenance, took: Duration) {
        let mut answers = self.answers.iter();
        if let Some((_, count, seconds)) = answers.find(|(kind, ..)| *kind == provenance.kind) {
            count.increment(1);
            seconds.record(took.as_secs_f64());
        }
    }

    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    pub fn failed(&self, kind: ErrorKind) {
        if let Some((_, count)) = self.errors.iter().find(|(known, _)| *known == kind) {
            count.increment(1);
        }
    }

    pub fn upstream(&self, instance: InstanceId, took: Duration, failed: bool) {
        if let Some(pool) = self.pools.get(usize::from(instance.pool.0)) {
            pool.seconds.record(took.as_secs_f64());
            pool.failures.increment(u64::from(failed));
        }
    }

    /// Tells whether an instance is up; `None` once it has left.
    pub fn instance_up(&self, pool: PoolId, name: &str, up: Option<bool>) {
        self.presence.set(INSTANCE_UP, self.instance_labels(pool, name), up);
    }

    /// Tells whether a pool's backend answers; `None` once it is not asked any more.
    pub fn discovery_up(&self, pool: PoolId, up: Option<bool>) {
        self.presence.set(DISCOVERY_UP, self.pool_labels(pool), up);
    }

    fn pool_labels(&self, pool: PoolId) -> Labels {
        let pool = self.pools.get(usize::from(pool.0));
        let pool = pool.map(|pool| pool.label.clone()).unwrap_or_default();
        vec![("model", self.model.clone()), ("pool", pool)]
    }

    /// A label `instance` would clash with the one that Prometheus gives.
    fn instance_labels(&self, pool: PoolId, name: &str) -> Labels {
        let mut labels = self.pool_labels(pool);
        labels.push(("address", name.to_owned()));
        labels
    }

    pub fn compared(&self, class: ClassId, source: Source, agrees: bool) {
        let index = 2 * usize::from(source == Source::Audit) + usize::from(!agrees);
        let class = self.classes.get(usize::from(class.0));
        if let Some((counter, count)) = class.and_then(|class| class.agreement.get(index)) {
            counter.increment(1);
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the comparisons of a class's approximations with the truth: late truths that agreed
    /// and that did not, audits that agreed and that did not.
    pub fn agreement(&self, class: usize) -> [u64; 4] {
        let count = |(_, count): &(Counter, AtomicU64)| count.load(Ordering::Relaxed);
        self.classes.get(class).map_or([0; 4], |class| class.agreement.each_ref().map(count))
    }

    pub fn publish_totals(&self, stats: &Stats, outcomes: &[RedundancyOutcomes]) {
        for (class, of) in self.classes.iter().zip(outcomes) {
            let totals = [of.issued, of.won, of.wasted, of.shed, of.failed];
            for (counter, total) in class.redundant.iter().zip(totals) {
                counter.publish(total);
            }
        }
        for (counter, read) in &self.totals {
            counter.publish(read(stats));
        }
    }

    pub fn publish_state(&self, stats: &Stats, switches: &Switches) {
        for (gauge, read) in &self.gauges {
            gauge.set(read(stats, switches));
        }
    }
}

fn totals(model: &str) -> Vec<(Total, ReadTotal)> {
    let total =
        |name, read: ReadTotal| (Total::from(counter!(name, "model" => model.to_owned())), read);
    let groups =
        |fillers| Total::from(counter!(GROUPS, "model" => model.to_owned(), "fillers" => fillers));
    let violations = counter!(VIOLATIONS, "model" => model.to_owned(), "invariant" => "CG-1");
    vec![
        (groups("false"), |stats| {
            stats.groups_encoded.saturating_sub(stats.groups_completed_with_fillers)
        }),
        (groups("true"), |stats| stats.groups_completed_with_fillers),
        (violations.into(), |stats| stats.cg1_violations),
        total(GROUPS_SPARED, |stats| stats.groups_spared),
        total(UNCODED, |stats| stats.uncoded),
        total(RETRIES, |stats| stats.retries),
        total(UNRECOVERABLE, |stats| stats.late_unrecoverable),
        total(EJECTIONS, |stats| stats.ejections),
    ]
}

fn gauges(model: &str) -> Vec<(Gauge, ReadGauge)> {
    let gauge = |name, read: ReadGauge| (gauge!(name, "model" => model.to_owned()), read);
    vec![
        gauge(IN_FLIGHT, |stats, _| stats.queries_tracked as f64),
        gauge(GROUPS_OPEN, |stats, _| stats.groups_tracked as f64),
        gauge(KEPT_BYTES, |stats, _| stats.kept_bytes as f64),
        gauge(HOLD_BACK, |stats, _| stats.hold_back_us as f64 / 1e6),
        gauge(QUEUED, |stats, _| stats.queued as f64),
        gauge(QUEUE_LIMIT, |stats, _| stats.queue_limit as f64),
        gauge(SLOTS, |stats, _| stats.slots_per_instance as f64),
        gauge(EJECTED, |stats, _| stats.ejected as f64),
        gauge(REDUNDANCY_ON, |_, switches| f64::from(switches.redundancy)),
        gauge(HOLD_BACK_OVERRIDDEN, |_, switches| f64::from(switches.hold_back.is_some())),
    ]
}
