//! The state machine's own time per query, no IO: `cargo bench -p parapet-frontend-core`.
//!
//! One iteration takes k queries through arrival, encoding, exact predictions and the parity
//! output, with 64 other queries in flight.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use parapet_frontend_core::{
    Action, Arrival, ClassId, CodedConfig, CoreConfig, DomainId, Engine, GroupKey, HedgeBudget,
    HedgeConfig, HoldBackPolicy, OutlierConfig, PoolConfig, PoolId, QueueLimitConfig, SendParity,
    StrategyConfig, Time,
};

const IN_FLIGHT: usize = 64;

fn hold_back() -> HoldBackPolicy {
    HoldBackPolicy::Learned {
        percentile: 0.97,
        min: Duration::from_millis(1),
        max: Duration::from_secs(1),
        max_over_median: HoldBackPolicy::MAX_OVER_MEDIAN,
    }
}

fn coded(k: usize) -> CodedConfig {
    CodedConfig {
        decoding: parapet_encoder::Decoding::Linear,
        k,
        r: 1,
        first_parity: PoolId::FIRST_REDUNDANT,
        hold_back: hold_back(),
        send_parity: SendParity::AtOnce,
        flush_after: Duration::from_millis(10),
        late_truth_wait: Duration::from_secs(2),
        parity_timeout: Duration::from_secs(1),
        redundant_share: 1.0,
        redundant_burst: 32.0,
        shed_above: Some(64),
        audit_every: 64,
        max_keys: 64,
        max_kept_bytes: 1024,
        hedge: None,
    }
}

fn strategies() -> Vec<(&'static str, StrategyConfig)> {
    let hedge = HedgeConfig {
        delay: hold_back(),
        max_copies: 1,
        share: 0.05,
        burst: 10.0,
        shed_above: Some(64),
    };
    let coded_hedged = CodedConfig { hedge: Some(HedgeBudget::default()), ..coded(2) };
    vec![
        ("none", StrategyConfig::None),
        ("hedge", StrategyConfig::Hedge(hedge)),
        ("coded k=2", StrategyConfig::Coded(coded(2))),
        ("coded k=3", StrategyConfig::Coded(coded(3))),
        ("coded k=4", StrategyConfig::Coded(coded(4))),
        ("coded_hedged k=2", StrategyConfig::CodedHedged(coded_hedged)),
    ]
}

fn engine(strategy: &StrategyConfig) -> Engine<u64, u64> {
    let pool = PoolConfig { instances: 12, slots: 16, queue: 1024 };
    let config = CoreConfig {
        max_slots: 0,
        pools: vec![pool, pool],
        max_queries: 4096,
        max_attempts: 3,
        retry_share: 0.2,
        retry_burst: 10.0,
        suspect_after: Duration::from_millis(500),
        queue_limit: Some(QueueLimitConfig::default()),
        outliers: Some(OutlierConfig::default()),
    };
    Engine::new(&config, strategy.build())
}

struct Driver {
    engine: Engine<u64, u64>,
    now: u64,
    actions: Vec<Action<u64, u64>>,
    work: Vec<Action<u64, u64>>,
    input: Arc<u64>,
    queries: std::collections::VecDeque<parapet_frontend_core::JobId>,
}

impl Driver {
    fn new(strategy: &StrategyConfig) -> Self {
        let mut driver = Self {
            engine: engine(strategy),
            now: 1,
            actions: Vec::new(),
            work: Vec::new(),
            input: Arc::new(7),
            queries: std::collections::VecDeque::new(),
        };
        while driver.queries.len() < IN_FLIGHT {
            driver.arrive();
        }
        driver
    }

    fn time(&mut self) -> Time {
        self.now += 50_000;
        Time::from_nanos(self.now)
    }

    fn arrive(&mut self) {
        let now = self.time();
        let arrival = Arrival {
            input: Arc::clone(&self.input),
            bytes: 1,
            key: GroupKey { domain: DomainId(0), kind: 1 },
            deadline: now + Duration::from_secs(1),
            allow_approximate: true,
            may_join: true,
            class: ClassId::DEFAULT,
        };
        let _ = black_box(self.engine.arrive(now, arrival, &mut self.actions));
        self.settle();
    }

    /// Does what the actions ask at once, but for the queries' own predictions, which
    /// come in order.
    fn settle(&mut self) {
        while !self.actions.is_empty() {
            std::mem::swap(&mut self.actions, &mut self.work);
            for action in std::mem::take(&mut self.work) {
                let now = Time::from_nanos(self.now);
                match action {
                    Action::Send { job, instance, .. } if instance.pool.0 == 0 => {
                        self.queries.push_back(job)
                    }
                    Action::Send { job, .. } => {
                        self.engine.finished(now, job, Ok(1), &mut self.actions)
                    }
                    Action::Encode { group, row, .. } => {
                        self.engine.encoded(
                            now,
                            group,
                            row,
                            Some(Arc::clone(&self.input)),
                            &mut self.actions,
                        );
                    }
                    other => {
                        black_box(other);
                    }
                }
            }
        }
    }

    fn step(&mut self) {
        self.arrive();
        if let Some(job) = self.queries.pop_front() {
            let now = self.time();
            self.engine.finished(now, job, Ok(1), &mut self.actions);
            self.settle();
        }
        let now = Time::from_nanos(self.now);
        if self.engine.next_timer().is_some_and(|at| at <= now) {
            self.engine.tick(now, &mut self.actions);
            self.settle();
        }
    }
}

fn per_query(c: &mut Criterion) {
    let mut group = c.benchmark_group("engine, one query");
    group.throughput(Throughput::Elements(1));
    for (name, strategy) in strategies() {
        let mut driver = Driver::new(&strategy);
        group.bench_function(BenchmarkId::from_parameter(name), |b| b.iter(|| driver.step()));
    }
    group.finish();
}

#[allow(missing_docs, reason = "generated by the macro")]
mod harness {
    use super::*;
    criterion_group!(benches, per_query);
}
criterion_main!(harness::benches);
