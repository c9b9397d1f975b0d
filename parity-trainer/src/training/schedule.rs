//! The learning rate over a run.

/// Part of the run in which the rate grows from nothing.
const WARM_UP: f64 = 0.03;

/// The rate at `step` of `steps`: a linear warm-up to `peak`, then half a cosine down to zero (Loshchilov and Hutter,
/// SGDR, 2017, without restarts).
pub(super) fn cosine(peak: f64, step: usize, steps: usize) -> f64 {
    let progress = (step as f64 + 0.5) / steps.max(1) as f64;
    if progress < WARM_UP {
        return peak * progress / WARM_UP;
    }
    let cooled = (progress - WARM_UP) / (1.0 - WARM_UP);
    peak * 0.5 * (1.0 + (std::f64::consts::PI * cooled).cos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_rises_then_falls_to_nothing() {
        let rates: Vec<f64> = (0..1000).map(|step| cosine(2.0, step, 1000)).collect();
        assert!(rates[..30].is_sorted() && rates[30..].iter().rev().is_sorted());
        assert!(rates[0] < 0.1 && (rates[30] - 2.0).abs() < 0.01 && rates[999] < 1e-4);
    }
}
