//! From measurements to figures.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};

use super::pool::Pool;
use super::{
    Block, Bootstrap, CompareReport, Comparison, Confidence, Cost, Estimate, Interval, Measured,
    OrderInterval, Redundancy, SCHEMA, StrategyReport, distribution, resample, samples_needed,
    warning,
};
use crate::report::{Summary, accuracy, by_provenance, charged_us, count, errors};
use crate::run::{Record, RequestOutcome};
use crate::target::Failure;

/// The percentiles that are reported, by the names of [`Summary`]'s fields.
pub(crate) const PERCENTILES: [(&str, f64); 5] = [
    ("p50", 0.5),
    ("p90", 0.9),
    ("p99", 0.99),
    ("p99_5", 0.995),
    ("p99_9", 0.999),
];
const MEDIAN: usize = 0;
const TAIL: usize = 4;

/// The figures of a comparison; the others' gap and median are put in relation to the strategy
/// named `baseline`. Only rounds count which every strategy finished.
pub fn analyse(
    comparison: &Comparison,
    baseline: &str,
    bootstrap: Bootstrap,
) -> anyhow::Result<CompareReport> {
    let Comparison {
        settings,
        strategies,
        faults,
    } = comparison;
    let base = check_names(strategies, baseline)?;
    let rounds = finished_rounds(strategies);
    ensure!(
        !rounds.is_empty(),
        "no round was finished by all strategies, so there is nothing to compare; run longer, or \
         in shorter blocks"
    );
    let timeout_us = settings.timeout_ms.saturating_mul(1000);
    let mut counted: Vec<Counted<'_>> = Vec::new();
    for measured in strategies {
        let strategy = Counted::new(measured, &rounds, timeout_us).with_context(|| {
            let name = &measured.name;
            format!("strategy {name:?} was sent no request; raise the rate or the length of blocks")
        })?;
        counted.push(strategy);
    }
    let draws = resample::draws(rounds.len(), bootstrap);
    let drawn: Vec<Vec<Drawn>> = counted
        .iter()
        .map(|strategy| strategy.draw(&draws))
        .collect();
    let bin_s = distribution::bin_s(comparison);
    let reports = counted.iter().zip(&drawn).map(|(strategy, draws)| {
        let relation = Relation {
            base: &counted[base],
            base_drawn: &drawn[base],
            drawn: draws,
        };
        strategy.report(&relation, timeout_us, bin_s)
    });
    let mut report = CompareReport {
        schema: SCHEMA.to_owned(),
        valid: counted
            .iter()
            .all(|strategy| strategy.invalid_blocks() == 0),
        partial: rounds.len() < settings.blocks
            || strategies
                .iter()
                .flat_map(|measured| &measured.blocks)
                .any(|block| block.recording.partial),
        settings: settings.clone(),
        baseline: baseline.to_owned(),
        rounds: rounds.len(),
        bootstrap,
        warnings: Vec::new(),
        strategies: reports.collect(),
        faults: faults.clone(),
    };
    report.warnings = warning::warnings(&report);
    Ok(report)
}

/// Checks that names differ, and returns the place of the baseline.
fn check_names(strategies: &[Measured], baseline: &str) -> anyhow::Result<usize> {
    let names: Vec<&str> = strategies
        .iter()
        .map(|measured| measured.name.as_str())
        .collect();
    for (place, name) in names.iter().enumerate() {
        ensure!(
            !names[..place].contains(name),
            "two strategies are named {name:?}; give each its own name"
        );
    }
    let base = names.iter().position(|name| *name == baseline);
    base.with_context(|| {
        let names = names.join(", ");
        format!("baseline {baseline:?} is not among the strategies; choose one of {names}")
    })
}

/// Indices of the rounds that every strategy finished.
fn finished_rounds(strategies: &[Measured]) -> Vec<usize> {
    let common = strategies
        .iter()
        .map(|measured| measured.blocks.len())
        .min()
        .unwrap_or(0);
    let finished = |round: &usize| {
        strategies
            .iter()
            .all(|measured| !measured.blocks[*round].recording.partial)
    };
    (0..common).filter(finished).collect()
}

/// A strategy with its latencies in the rounds that count.
struct Counted<'a> {
    measured: &'a Measured,
    blocks: Vec<&'a Block>,
    pool: Pool,
    latency: Summary,
}

/// A draw's percentiles, in the order of [`PERCENTILES`]; `None` if the rounds drawn were empty.
type Drawn = Option<[f64; PERCENTILES.len()]>;

/// Relation of a strategy to the baseline.
struct Relation<'a> {
    base: &'a Counted<'a>,
    base_drawn: &'a [Drawn],
    drawn: &'a [Drawn],
}

fn gap(percentiles: &[f64; PERCENTILES.len()]) -> f64 {
    percentiles[TAIL] - percentiles[MEDIAN]
}

impl<'a> Counted<'a> {
    fn new(measured: &'a Measured, rounds: &[usize], timeout_us: u64) -> Option<Self> {
        let blocks: Vec<&Block> = rounds
            .iter()
            .map(|round| &measured.blocks[*round])
            .collect();
        let charged: Vec<Vec<u64>> = blocks
            .iter()
            .map(|block| {
                let recording = &block.recording;
                let records = recording.records.iter();
                records
                    .filter_map(|record| charged_us(record, timeout_us, recording))
                    .collect()
            })
            .collect();
        let pool = Pool::new(charged.iter().map(Vec::as_slice));
        let [p50, p90, p99, p99_5, p99_9] = percentiles(|quantile| pool.quantile_ms(quantile))?;
        let (count, mean, max) = (pool.len() as u64, pool.mean_ms()?, pool.quantile_ms(1.0)?);
        let latency = Summary {
            count,
            mean,
            p50,
            p90,
            p99,
            p99_5,
            p99_9,
            max,
        };
        Some(Self {
            measured,
            blocks,
            pool,
            latency,
        })
    }

