//! The pool's books against a plain model.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use std::collections::{BTreeMap, BTreeSet, VecDeque as Fifo};

const POOL: PoolId = PoolId::DEPLOYED;

fn at(index: u32) -> InstanceId {
    InstanceId { pool: POOL, index }
}

fn anywhere(_: JobId, _: InstanceId) -> bool {
    true
}

/// Starts the next job when a request of the instance ends.
fn freed(pool: &mut Pool, instance: InstanceId) -> Option<(JobId, InstanceId)> {
    pool.release(instance);
    pool.start_next(anywhere)
}

#[test]
fn latency_of_an_instance_is_a_moving_average() {
    let mut pool = Pool::new(POOL, 1, 1, 1);
    for ms in [8, 16] {
        pool.took(at(0), Duration::from_millis(ms));
    }
    let shown = pool.view().next().unwrap();
    assert_eq!(shown.latency, Some(Duration::from_millis(9)), "an eighth of the way");
}

#[test]
fn spreads_over_idle_instances_then_queues_then_refuses() {
    let mut pool = Pool::new(POOL, 2, 1, 1);
    assert_eq!(pool.submit(JobId(1), Avoid::new()), Submitted::Start(at(0)));
    assert_eq!(pool.submit(JobId(2), Avoid::new()), Submitted::Start(at(1)));
    assert_eq!(pool.submit(JobId(3), Avoid::new()), Submitted::Queued);
    assert!(pool.is_full());
    assert_eq!(pool.submit(JobId(4), Avoid::new()), Submitted::Full);
    assert_eq!(freed(&mut pool, at(1)), Some((JobId(3), at(1))));
    assert_eq!(freed(&mut pool, at(0)), None);
    assert_eq!(freed(&mut pool, at(1)), None);
    assert_eq!(
        pool.submit(JobId(5), Avoid::new()),
        Submitted::Start(at(0)),
        "the longest idle goes first"
    );
}

#[test]
fn avoids_when_there_is_a_choice_and_never_waits_for_it() {
    let mut pool = Pool::new(POOL, 2, 2, 4);
    let avoid = Avoid::from_slice(&[at(0)]);
    assert_eq!(pool.submit(JobId(1), avoid.clone()), Submitted::Start(at(1)));
    assert_eq!(pool.submit(JobId(2), avoid.clone()), Submitted::Start(at(1)));
    assert_eq!(pool.submit(JobId(3), avoid.clone()), Submitted::Start(at(0)));
    assert_eq!(pool.submit(JobId(4), avoid.clone()), Submitted::Start(at(0)));
    assert_eq!(pool.submit(JobId(5), avoid), Submitted::Queued);
    assert_eq!(pool.submit(JobId(6), Avoid::new()), Submitted::Queued);
    assert_eq!(
        freed(&mut pool, at(0)),
        Some((JobId(6), at(0))),
        "the freed slot looks past one that avoids it"
    );
    assert_eq!(
        freed(&mut pool, at(0)),
        Some((JobId(5), at(0))),
        "and takes it when there is nothing else"
    );
}

#[test]
fn a_down_instance_gets_nothing_and_comes_back() {
    let mut pool = Pool::new(POOL, 2, 1, 4);
    assert!(pool.set_up(at(0), false));
    assert!(!pool.set_up(at(0), false));
    assert_eq!(pool.submit(JobId(1), Avoid::new()), Submitted::Start(at(1)));
    assert_eq!(pool.submit(JobId(2), Avoid::new()), Submitted::Queued);
    assert!(pool.set_up(at(0), true));
    assert_eq!(pool.start_next(anywhere), Some((JobId(2), at(0))));
    assert_eq!(pool.start_next(anywhere), None);
}

