//! A worker that pushes ones to all rows, each push acknowledged before the next: a log of
//! acknowledgements that the values must agree with.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use parapet_cluster::array::{ArraySpec, FilterSpec};
use parapet_cluster::node::{TaskSpec, Worker};
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::{await_array, define};
use parapet_parameter_server::{ArrayId, Clock, Consistency, KeyRange, RuleSpec, Values};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{LIMIT, soon, worker};

const ARRAY: ArrayId = ArrayId(1);
const KEYS: KeyRange = KeyRange::new(0, 256);
const WIDTH: usize = 64;
const SHARDS: u64 = 8;

const SPEC: ArraySpec = ArraySpec {
    width: WIDTH,
    sparse: false,
    rule: RuleSpec::Add,
    consistency: Consistency::Eventual,
    filters: FilterSpec::NONE,
};

#[derive(Debug, Clone, Copy)]
struct Log {
    /// Pushes acknowledged, in order: the last one's clock.
    acknowledged: u64,
    /// When the last of them was begun.
    begun: Instant,
    /// The longest that one took since it was forgotten.
    longest: Duration,
}

/// The worker at work.
pub(super) struct Pushing {
    worker: Worker,
    log: Arc<watch::Sender<Log>>,
    stop: CancellationToken,
    task: AbortOnDropHandle<Result<()>>,
}

impl Pushing {
    /// Begins to push.
    pub(super) async fn start(registry: &Registry, cluster: &str) -> Result<Self> {
        define(registry, ARRAY, KEYS, KEYS.cut(SHARDS).collect(), &SPEC).await?;
        await_array(registry, ARRAY, LIMIT).await?;
        let worker = worker(registry, cluster, vec![(ARRAY, SPEC.client())]).await?;
        let log = Arc::new(watch::Sender::new(Log {
            acknowledged: 0,
            begun: Instant::now(),
            longest: Duration::ZERO,
        }));
        let stop = CancellationToken::new();
        let pushing = push(worker.clone(), Arc::clone(&log), stop.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(pushing));
        Ok(Self { worker, log, stop, task })
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.log.borrow().acknowledged
    }

    pub(super) fn forget_waits(&self) {
        self.log.send_modify(|log| log.longest = Duration::ZERO);
    }

    /// The longest that a push has taken since that was forgotten.
    pub(super) fn longest_wait(&self) -> Duration {
        self.log.borrow().longest
    }

    /// From `since` to the acknowledgement of the first push that was begun after it.
    pub(super) async fn next(&self, since: Instant) -> Result<Duration> {
        let mut log = self.log.subscribe();
        let next = timeout(LIMIT, log.wait_for(|log| log.begun >= since)).await;
        next.context("the next push does not come")??;
        Ok(since.elapsed())
    }

    /// Everything acknowledged must be there, whatever else is.
    pub(super) async fn check(&self) -> Result<()> {
        self.are_within(self.acknowledged(), f32::INFINITY).await
    }

    /// Pushes no more. Every push must be in every value, once; returns how many there were.
    pub(super) async fn finish(&mut self) -> Result<u64> {
        self.stop.cancel();
        let pushed = timeout(LIMIT, &mut self.task).await;
        pushed.context("the last push does not come")???;
        let acknowledged = self.acknowledged();
        self.are_within(acknowledged, acknowledged as f32).await?;
        Ok(acknowledged)
    }

    async fn are_within(&self, acknowledged: u64, most: f32) -> Result<()> {
        let pulled = soon("a pull", self.worker.pull(all(0)).await).await?;
        let right = acknowledged as f32..=most;
        let wrong = pulled.values.iter().find(|value| !right.contains(value));
        ensure!(
            wrong.is_none(),
            "{acknowledged} pushes were acknowledged, a value shows {wrong:?}"
        );
        Ok(())
    }
}

async fn push(worker: Worker, log: Arc<watch::Sender<Log>>, stop: CancellationToken) -> Result<()> {
    let mut clock = 0;
    while !stop.is_cancelled() {
        clock += 1;
        let begun = Instant::now();
        let values = Values::from(vec![1.0; KEYS.len() as usize * WIDTH]);
        let pushed = worker.push(all(clock), values).await;
        soon(&format!("push {clock}"), pushed).await?;
        log.send_modify(|log| {
            log.acknowledged = clock;
            log.begun = begun;
            log.longest = log.longest.max(begun.elapsed());
        });
    }
    Ok(())
}

fn all(clock: u64) -> TaskSpec {
    TaskSpec::new(ARRAY, KEYS, Clock(clock))
}
