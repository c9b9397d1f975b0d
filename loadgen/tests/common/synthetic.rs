//! Simulated comparisons: queues are left out, stragglers are drawn, and a seed replays all of it.

use std::collections::BTreeMap;
use std::time::Duration;

use parapet_loadgen::compare::{Block, Comparison, FaultMark, Measured, Redundancy, Settings};
use parapet_loadgen::payload::WireEncoding;
use parapet_loadgen::report::{self, RunReport};
use parapet_loadgen::run::{Record, Recording, RequestOutcome};
use parapet_loadgen::schedule::{Arrivals, Length, Schedule};
use parapet_loadgen::target::{Answer, Failure, Provenance};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Factor on the usual latency.
    pub(crate) slower: f64,
    /// Latency at which a straggler's answer comes from elsewhere, in milliseconds.
    pub(crate) rescue_ms: Option<f64>,
    /// True if that answer is reconstructed, and so wrong more often.
    pub(crate) coded: bool,
    /// Redundant requests for each request.
    pub(crate) extra: f64,
}

pub(crate) const KINDS: [Kind; 4] = [
    Kind {
        name: "spread",
        description: "no redundancy; the same instances all serve the model",
        slower: 1.0,
        rescue_ms: None,
        coded: false,
        extra: 0.0,
    },
    Kind {
        name: "coded",
        description: "groups of 2 with 1 parity query",
        slower: 1.06,
        rescue_ms: Some(11.0),
        coded: true,
        extra: 0.5,
    },
    Kind {
        name: "hedged",
        description: "a copy after the 95th percentile",
        slower: 1.02,
        rescue_ms: Some(19.0),
        coded: false,
        extra: 0.05,
    },
    Kind {
        name: "replicated",
        description: "two copies of every request",
        slower: 1.35,
        rescue_ms: Some(9.0),
        coded: false,
        extra: 1.0,
    },
];

/// Size and seed of a made-up comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) rate: f64,
    pub(crate) blocks: usize,
    pub(crate) block_s: f64,
    pub(crate) straggler_probability: f64,
    pub(crate) seed: u64,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            rate: 270.0,
            blocks: 10,
            block_s: 8.0,
            straggler_probability: 0.01,
            seed: 1,
        }
    }
}

pub(crate) fn settings(size: Size) -> Settings {
    Settings {
        model: "digits".to_owned(),
        seed: size.seed,
        arrivals: Arrivals::Poisson,
        rate: size.rate,
        blocks: size.blocks,
        block_s: size.block_s,
        timeout_ms: 1000,
        encoding: WireEncoding::Binary,
        deadline_ms: None,
        images: "t10k-images-idx3-ubyte.gz".to_owned(),
        labels: Some("t10k-labels-idx1-ubyte.gz".to_owned()),
        notes: BTreeMap::from([(
            "figures".to_owned(),
            "made up, to show the report".to_owned(),
        )]),
    }
}

pub(crate) fn comparison(kinds: &[Kind], size: Size) -> Comparison {
    let strategies = kinds
        .iter()
        .enumerate()
        .map(|(place, kind)| measured(kind, place, kinds.len(), size));
    let length = kinds.len() as f64 * size.block_s;
    let fault = |place: usize| FaultMark {
        at_s: 2.0 * length + place as f64 * size.block_s + 2.0,
        until_s: Some(2.0 * length + place as f64 * size.block_s + 3.5),
        what: "stopped".to_owned(),
        instance: "model-2".to_owned(),
        strategy: Some(kinds[place].name.to_owned()),
    };
    Comparison {
        settings: settings(size),
        strategies: strategies.collect(),
        faults: (0..kinds.len()).map(fault).collect(),
    }
}

/// A block of the second strategy as a run of its own.
pub(crate) fn run_of(measured: &Comparison) -> (RunReport, &Recording) {
    let made = &measured.settings;
    let settings = report::Settings {
        target: "http://127.0.0.1:8000".to_owned(),
        model: made.model.clone(),
        seed: made.seed,
        arrivals: Some(made.arrivals),
        trace: None,
        rate: made.rate,
        timeout_ms: made.timeout_ms,
        encoding: made.encoding,
        allow_approximate: None,
        deadline_ms: None,
        images: made.images.clone(),
        labels: made.labels.clone(),
    };
    let recording = &measured.strategies[1].blocks[2].recording;
    (report::summarise(settings, recording), recording)
}

