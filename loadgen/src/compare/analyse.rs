//! From measurements to figures.
//!
//! Intervals are those of the block bootstrap: requests that queue behind one another are slow
//! together, so they are no independent samples and intervals drawn from them alone are too narrow.
//! Whole rounds are drawn with replacement instead (blocks that do not overlap; Carlstein, *Annals
//! of Statistics* 14, 1986), the same ones for every strategy because they shared a schedule, and
//! the figures are made anew from the pooled samples. An interval is the middle 95 % of what comes
//! out (Efron and Tibshirani, *An Introduction to the Bootstrap*, 13.3).

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::pool::{Pool, rank};
use super::{
    Block, Bootstrap, CONFIDENCE, CompareReport, Comparison, Confidence, Cost, Estimate, Interval,
    Measured, SCHEMA, StrategyReport, samples_needed, series, warning,
};
use crate::report::{Summary, Tally, charged_us};
use crate::run::{Record, RequestOutcome};
use crate::target::Failure;

type Percentiles = [f64; Summary::PERCENTILES.len()];

/// The figures of a comparison; the others' gap and median are put in relation to the strategy
/// named `baseline`. Only rounds count which every strategy finished.
pub fn analyse(
    comparison: &Comparison,
    baseline: &str,
    bootstrap: Bootstrap,
) -> anyhow::Result<CompareReport> {
    let (settings, strategies) = (&comparison.settings, &comparison.strategies);
    let base = check_names(strategies, baseline)?;
    let rounds = finished_rounds(strategies);
    ensure!(
        !rounds.is_empty(),
        "no round was finished by all strategies, so there is nothing to compare; run longer, or \
         in shorter blocks"
    );
    let timeout_us = settings.timeout_ms.saturating_mul(1000);
    let draws = draws(rounds.len(), bootstrap);
    let mut counted: Vec<Counted<'_>> = Vec::new();
    for measured in strategies {
        let strategy = Counted::new(measured, &rounds, &draws, timeout_us);
        counted.push(strategy.with_context(|| {
            let name = &measured.name;
            format!("strategy {name:?} was sent no request; raise the rate or the length of blocks")
        })?);
    }
    let bin_s = series::bin_s(comparison);
    let reports = counted.iter().map(|strategy| strategy.report(&counted[base], timeout_us, bin_s));
    let reports: Vec<StrategyReport> = reports.collect();
    let mut blocks = strategies.iter().flat_map(|measured| &measured.blocks);
    let mut report = CompareReport {
        schema: SCHEMA.to_owned(),
        valid: reports.iter().all(|strategy| strategy.invalid_blocks == 0),
        partial: rounds.len() < settings.blocks || blocks.any(|block| block.recording.partial),
        settings: settings.clone(),
        baseline: baseline.to_owned(),
        rounds: rounds.len(),
        bootstrap,
        warnings: Vec::new(),
        strategies: reports,
        faults: comparison.faults.clone(),
    };
    report.warnings = warning::warnings(&report);
    Ok(report)
}

fn check_names(strategies: &[Measured], baseline: &str) -> anyhow::Result<usize> {
    let names: Vec<&str> = strategies.iter().map(|measured| measured.name.as_str()).collect();
    for (place, name) in names.iter().enumerate() {
        ensure!(
            !names[..place].contains(name),
            "two strategies are named {name:?}; give each its own name"
        );
    }
    names.iter().position(|name| *name == baseline).with_context(|| {
        let names = names.join(", ");
        format!("baseline {baseline:?} is not among the strategies; choose one of {names}")
    })
}

fn finished_rounds(strategies: &[Measured]) -> Vec<usize> {
    let counts = strategies.iter().map(|measured| measured.blocks.len());
    let finished = |round: &usize| {
        let mut blocks = strategies.iter().map(|measured| &measured.blocks[*round]);
        blocks.all(|block| !block.recording.partial)
    };
    (0..counts.min().unwrap_or(0)).filter(finished).collect()
}

fn draws(rounds: usize, bootstrap: Bootstrap) -> Vec<Vec<u32>> {
    let resamples = if rounds < 2 { 0 } else { bootstrap.resamples };
    let mut random = ChaCha12Rng::seed_from_u64(bootstrap.seed);
    let mut draw = || {
        let mut times = vec![0; rounds];
        (0..rounds).for_each(|_| times[random.random_range(0..rounds)] += 1);
        times
    };
    (0..resamples).map(|_| draw()).collect()
}

fn middle(figures: impl Iterator<Item = Option<f64>>) -> Option<Interval> {
    let mut figures = figures.collect::<Option<Vec<f64>>>()?;
    figures.retain(|figure| !figure.is_nan());
    figures.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let at = |share| {
        let place = usize::try_from(rank(figures.len() as u64, share) - 1).ok()?;
        let figure = figures.get(place).copied();
        figure.filter(|figure| figure.is_finite())
    };
    Some(Interval { low: at(tail)?, high: at(1.0 - tail)? })
}

