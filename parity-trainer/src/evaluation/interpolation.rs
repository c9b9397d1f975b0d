//! How good interpolation is in its authors' form, where every query is coded and no parity model is needed (ApproxIFER,
//! AAAI 2022, section 4): the deployed model itself answers k + s coded queries, and any k answers give all predictions.

use parapet_decoder::{BerrutDecoder, top_class};
use parapet_encoder::{BerrutEncoder, OutputTransform};
use rand::seq::SliceRandom;
use serde::Serialize;

use super::bootstrap::{Estimate, GroupCounts};
use super::{ByLosses, CHUNK, classes, subsets};
use crate::TrainError;
use crate::data::Samples;
use crate::deployed::DeployedModel;
use crate::network::stream;

/// What is evaluated, and how.
#[derive(Debug, Clone)]
pub struct InterpolationPlan {
    /// Queries in a group.
    pub k: usize,
    /// Coded queries beyond k.
    pub spare: usize,
    /// In which domain outputs are interpolated.
    pub transform: OutputTransform,
    /// Bootstrap resamples for the intervals; 0 for none.
    pub resamples: usize,
    /// Seed of the shuffle into groups and of the resamples.
    pub seed: u64,
}

/// Figures of one code; accuracies are parts of 1, and absent for samples without labels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct InterpolationEvaluation {
    /// Test samples.
    pub samples: usize,
    /// Groups that were made of them; a rest smaller than k is left out.
    pub groups: usize,
    /// A_a: the deployed model's accuracy.
    pub accuracy_deployed: Option<f64>,
    /// For each number of coded outputs that are missing, from 0 to s: the average over all patterns of them.
    pub by_losses: Vec<ByLosses>,
    /// For each coded output, that one missing.
    pub by_worker: Vec<ByWorker>,
}

/// Figures with the output of one coded query missing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ByWorker {
    /// Which, from 0.
    pub worker: usize,
    /// The part of the reconstructions whose class is the label.
    pub accuracy: Option<f64>,
    /// The part of the reconstructions whose class is the deployed model's.
    pub agreement: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    right: usize,
    agreeing: usize,
    all: usize,
}

impl Count {
    fn add(&mut self, right: bool, agreeing: bool) {
        self.right += usize::from(right);
        self.agreeing += usize::from(agreeing);
        self.all += 1;
    }

    fn part(&self, count: usize) -> f64 {
        count as f64 / self.all.max(1) as f64
    }
}

