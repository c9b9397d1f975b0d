//! Latency counts from the planned send. In virtual time, so that the percentiles are those of
//! arithmetic.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use parapet_loadgen::payload::{Body, RequestOptions, Rows, WireEncoding};
use parapet_loadgen::report::{RunReport, Settings, Summary, summarise};
use parapet_loadgen::run::{Pacer, Plan, Progress, Release, Stop, run};
use parapet_loadgen::schedule::{Arrivals, Length, Schedule};
use parapet_loadgen::target::{Answer, Failure, Provenance, Transport};
use tokio::time::{Instant, sleep, sleep_until};

const RATE: f64 = 100.0;
const SECONDS: u64 = 10;
const SERVICE: Duration = Duration::from_millis(1);
const TIMEOUT_MS: u64 = 5000;

/// A time, from the start of the run, in which something stands still.
#[derive(Clone, Copy)]
struct Stall {
    from: Duration,
    to: Duration,
}

const NEVER: Stall = Stall { from: Duration::MAX, to: Duration::MAX };
const SECOND_2_TO_4: Stall = Stall { from: Duration::from_secs(2), to: Duration::from_secs(4) };

impl Stall {
    async fn wait(self, start: Instant) {
        if (self.from..self.to).contains(&start.elapsed()) {
            sleep_until(start + self.to).await;
        }
    }
}

/// Answers after [`SERVICE`], but not while it stands still.
struct Server {
    start: Instant,
    stall: Stall,
}

impl Transport for Server {
    async fn send(&self, _: &Body) -> Result<Answer, Failure> {
        self.stall.wait(self.start).await;
        sleep(SERVICE).await;
        Ok(Answer { provenance: Provenance::Exact, confidence: None, class: None })
    }
}

/// Releases on time, but not while it stands still.
struct Generator(Stall);

impl Pacer for Generator {
    async fn pace(
        self,
        start: Instant,
        schedule: Arc<Schedule>,
        mut release: Release,
    ) -> std::io::Result<()> {
        for (index, &planned_us) in schedule.planned_us.iter().enumerate() {
            sleep_until(start + Duration::from_micros(planned_us)).await;
            self.0.wait(start).await;
            release(index);
        }
        Ok(())
    }
}

fn settings() -> Settings {
    let settings = serde_json::json!({
        "target": "memory", "model": "digits", "seed": 1, "rate": RATE, "encoding": "binary",
        "timeout_ms": TIMEOUT_MS, "images": "images",
    });
    serde_json::from_value(settings).unwrap()
}

async fn measure(server: Stall, generator: Stall, stop: &Stop) -> RunReport {
    let length = Length::Duration(Duration::from_secs(SECONDS));
    let schedule = Schedule::plan(Arrivals::Constant, RATE, length, 1).unwrap();
    let folder = tempfile::TempDir::new().unwrap();
    common::write_data(folder.path(), 20);
    let rows = Rows::load(&folder.path().join("images"), None).unwrap();
    let options = RequestOptions {
        encoding: WireEncoding::Binary,
        timeout_ms: TIMEOUT_MS,
        allow_approximate: None,
        deadline_ms: None,
    };
    let progress = Arc::new(Progress::new(&schedule));
    let plan = Plan::encode(schedule, &rows, &common::model_metadata(), options, 1).unwrap();
    let (start, stall) = (Instant::now(), server);
    let server = Arc::new(Server { start, stall });
    let run = run(&plan, server, Generator(generator), progress, stop);
    summarise(settings(), &run.await.unwrap())
}

/// Of 1000 requests, one each 10 ms, those of the stall's 200 wait for its end: 2000, 1990, ... 10
/// ms. So the 900th of all in ascending order waits 1000 ms, the 990th 1900 ms, and so on; each
/// then takes the millisecond of service.
fn assert_charged_for_the_stall(latency: Summary) {
    let expected = [
        (latency.p50, 1.0),
        (latency.p90, 1001.0),
        (latency.p99, 1901.0),
        (latency.p99_5, 1951.0),
        (latency.p99_9, 1991.0),
        (latency.max, 2001.0),
        (latency.mean, 0.2 * 1005.0 + 1.0),
    ];
    for (measured, expected) in expected {
        // Virtual timers have steps of a millisecond, histograms three digits.
        let tolerance = 1.1 + 0.001 * expected;
        assert!(
            (measured - expected).abs() <= tolerance,
            "{measured} ms, not {expected}: {latency:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_once_is_charged_for_all_that_was_due() {
    let report = measure(SECOND_2_TO_4, NEVER, &Stop::default()).await;
    assert_eq!(report.counts.answered, 1000);
    assert_charged_for_the_stall(report.latency.answered.unwrap());
    assert!(report.valid, "the generator was on time: {:?}", report.lag);
}

#[tokio::test(start_paused = true)]
async fn a_late_generator_hides_nothing_and_is_not_valid() {
    let report = measure(NEVER, SECOND_2_TO_4, &Stop::default()).await;
    assert_eq!(report.counts.answered, 1000);
    assert_charged_for_the_stall(report.latency.answered.unwrap());
    let service = report.service.unwrap();
    assert!(service.max <= 2.1, "from the actual send the stall is invisible: {service:?}");
    assert!((report.lag.max - 2000.0).abs() <= 3.0 && report.lag.p99 > 1800.0);
    assert!(!report.valid && !report.partial);
}

#[tokio::test(start_paused = true)]
async fn requests_cut_off_by_the_timeout_count_as_the_timeout() {
    let stuck = Stall { from: Duration::from_secs(9), to: Duration::from_secs(900) };
    let report = measure(stuck, NEVER, &Stop::default()).await;
    let counts = report.counts;
    assert_eq!((counts.answered, counts.unanswered), (900, 100));
    let all = report.latency.all.unwrap();
    assert!((all.p99 - 5000.0).abs() < 10.0 && all.count == 1000);
    assert!(report.latency.answered.unwrap().max <= 2.1);
}

#[tokio::test(start_paused = true)]
async fn an_ended_run_is_partial_and_waits_only_as_long_as_asked() {
    let stop = Stop::default();
    let end = {
        let stop = stop.clone();
        async move {
            sleep(Duration::from_millis(2_505)).await;
            stop.sending.cancel();
            sleep(Duration::from_millis(500)).await;
            stop.waiting.cancel();
        }
    };
    let (report, ()) = tokio::join!(measure(SECOND_2_TO_4, NEVER, &stop), end);
    assert!(report.partial);
    let (elapsed_s, counts) = (report.elapsed_s, report.counts);
    assert!((elapsed_s - 3.005).abs() < 0.002, "{elapsed_s}");
    let ends = (counts.answered, counts.unanswered, counts.unsent);
    assert_eq!(ends, (200, 51, 749));
    assert_eq!(report.latency.all.unwrap().count, 251);
}