#[test]
fn a_copy_waits_for_an_instance_of_its_own_and_holds_nobody_up() {
    let mut pool = Pool::new(POOL, 2, 2, 4);
    let taken = Avoid::from_slice(&[at(0)]);
    let elsewhere = |job, instance| job != JobId(4) || instance != at(0);
    assert_eq!(pool.submit(JobId(1), Avoid::new()), Submitted::Start(at(0)));
    assert_eq!(pool.submit_copy(JobId(2), &taken, Aside::Copy), Submitted::Start(at(1)));
    assert_eq!(pool.submit_copy(JobId(3), &taken, Aside::Copy), Submitted::Start(at(1)));
    assert_eq!(
        pool.submit_copy(JobId(4), &taken, Aside::Copy),
        Submitted::Queued,
        "although instance 0 has a free slot"
    );
    assert_eq!(pool.submit(JobId(5), Avoid::new()), Submitted::Start(at(0)), "which others take");
    assert_eq!(pool.submit(JobId(6), Avoid::new()), Submitted::Queued);
    pool.release(at(0));
    assert_eq!(pool.start_next(elsewhere), Some((JobId(6), at(0))), "past the copy");
    pool.release(at(1));
    assert_eq!(pool.start_next(elsewhere), Some((JobId(4), at(1))));
    pool.set_up(at(1), false);
    assert_eq!(
        pool.submit_copy(JobId(7), &taken, Aside::Copy),
        Submitted::Full,
        "no other instance is up"
    );
    assert_eq!(
        pool.submit_copy(JobId(8), &taken, Aside::Parity),
        Submitted::Queued,
        "the taken one will be free"
    );
}

#[test]
fn copies_and_queries_start_in_the_order_in_which_they_came() {
    let mut pool = Pool::new(POOL, 2, 1, 4);
    let taken = Avoid::from_slice(&[at(0)]);
    assert_eq!(pool.submit(JobId(1), Avoid::new()), Submitted::Start(at(0)));
    assert_eq!(pool.submit(JobId(2), Avoid::new()), Submitted::Start(at(1)));
    for job in [3, 4] {
        assert_eq!(pool.submit_copy(JobId(job), &taken, Aside::Copy), Submitted::Queued);
    }
    assert_eq!(pool.submit(JobId(5), Avoid::new()), Submitted::Queued);
    pool.withdraw_copy(JobId(3));
    assert_eq!(freed(&mut pool, at(1)), Some((JobId(4), at(1))));
    assert_eq!(freed(&mut pool, at(1)), Some((JobId(5), at(1))));
    assert_eq!(freed(&mut pool, at(1)), None, "one was taken back");
}

#[test]
fn a_parity_query_takes_no_slot_that_a_query_waits_for() {
    let mut pool = Pool::new(POOL, 2, 1, 4);
    let taken = Avoid::from_slice(&[at(0), at(1)]);
    assert_eq!(pool.submit(JobId(1), Avoid::new()), Submitted::Start(at(0)));
    assert_eq!(pool.submit(JobId(2), Avoid::new()), Submitted::Start(at(1)));
    assert_eq!(pool.submit_copy(JobId(3), &taken, Aside::Parity), Submitted::Queued);
    assert_eq!(pool.submit(JobId(4), Avoid::new()), Submitted::Queued);
    assert_eq!(freed(&mut pool, at(0)), Some((JobId(4), at(0))), "although it came later");
    assert_eq!(freed(&mut pool, at(1)), Some((JobId(3), at(1))));
}

#[test]
fn one_that_leaves_finishes_its_work_and_one_that_joins_waits_to_be_found_well() {
    let mut pool = Pool::new(POOL, 1, 1, 4);
    assert_eq!(pool.submit(JobId(1), Avoid::new()), Submitted::Start(at(0)));
    assert_eq!(pool.submit(JobId(2), Avoid::new()), Submitted::Queued);
    assert!(!pool.leave(at(0)), "it has a job");
    assert!(!pool.set_up(at(0), true), "a late health check brings it back");
    assert_eq!(pool.join(), at(1));
    assert_eq!(pool.start_next(anywhere), None, "nobody is up");
    assert!(pool.set_up(at(1), true));
    assert_eq!(pool.start_next(anywhere), Some((JobId(2), at(1))));
    assert!(pool.release(at(0)), "the last job of one that leaves");
    assert!(!pool.contains(at(0)));
    assert!(!pool.release(at(1)));
    assert!(pool.leave(at(1)), "it had nothing");
    assert_eq!(pool.join(), at(2), "no index is given twice");
}

const CAPACITY: usize = 5;

