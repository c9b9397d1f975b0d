//! Updates as a parameter server makes them.

use serde::{Deserialize, Serialize};

use crate::UpdateRule;

/// The update of each step: the learning rate follows from how often a row was updated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServerRule(pub UpdateRule);

impl parapet_parameter_server::UpdateRule for ServerRule {
    fn slots(&self) -> usize {
        self.0.optimiser.slots()
    }

    fn counts_steps(&self) -> bool {
        true
    }

    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        update(&self.0, u64::from(step), gradient, values, state);
    }
}

fn update(rule: &UpdateRule, step: u64, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
    let rate = rule.rate(step.saturating_sub(1));
    match state {
        [first, second] => rule.optimiser.update(step, rate, 1.0, values, gradient, first, second),
        [first] => rule.optimiser.update(step, rate, 1.0, values, gradient, first, &mut []),
        _ => {}
    }
}

/// A training whose start comes over the wire: the first push sets the weights, those after it the optimiser's state,
/// slot by slot, as far as it goes on from another training. All later ones are steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrainingRule {
    /// The update of each step.
    pub rule: UpdateRule,
    /// Steps that were done before it.
    pub done: u64,
}

impl TrainingRule {
    /// Pushes before the first step.
    pub const fn set_up(&self) -> u64 {
        if self.done == 0 { 1 } else { 1 + self.rule.optimiser.slots() as u64 }
    }
}

impl parapet_parameter_server::UpdateRule for TrainingRule {
    fn slots(&self) -> usize {
        self.rule.optimiser.slots()
    }

    fn counts_steps(&self) -> bool {
        true
    }

    fn apply(&self, step: u32, gradient: &[f32], values: &mut [f32], state: &mut [&mut [f32]]) {
        let step = u64::from(step);
        if step > self.set_up() {
            update(&self.rule, self.done + (step - self.set_up()), gradient, values, state);
        } else if step == 1 {
            values.copy_from_slice(gradient);
        } else if let Some(slot) = state.get_mut(usize::try_from(step - 2).unwrap_or(usize::MAX)) {
            slot.copy_from_slice(gradient);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::{OptimiserSpec, Schedule};

    fn rule() -> UpdateRule {
        UpdateRule {
            optimiser: OptimiserSpec::AdamW { weight_decay: 0.1 },
            learning_rate: 0.003,
            schedule: Schedule::Cosine,
            steps: 9,
            clip: None,
        }
    }

    #[derive(Debug, Clone, PartialEq)]
    struct Row([Vec<f32>; 3]);

    fn apply(rule: &impl parapet_parameter_server::UpdateRule, row: &mut Row, step: u32, gradient: &[f32]) {
        let [values, first, second] = &mut row.0;
        rule.apply(step, gradient, values, &mut [first, second]);
    }

    #[test]
    fn a_training_that_was_set_up_goes_on_as_the_one_before() {
        let gradient = |step: u32| vec![(step as f32).sin(), 0.5, -0.25];
        let mut plain = Row([vec![1.0, -2.0, 0.0], vec![0.0; 3], vec![0.0; 3]]);
        let fresh = TrainingRule { rule: rule(), done: 0 };
        let mut set = Row([vec![0.0; 3], vec![0.0; 3], vec![0.0; 3]]);
        assert_eq!(fresh.set_up(), 1);
        apply(&fresh, &mut set, 1, &plain.0[0].clone());
        assert_eq!(set, plain);
        for step in 1..=4 {
            apply(&ServerRule(rule()), &mut plain, step, &gradient(step));
            apply(&fresh, &mut set, step + 1, &gradient(step));
        }
        assert_eq!(set, plain);

        let later = TrainingRule { rule: rule(), done: 4 };
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
    fn a_rule_reads_back_to_the_last_bit() {
        let training = TrainingRule { rule: UpdateRule { learning_rate: 0.1 + 0.2, ..rule() }, done: 3 };
        let text = toml::to_string(&training).unwrap();
        assert_eq!(toml::from_str::<TrainingRule>(&text).unwrap(), training);
    }
}
