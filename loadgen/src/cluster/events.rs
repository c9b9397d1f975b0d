//! Acting out an experiment's events while a block runs.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use parking_lot::Mutex;

use super::processes::Fleet;
use crate::compare::FaultMark;
use crate::experiment::{Event, What};

/// A thread that causes the events of one block.
pub(super) struct Actor {
    thread: JoinHandle<anyhow::Result<Vec<FaultMark>>>,
    /// Dropped when the block is over.
    over: Sender<()>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Step {
    at: Duration,
    event: usize,
    ends: bool,
}

/// Beginnings and ends in the order of their times.
fn steps(events: &[Event]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::with_capacity(2 * events.len());
    for (index, event) in events.iter().enumerate() {
        let at = Duration::from_secs_f64(event.after_s.max(0.0));
        steps.push(Step {
            at,
            event: index,
            ends: false,
        });
        if let Some(for_s) = event.for_s {
            let at = at + Duration::from_secs_f64(for_s.max(0.0));
            steps.push(Step {
                at,
                event: index,
                ends: true,
            });
        }
    }
    steps.sort_by_key(|step| step.at);
    steps
}

impl Actor {
    /// Begins; the block starts now, `block_s` seconds after the comparison did.
    pub(super) fn start(
        fleet: Arc<Mutex<Fleet>>,
        events: Vec<Event>,
        block_s: f64,
        strategy: String,
    ) -> std::io::Result<Self> {
        let (over, is_over) = mpsc::channel();
        let started = Instant::now();
        let act = move || {
            let mut marks: Vec<Option<FaultMark>> = vec![None; events.len()];
            // What the end of the block cuts short is undone at once.
            let mut cut = false;
            for step in steps(&events) {
                let Some(event) = events.get(step.event) else {
                    continue;
                };
                if !cut {
                    let wait = step.at.saturating_sub(started.elapsed());
                    cut = is_over.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
                }
                let at_s = block_s + started.elapsed().as_secs_f64();
                let Some(mark) = marks.get_mut(step.event) else {
                    continue;
                };
                match (step.ends, mark) {
                    (false, mark) if !cut => {
                        let what = act_out(&mut fleet.lock(), event);
                        let instance = format!("instance {}", event.instance);
                        *mark = Some(FaultMark {
                            at_s,
                            until_s: None,
                            what: what.to_owned(),
                            instance,
                            strategy: Some(strategy.clone()),
                        });
                    }
                    (true, Some(mark)) => {
                        undo(&fleet, event)?;
                        mark.until_s = Some(block_s + started.elapsed().as_secs_f64());
                    }
                    _ => {}
                }
            }
            let _ = is_over.recv();
            for (event, mark) in events.iter().zip(&marks) {
                if event.for_s.is_none() && mark.is_some() {
                    undo(&fleet, event)?;
                }
            }
            Ok(marks.into_iter().flatten().collect())
        };
        Ok(Self {
            thread: std::thread::Builder::new()
                .name("events".to_owned())
                .spawn(act)?,
            over,
        })
    }

    /// Ends with the block: everything runs again, and what was done is told.
    pub(super) fn finish(self) -> anyhow::Result<Vec<FaultMark>> {
        drop(self.over);
        self.thread.join().unwrap_or_else(|_| Ok(Vec::new()))
    }
}

fn act_out(fleet: &mut Fleet, event: &Event) -> &'static str {
    let Some(process) = fleet.instances.get_mut(event.instance) else {
        return "missing";
    };
    match event.what {
        What::Freeze => {
            process.signal(Signal::SIGSTOP);
            "stopped"
        }
        What::Kill => {
            process.kill();
            "killed"
        }
    }
}

fn undo(fleet: &Mutex<Fleet>, event: &Event) -> anyhow::Result<()> {
    let mut fleet = fleet.lock();
    match event.what {
        What::Freeze => {
            if let Some(process) = fleet.instances.get(event.instance) {
                process.signal(Signal::SIGCONT);
            }
            Ok(())
        }
        What::Kill => fleet.restart(event.instance),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_in_the_order_of_their_times() {
        let event = |after_s, for_s| Event {
            block: 0,
            after_s,
            what: What::Freeze,
            instance: 0,
            for_s,
        };
        let order: Vec<(usize, bool)> = steps(&[
            event(1.0, Some(2.0)),
            event(0.5, Some(1.0)),
            event(2.0, None),
        ])
        .into_iter()
        .map(|step| (step.event, step.ends))
        .collect();
        assert_eq!(
            order,
            [(1, false), (0, false), (1, true), (2, false), (0, true)]
        );
    }
}