/// A strategy with its latencies in the rounds that count.
struct Counted<'a> {
    measured: &'a Measured,
    blocks: Vec<&'a Block>,
    pool: Pool,
    percentiles: Percentiles,
    /// Percentiles of each draw; `None` if the rounds drawn were empty.
    drawn: Vec<Option<Percentiles>>,
}

fn percentiles(quantile: impl Fn(f64) -> Option<f64>) -> Option<Percentiles> {
    let mut found = Percentiles::default();
    for (place, (_, share)) in found.iter_mut().zip(Summary::PERCENTILES) {
        *place = quantile(share)?;
    }
    Some(found)
}

fn gap([p50, .., p99_9]: &Percentiles) -> f64 {
    p99_9 - p50
}

impl<'a> Counted<'a> {
    fn new(
        measured: &'a Measured,
        rounds: &[usize],
        draws: &[Vec<u32>],
        timeout_us: u64,
    ) -> Option<Self> {
        let blocks: Vec<&Block> = rounds.iter().map(|round| &measured.blocks[*round]).collect();
        let charged = blocks.iter().map(|block| {
            let records = block.recording.records.iter();
            let charged = records.map(|record| charged_us(record, timeout_us, &block.recording));
            charged.flatten().collect()
        });
        let pool = Pool::new(charged.collect::<Vec<Vec<u64>>>().iter().map(Vec::as_slice));
        let draw = |times: &Vec<u32>| percentiles(|q| pool.weighted_quantile_ms(q, times));
        Some(Self {
            measured,
            blocks,
            percentiles: percentiles(|quantile| pool.quantile_ms(quantile))?,
            drawn: draws.iter().map(draw).collect(),
            pool,
        })
    }

    fn report(&self, base: &Self, timeout_us: u64, bin_s: f64) -> StrategyReport {
        let mut tally = Tally::default();
        let records = self.blocks.iter().map(|block| &block.recording.records);
        records.flatten().for_each(|record| tally.add(record, None));
        let measured = self.measured;
        let max = self.pool.quantile_ms(1.0).unwrap_or_default();
        let (count, mean) = (self.pool.len() as u64, self.pool.mean_ms());
        let recordings = self.blocks.iter().map(|block| (block.started_s, &block.recording));
        StrategyReport {
            name: measured.name.clone(),
            description: measured.description.clone(),
            instances: measured.instances,
            invalid_blocks: self.blocks.iter().filter(|block| !block.valid).count(),
            repeated_blocks: measured.repeated_blocks,
            counts: tally.counts,
            provenance: tally.provenance(),
            accuracy: tally.accuracy(),
            errors: tally.errors,
            latency: Summary::new(count, mean, self.percentiles, max),
            confidence: self.confidence(),
            gap_ms: Estimate {
                value: gap(&self.percentiles),
                interval: middle(self.drawn.iter().map(|drawn| drawn.as_ref().map(gap))),
            },
            gap_ratio: self.ratio(base, |base, this| gap(base) / gap(this)),
            p50_ratio: self.ratio(base, |[base, ..], [this, ..]| this / base),
            cost: cost(measured),
            spectrum: series::spectrum(&self.pool),
            series: series::series(recordings, timeout_us, bin_s),
        }
    }

    fn confidence(&self) -> BTreeMap<String, Confidence> {
        let of_percentile = |(place, (name, quantile)): (usize, (&str, f64))| {
            let confidence = Confidence {
                bootstrap: middle(self.drawn.iter().map(|drawn| Some(drawn.as_ref()?[place]))),
                needs_samples: samples_needed(quantile).saturating_sub(self.pool.len() as u64),
            };
            (name.to_owned(), confidence)
        };
        Summary::PERCENTILES.into_iter().enumerate().map(of_percentile).collect()
    }

    /// `figure` of the baseline's percentiles and of these; `None` where it is no number.
    fn ratio(
        &self,
        base: &Self,
        figure: impl Fn(&Percentiles, &Percentiles) -> f64,
    ) -> Option<Estimate> {
        let value = figure(&base.percentiles, &self.percentiles);
        let drawn = base.drawn.iter().zip(&self.drawn);
        let figures = drawn.map(|(base, this)| Some(figure(base.as_ref()?, this.as_ref()?)));
        let interval = middle(figures);
        value.is_finite().then_some(Estimate { value, interval })
    }
}

fn cost(measured: &Measured) -> Cost {
    use Failure::{Connect, Status};
    use RequestOutcome::Failed;
    let accepted = |record: &&Record| {
        let refused = matches!(record.outcome, Some(Failed(Connect | Status(429 | 503))));
        record.sent_us.is_some() && !refused
    };
    let records = measured.blocks.iter().flat_map(|block| &block.recording.records);
    let accepted = records.filter(accepted).count();
    let share = |part: u64| (accepted > 0).then(|| part as f64 / accepted as f64);
    let redundancy = measured.redundancy;
    Cost {
        accepted,
        extra_work: redundancy.and_then(|counts| share(counts.issued)),
        wasted_work: redundancy.and_then(|counts| share(counts.wasted)),
        redundancy,
    }
}