    fn draw(&self, draws: &[Vec<u32>]) -> Vec<Drawn> {
        let draw = |times: &Vec<u32>| percentiles(|q| self.pool.weighted_quantile_ms(q, times));
        draws.iter().map(draw).collect()
    }

    fn invalid_blocks(&self) -> usize {
        self.blocks.iter().filter(|block| !block.valid).count()
    }

    fn percentiles(&self) -> [f64; PERCENTILES.len()] {
        let Summary {
            p50,
            p90,
            p99,
            p99_5,
            p99_9,
            ..
        } = self.latency;
        [p50, p90, p99, p99_5, p99_9]
    }

    fn records(&self) -> impl Iterator<Item = &Record> {
        self.blocks
            .iter()
            .flat_map(|block| &block.recording.records)
    }

    fn report(&self, relation: &Relation<'_>, timeout_us: u64, bin_s: f64) -> StrategyReport {
        let counts = count(self.records());
        let Measured {
            name,
            description,
            instances,
            ..
        } = self.measured;
        StrategyReport {
            name: name.clone(),
            description: description.clone(),
            instances: *instances,
            invalid_blocks: self.invalid_blocks(),
            repeated_blocks: self.measured.repeated_blocks,
            stalled_repeats: self.measured.stalled_repeats,
            stalled_blocks: self
                .blocks
                .iter()
                .filter(|block| block.is_disturbed())
                .count(),
            counts,
            errors: errors(self.records()),
            latency: self.latency,
            confidence: self.confidence(relation.drawn),
            gap_ms: Estimate {
                value: gap(&self.percentiles()),
                interval: resample::middle(
                    relation.drawn.iter().map(|drawn| drawn.as_ref().map(gap)),
                ),
            },
            gap_ratio: relation.ratio(self, |base, this| gap(base) / gap(this)),
            p50_ratio: relation.ratio(self, |base, this| this[MEDIAN] / base[MEDIAN]),
            provenance: by_provenance(self.records(), counts.answered),
            accuracy: accuracy(self.records()),
            cost: cost(self.measured),
            spectrum: distribution::spectrum(&self.pool),
            series: distribution::series(
                self.blocks
                    .iter()
                    .map(|block| (block.started_s, &block.recording)),
                timeout_us,
                bin_s,
            ),
        }
    }

    fn confidence(&self, drawn: &[Drawn]) -> BTreeMap<String, Confidence> {
        let samples = self.pool.len() as u64;
        let confidence = |(place, (name, quantile)): (usize, (&str, f64))| {
            let binomial = OrderInterval::of(samples, quantile).and_then(|ranks| {
                let (low, high) = (
                    self.pool.ranked_ms(ranks.low)?,
                    self.pool.ranked_ms(ranks.high)?,
                );
                Some(Interval { low, high })
            });
            let drawn = drawn
                .iter()
                .map(|drawn| drawn.map(|percentiles| percentiles[place]));
            let confidence = Confidence {
                binomial,
                bootstrap: resample::middle(drawn),
                quotable: binomial.is_some(),
                needs_samples: samples_needed(quantile).saturating_sub(samples),
            };
            (name.to_owned(), confidence)
        };
        PERCENTILES
            .into_iter()
            .enumerate()
            .map(confidence)
            .collect()
    }
}

impl Relation<'_> {
    /// `figure` of the baseline's percentiles and of those of `this`; `None` where it is no number.
    fn ratio(
        &self,
        this: &Counted<'_>,
        figure: impl Fn(&[f64; PERCENTILES.len()], &[f64; PERCENTILES.len()]) -> f64,
    ) -> Option<Estimate> {
        let value = figure(&self.base.percentiles(), &this.percentiles());
        let drawn = self.base_drawn.iter().zip(self.drawn);
        let drawn = drawn.map(|(base, this)| Some(figure(base.as_ref()?, this.as_ref()?)));
        value.is_finite().then(|| Estimate {
            value,
            interval: resample::middle(drawn),
        })
    }
}

fn percentiles(quantile: impl Fn(f64) -> Option<f64>) -> Drawn {
    let mut found = [0.0; PERCENTILES.len()];
    for (place, (_, share)) in found.iter_mut().zip(PERCENTILES) {
        *place = quantile(share)?;
    }
    Some(found)
}

fn cost(measured: &Measured) -> Cost {
    let refused = |record: &Record| {
        use Failure::{Connect, Status};
        matches!(
            record.outcome,
            Some(RequestOutcome::Failed(Connect | Status(429 | 503)))
        )
    };
    let records = measured
        .blocks
        .iter()
        .flat_map(|block| &block.recording.records);
    let accepted = records
        .filter(|record| record.sent_us.is_some() && !refused(record))
        .count();
    let redundancy = measured.redundancy;
    let share = |part: u64, whole: f64| (whole > 0.0).then(|| part as f64 / whole);
    let counted = |part: fn(&Redundancy) -> u64, of: f64| share(part(redundancy.as_ref()?), of);
    Cost {
        accepted,
        extra_work: counted(|counts| counts.issued, accepted as f64),
        wasted_work: counted(|counts| counts.wasted, accepted as f64),
        unrecoverable: redundancy
            .and_then(|counts| share(counts.unrecoverable, counts.groups as f64)),
        redundancy,
    }
}
