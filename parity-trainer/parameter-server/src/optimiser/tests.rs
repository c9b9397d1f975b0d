use super::*;

const CONFIG: OptimiserConfig = OptimiserConfig {
    optimiser: OptimiserSpec::AdamW { weight_decay: 0.1 },
    learning_rate: 0.003,
    schedule: Schedule::Cosine,
    steps: 9,
    clip: None,
};

const FRESH: TrainingRule =
    TrainingRule { rule: CONFIG, done: 0, measured_from: None, updates: one() };

/// Values and the two slots of state.
type Row = [Vec<f32>; 3];

fn apply(rule: &impl UpdateRule, row: &mut Row, step: u32, gradient: &[f32]) {
    let [values, first, second] = row;
    rule.apply(step, gradient, values, &mut [first, second]);
}

/// A step of the optimiser alone.
fn apply_plain(row: &mut Row, step: u32, gradient: &[f32]) {
    let [values, first, second] = row;
    let rate = CONFIG.rate(u64::from(step) - 1);
    let state: &mut [&mut [f32]] = &mut [first, second];
    CONFIG.optimiser.at(rate, |rule| rule.apply(step, gradient, values, state));
}

fn row(values: [f32; 3]) -> Row {
    [values.to_vec(), vec![0.0; 3], vec![0.0; 3]]
}

#[test]
fn rate_rises_then_falls_to_nothing() {
    let rates = |schedule: Schedule| -> Vec<f64> {
        let rate = |step| schedule.rate(2.0, step, 1000);
        (0..1000).map(rate).collect()
    };
    let falling = rates(Schedule::Cosine);
    assert!(falling[..30].is_sorted() && falling[30..].iter().rev().is_sorted());
    assert!(falling[0] < 0.05 && (falling[30] - 2.0).abs() < 0.01 && falling[999] < 1e-4);
    assert!((Schedule::Cosine.rate(2.0, 15, 1000) - 2.0 * 0.0155 / 0.03).abs() < 1e-9);
    assert!(rates(Schedule::Constant).iter().all(|&rate| rate == 2.0));
}

#[test]
fn gradients_are_scaled_to_their_mean_and_no_longer_than_allowed() {
    let sum: Vec<f32> = [6.0, 8.0].into_iter().chain([0.0; 9_000]).collect();
    assert_eq!(norm(&sum), 10.0);
    assert_eq!(norm(&[2.0; 9]), 6.0);
    assert_eq!(CONFIG.scale(&sum, 2), (5.0, 0.5));
    let clipped = |longest| {
        let clip = Some(longest);
        OptimiserConfig { clip, ..CONFIG }.scale(&sum, 2)
    };
    assert_eq!(clipped(8.0), (5.0, 0.5));
    let (norm, scale) = clipped(1.0);
    assert!(norm == 5.0 && (scale - 0.1).abs() < 1e-6, "{scale}");
}

#[test]
fn training_that_was_set_up_goes_on_as_the_one_before() {
    let gradient = |step: u32| [(step as f32).sin(), 0.5, -0.25];
    let mut plain = row([1.0, -2.0, 0.0]);
    let mut set = row([0.0; 3]);
    assert_eq!(FRESH.set_up(), 1);
    apply(&FRESH, &mut set, 1, &plain[0]);
    assert_eq!(set, plain);
    for step in 1..=4 {
        apply_plain(&mut plain, step, &gradient(step));
        apply(&FRESH, &mut set, step + 1, &gradient(step));
    }
    assert_eq!(set, plain);

    let later = TrainingRule { done: 4, ..FRESH };
    assert_eq!(later.set_up(), 3);
    let mut resumed = [(); 3].map(|()| vec![9.0; 3]);
    for (step, slot) in (1..).zip(&plain) {
        apply(&later, &mut resumed, step, slot);
    }
    assert_eq!(resumed, plain);
    apply_plain(&mut plain, 5, &gradient(5));
    apply(&later, &mut resumed, 4, &gradient(5));
    assert_eq!(resumed, plain);
}

#[test]
fn updates_of_parts_go_about_as_far_as_their_step() {
    let updates = NonZeroU64::new(4).unwrap();
    let in_parts = TrainingRule { updates, ..FRESH };
    let [mut whole, mut parts] = [(); 2].map(|()| row([1.0, -2.0, 0.5]));
    let gradient = [0.3, -0.1, 0.2];
    for step in 0..9 {
        apply(&FRESH, &mut whole, 2 + step, &gradient);
        (0..4).for_each(|part| apply(&in_parts, &mut parts, 2 + 4 * step + part, &gradient));
        let gone = (whole[0][0] - 1.0).abs();
        for (a, b) in whole[0].iter().zip(&parts[0]) {
            assert!((a - b).abs() < 0.01 * gone, "step {step}: {a}, in parts {b}");
        }
    }
    // One that goes on is where the one before would be.
    let later = TrainingRule { done: 2, ..in_parts };
    let [mut straight, mut resumed] = [(); 2].map(|()| row([1.0, -2.0, 0.5]));
    apply(&in_parts, &mut straight, 1 + 2 * 4 + 3, &gradient);
    apply(&later, &mut resumed, later.set_up() as u32 + 3, &gradient);
    assert_eq!(straight, resumed);
}

#[test]
fn measured_rows_are_replaced_by_each_step_and_kept_during_set_up() {
    for done in [0, 4] {
        let measured_from = Some(3);
        let rule = TrainingRule { done, measured_from, ..FRESH };
        assert_eq!(rule.border(), Some(3));
        let [mut values, mut first, mut second] = [vec![0.0; 2], vec![0.0; 2], vec![0.0; 2]];
        let mut push = |step: u64, pushed: [f32; 2]| {
            let state = &mut [&mut first[..], &mut second[..]];
            rule.apply_beyond(step as u32, &pushed, &mut values, state);
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
fn rule_reads_back_to_the_last_bit() {
    for updates in [1, 4].map(|updates| NonZeroU64::new(updates).unwrap()) {
        let learning_rate = 0.1 + 0.2;
        let rule = OptimiserConfig { learning_rate, ..CONFIG };
        let measured_from = Some(7);
        let training = TrainingRule { rule, done: 3, measured_from, updates };
        let text = toml::to_string(&training).unwrap();
        assert_eq!(toml::from_str::<TrainingRule>(&text).unwrap(), training);
    }
}
