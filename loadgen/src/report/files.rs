//! Files that hold every request, or the whole distribution, for other programs.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;

use super::histogram;
use crate::run::{Record, Recording, RequestOutcome};

/// Steps of the percentile distribution by which the rest of the samples is halved.
const STEPS_PER_HALF: u32 = 5;
const INTERVAL_US: u64 = 1_000_000;

/// Writes the header and a line for each record. Fields without a value are empty; `status` is
/// `200`, `timeout`, `unsent`, `pending` (sent, and the run was ended), or the kind of failure.
pub fn write_csv(mut out: impl Write, records: &[Record]) -> io::Result<()> {
    fn field(value: Option<impl Display>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    writeln!(
        out,
        "request,planned_us,sent_us,done_us,status,provenance,correct,row"
    )?;
    for (request, record) in records.iter().enumerate() {
        let status = match record.outcome {
            Some(RequestOutcome::Answered(_)) => "200".to_owned(),
            Some(RequestOutcome::Failed(failure)) => failure.to_string(),
            Some(RequestOutcome::TimedOut) => "timeout".to_owned(),
            None if record.sent_us.is_some() => "pending".to_owned(),
            None => "unsent".to_owned(),
        };
        let (planned_us, sent, done) = (record.planned_us, record.sent_us, record.done_us);
        let provenance = field(record.answer().map(|answer| answer.provenance));
        let (correct, row) = (field(record.correct()), field(sent.map(|_| record.row)));
        let (sent, done) = (field(sent), field(done));
        writeln!(
            out,
            "{request},{planned_us},{sent},{done},{status},{provenance},{correct},{row}"
        )?;
    }
    out.flush()
}

/// Writes a histogram of microseconds in HdrHistogram's text form (`.hgrm`), in milliseconds, for
/// its plotters.
pub fn write_hgrm(mut out: impl Write, histogram: &Histogram<u64>) -> io::Result<()> {
    let header = ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"];
    let [value, percentile, count, rarity] = header;
    writeln!(
        out,
        "{value:>12} {percentile:>14} {count:>10} {rarity:>14}\n"
    )?;
    let mut total = 0;
    for step in histogram.iter_quantiles(STEPS_PER_HALF) {
        total += step.count_since_last_iteration();
        let (value, quantile) = (
            step.value_iterated_to() as f64 / 1e3,
            step.quantile_iterated_to(),
        );
        write!(out, "{value:12.3} {quantile:2.12} {total:10}")?;
        if quantile < 1.0 {
            write!(out, " {:14.2}", 1.0 / (1.0 - quantile))?;
        }
        writeln!(out)?;
    }
    let (mean, deviation) = (histogram.mean() / 1e3, histogram.stdev() / 1e3);
    writeln!(
        out,
        "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]"
    )?;
    let (max, count) = (histogram.max() as f64 / 1e3, histogram.len());
    writeln!(out, "#[Max     = {max:12.3}, Total count    = {count:12}]")?;
    let (buckets, within) = (histogram.buckets(), 2048);
    writeln!(
        out,
        "#[Buckets = {buckets:12}, SubBuckets     = {within:12}]"
    )?;
    out.flush()
}

/// Writes HdrHistogram's interval log (`.hlog`, version 1.3): a histogram of the answered requests'
/// latencies, in microseconds, for each second in which some were due. `started` is when the run
/// began.
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
        let second = seconds.entry(record.planned_us / INTERVAL_US);
        let second = second.or_insert_with(histogram);
        record
            .latency_us()
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
        // The plain column of largest values is in milliseconds.
        .with_max_value_divisor(1e3)
        .begin_log_with(&mut out, &mut serializer)?;
    // A comment, as not all readers skip the bare line of column names that the Java writer makes.
    log.write_comment(
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"",
    )?;
    for (second, latency) in &seconds {
        let start = Duration::from_micros(second * INTERVAL_US);
        let interval = Duration::from_micros(INTERVAL_US);
        let written = log.write_histogram(latency, start, interval, None);
        written.map_err(io::Error::other)?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, Engine};
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;
    use crate::target::{Answer, Failure, Provenance};

    #[test]
    fn readers_of_the_interval_log_find_each_second() {
        let answer = Answer {
            provenance: Provenance::Exact,
            confidence: None,
            class: None,
        };
        let answered = RequestOutcome::Answered(answer);
        let failed = RequestOutcome::Failed(Failure::Connect);
        let outcomes = [
            (0, answered),
            (900_000, answered),
            (950_000, failed),
            (2_100_000, answered),
        ];
        let records = outcomes.map(|(planned_us, outcome)| Record {
            planned_us,
            sent_us: Some(planned_us),
            done_us: Some(planned_us + 5_000),
            outcome: Some(outcome),
            ..Record::default()
        });
        let recording = Recording {
            records: records.into(),
            ..Recording::default()
        };
        let mut log = Vec::new();
        let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        write_hlog(&mut log, &recording, started).unwrap();
        let text = String::from_utf8(log.clone()).unwrap();
        assert!(
            text.starts_with("#[Histogram log format version 1.3]\n"),
            "{text}"
        );
        let start = "#[StartTime: 1700000000.000 (seconds since epoch)]\n";
        assert!(text.contains(start), "{text}");
        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(&log) {
            let LogEntry::Interval(interval) = entry.unwrap() else {
                continue;
            };
            let bytes = BASE64_STANDARD
                .decode(interval.encoded_histogram())
                .unwrap();
            let read: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
            assert_eq!(read.max() / 100, 50);
            let second = interval.start_timestamp().as_secs();
            found.push((second, read.len(), interval.max().round()));
        }
        assert_eq!(found, [(0, 2, 5.0), (2, 1, 5.0)]);
    }
}
