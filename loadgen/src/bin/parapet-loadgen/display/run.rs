//! Status line of `run`.

use parapet_loadgen::run::Snapshot;

use super::{Status, milliseconds};

pub(crate) fn run_status(snapshot: &Snapshot) -> Status {
    let now = snapshot;
    let [p50, p90, p99, p99_9, lag] =
        [now.p50, now.p90, now.p99, now.p99_9, now.lag_max].map(milliseconds);
    let (sent, planned, reconstructed) = (now.sent, now.planned, now.reconstructed);
    let text = format!(
        "sent {sent}/{planned}  answered {}  failed or timed out {}  reconstructed {reconstructed}  \
         p50 {p50}  p90 {p90}  p99 {p99}  p99.9 {p99_9}  lag max {lag} ms",
        now.answered, now.without_answer
    );
    Status::new(sent as u64, planned as u64, text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn snapshot() -> Snapshot {
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        Snapshot {
            planned: 10_000_000,
            sent: 5_000_000,
            answered: 4_999_000,
            without_answer: 12,
            reconstructed: 345,
            p50: ms(1.234),
            p90: ms(12.34),
            p99: ms(123.4),
            p99_9: ms(5000.4),
            lag_max: ms(0.25),
        }
    }

    #[test]
    fn status_has_counts_and_latency() {
        let status = run_status(&snapshot());
        let expected = "sent 5000000/10000000  answered 4999000  failed or timed out 12  \
            reconstructed 345  p50 1.23  p90 12.3  p99 123.4  p99.9 5000  lag max 0.25 ms";
        let text = expected.to_owned();
        assert_eq!(status, Status { share: 0.5, text });
    }

    #[test]
    fn an_empty_run_has_a_share() {
        assert_eq!(run_status(&Snapshot::default()).share, 0.0);
    }
}