/// Reference model of the pool.
#[derive(Debug, Default)]
struct Model {
    /// Requests submitted.
    jobs: u64,
    running: Vec<(JobId, InstanceId)>,
    queued: Fifo<JobId>,
    /// Members, and whether they are up.
    up: BTreeMap<u32, bool>,
    leaving: BTreeSet<u32>,
}

impl Model {
    /// Does `op` to the pool and to the model; the requests that started.
    fn apply(
        &mut self,
        pool: &mut Pool,
        op: u8,
        index: u32,
    ) -> Result<Vec<(JobId, InstanceId)>, TestCaseError> {
        let mut started = Vec::new();
        match op {
            0 | 1 => {
                self.jobs += 1;
                let job = JobId(self.jobs);
                match pool.submit(job, Avoid::from_slice(&[at(index)])) {
                    Submitted::Start(instance) => started.push((job, instance)),
                    Submitted::Queued => self.queued.push_back(job),
                    Submitted::Full => prop_assert!(self.queued.len() >= CAPACITY),
                }
            }
            2 => {
                if !self.running.is_empty() {
                    let (_, instance) =
                        self.running.swap_remove(index as usize % self.running.len());
                    let is_left = |(_, other): &(JobId, InstanceId)| *other != instance;
                    let last = self.running.iter().all(is_left);
                    let gone = pool.release(instance);
                    prop_assert_eq!(gone, last && self.leaving.remove(&instance.index));
                    started.extend(pool.start_next(anywhere));
                }
            }
            3 => {
                if !self.queued.is_empty() {
                    let job = self.queued.remove(index as usize % self.queued.len()).unwrap();
                    pool.withdraw(job);
                }
            }
            4 => {
                let joined = pool.join();
                prop_assert_eq!(self.up.insert(joined.index, false), None);
            }
            5 => {
                let idle = self.running.iter().all(|(_, instance)| instance.index != index);
                let member = self.up.remove(&index).is_some();
                prop_assert_eq!(pool.leave(at(index)), member && idle);
                if member && !idle {
                    self.leaving.insert(index);
                }
            }
            _ => {
                let now_up = self.up.get_mut(&index).map(|up| {
                    *up = !*up;
                    *up
                });
                prop_assert_eq!(pool.set_up(at(index), now_up.unwrap_or(true)), now_up.is_some());
                while let Some(start) = pool.start_next(anywhere) {
                    started.push(start);
                }
            }
        }
        Ok(started)
    }
}

proptest! {
    /// Against a plain model: nothing starts without a free slot or on an instance that leaves,
    /// nothing is lost, started twice or started after it was withdrawn, no job waits while an
    /// instance that is up has a free slot, and an instance that leaves is gone exactly when its
    /// last job ends.
    #[test]
    fn keeps_its_books(ops in proptest::collection::vec((0u8..7, 0u32..6), 1..300)) {
        let slots = 2u32;
        let mut pool = Pool::new(POOL, 3, slots, CAPACITY);
        let mut model = Model {
            up: (0..3).map(|index| (index, true)).collect(),
            ..Model::default()
        };
        for (op, index) in ops {
            let started = model.apply(&mut pool, op, index)?;
            for (job, instance) in started {
                prop_assert_eq!(
                    model.up.get(&instance.index),
                    Some(&true),
                    "started on one that is down or left"
                );
                model.queued.retain(|&waiting| waiting != job);
                model.running.push((job, instance));
            }
            for &index in model.up.keys().chain(&model.leaving) {
                let load = model
                    .running
                    .iter()
                    .filter(|(_, instance)| instance.index == index)
                    .count();
                prop_assert!(load <= slots as usize);
                prop_assert_eq!(load, pool.in_flight(at(index)) as usize);
            }
            prop_assert_eq!(
                pool.slots(),
                (model.up.len() + model.leaving.len()) * slots as usize
            );
            prop_assert_eq!(pool.queued(), model.queued.len());
            if pool.has_free_slot() {
                prop_assert!(model.queued.is_empty(), "a job waits beside a free slot");
            }
            prop_assert_eq!(pool.up(), model.up.values().filter(|up| **up).count());
        }
    }
}
