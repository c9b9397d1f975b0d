//! From simulations to the comparison that real runs make, too.

use std::collections::BTreeMap;

use super::{Setup, Simulated};
use crate::compare::{Block, Comparison, FaultMark, Measured, Settings};
use crate::experiment::{Event, ResolvedArm, What};
use crate::payload::WireEncoding;
use crate::run::{Record, Recording};

/// Queries of all strategies together whose records may be kept: some 100 bytes each.
pub const MAX_RECORDS: u64 = 2_000_000;

/// The simulations of one [`Setup`], as a comparison. Those without records are left out.
pub fn comparison(setup: &Setup, simulated: &[(ResolvedArm, Simulated)]) -> Comparison {
    let block_s = setup.block_s();
    let notes = [
        (
            "simulated",
            "virtual time; see the simulation's settings".to_owned(),
        ),
        ("instances", setup.instances.to_string()),
        ("redundant instances", setup.redundant_instances.to_string()),
    ];
    let notes: BTreeMap<String, String> = notes
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    let settings = Settings {
        model: "simulated".to_owned(),
        seed: setup.seed,
        arrivals: setup.arrivals,
        rate: setup.rate,
        blocks: setup.blocks,
        block_s,
        timeout_ms: setup.deadline_ms.ceil() as u64,
        encoding: WireEncoding::Binary,
        deadline_ms: Some(setup.deadline_ms.ceil() as u64),
        images: "none".to_owned(),
        labels: None,
        notes,
    };
    let measured = |(spec, simulated): &(ResolvedArm, Simulated)| {
        Some(Measured {
            name: spec.label.clone(),
            description: description(setup, spec),
            instances: Some(simulated.pools.iter().map(|pool| pool.instances).sum()),
            blocks: blocks(simulated.recording.as_ref()?, setup.blocks, block_s),
            repeated_blocks: 0,
            stalled_repeats: 0,
            redundancy: Some(simulated.redundancy),
        })
    };
    let strategies = simulated.iter().filter_map(measured).collect();
    Comparison {
        settings,
        strategies,
        faults: setup
            .events
            .iter()
            .filter(|event| event.after_s < block_s)
            .map(|event| mark(event, block_s))
            .collect(),
    }
}

fn description(setup: &Setup, spec: &ResolvedArm) -> String {
    let own = setup
        .strategies
        .iter()
        .find(|strategy| strategy.name == spec.label);
    let own = own
        .map(|strategy| strategy.description.as_str())
        .filter(|text| !text.is_empty());
    own.unwrap_or(spec.description()).to_owned()
}

fn mark(event: &Event, block_s: f64) -> FaultMark {
    let start_s = event.block as f64 * block_s;
    let at_s = start_s + event.after_s;
    let until_s = event.for_s.map_or(start_s + block_s, |for_s| {
        (at_s + for_s).min(start_s + block_s)
    });
    let what = match event.what {
        What::Freeze => "stopped",
        What::Kill => "killed",
    };
    let instance = format!("instance {}", event.instance);
    FaultMark {
        at_s,
        until_s: Some(until_s),
        what: what.to_owned(),
        instance,
        strategy: None,
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
        let ended = ended_us(|record| record.done_us)
            .unwrap_or_default()
            .max(sending);
        // A simulation that was broken off has whole blocks up to the one in which it was.
        let is_last_of_partial = recording.partial && rest.is_empty();
        let partial = is_last_of_partial || records.iter().any(|record| record.outcome.is_none());
        let micros = std::time::Duration::from_micros;
        let recording = Recording {
            sending_ended: micros(sending),
            ended: micros(ended),
            partial,
            records,
        };
        blocks.push(Block {
            started_s,
            recording,
            valid: true,
            stalls: None,
        });
        if is_last_of_partial {
            break;
        }
    }
    blocks
}
