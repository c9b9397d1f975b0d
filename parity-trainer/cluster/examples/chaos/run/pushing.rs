//! A worker that pushes ones to all rows, each push acknowledged before the next: a log of
//! acknowledgements that the values must agree with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parapet_cluster::array::{ArraySpec, FilterSpec};
use parapet_cluster::node::TaskSpec;
use parapet_cluster::node::transport::Sockets;
use parapet_cluster::registry::Registry;
use parapet_cluster::roles::{WorkerRole, WorkerSettings, await_array, define};
use parapet_parameter_server::{ArrayId, Clock, KeyRange, Values};
use parapet_parameter_server::{Consistency, RuleSpec};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::{ChaosError, LIMIT};

const ARRAY: ArrayId = ArrayId(1);
const KEYS: u64 = 256;
const WIDTH: usize = 64;
const SHARDS: u64 = 8;

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
    worker: Arc<WorkerRole>,
    log: Arc<watch::Sender<Log>>,
    stop: Arc<AtomicBool>,
    pushing: JoinHandle<Result<(), ChaosError>>,
}

impl Pushing {
    /// Begins to push.
    pub(super) async fn start(registry: &Registry, cluster: &str) -> Result<Self, ChaosError> {
        let spec = ArraySpec {
            width: WIDTH,
            sparse: false,
            rule: RuleSpec::Add,
            consistency: Consistency::Eventual,
            filters: FilterSpec::NONE,
        };
        define(registry, ARRAY, KeyRange::new(0, KEYS), SHARDS, &spec).await?;
        await_array(registry, ARRAY, LIMIT).await?;
        let settings = WorkerSettings::new(cluster, vec![(ARRAY, spec)]);
        let worker = Arc::new(WorkerRole::join(registry, settings, Sockets).await?);
        let first = Log {
            acknowledged: 0,
            begun: Instant::now(),
            longest: Duration::ZERO,
        };
        let log = Arc::new(watch::Sender::new(first));
        let stop = Arc::new(AtomicBool::new(false));
        let pushing = tokio::spawn(push(
            Arc::clone(&worker),
            Arc::clone(&log),
            Arc::clone(&stop),
        ));
        Ok(Self {
            worker,
            log,
            stop,
            pushing,
        })
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
    pub(super) async fn next(&self, since: Instant) -> Result<Duration, ChaosError> {
        let mut log = self.log.subscribe();
        match timeout(LIMIT, log.wait_for(|log| log.begun >= since)).await {
            Ok(Ok(_)) => Ok(since.elapsed()),
            _ => Err(ChaosError::Hangs("the next push".into())),
        }
    }

    /// Everything acknowledged must be there, whatever else is.
    pub(super) async fn check(&self) -> Result<(), ChaosError> {
        let acknowledged = self.acknowledged();
        let (least, greatest) = self.extremes().await?;
        match least >= acknowledged as f32 {
            true => Ok(()),
            false => Err(ChaosError::Wrong {
                acknowledged,
                least,
                greatest,
            }),
        }
    }

    /// Pushes no more. Every push must be in every value, once; how many there were.
    pub(super) async fn finish(mut self) -> Result<u64, ChaosError> {
        self.stop.store(true, Ordering::Relaxed);
        let pushed = timeout(LIMIT, &mut self.pushing).await;
        let pushed = pushed.map_err(|_| ChaosError::Hangs("the last push".into()))?;
        pushed.map_err(|error| ChaosError::Hangs(error.to_string()))??;
        let acknowledged = self.acknowledged();
        let (least, greatest) = self.extremes().await?;
        match (least, greatest) == (acknowledged as f32, acknowledged as f32) {
            true => Ok(acknowledged),
            false => Err(ChaosError::Wrong {
                acknowledged,
                least,
                greatest,
            }),
        }
    }

    /// The least and the greatest of all values.
    async fn extremes(&self) -> Result<(f32, f32), ChaosError> {
        let clock = self.acknowledged();
        let failed = |error| ChaosError::Task { clock, error };
        let pull = self.worker.worker().pull(all(0)).await.map_err(failed)?;
        let pulled = timeout(LIMIT, pull)
            .await
            .map_err(|_| ChaosError::Hangs("a pull".into()))?
            .map_err(failed)?;
        let values = pulled.values.iter().copied();
        Ok((
            values.clone().fold(f32::INFINITY, f32::min),
            values.fold(f32::NEG_INFINITY, f32::max),
        ))
    }
}

impl Drop for Pushing {
    fn drop(&mut self) {
        self.pushing.abort();
    }
}

async fn push(
    worker: Arc<WorkerRole>,
    log: Arc<watch::Sender<Log>>,
    stop: Arc<AtomicBool>,
) -> Result<(), ChaosError> {
    let mut clock = 0;
    while !stop.load(Ordering::Relaxed) {
        clock += 1;
        let begun = Instant::now();
        let values = Values::from(vec![1.0; KEYS as usize * WIDTH]);
        let failed = |error| ChaosError::Task { clock, error };
        let push = worker
            .worker()
            .push(all(clock), values)
            .await
            .map_err(failed)?;
        timeout(LIMIT, push)
            .await
            .map_err(|_| ChaosError::Hangs(format!("push {clock}")))?
            .map_err(failed)?;
        log.send_modify(|log| {
            let longest = log.longest.max(begun.elapsed());
            *log = Log {
                acknowledged: clock,
                begun,
                longest,
            };
        });
    }
    Ok(())
}

fn all(clock: u64) -> TaskSpec {
    TaskSpec::new(ARRAY, KeyRange::new(0, KEYS), Clock(clock))
}