/// Evaluates interpolation on `samples`, each pattern of at most s missing outputs on each group. `progress` hears how many
/// groups are done, of how many.
///
/// # Errors
/// If the code does not fit the model, there are fewer than k samples, or the model fails.
pub fn evaluate_interpolation(
    deployed: &dyn DeployedModel,
    samples: &Samples,
    plan: &InterpolationPlan,
    mut progress: impl FnMut(usize, usize),
) -> Result<InterpolationEvaluation, TrainError> {
    let (k, outputs, sample_len) = (plan.k, deployed.outputs(), samples.sample_len());
    let encoder = BerrutEncoder::new(k, plan.spare, &samples.shape)?;
    let decoder = BerrutDecoder::new(k, plan.spare, plan.transform.clone(), outputs)?;
    let count = samples.values.len() / sample_len.max(1);
    let groups = count / k;
    if groups == 0 {
        return Err(TrainError::TooFewSamples { found: count, k });
    }
    let labels = (samples.labels.len() == count).then_some(samples.labels.as_slice());
    let exact = classes(deployed, samples, &mut |_, _| {})?;
    let workers = encoder.workers();
    let patterns: Vec<Vec<usize>> = (0..=plan.spare).flat_map(|missing| subsets(workers, missing)).collect();
    let mut losses = vec![Count::default(); plan.spare + 1];
    let mut by_worker = vec![Count::default(); workers];
    let mut tally = GroupCounts::new(plan.spare + 1);
    let mut order: Vec<usize> = (0..count).collect();
    order.shuffle(&mut stream(plan.seed, 0));
    let mut out = vec![0.0; outputs];
    for (at, chunk) in order.get(..groups * k).unwrap_or_default().chunks(CHUNK * k).enumerate() {
        let mut coded = vec![0.0; chunk.len() / k * workers * sample_len];
        let mut room = coded.chunks_exact_mut(sample_len);
        for members in chunk.chunks_exact(k) {
            let queries: Vec<&[f32]> = members.iter().map(|&index| samples.sample(index)).collect();
            for (worker, query) in (0..workers).zip(&mut room) {
                encoder.encode(worker, &queries, query)?;
            }
        }
        let answers = deployed.infer(&coded)?;
        for (members, answers) in chunk.chunks_exact(k).zip(answers.chunks_exact(workers * outputs)) {
            tally.begin();
            for pattern in &patterns {
                let there = answers.chunks_exact(outputs).enumerate();
                let there: Vec<Option<&[f32]>> =
                    there.map(|(worker, answer)| (!pattern.contains(&worker)).then_some(answer)).collect();
                for (slot, &index) in members.iter().enumerate() {
                    decoder.decode(&there, slot, &mut out)?;
                    let class = top_class(&out);
                    let label = labels.and_then(|labels| labels.get(index)).map(|&label| usize::from(label));
                    let (right, agreeing) =
                        (label.is_some() && class == label, class == exact.get(index).copied());
                    tally.add(pattern.len(), right, agreeing);
                    let worker = pattern.first().filter(|_| pattern.len() == 1);
                    let counts =
                        [losses.get_mut(pattern.len()), worker.and_then(|&worker| by_worker.get_mut(worker))];
                    counts.into_iter().flatten().for_each(|count| count.add(right, agreeing));
                }
            }
        }
        progress(((at + 1) * CHUNK).min(groups), groups);
    }
    let intervals = tally.intervals(plan.resamples, plan.seed);
    let by_losses = losses.iter().enumerate().map(|(missing, count)| {
        let intervals = intervals.get(missing).copied();
        ByLosses {
            missing,
            accuracy: labels.map(|_| Estimate {
                value: count.part(count.right),
                interval: intervals.map(|(right, _)| right),
            }),
            agreement: Estimate {
                value: count.part(count.agreeing),
                interval: intervals.map(|(_, agreeing)| agreeing),
            },
            reconstructions: count.all,
        }
    });
    let by_worker = by_worker.iter().enumerate().map(|(worker, count)| ByWorker {
        worker,
        accuracy: labels.map(|_| count.part(count.right)),
        agreement: count.part(count.agreeing),
    });
    let right = |labels: &[u8]| {
        exact.iter().zip(labels).filter(|(class, label)| **class == usize::from(**label)).count()
    };
    Ok(InterpolationEvaluation {
        samples: count,
        groups,
        accuracy_deployed: labels.map(|labels| right(labels) as f64 / count as f64),
        by_losses: by_losses.collect(),
        by_worker: by_worker.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deployed::DeployedError;

    /// Two classes, told apart by the sign of the sum of a sample's values.
    #[derive(Debug)]
    struct Sign;

    impl DeployedModel for Sign {
        fn input_shape(&self) -> &[usize] {
            &[3]
        }

        fn outputs(&self) -> usize {
            2
        }

        fn infer(&self, samples: &[f32]) -> Result<Vec<f32>, DeployedError> {
            let sums = samples.chunks_exact(3).map(|sample| sample.iter().sum::<f32>());
            Ok(sums.flat_map(|sum| [sum, -sum]).collect())
        }
    }

    fn samples(count: usize, value: impl Fn(usize) -> f32) -> Samples {
        let sums: Vec<f32> = (0..count).map(value).collect();
        Samples {
            shape: vec![3],
            values: sums.iter().flat_map(|sum| [*sum, 0.5 * sum, 0.0]).collect(),
            labels: sums.iter().map(|sum| u8::from(*sum < 0.0)).collect(),
        }
    }

    fn plan(k: usize, spare: usize) -> InterpolationPlan {
        InterpolationPlan { k, spare, transform: OutputTransform::Raw, resamples: 100, seed: 3 }
    }

    #[test]
    fn equal_queries_come_back_whatever_is_missing_and_every_pattern_counts() {
        let samples = samples(100, |_| 1.0);
        let report = evaluate_interpolation(&Sign, &samples, &plan(3, 2), |_, _| {}).unwrap();
        assert_eq!((report.samples, report.groups, report.accuracy_deployed), (100, 33, Some(1.0)));
        let made: Vec<usize> = report.by_losses.iter().map(|losses| losses.reconstructions).collect();
        assert_eq!(made, [99, 5 * 99, 10 * 99]);
        for losses in &report.by_losses {
            assert_eq!((losses.accuracy.unwrap().value, losses.agreement.value), (1.0, 1.0));
        }
        assert_eq!(report.by_worker.len(), 5);
    }

    #[test]
    fn a_missing_output_costs_accuracy_and_the_average_is_that_over_the_workers() {
        let samples = samples(400, |i| ((i * 37 % 101) as f32) / 10.0 - 5.0);
        let report = evaluate_interpolation(&Sign, &samples, &plan(4, 1), |_, _| {}).unwrap();
        let [all, one] = report.by_losses.as_slice() else { panic!("two numbers of losses") };
        assert!(one.agreement.value < all.agreement.value && all.agreement.value < 1.0, "{report:?}");
        let average = report.by_worker.iter().map(|worker| worker.agreement).sum::<f64>() / 5.0;
        assert!((average - one.agreement.value).abs() < 1e-12);
        let (low, high) = one.agreement.interval.unwrap();
        assert!(low < one.agreement.value && one.agreement.value < high);
    }

    #[test]
    fn what_cannot_be_evaluated_is_refused() {
        let few = samples(2, |_| 1.0);
        let run = |plan: &InterpolationPlan| evaluate_interpolation(&Sign, &few, plan, |_, _| {});
        assert!(matches!(run(&plan(3, 1)), Err(TrainError::TooFewSamples { found: 2, k: 3 })));
        assert!(run(&plan(1, 1)).is_err() && run(&plan(2, 0)).is_err());
        let mut unlabelled = samples(9, |_| 1.0);
        unlabelled.labels.clear();
        let report = evaluate_interpolation(&Sign, &unlabelled, &plan(3, 1), |_, _| {}).unwrap();
        assert!(
            report.accuracy_deployed.is_none() && report.by_losses.iter().all(|loss| loss.accuracy.is_none())
        );
    }
}