fn measured(kind: &Kind, place: usize, strategies: usize, size: Size) -> Measured {
    let block = |round: usize| {
        let started_s = (round * strategies + place) as f64 * size.block_s;
        // Strategies share the schedule; what happens to requests is each one's own.
        let seed = size.seed * 1000 + round as u64;
        let mut random = ChaCha12Rng::seed_from_u64(seed * 100 + place as u64);
        let length = Length::Duration(Duration::from_secs_f64(size.block_s));
        let schedule = Schedule::plan(Arrivals::Poisson, size.rate, length, seed).unwrap();
        let stopped = |planned: Duration| round == 2 && (2.0..3.5).contains(&planned.as_secs_f64());
        let record = |number: usize| {
            let planned = Duration::from_micros(schedule.planned_us()[number]);
            record(
                kind,
                planned,
                stopped(planned),
                size.straggler_probability,
                &mut random,
            )
        };
        let records: Vec<Record> = (0..schedule.len()).map(record).collect();
        let ended = Duration::from_secs_f64(size.block_s);
        let recording = Recording {
            records,
            sending_ended: ended,
            ended,
            partial: false,
        };
        Block {
            started_s,
            recording,
            valid: true,
            stalls: None,
        }
    };
    let blocks: Vec<Block> = (0..size.blocks).map(block).collect();
    let requests: usize = blocks
        .iter()
        .map(|block| block.recording.records.len())
        .sum();
    let reconstructed = blocks.iter().flat_map(|block| &block.recording.records);
    let won = reconstructed.filter(|record| {
        record
            .answer()
            .is_some_and(|answer| answer.provenance == Provenance::Reconstructed)
    });
    let (issued, won) = ((requests as f64 * kind.extra) as u64, won.count() as u64);
    let redundancy = Redundancy {
        issued,
        won,
        wasted: issued.saturating_sub(won),
        unrecoverable: if kind.coded { 7 } else { 0 },
        groups: if kind.coded { issued } else { 0 },
        upstream_requests: requests as u64 + issued,
        ..Redundancy::default()
    };
    Measured {
        name: kind.name.to_owned(),
        description: kind.description.to_owned(),
        instances: Some(6),
        blocks,
        repeated_blocks: 0,
        stalled_repeats: 0,
        redundancy: Some(redundancy),
    }
}

fn record(
    kind: &Kind,
    planned: Duration,
    stopped: bool,
    straggles: f64,
    random: &mut impl Rng,
) -> Record {
    let mut unit = || random.random_range(1e-9..1.0_f64);
    let mut time_ms = kind.slower * (3.0 - 1.5 * unit().ln());
    let slow = unit() < straggles || (stopped && unit() < 0.25);
    if slow {
        time_ms += if stopped {
            400.0 * unit()
        } else {
            25.0 - 12.0 * unit().ln()
        };
    }
    let rescued = kind
        .rescue_ms
        .map(|at| at - 1.5 * unit().ln())
        .filter(|at| *at < time_ms);
    time_ms = rescued.unwrap_or(time_ms);
    let provenance = if rescued.is_some() && kind.coded {
        Provenance::Reconstructed
    } else {
        Provenance::Exact
    };
    let right = unit()
        < if provenance == Provenance::Reconstructed {
            0.86
        } else {
            0.973
        };
    let failed = unit() < 0.000_02;
    let planned_us = planned.as_micros() as u64;
    let done_us = planned_us + (time_ms * 1e3) as u64;
    let answer = Answer {
        provenance,
        confidence: Some(0.9),
        class: Some(if right { 3 } else { 5 }),
    };
    let outcome = if failed {
        RequestOutcome::Failed(Failure::Status(503))
    } else {
        RequestOutcome::Answered(answer)
    };
    Record {
        planned_us,
        sent_us: Some(planned_us + 100),
        done_us: Some(done_us),
        outcome: Some(outcome),
        row: 0,
        label: Some(3),
    }
}
