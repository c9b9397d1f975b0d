//! The published form of the JSON reports.

use schemars::{Schema, schema_for};

use super::RunReport;
use crate::compare::{CompareReport, SweepReport};

/// JSON Schemas (draft 2020-12) of all reports, by the name of their file in `loadgen/schema/`.
pub fn schemas() -> [(&'static str, Schema); 3] {
    [
        ("run-1.json", schema_for!(RunReport)),
        ("compare-1.json", schema_for!(CompareReport)),
        ("sweep-1.json", schema_for!(SweepReport)),
    ]
}
