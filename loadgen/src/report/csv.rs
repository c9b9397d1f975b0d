//! One line for each request.

use std::fmt::Display;
use std::io::{self, Write};

use crate::run::{Record, RequestOutcome};

/// Writes the header and a line for each record. Fields without a value are empty; `status` is
/// `200`, `timeout`, `unsent`, `pending` (sent, and the run was ended), or the kind of failure.
pub fn write_csv(mut out: impl Write, records: &[Record]) -> io::Result<()> {
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
        writeln!(
            out,
            "{request},{},{},{},{status},{},{},{}",
            record.planned_us,
            field(record.sent_us),
            field(record.done_us),
            field(record.answer().map(|answer| answer.provenance)),
            field(record.correct()),
            field(record.sent_us.map(|_| record.row)),
        )?;
    }
    out.flush()
}

fn field(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
