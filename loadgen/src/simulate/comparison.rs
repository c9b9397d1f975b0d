//! From simulations to the comparison that real runs make, too.

use std::time::Duration;

use super::Simulated;
use crate::compare::{Block, Comparison, FaultMark, Measured, Settings};
use crate::experiment::{Event, Experiment};
use crate::run::{Record, Recording};

/// Queries of all strategies together whose records may be kept: some 100 bytes each.
pub const MAX_RECORDS: u64 = 2_000_000;

/// The simulations of one [`Experiment`], as a comparison. Those without records are left out.
pub fn comparison(experiment: &Experiment, simulated: &[Simulated]) -> Comparison {
    let block_s = experiment.block_s();
    let notes = [
        (
            "simulated",
            "virtual time; see the simulation's settings".to_owned(),
        ),
        ("instances", experiment.instances.deployed.to_string()),
        (
            "redundant instances",
            experiment.instances.redundant.to_string(),
        ),
    ];
    let notes = notes.map(|(name, value)| (name.to_owned(), value)).into();
    let settings = Settings {
        deadline_ms: Some(experiment.timeout_ms),
        ..experiment.settings(("none".to_owned(), None), notes)
    };
    let measured = |simulated: &Simulated| {
        Some(Measured {
            name: simulated.name.clone(),
            description: simulated.description.clone(),
            instances: Some(simulated.instances),
            blocks: blocks(simulated.recording.as_ref()?, experiment.blocks, block_s),
            redundancy: Some(simulated.redundancy),
            ..Measured::default()
        })
    };
    let mark = |event: &Event| {
        let [at_s, until_s] = event.span_s(block_s)?;
        Some(FaultMark {
            at_s,
            until_s: Some(until_s),
            what: event.what.done().to_owned(),
            instance: format!("instance {}", event.instance),
            strategy: None,
        })
    };
    Comparison {
        settings,
        strategies: simulated.iter().filter_map(measured).collect(),
        faults: experiment.events.iter().filter_map(mark).collect(),
    }
}

/// Cuts a recording by planned time; what comes after the last block's end is part of it.
fn blocks(recording: &Recording, count: usize, block_s: f64) -> Vec<Block> {
    let place =
        |record: &Record| ((record.planned_us as f64 / 1e6 / block_s) as usize).min(count - 1);
    let mut rest = recording.records.as_slice();
    let mut blocks = Vec::new();
    for number in 0..count {
        let (own, others) = rest.split_at(rest.partition_point(|record| place(record) <= number));
        rest = others;
        let started_s = number as f64 * block_s;
        let start_us = (started_s * 1e6) as u64;
        let records = own
            .iter()
            .map(|record| record.shifted(|at| at.saturating_sub(start_us)));
        let records: Vec<Record> = records.collect();
        let last = |time: fn(&Record) -> Option<u64>| {
            let last = records.iter().filter_map(time).max();
            Duration::from_micros(last.unwrap_or_default())
        };
        let sending_ended = last(|record| record.sent_us);
        let ended = last(|record| record.done_us).max(sending_ended);
        // A simulation that was broken off has whole blocks up to the one in which it was.
        let is_last_of_partial = recording.partial && rest.is_empty();
        let partial = is_last_of_partial || records.iter().any(|record| record.outcome.is_none());
        blocks.push(Block {
            started_s,
            recording: Recording {
                records,
                sending_ended,
                ended,
                partial,
            },
            valid: true,
        });
        if is_last_of_partial {
            break;
        }
    }
    blocks
}
