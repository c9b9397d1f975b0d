//! Queries that no instance can answer, beside honest ones: instances in memory at default
//! settings, in paused time.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::time::Duration;

use support::fixture::{Fixture, fixture};
use support::memory::{Memory, SERVICE, State, id};
use support::{addresses, coded_toml, plain_toml, repository};
use tokio::time::{Instant, sleep_until};

const MINUTE: Duration = Duration::from_secs(60);
/// Time between honest queries: 540 of them a second.
const EVERY: Duration = Duration::from_micros(1_852);
const BURST_EVERY: Duration = Duration::from_secs(5);
const BURST: usize = 24;
/// A finite sample that overflows the model.
const POISON: f32 = 3e38;

/// Four replicas of the model, without redundancy or with two instances of a parity model.
async fn served(parity: u32) -> Fixture {
    let repository = repository();
    let deployed = addresses(4, 7000);
    let text = match parity {
        0 => plain_toml(repository.path(), &deployed, ""),
        _ => coded_toml(repository.path(), &deployed, &addresses(parity, 7100), ""),
    };
    fixture(repository, &text, Memory::new(4, parity)).await
}

/// Answers to the honest queries, and ejections.
#[derive(Debug, Default)]
struct Seen {
    asked: usize,
    unanswered: usize,
    /// Of instances of all pools.
    ejections: u64,
    /// Most of the deployed model's instances that were ejected at the same time.
    most_ejected: u64,
}

/// Asks honest queries for a minute, and poison in bursts.
async fn minute(fixture: &Fixture) -> Seen {
    let (start, mut seen) = (Instant::now(), Seen::default());
    let (mut honest, mut poison) = (Vec::new(), Vec::new());
    let mut next_burst = start;
    while start.elapsed() < MINUTE {
        if Instant::now() >= next_burst {
            poison.extend((0..BURST).map(|_| fixture.ask(POISON)));
            next_burst += BURST_EVERY;
        }
        honest.push(fixture.ask((seen.asked % 100) as f32));
        seen.asked += 1;
        if seen.asked.is_multiple_of(50) {
            let ejected = fixture.model.driver.stats().ejected;
            seen.most_ejected = seen.most_ejected.max(ejected);
        }
        sleep_until(start + EVERY * u32::try_from(seen.asked).unwrap()).await;
    }
    for asked in honest {
        seen.unanswered += usize::from(asked.await.unwrap().0.is_err());
    }
    for asked in poison {
        assert!(asked.await.unwrap().0.is_err(), "no instance can answer it");
    }
    seen.ejections = fixture.model.driver.stats().ejections;
    seen
}

#[tokio::test(start_paused = true)]
async fn poison_beside_honest_queries_ejects_no_instance() {
    let fixture = served(0).await;
    let seen = minute(&fixture).await;
    assert!(seen.asked > 32_000, "{seen:?}");
    assert_eq!((seen.ejections, seen.unanswered), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn poison_beside_honest_queries_ejects_no_parity_instance() {
    let fixture = served(2).await;
    let seen = minute(&fixture).await;
    assert_eq!((seen.ejections, seen.unanswered), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_answers_nothing_well_is_ejected_in_spite_of_poison() {
    let fixture = served(0).await;
    fixture.memory.set(id(0, 2), State::NotFinite(SERVICE));
    let seen = minute(&fixture).await;
    assert!(seen.ejections > 0 && seen.most_ejected == 1, "{seen:?}");
    // Some are lost until it is found.
    assert!(seen.unanswered * 1000 < seen.asked, "{seen:?}");
    let log = fixture.memory.log.lock();
    let asked = log.iter().filter(|&&instance| instance == id(0, 2)).count();
    // An ejection lasts 5 s at least.
    assert!(asked < 500, "{asked} requests in a minute");
}
