//! Gathers steps into records of the log.

use std::time::Instant;

use parity_trainer::StepReport;
use parity_trainer::run::LogRecord;

/// Records of the log, about.
const RECORDS: u64 = 500;

/// Steps since the last record.
pub(super) struct Log {
    every: u64,
    begun: Instant,
    rows: usize,
    steps: u32,
    loss: f64,
    agreement: f64,
}

impl Log {
    /// Of a training of `steps` steps.
    pub(super) fn new(steps: u64) -> Self {
        Self {
            every: steps.div_ceil(RECORDS).max(1),
            begun: Instant::now(),
            rows: 0,
            steps: 0,
            loss: 0.0,
            agreement: 0.0,
        }
    }

    /// Takes a step in; a record if it is time for one.
    pub(super) fn step(&mut self, report: &StepReport) -> Option<LogRecord> {
        if self.steps == 0 && self.rows == 0 {
            // Of a resumed run, the rows before are not this process's.
            self.rows = report.rows - report.rows / report.step.max(1);
        }
        self.steps += 1;
        self.loss += report.loss;
        self.agreement += report.agreement;
        let step = report.step as u64;
        let due =
            step.is_multiple_of(self.every) || report.step == 1 || report.step == report.steps;
        if !due && report.validation.is_none() {
            return None;
        }
        let (steps, seconds) = (
            f64::from(self.steps),
            self.begun.elapsed().as_secs_f64().max(1e-9),
        );
        let record = LogRecord {
            step,
            epoch: report.epoch,
            loss: self.loss / steps,
            learning_rate: report.learning_rate,
            gradient_norm: report.gradient_norm,
            agreement: self.agreement / steps,
            validation_agreement: report.validation.map(|validation| validation.agreement),
            validation_loss: report.validation.map(|validation| validation.loss),
            rows_per_second: (report.rows - self.rows) as f64 / seconds,
        };
        (self.begun, self.rows) = (Instant::now(), report.rows);
        (self.steps, self.loss, self.agreement) = (0, 0.0, 0.0);
        Some(record)
    }
}
