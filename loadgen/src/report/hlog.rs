//! HdrHistogram's interval log (`.hlog`, version 1.3), for its log processors and analysers.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use super::summary::histogram;
use crate::run::{Record, Recording};

const INTERVAL_US: u64 = 1_000_000;
/// The plain column of largest values is in milliseconds; the histograms are of microseconds.
const PER_MS: f64 = 1e3;

/// Writes a histogram of the answered requests' latencies, in microseconds, for each second in
/// which some were due. `started` is when the run began.
pub fn write_hlog(
    mut out: impl Write,
    recording: &Recording,
    started: SystemTime,
) -> io::Result<()> {
    let mut seconds: BTreeMap<u64, Histogram<u64>> = BTreeMap::new();
    for record in recording
        .records
        .iter()
        .filter(|record| record.answer().is_some())
    {
        let second = seconds
            .entry(record.planned_us / INTERVAL_US)
            .or_insert_with(histogram);
        Record::latency_us(record)
            .into_iter()
            .for_each(|time| second.saturating_record(time));
    }
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment("[Histogram log format version 1.3]")
        .add_comment(
            "[Latency of answers from the planned send, in us; by the second in which they were \
                due]",
        )
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(PER_MS)
        .begin_log_with(&mut out, &mut serializer)?;
    // A comment, as not all readers skip the bare line of column names that the Java writer makes.
    log.write_comment(
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"",
    )?;
    let interval = Duration::from_micros(INTERVAL_US);
    for (second, latency) in &seconds {
        let start = Duration::from_micros(second * INTERVAL_US);
        log.write_histogram(latency, start, interval, None)
            .map_err(io::Error::other)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, Engine};
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{
        IntervalLogHistogram, IntervalLogIterator, LogEntry,
    };

    use super::*;
    use crate::run::RequestOutcome;
    use crate::target::{Answer, Failure, Provenance};

    #[test]
    fn readers_find_each_second() {
        let answer = Answer {
            provenance: Provenance::Exact,
            confidence: None,
            class: None,
        };
        let record = |planned_us, outcome| Record {
            planned_us,
            sent_us: Some(planned_us),
            done_us: Some(planned_us + 5_000),
            outcome: Some(outcome),
            ..Record::default()
        };
        let records = vec![
            record(0, RequestOutcome::Answered(answer)),
            record(900_000, RequestOutcome::Answered(answer)),
            record(950_000, RequestOutcome::Failed(Failure::Connect)),
            record(2_100_000, RequestOutcome::Answered(answer)),
        ];
        let ended = Duration::from_secs(3);
        let recording = Recording {
            records,
            sending_ended: ended,
            ended,
            partial: false,
        };
        let mut log = Vec::new();
        write_hlog(
            &mut log,
            &recording,
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        )
        .unwrap();
        let text = String::from_utf8(log.clone()).unwrap();
        assert!(
            text.starts_with("#[Histogram log format version 1.3]\n"),
            "{text}"
        );
        assert!(
            text.contains("#[StartTime: 1700000000.000 (seconds since epoch)]\n"),
            "{text}"
        );
        let intervals: Vec<IntervalLogHistogram<'_>> = IntervalLogIterator::new(&log)
            .filter_map(|entry| match entry.unwrap() {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        let counts = intervals.iter().map(|interval| {
            let bytes = BASE64_STANDARD
                .decode(interval.encoded_histogram())
                .unwrap();
            let read: Histogram<u64> = Deserializer::new()
                .deserialize(&mut bytes.as_slice())
                .unwrap();
            assert_eq!(read.max() / 100, 50);
            (
                interval.start_timestamp().as_secs(),
                read.len(),
                interval.max().round(),
            )
        });
        assert_eq!(counts.collect::<Vec<_>>(), [(0, 2, 5.0), (2, 1, 5.0)]);
    }
}
