//! Simulated comparisons: queues are left out, stragglers are drawn, and a seed replays all of it.

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
    kind("spread", 1.0, None, 0.0),
    Kind { coded: true, ..kind("coded", 1.06, Some(11.0), 0.5) },
    kind("hedged", 1.02, Some(19.0), 0.05),
    kind("replicated", 1.35, Some(9.0), 1.0),
];

const fn kind(name: &'static str, slower: f64, rescue_ms: Option<f64>, extra: f64) -> Kind {
    Kind { name, description: "made up", slower, rescue_ms, coded: false, extra }
}

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
        Self { rate: 270.0, blocks: 10, block_s: 8.0, straggler_probability: 0.01, seed: 1 }
    }
}

impl Size {
    pub(crate) fn new(blocks: usize, block_s: f64) -> Self {
        Self { blocks, block_s, ..Self::default() }
    }
}

fn settings(size: Size) -> Settings {
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
        notes: [("figures".to_owned(), "made up".to_owned())].into(),
    }
}

pub(crate) fn comparison(kinds: &[Kind], size: Size) -> Comparison {
    let count = kinds.len();
    let strategies = kinds.iter().enumerate();
    let strategies = strategies.map(|(place, kind)| measured(kind, place, count, size));
    let fault = |(place, kind): (usize, &Kind)| {
        let start_s = (2 * count + place) as f64 * size.block_s;
        FaultMark {
            at_s: start_s + 2.0,
            until_s: Some(start_s + 3.5),
            what: "stopped".to_owned(),
            instance: "model-2".to_owned(),
            strategy: Some(kind.name.to_owned()),
        }
    };
    Comparison {
        settings: settings(size),
        strategies: strategies.collect(),
        faults: kinds.iter().enumerate().map(fault).collect(),
    }
}

/// Settings of a run as those of a comparison.
pub(crate) fn run_settings(made: &Settings) -> report::Settings {
    let mut settings = serde_json::to_value(made).unwrap();
    settings["target"] = "http://127.0.0.1:8000".into();
    serde_json::from_value(settings).unwrap()
}

/// A block of the second strategy as a run of its own.
pub(crate) fn run_of(measured: &Comparison) -> (RunReport, &Recording) {
    let settings = run_settings(&measured.settings);
    let recording = &measured.strategies[1].blocks[2].recording;
    (report::summarise(settings, recording), recording)
}

fn measured(kind: &Kind, place: usize, strategies: usize, size: Size) -> Measured {
    let ended = Duration::from_secs_f64(size.block_s);
    let block = |round: usize| {
        // Strategies share the schedule; what happens to requests is each one's own.
        let seed = size.seed * 1000 + round as u64;
        let mut random = ChaCha12Rng::seed_from_u64(seed * 100 + place as u64);
        let length = Length::Duration(ended);
        let schedule = Schedule::plan(Arrivals::Poisson, size.rate, length, seed).unwrap();
        let record = |planned_us: &u64| {
            let stopped = round == 2 && (2_000_000..3_500_000).contains(planned_us);
            record(kind, *planned_us, stopped, size.straggler_probability, &mut random)
        };
        Block {
            started_s: (round * strategies + place) as f64 * size.block_s,
            recording: Recording {
                records: schedule.planned_us.iter().map(record).collect(),
                sending_ended: ended,
                ended,
                partial: false,
            },
            valid: true,
        }
    };
    let blocks: Vec<Block> = (0..size.blocks).map(block).collect();
    let records = || blocks.iter().flat_map(|block| &block.recording.records);
    let answers = records().filter_map(Record::answer);
    let won = answers.filter(|answer| answer.provenance == Provenance::Reconstructed);
    let (requests, won) = (records().count() as u64, won.count() as u64);
    let issued = (requests as f64 * kind.extra) as u64;
    let redundancy = Redundancy {
        issued,
        won,
        wasted: issued.saturating_sub(won),
        unrecoverable: if kind.coded { 7 } else { 0 },
        groups: if kind.coded { issued } else { 0 },
        upstream_requests: requests + issued,
        ..Redundancy::default()
    };
    Measured {
        name: kind.name.to_owned(),
        description: kind.description.to_owned(),
        instances: Some(6),
        blocks,
        redundancy: Some(redundancy),
        ..Measured::default()
    }
}

fn record(
    kind: &Kind,
    planned_us: u64,
    stopped: bool,
    straggles: f64,
    random: &mut impl Rng,
) -> Record {
    let mut unit = || random.random_range(1e-9..1.0_f64);
    let mut time_ms = kind.slower * (3.0 - 1.5 * unit().ln());
    let slow = unit() < straggles || (stopped && unit() < 0.25);
    if slow {
        time_ms += match stopped {
            true => 400.0 * unit(),
            false => 25.0 - 12.0 * unit().ln(),
        };
    }
    let rescued = kind.rescue_ms.map(|at| at - 1.5 * unit().ln());
    let rescued = rescued.filter(|at| *at < time_ms);
    let (provenance, accuracy) = match rescued.is_some() && kind.coded {
        true => (Provenance::Reconstructed, 0.86),
        false => (Provenance::Exact, 0.973),
    };
    let (right, failed) = (unit() < accuracy, unit() < 0.000_02);
    let answer =
        Answer { provenance, confidence: Some(0.9), class: Some(if right { 3 } else { 5 }) };
    let outcome = match failed {
        true => RequestOutcome::Failed(Failure::Status(503)),
        false => RequestOutcome::Answered(answer),
    };
    let time_ms = rescued.unwrap_or(time_ms);
    Record {
        planned_us,
        sent_us: Some(planned_us + 100),
        done_us: Some(planned_us + (time_ms * 1e3) as u64),
        outcome: Some(outcome),
        row: 0,
        label: Some(3),
    }
}
