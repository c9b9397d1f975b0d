//! Parameters in this process.

use super::optimiser::Optimiser;
use crate::backend::parameters::Pushed;
use crate::backend::{
    BackendError, BackendState, OptimiserConfig, ParameterBackend, ParameterSet, Tick, WEIGHTS,
};

/// Weights and optimiser as plain arrays: training without a parameter server, to compare with.
#[derive(Debug)]
pub(crate) struct LocalBackend {
    rule: OptimiserConfig,
    weights: ParameterSet,
    optimiser: Optimiser,
    pushed: Pushed,
    clock: u64,
}

impl LocalBackend {
    /// Starts from `weights`.
    pub(crate) fn new(rule: OptimiserConfig, weights: ParameterSet) -> Self {
        let optimiser = Optimiser::new(rule.optimiser, weights.values().len());
        let pushed = Pushed::none(&weights);
        Self {
            rule,
            weights,
            optimiser,
            pushed,
            clock: 0,
        }
    }
}

impl ParameterBackend for LocalBackend {
    fn pull(&mut self, into: &mut ParameterSet) -> Result<(), BackendError> {
        into.fill("the parameters to pull into", self.weights.values())
    }

    fn push(&mut self, gradients: &ParameterSet) -> Result<(), BackendError> {
        self.pushed.add(gradients)
    }

    fn clock(&mut self) -> Result<Tick, BackendError> {
        let learning_rate = self.rule.rate(self.clock);
        let Some((sum, count)) = self.pushed.sum() else {
            return Ok(Tick {
                clock: self.clock,
                learning_rate,
                gradient_norm: 0.0,
            });
        };
        self.clock += 1;
        let (gradient_norm, scale) = self.rule.scale(sum, count);
        self.optimiser.step(
            self.clock,
            learning_rate,
            scale,
            self.weights.values_mut(),
            sum,
        );
        self.pushed.clear();
        Ok(Tick {
            clock: self.clock,
            learning_rate,
            gradient_norm,
        })
    }

    fn state(&mut self) -> Result<BackendState, BackendError> {
        let own = |(name, values): (&str, &[f32])| (name.to_owned(), values.to_vec());
        let mut arrays = vec![own((WEIGHTS, self.weights.values()))];
        arrays.extend(self.optimiser.arrays().into_iter().map(own));
        Ok(BackendState {
            clock: self.clock,
            arrays,
        })
    }

    fn restore(&mut self, state: &BackendState, _buffers: &[f32]) -> Result<(), BackendError> {
        let weights = self.weights.values_mut();
        weights.copy_from_slice(state.array_of(WEIGHTS, weights.len())?);
        self.optimiser.restore(state)?;
        self.clock = state.clock;
        self.pushed.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use parapet_parameter_server::optimiser::norm;

    use super::*;
    use crate::backend::{OptimiserSpec, ParameterShape, Schedule};

    fn set(values: &[f32]) -> ParameterSet {
        let mut set = ParameterSet::zeroes(vec![ParameterShape {
            name: "w".into(),
            shape: vec![values.len()],
        }]);
        set.fill("w", values).unwrap();
        set
    }

    fn backend(clip: Option<f64>, start: &[f32]) -> LocalBackend {
        let optimiser = OptimiserSpec::Sgd {
            momentum: 0.0,
            weight_decay: 0.0,
        };
        let schedule = Schedule::Constant;
        LocalBackend::new(
            OptimiserConfig {
                optimiser,
                learning_rate: 1.0,
                schedule,
                steps: 10,
                clip,
            },
            set(start),
        )
    }

    fn weights(backend: &mut LocalBackend) -> Vec<f32> {
        let mut into = backend.weights.zeroes_like();
        backend.pull(&mut into).unwrap();
        into.values().to_vec()
    }

    #[test]
    fn gradients_count_at_the_tick_and_are_averaged() {
        let mut backend = backend(None, &[5.0]);
        backend.push(&set(&[1.0])).unwrap();
        backend.push(&set(&[3.0])).unwrap();
        assert_eq!(weights(&mut backend), [5.0]);
        assert_eq!(backend.clock().unwrap().gradient_norm, 2.0);
        assert_eq!(weights(&mut backend), [3.0]);
        assert!(backend.push(&set(&[1.0, 2.0])).is_err());
    }

    proptest! {
        #[test]
        fn a_clipped_step_is_never_longer_and_keeps_its_direction(
            gradients in proptest::collection::vec(-50.0f32..50.0, 1..40),
            longest in 0.01f64..20.0,
        ) {
            let mut backend = backend(Some(longest), &vec![0.0; gradients.len()]);
            backend.push(&set(&gradients)).unwrap();
            let tick = backend.clock().unwrap();
            let step = weights(&mut backend);
            prop_assert!(norm(&step) <= longest * 1.0001);
            let scale = (longest / tick.gradient_norm.max(1e-9)).min(1.0);
            for (step, gradient) in step.iter().zip(&gradients) {
                prop_assert!((f64::from(-step) - scale * f64::from(*gradient)).abs() < 1e-3);
            }
        }

        #[test]
        fn a_restored_backend_goes_on_as_if_nothing_had_happened(
            steps in proptest::collection::vec(proptest::collection::vec(-2.0f32..2.0, 3), 2..12),
            cut in 0usize..10,
        ) {
            let rule = OptimiserConfig {
                optimiser: OptimiserSpec::AdamW { weight_decay: 0.1 },
                learning_rate: 0.1,
                schedule: Schedule::OneCycle,
                steps: 12,
                clip: Some(1.0),
            };
            let fresh = || LocalBackend::new(rule, set(&[1.0, -1.0, 0.5]));
            let go = |backend: &mut LocalBackend, steps: &[Vec<f32>]| {
                for gradients in steps {
                    backend.push(&set(gradients)).unwrap();
                    backend.clock().unwrap();
                }
            };
            let (before, after) = steps.split_at(cut.min(steps.len()));
            let (mut straight, mut first, mut second) = (fresh(), fresh(), fresh());
            go(&mut straight, &steps);
            go(&mut first, before);
            second.restore(&first.state().unwrap(), &[]).unwrap();
            go(&mut second, after);
            prop_assert_eq!(straight.state().unwrap(), second.state().unwrap());
        }
    }
}
