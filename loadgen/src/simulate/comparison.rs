//! From simulations to the comparison that real runs make, too.

use std::collections::BTreeMap;

use super::{Setup, Simulated};
use crate::compare::{Block, Comparison, Measured, Settings};
use crate::experiment::StrategySpec;
use crate::payload::WireEncoding;
use crate::run::{Record, Recording};

/// Queries of all strategies together whose records may be kept: some 100 bytes each.
pub const MAX_RECORDS: u64 = 2_000_000;

/// Stretches that a simulation is cut into, for the intervals of a comparison. Queries that wait together are in the same
/// one, but for those at its ends.
const BLOCKS: usize = 20;

/// The simulations of one [`Setup`], as a comparison. Those without records are left out.
pub fn comparison(setup: &Setup, simulated: &[(StrategySpec, Simulated)]) -> Comparison {
    let block_s = setup.queries as f64 / setup.rate / BLOCKS as f64;
    let notes = [
        ("simulated", "virtual time; see the simulation's settings".to_owned()),
        ("instances", setup.instances.to_string()),
        ("redundant instances", setup.redundant_instances.to_string()),
    ];
    let notes: BTreeMap<String, String> =
        notes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let settings = Settings {
        model: "simulated".to_owned(),
        seed: setup.seed,
        arrivals: setup.arrivals,
        rate: setup.rate,
        blocks: BLOCKS,
        block_s,
        timeout_ms: setup.deadline_ms.ceil() as u64,
        encoding: WireEncoding::Binary,
        deadline_ms: Some(setup.deadline_ms.ceil() as u64),
        images: "none".to_owned(),
        labels: None,
        notes,
    };
    let measured = |(spec, simulated): &(StrategySpec, Simulated)| {
        Some(Measured {
            name: spec.label.clone(),
            description: spec.kind.description().to_owned(),
            instances: Some(simulated.pools.iter().map(|pool| pool.instances).sum()),
            blocks: blocks(simulated.recording.as_ref()?, block_s),
            redundancy: Some(simulated.redundancy),
        })
    };
    let strategies = simulated.iter().filter_map(measured).collect();
    Comparison { settings, strategies, faults: Vec::new() }
}

/// Cuts a recording by planned time; what comes after the last block's end is part of it.
fn blocks(recording: &Recording, block_s: f64) -> Vec<Block> {
    let place = |record: &Record| ((record.planned_us as f64 / 1e6 / block_s) as usize).min(BLOCKS - 1);
    let mut rest = recording.records.as_slice();
    let mut blocks = Vec::new();
    for number in 0..BLOCKS {
        let (own, others) = rest.split_at(rest.partition_point(|record| place(record) <= number));
        rest = others;
        let started_s = number as f64 * block_s;
        let start_us = (started_s * 1e6) as u64;
        let rebased = |record: &Record| {
            let since = |at: u64| at.saturating_sub(start_us);
            Record {
                planned_us: since(record.planned_us),
                sent_us: record.sent_us.map(since),
                done_us: record.done_us.map(since),
                ..*record
            }
        };
        let records: Vec<Record> = own.iter().map(rebased).collect();
        let ended_us = |time: fn(&Record) -> Option<u64>| records.iter().filter_map(time).max();
        let sending = ended_us(|record| record.sent_us).unwrap_or_default();
        let ended = ended_us(|record| record.done_us).unwrap_or_default().max(sending);
        // A simulation that was broken off has whole blocks up to the one in which it was.
        let is_last_of_partial = recording.partial && rest.is_empty();
        let partial = is_last_of_partial || records.iter().any(|record| record.outcome.is_none());
        let micros = std::time::Duration::from_micros;
        let recording = Recording { sending_ended: micros(sending), ended: micros(ended), partial, records };
        blocks.push(Block { started_s, recording, valid: true });
        if is_last_of_partial {
            break;
        }
    }
    blocks
}
