//! The published form of the JSON reports.

use schemars::{Schema, schema_for};

use super::RunReport;
use crate::compare::{CompareReport, SweepReport};
use crate::simulate::SimulationReport;

/// JSON Schemas (draft 2020-12) of all reports, by the kind of report.
pub fn schemas() -> [(&'static str, Schema); 4] {
    [
        ("run", schema_for!(RunReport)),
        ("compare", schema_for!(CompareReport)),
        ("simulation", schema_for!(SimulationReport)),
        ("sweep", schema_for!(SweepReport)),
    ]
}
