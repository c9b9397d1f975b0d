//! The published form of the JSON reports.

use schemars::{Schema, schema_for};

use super::RunReport;
use crate::compare::{CompareReport, SweepReport};
use crate::simulate::SimulationReport;

/// JSON Schemas (draft 2020-12) of all reports, by the name of their file in `loadgen/schema/`.
pub fn schemas() -> [(&'static str, Schema); 4] {
    [
        ("run-1.json", schema_for!(RunReport)),
        ("compare-1.json", schema_for!(CompareReport)),
        ("simulation-1.json", schema_for!(SimulationReport)),
        ("sweep-1.json", schema_for!(SweepReport)),
    ]
}
