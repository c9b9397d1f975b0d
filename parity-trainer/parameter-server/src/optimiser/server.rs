//! Updates as a parameter server makes them.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::optimiser::OptimiserConfig;
use crate::{Key, UpdateRule};

/// The update of each step: the learning rate follows from how often a row was updated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServerRule(pub OptimiserConfig);

impl UpdateRule for ServerRule {
    fn slots(&self) -> usize {
        self.0.optimiser.slots()
    }

    fn counts_steps(&self) -> bool {
        true
    }

    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        update(&self.0, (u64::from(step), 1), gradient, values, state);
    }

    fn keeps_moderate_finite(&self) -> bool {
        keeps_moderate_finite(&self.0)
    }
}

/// Makes a row's update of this number, of which so many make a step.
fn update(
    config: &OptimiserConfig,
    (number, each): (u64, u64),
    gradient: &[f32],
    values: &mut [f32],
    state: &mut [&mut [f32]],
) {
    let rate = config.rate(number.saturating_sub(1) / each) / each as f64;
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    config
        .optimiser
        .at(rate, |rule| rule.apply(number, gradient, values, state));
}

fn keeps_moderate_finite(config: &OptimiserConfig) -> bool {
    config
        .optimiser
        .at(config.learning_rate, |rule| rule.keeps_moderate_finite())
}

/// A training whose start comes over the wire: the first push sets the weights, those after it
/// the optimiser's state, slot by slot, as far as it goes on from another training. All later
/// ones are steps.
///
/// The rows after the weights are not learned: they hold what the network measures while it learns,
/// such as batch norm's running moments, and a step replaces them by the sum of what is pushed.
///
/// Where pushes are not added up, each is an update by itself, with its part of the
/// learning rate: as many of them as make a step go as far as the step would, and the
/// schedule goes by whole steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrainingRule {
    /// The update of each step.
    pub rule: OptimiserConfig,
    /// Steps that were done before it.
    pub done: u64,
    /// The first row that is not learned, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_from: Option<Key>,
    /// Updates of a row that make a step.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub updates: NonZeroU64,
}

const fn one() -> NonZeroU64 {
    NonZeroU64::MIN
}

fn is_one(updates: &NonZeroU64) -> bool {
    *updates == NonZeroU64::MIN
}

impl TrainingRule {
    /// Pushes before the first step.
    pub fn set_up(&self) -> u64 {
        if self.done == 0 {
            1
        } else {
            1 + self.rule.optimiser.slots() as u64
        }
    }
}

impl UpdateRule for TrainingRule {
    fn slots(&self) -> usize {
        self.rule.optimiser.slots()
    }

