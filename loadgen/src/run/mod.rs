//! A run: every request sent at its planned time, and what came of it.
//!
//! Open loop: no request waits for another one's answer, and there is no bound on requests in
//! flight but the schedule's own length and each request's timeout.

mod pacer;
mod record;

pub use pacer::{KernelPacer, Pacer, Release};
pub use record::{Progress, Record, Recording, RequestOutcome};

use std::sync::Arc;
use std::time::Duration;

use parapet_open_inference::ModelMetadata;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::payload::{Bodies, RequestOptions, Rows};
use crate::schedule::Schedule;
use crate::target::Transport;

#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Send no more; wait for the answers that are still out.
    pub sending: CancellationToken,
    pub waiting: CancellationToken,
}

#[derive(Debug, Clone)]
pub struct Plan {
    pub schedule: Arc<Schedule>,
    pub bodies: Arc<Bodies>,
    /// Time that each request may take from its actual send.
    pub timeout: Duration,
}

impl Plan {
    /// Encodes rows for `model` as bodies, in an order that `seed` fixes.
    pub fn encode(
        schedule: Schedule,
        rows: &Rows,
        model: &ModelMetadata,
        options: RequestOptions,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let bodies = Bodies::encode(rows, model, options, schedule.planned_us.len(), seed)?;
        Ok(Self {
            schedule: Arc::new(schedule),
            bodies: Arc::new(bodies),
            timeout: Duration::from_millis(options.timeout_ms),
        })
    }
}

/// Sends `plan` through `transport`, and returns the records of all its requests.
pub async fn run<T: Transport, P: Pacer + Send + 'static>(
    plan: &Plan,
    transport: Arc<T>,
    pacer: P,
    progress: Arc<Progress>,
    stop: &Stop,
) -> std::io::Result<Recording> {
    let start = Instant::now();
    let tasks = TaskTracker::new();
    let sender =
        Arc::new(Sender { plan: plan.clone(), transport, progress: Arc::clone(&progress), start });
    let release = {
        let (tasks, runtime) = (tasks.clone(), tokio::runtime::Handle::current());
        move |index| {
            let sender = Arc::clone(&sender);
            tasks.spawn_on(async move { sender.send(index).await }, &runtime);
        }
    };
    // On a worker, where the requests are sent, and not on the thread that waits for this run.
    let schedule = Arc::clone(&plan.schedule);
    let pacing = tokio::spawn(async move { pacer.pace(start, schedule, Box::new(release)).await });
    tokio::select! {
        paced = AbortOnDropHandle::new(pacing) => paced.map_err(std::io::Error::other)??,
        () = stop.sending.cancelled() => {}
        () = stop.waiting.cancelled() => {}
    }
    let sending_ended = start.elapsed();
    tasks.close();
    tokio::select! {
        () = tasks.wait() => {}
        () = stop.waiting.cancelled() => {}
    }
    Ok(progress.finish(sending_ended, start.elapsed()))
}

struct Sender<T> {
    plan: Plan,
    transport: Arc<T>,
    progress: Arc<Progress>,
    start: Instant,
}

impl<T: Transport> Sender<T> {
    async fn send(&self, index: usize) {
        let body = self.plan.bodies.of(index);
        self.progress.sent(index, body, self.start.elapsed());
        let answer = tokio::time::timeout(self.plan.timeout, self.transport.send(body)).await;
        let done = self.start.elapsed();
        let outcome = match answer {
            Ok(Ok(answer)) => RequestOutcome::Answered(answer),
            Ok(Err(failure)) => RequestOutcome::Failed(failure),
            Err(_) => RequestOutcome::TimedOut,
        };
        self.progress.done(index, done, outcome);
    }
}
