//! Acting out an experiment's events while a block runs.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::processes::Fleet;
use crate::compare::FaultMark;
use crate::experiment::{Event, What};

pub(super) struct Actor {
    tasks: JoinSet<anyhow::Result<Option<FaultMark>>>,
    over: CancellationToken,
}

impl Actor {
    /// Begins; the block starts now, `block_s` seconds after the comparison did.
    pub(super) fn start(
        fleet: &Arc<Mutex<Fleet>>,
        events: impl Iterator<Item = Event>,
        block_s: f64,
        strategy: &str,
    ) -> Self {
        let (mut tasks, over) = (JoinSet::new(), CancellationToken::new());
        for event in events {
            let (fleet, over, strategy) = (Arc::clone(fleet), over.clone(), strategy.to_owned());
            tasks.spawn(async move {
                let apply = |begins| {
                    let fleet = Arc::clone(&fleet);
                    let applied = spawn_blocking(move || apply(&mut fleet.lock(), event, begins));
                    async move { applied.await.context("cannot act out an event")? }
                };
                Ok(act_out(event, &over, apply).await?.map(|(at_s, until_s)| FaultMark {
                    at_s: block_s + at_s,
                    until_s: until_s.map(|until_s| block_s + until_s),
                    what: event.what.to_string(),
                    instance: format!("instance {}", event.instance),
                    strategy: Some(strategy),
                }))
            });
        }
        Self { tasks, over }
    }

    /// Ends with the block: everything runs again. Returns what was done.
    pub(super) async fn finish(self) -> anyhow::Result<Vec<FaultMark>> {
        self.over.cancel();
        let mut marks = Vec::new();
        for acted in self.tasks.join_all().await {
            marks.extend(acted?);
        }
        marks.sort_by(|one: &FaultMark, other| one.at_s.total_cmp(&other.at_s));
        Ok(marks)
    }
}

/// Applies the beginning and the end of `event` at their times, in seconds from now, and returns
/// these. A block that is over leaves out what has not begun, and ends what has.
async fn act_out<F: Future<Output = anyhow::Result<()>>>(
    event: Event,
    over: &CancellationToken,
    apply: impl Fn(bool) -> F,
) -> anyhow::Result<Option<(f64, Option<f64>)>> {
    let started = Instant::now();
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    tokio::select! {
        biased;
        () = over.cancelled() => return Ok(None),
        () = tokio::time::sleep(seconds(event.after_s)) => {}
    }
    let at_s = started.elapsed().as_secs_f64();
    apply(true).await?;
    match event.for_s {
        None => over.cancelled().await,
        Some(for_s) => tokio::select! {
            () = over.cancelled() => {}
            () = tokio::time::sleep_until(started + seconds(event.after_s + for_s)) => {}
        },
    }
    apply(false).await?;
    Ok(Some((at_s, event.for_s.map(|_| started.elapsed().as_secs_f64()))))
}

fn apply(fleet: &mut Fleet, event: Event, begins: bool) -> anyhow::Result<()> {
    let Some(process) = fleet.instances.get_mut(event.instance) else { return Ok(()) };
    match (event.what, begins) {
        (What::Freeze, true) => process.signal(Signal::SIGSTOP),
        (What::Freeze, false) => process.signal(Signal::SIGCONT),
        (What::Kill, true) => process.kill(),
        (What::Kill, false) => return fleet.restart(event.instance),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn events_begin_and_end_in_time_and_with_the_block() {
        let over = CancellationToken::new();
        let started = Instant::now();
        let log = Mutex::new(Vec::new());
        let act = async |instance: usize, after_s, for_s| {
            let (block, what) = (0, What::Freeze);
            let event = Event { block, after_s, what, instance, for_s };
            let apply = |begins| {
                let at_ms = started.elapsed().as_millis();
                log.lock().push((at_ms, instance, begins));
                async { Ok(()) }
            };
            act_out(event, &over, apply).await.unwrap()
        };
        let end = async {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            over.cancel();
        };
        let (cut, whole, open, never, ()) = tokio::join!(
            act(0, 1.0, Some(2.0)),
            act(1, 0.5, Some(1.0)),
            act(2, 2.0, None),
            act(3, 9.0, None),
            end,
        );
        assert_eq!((cut, whole), (Some((1.0, Some(2.5))), Some((0.5, Some(1.5)))));
        assert_eq!((open, never), (Some((2.0, None)), None));
        let mut log = log.into_inner();
        log.sort_unstable();
        let expected = [
            (500, 1, true),
            (1000, 0, true),
            (1500, 1, false),
            (2000, 2, true),
            (2500, 0, false),
            (2500, 2, false),
        ];
        assert_eq!(log, expected);
    }
}