    fn counts_steps(&self) -> bool {
        true
    }

    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        let step = u64::from(step);
        if step > self.set_up() {
            let each = self.updates.get();
            update(
                &self.rule,
                (self.done * each + (step - self.set_up()), each),
                gradient,
                values,
                state,
            );
        } else if step == 1 {
            values.copy_from_slice(gradient);
        } else if let Some(slot) = state.get_mut(usize::try_from(step - 2).unwrap_or(usize::MAX)) {
            slot.copy_from_slice(gradient);
        }
    }

    fn keeps_moderate_finite(&self) -> bool {
        keeps_moderate_finite(&self.rule)
    }

    fn border(&self) -> Option<Key> {
        self.measured_from
    }

    fn apply_beyond(
        &self,
        step: u32,
        pushed: &[f32],
        values: &mut [f32],
        state: &mut [&mut [f32]],
    ) {
        if u64::from(step) > self.set_up() {
            values.copy_from_slice(pushed);
        } else {
            self.apply(step, pushed, values, state);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::optimiser::{OptimiserSpec, Schedule};

    fn rule() -> OptimiserConfig {
        OptimiserConfig {
            optimiser: OptimiserSpec::AdamW { weight_decay: 0.1 },
            learning_rate: 0.003,
            schedule: Schedule::Cosine,
            steps: 9,
            clip: None,
        }
    }

    #[derive(Debug, Clone, PartialEq)]
    struct Row([Vec<f32>; 3]);

    fn apply(rule: &impl UpdateRule, row: &mut Row, step: u32, gradient: &[f32]) {
        let [values, first, second] = &mut row.0;
        rule.apply(step, gradient, values, &mut [first, second]);
    }

    #[test]
    fn a_training_that_was_set_up_goes_on_as_the_one_before() {
        let gradient = |step: u32| vec![(step as f32).sin(), 0.5, -0.25];
        let mut plain = Row([vec![1.0, -2.0, 0.0], vec![0.0; 3], vec![0.0; 3]]);
        let fresh = TrainingRule {
            rule: rule(),
            done: 0,
            measured_from: None,
            updates: one(),
        };
        let mut set = Row([vec![0.0; 3], vec![0.0; 3], vec![0.0; 3]]);
        assert_eq!(fresh.set_up(), 1);
        apply(&fresh, &mut set, 1, &plain.0[0].clone());
        assert_eq!(set, plain);
        for step in 1..=4 {
            apply(&ServerRule(rule()), &mut plain, step, &gradient(step));
            apply(&fresh, &mut set, step + 1, &gradient(step));
        }
        assert_eq!(set, plain);

        let later = TrainingRule {
            rule: rule(),
            done: 4,
            measured_from: None,
            updates: one(),
        };
        let mut resumed = Row([vec![9.0; 3], vec![9.0; 3], vec![9.0; 3]]);
        for (step, slot) in (1..).zip(&plain.0.clone()) {
            apply(&later, &mut resumed, step, slot);
        }
        assert_eq!(resumed, plain);
        apply(&ServerRule(rule()), &mut plain, 5, &gradient(5));
        apply(&later, &mut resumed, 4, &gradient(5));
        assert_eq!(resumed, plain);
    }

    #[test]
    fn updates_of_parts_go_about_as_far_as_their_step() {
        let parts = NonZeroU64::new(4).unwrap();
        let whole = TrainingRule {
            rule: rule(),
            done: 0,
            measured_from: None,
            updates: one(),
        };
        let in_parts = TrainingRule {
            updates: parts,
            ..whole
        };
        let begun = || Row([vec![1.0, -2.0, 0.5], vec![0.0; 3], vec![0.0; 3]]);
        let (mut one, mut other) = (begun(), begun());
        let gradient = [0.3, -0.1, 0.2];
        for step in 0..9 {
            apply(&whole, &mut one, 2 + step, &gradient);
            (0..4).for_each(|part| apply(&in_parts, &mut other, 2 + 4 * step + part, &gradient));
            let gone = (one.0[0][0] - 1.0).abs();
            for (a, b) in one.0[0].iter().zip(&other.0[0]) {
                assert!(
                    (a - b).abs() < 0.01 * gone,
                    "step {step}: {a}, in parts {b}"
                );
            }
        }
        // One that goes on is where the one before would be.
        let later = TrainingRule {
            done: 2,
            ..in_parts
        };
        let (mut straight, mut resumed) = (begun(), begun());
        apply(&in_parts, &mut straight, 1 + 2 * 4 + 3, &gradient);
        apply(&later, &mut resumed, later.set_up() as u32 + 3, &gradient);
        assert_eq!(straight, resumed);
    }

    #[test]
    fn what_is_measured_is_replaced_by_each_step_and_stays_while_a_training_is_set_up() {
        for done in [0, 4] {
            let rule = TrainingRule {
                rule: rule(),
                done,
                measured_from: Some(3),
                updates: one(),
            };
            assert_eq!(rule.border(), Some(3));
            let [mut values, mut first, mut second] = [vec![0.0; 2], vec![0.0; 2], vec![0.0; 2]];
            let mut push = |step: u64, pushed: [f32; 2]| {
                rule.apply_beyond(
                    step as u32,
                    &pushed,
                    &mut values,
                    &mut [&mut first, &mut second],
                );
                values.clone()
            };
            assert_eq!(push(1, [1.0, -2.0]), [1.0, -2.0]);
            for slot in 2..=rule.set_up() {
                assert_eq!(push(slot, [0.0, 0.0]), [1.0, -2.0]);
            }
            for step in 1..3 {
                let measured = [step as f32, 0.1];
                assert_eq!(push(rule.set_up() + step, measured), measured);
            }
        }
    }

    #[test]
    fn a_rule_reads_back_to_the_last_bit() {
        let rule = OptimiserConfig {
            learning_rate: 0.1 + 0.2,
            ..rule()
        };
        let training = TrainingRule {
            rule,
            done: 3,
            measured_from: Some(7),
            updates: one(),
        };
        let text = toml::to_string(&training).unwrap();
        assert_eq!(toml::from_str::<TrainingRule>(&text).unwrap(), training);
    }
}
