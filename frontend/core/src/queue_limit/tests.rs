//! The bound against a queue in virtual time: c slots, Poisson arrivals.

use std::collections::{BinaryHeap, VecDeque};

use proptest::prelude::*;

use super::*;

/// A small generator of random numbers; what matters here is only that arrivals are irregular.
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

#[derive(Debug, Default)]
struct Outcome {
    arrived: usize,
    refused: usize,
    /// Taken out of the queue.
    shed: usize,
    waits: Vec<f64>,
    /// Seconds of service begun, all slots together.
    work: f64,
}

impl Outcome {
    fn wait_at(&mut self, percentile: f64) -> f64 {
        self.waits.sort_by(f64::total_cmp);
        self.waits[(self.waits.len() as f64 * percentile) as usize]
    }
}

struct Queue {
    limit: QueueLimit,
    slots: usize,
    service: f64,
    /// True if service times are constant, or exponential.
    constant: bool,
    /// From a query's arrival to its deadline; later ones are served all the same.
    timeout: Duration,
    random: Random,
    now: f64,
    /// Ends of what is being served, negated in nanoseconds: the next first.
    busy: BinaryHeap<std::cmp::Reverse<(u64, u64)>>,
    waiting: VecDeque<f64>,
}

/// Time before a deadline that is far away.
const LONG: Duration = Duration::from_secs(3600);

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl Queue {
    fn new(slots: usize, service: f64, constant: bool, seed: u64) -> Self {
        let limit = QueueLimit::new(QueueLimitConfig::default(), 256);
        let random = Random(seed | 1);
        Self {
            limit,
            slots,
            service,
            constant,
            timeout: Duration::MAX,
            random,
            now: 0.0,
            busy: BinaryHeap::new(),
            waiting: VecDeque::new(),
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos(nanos(self.now))
    }

    /// Offers `load` times the capacity for so many service times; counts from `count_from` on,
    /// in service times.
    fn run(&mut self, load: f64, services: f64, count_from: f64) -> Outcome {
        let mut outcome = Outcome::default();
        let (start, end) = (self.now, self.now + services * self.service);
        let gap = self.service / (load * self.slots as f64);
        let mut next_arrival = self.now + self.random.exponential(gap);
        loop {
            let next_end = self.busy.peek().map_or(f64::INFINITY, |end| end.0.0 as f64 / 1e9);
            self.now = next_arrival.min(next_end);
            if self.now >= end {
                self.now = end;
                return outcome;
            }
            let counts = self.now >= start + count_from * self.service;
            if next_end <= next_arrival {
                if let Some(std::cmp::Reverse((_, service))) = self.busy.pop() {
                    self.limit.finished(self.time(), Duration::from_nanos(service));
                }
                if let Some(arrived) = self.waiting.pop_front() {
                    self.start(arrived, counts, &mut outcome);
                }
                continue;
            }
            next_arrival = self.now + self.random.exponential(gap);
            self.arrive(counts, &mut outcome);
        }
    }

    /// Has so many clients, and no others, ask again whenever they are answered, or refused.
    fn run_closed(&mut self, clients: usize, services: f64) -> Outcome {
        let mut outcome = Outcome::default();
        let end = self.now + services * self.service;
        self.waiting.clear();
        self.busy.clear();
        for _ in 0..clients {
            self.arrive(true, &mut outcome);
        }
        while let Some(std::cmp::Reverse((ends, service))) = self.busy.pop() {
            self.now = ends as f64 / 1e9;
            if self.now >= end {
                break;
            }
            let service = Duration::from_nanos(service);
            self.limit.finished(self.time(), service);
            if let Some(arrived) = self.waiting.pop_front() {
                self.start(arrived, true, &mut outcome);
            }
            let refused = outcome.refused;
            while self.busy.len() + self.waiting.len() < clients && outcome.refused == refused {
                self.arrive(true, &mut outcome);
            }
        }
        outcome
    }

    fn arrive(&mut self, counts: bool, outcome: &mut Outcome) {
        outcome.arrived += usize::from(counts);
        if self.busy.len() < self.slots {
            self.start(self.now, counts, outcome);
        } else if self.limit.admits(self.waiting.len()) {
            self.waiting.push_back(self.now);
        } else {
            self.limit.refused(self.time());
            outcome.refused += usize::from(counts);
        }
    }

    fn start(&mut self, arrived: f64, counts: bool, outcome: &mut Outcome) {
        let waited = self.now - arrived;
        if counts {
            outcome.waits.push(waited);
        }
        let waited = Duration::from_secs_f64(waited.max(0.0));
        let left = self.timeout.saturating_sub(waited);
        self.limit.started(self.time(), waited, left);
        let excess = self.limit.take_excess(self.waiting.len());
        self.waiting.truncate(self.waiting.len() - excess);
        outcome.shed += excess;
        let service =
            if self.constant { self.service } else { self.random.exponential(self.service) };
        if counts {
            outcome.work += service;
        }
        self.busy.push(std::cmp::Reverse((nanos(self.now + service), nanos(service))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn overload_keeps_the_slots_busy_and_the_wait_short(
        slots in 2usize..24,
        service_ms in 2.0f64..400.0,
        load in 1.5f64..6.0,
        constant: bool,
        seed: u64,
    ) {
        let service = service_ms / 1e3;
        let mut queue = Queue::new(slots, service, constant, seed);
        // However fast the model is, the first intervals take their time; the queue has to fill.
        let fill = 256.0 / ((load - 1.0) * slots as f64);
        let warm_up = 20.0 + 0.5 / service + 1.5 * fill;
        let mut outcome = queue.run(load, warm_up + 400.0, warm_up);
        // Not how many were served: with exponential service times, that varies by some per cent
        // however busy the slots are.
        let busy = outcome.work / (400.0 * service * slots as f64);
        prop_assert!(busy > 0.9, "{busy} of the capacity");
        // The floor of two waiting queries is long for few slots.
        let target = service * f64::max(0.5, 2.0 / slots as f64);
        let p99 = outcome.wait_at(0.99);
        // Exponential service times make for long waits however short the queue.
        let most = if constant { 3.0 } else { 6.0 };
        prop_assert!(
            p99 < most * target,
            "p99 of the wait is {p99}, target {target}"
        );
        // Where a second without a refusal is no matter of chance.
        if (load - 1.0) * slots as f64 / service > 30.0 {
            prop_assert!(queue.limit.is_overloaded(queue.time()));
        }
    }

    #[test]
    fn hardly_anybody_is_refused_at_moderate_load(
        slots in 4usize..24,
        service_ms in 2.0f64..400.0,
        load in 0.1f64..0.6,
        seed: u64,
    ) {
        let mut queue = Queue::new(slots, service_ms / 1e3, true, seed);
        let outcome = queue.run(load, 1_000.0, 0.0);
        prop_assert!(
            outcome.refused * 200 <= outcome.arrived,
            "{} of {}",
            outcome.refused,
            outcome.arrived
        );
    }

    #[test]
    fn overload_is_forgotten(slots in 4usize..24, seed: u64) {
        let mut queue = Queue::new(slots, 0.01, true, seed);
        queue.run(4.0, 400.0, 0.0);
        prop_assert!(queue.limit.limit() < 64, "{}", queue.limit.limit());
        let outcome = queue.run(0.5, 2_100.0, 100.0);
        prop_assert!(
            outcome.refused * 200 <= outcome.arrived,
            "{} of {}",
            outcome.refused,
            outcome.arrived
        );
    }

    /// Clients of a closed loop that the fixed bound has room for are never refused, and the slots
    /// are never idle.
    #[test]
    fn a_closed_loop_is_served_whole(
        clients in 1usize..=256,
        slots in 1usize..24,
        service_ms in 0.2f64..100.0,
        constant: bool,
        seed: u64,
    ) {
        let service = service_ms / 1e3;
        let mut queue = Queue::new(slots, service, constant, seed);
        let outcome = queue.run_closed(clients, 1_000.0);
        prop_assert_eq!(outcome.refused, 0);
        prop_assert_eq!(queue.limit.limit(), 256);
        if clients >= slots && constant {
            let busy = outcome.work / (1_000.0 * service * slots as f64);
            prop_assert!(busy > 0.95, "{busy} of the capacity");
        }
    }

    /// Clients that are refused ask again at once, as some do; the bound that refuses them does not
    /// stay when there are no more of them than it has room for.
    #[test]
    fn a_closed_loop_that_shrinks_is_served_whole_again(slots in 2usize..24, seed: u64) {
        let mut queue = Queue::new(slots, 0.02, true, seed);
        queue.run(3.0, 400.0, 0.0);
        prop_assert!(queue.limit.limit() < 64, "{}", queue.limit.limit());
        // Longer than until the fixed bound is tried again.
        queue.run_closed(200, 1_000.0 + 250.0 * 256.0 / (2.0 * slots as f64));
        prop_assert_eq!(queue.limit.limit(), 256);
        prop_assert_eq!(queue.run_closed(200, 500.0).refused, 0);
    }

    /// The queue that overload has filled is not served.
    #[test]
    fn overload_sheds_the_queue_once(slots in 2usize..24, load in 1.5f64..6.0, seed: u64) {
        let mut queue = Queue::new(slots, 0.02, true, seed);
        let fill = 256.0 / ((load - 1.0) * slots as f64);
        let outcome = queue.run(load, 3.0 * fill + 100.0, 0.0);
        prop_assert!((128..=256).contains(&outcome.shed), "{}", outcome.shed);
    }

    /// A queue that costs queries more than half of their time is cut before it is full.
    #[test]
    fn deadlines_cut_the_queue_before_it_is_full(slots in 2usize..5, seed: u64) {
        let mut queue = Queue::new(slots, 0.1, true, seed);
        queue.timeout = Duration::from_secs(1);
        let outcome = queue.run(3.0, 400.0, 0.0);
        let mut waits = outcome.waits;
        waits.sort_by(f64::total_cmp);
        let longest = waits.last().copied().unwrap_or_default();
        // The bound itself would let them wait for 256 / slots * 0.1 s, 6 to 13.
        prop_assert!(longest < 4.0, "waited for {longest} s");
    }

    #[test]
    fn the_bound_stays_within_its_bounds(
        events in proptest::collection::vec((0u64..1_000_000_000_000, 0u64..10_000_000_000,
            any::<bool>()), 0..200),
        max in 0usize..300,
    ) {
        let config = QueueLimitConfig::default();
        let mut limit = QueueLimit::new(config, max);
        let mut now = 0;
        for (pause, lasted, starts) in events {
            now += pause;
            let lasted = Duration::from_nanos(lasted);
            if starts {
                limit.started(Time::from_nanos(now), lasted, Duration::ZERO)
            } else {
                limit.finished(Time::from_nanos(now), lasted)
            }
            prop_assert!(
                (config.min..=max.max(config.min)).contains(&limit.limit()),
                "{}",
                limit.limit()
            );
        }
    }
}

/// A burst that drains is no overload, however long the queue gets.
#[test]
fn a_burst_is_let_in() {
    let mut limit = QueueLimit::new(QueueLimitConfig::default(), 256);
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    for second in 1..20 {
        for place in 0..20 {
            limit.finished(at(second * 1000 + place), Duration::from_millis(1));
            limit.started(at(second * 1000 + place), Duration::from_millis(place), LONG);
        }
    }
    assert_eq!(limit.limit(), 256);
}

/// Two requests at a time wait for each other at an instance; that is no service time.
#[test]
fn what_instances_take_under_overload_does_not_lengthen_the_wait() {
    let mut limit = QueueLimit::new(QueueLimitConfig::default(), 256);
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    let ms = Duration::from_millis;
    for time in 0..1_000 {
        limit.finished(at(time), ms(10));
    }
    // Each waits for 30 ms and takes 20; one is started in each millisecond.
    for time in 1_000..5_000 {
        limit.refused(at(time));
        limit.finished(at(time), ms(20));
        limit.started(at(time), ms(30), LONG);
    }
    assert_eq!(limit.limit(), 5, "what drains in half of 10 ms");
    // When it is over, a model that has become slower is learned, and a wait of 6 ms is no longer
    // too long.
    for time in 10_000..11_000 {
        limit.finished(at(time), ms(20));
        limit.started(at(time), ms(6), LONG);
    }
    assert!(limit.limit() > 5, "{}", limit.limit());
}

#[test]
fn mean_wait_just_below_the_target_keeps_the_bound() {
    let mut limit = QueueLimit::new(QueueLimitConfig::default(), 256);
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    limit.finished(at(0), Duration::from_millis(10));
    // Too long for a target of 5 ms, and then just not.
    for (wait, times) in [(30_000, 0..1_000), (4_600, 1_000..5_000)] {
        for time in times {
            limit.started(at(time), Duration::from_micros(wait), Duration::ZERO);
        }
        assert_eq!(limit.limit(), 5);
    }
}

#[test]
fn a_straggler_counts_as_four_times_the_average() {
    let mut limit = QueueLimit::new(QueueLimitConfig::default(), 256);
    for _ in 0..ENOUGH {
        limit.finished(Time::ZERO, Duration::from_millis(10));
    }
    limit.finished(Time::ZERO, Duration::from_secs(10));
    let average = limit.service.unwrap();
    assert!((average - 0.010 * (1.0 + 3.0 / f64::from(ENOUGH))).abs() < 1e-9);
}
