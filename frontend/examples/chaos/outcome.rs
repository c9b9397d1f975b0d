//! Outcome of a run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::check::{Circumstances, GRACE, Question, Verdict, Violation};
use crate::plan::{Fault, Instance, REPLICAS};

/// For so long after a fault was made good, requests may have met it; retries and
/// ejections last on.
const AFTERMATH: Duration = Duration::from_millis(1500);
/// The longest ejection: twelve times `eject_ms`.
const EJECTED_FOR: Duration = Duration::from_secs(12);
/// More of them say nothing new.
const MOST_VIOLATIONS: usize = 200;

/// Everything that is noted while it runs.
#[derive(Debug, Default)]
pub struct Record {
    pub noted: Mutex<Noted>,
    /// Faults of instances, with their ends.
    faults: Mutex<Vec<(Fault, Option<Instant>)>>,
}

#[derive(Debug, Default)]
pub struct Noted {
    pub answers: BTreeMap<(&'static str, Verdict), Times>,
    pub abandoned: u64,
    pub excused: u64,
    /// The latest answer's time after its deadline, but for those that met a stall of the machine.
    pub latest: Duration,
    /// Approximations whose time was judged, and those that came while predictions may have been
    /// lost at once.
    pub hold_backs: [u64; 2],
    pub done: BTreeMap<String, u64>,
    pub violations: Vec<Violation>,
    pub violated: u64,
    pub looks: u64,
    pub most_groups: u64,
    pub most_memory_kb: u64,
    pub spoilt: u64,
    pub frontends: u64,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Times {
    pub count: u64,
    pub longest: Duration,
}

impl Record {
    pub fn violated(&self, (invariant, said): Violation) {
        eprintln!("    VIOLATION {invariant}: {said}");
        let mut noted = self.noted.lock();
        noted.violated += 1;
        if noted.violations.len() < MOST_VIOLATIONS {
            noted.violations.push((invariant, said));
        }
    }

    pub fn violated_all(&self, violations: impl IntoIterator<Item = Violation>) {
        violations.into_iter().for_each(|violation| self.violated(violation));
    }

    pub fn answered(
        &self,
        question: &Question,
        verdict: Verdict,
        took: Duration,
        now: Circumstances,
    ) {
        let mut noted = self.noted.lock();
        let class = question.class.unwrap_or("default");
        let times = noted.answers.entry((class, verdict)).or_default();
        times.count += 1;
        times.longest = times.longest.max(took);
        if !now.stalled {
            noted.latest = noted.latest.max(took.saturating_sub(question.deadline));
        }
        if matches!(verdict, Verdict::Reconstructed | Verdict::Backup) {
            noted.hold_backs[usize::from(now.failing_at_once)] += 1;
        }
    }

    /// A fault begins; the number that ends it.
    pub fn begins(&self, fault: Fault) -> usize {
        *self.noted.lock().done.entry(fault.kind()).or_default() += 1;
        let mut faults = self.faults.lock();
        faults.push((fault, None));
        faults.len() - 1
    }

    pub fn ends(&self, number: usize) {
        if let Some((_, end)) = self.faults.lock().get_mut(number) {
            *end = Some(Instant::now());
        }
    }

    /// Returns the faults from `asked` until now.
    pub fn circumstances(&self, asked: Instant) -> Circumstances {
        let faults = self.faults.lock();
        let met = |of: fn(&Fault) -> bool| {
            let is_met = |(fault, end): &(Fault, Option<Instant>)| {
                of(fault) && end.is_none_or(|end| end + AFTERMATH >= asked)
            };
            faults.iter().rev().any(is_met)
        };
        Circumstances {
            failing_at_once: met(|fault| fault.fails_at_once() && is_of_replica(fault)),
            failing: met(|fault| matches!(fault, Fault::Spoilt(..)) && is_of_replica(fault)),
            ..Circumstances::default()
        }
    }

    /// Returns true if a fault may have had the instance ejected, now or before.
    pub fn may_be_ejected(&self, instance: Instance) -> bool {
        let faults = self.faults.lock();
        let is_recent =
            |end: &Option<Instant>| end.is_none_or(|end| end.elapsed() < AFTERMATH + EJECTED_FOR);
        let mut faults = faults.iter();
        faults.any(|(fault, end)| fault.spoils(instance) && is_recent(end))
    }
}

fn is_of_replica(fault: &Fault) -> bool {
    (0..REPLICAS).any(|replica| fault.spoils(replica))
}

impl Noted {
    fn count(&self, is_meant: impl Fn(Verdict) -> bool) -> u64 {
        let meant = self.answers.iter().filter(|((_, verdict), _)| is_meant(*verdict));
        meant.map(|(_, times)| times.count).sum()
    }

    /// Percentage of answers of these kinds.
    fn share(&self, kinds: &[Verdict]) -> String {
        let all = self.count(|_| true).max(1) as f64;
        let part = self.count(|verdict| kinds.contains(&verdict)) as f64;
        format!("{:.2} %", 100.0 * part / all)
    }

    /// Percentage of answers of each of these kinds that there were.
    fn shares(&self, kinds: &[Verdict]) -> String {
        let occurred = kinds.iter().filter(|kind| self.count(|verdict| verdict == **kind) > 0);
        let shares = occurred.map(|kind| format!("{} {}", kind.outcome(), self.share(&[*kind])));
        let shares = shares.collect::<Vec<_>>().join(", ");
        if shares.is_empty() { "none".to_owned() } else { shares }
    }

    pub fn text(&self, line: &str, ran: Duration, stood_still: (Duration, Duration)) -> String {
        let mut text = format!(
            "`{line}`, {:.0} s: {} answers judged: {}; errors {} ({}); refusals of wrong requests \
                {}. {} requests given up by their clients. The latest answer came {:.0} ms after \
                its deadline, as its client saw it ({} ms are allowed).\n\
                **Violations: {}.**",
            ran.as_secs_f64(),
            self.count(|_| true),
            self.shares(&Verdict::PREDICTIONS),
            self.share(&Verdict::ERRORS),
            self.shares(&Verdict::ERRORS),
            self.share(&[Verdict::Refused]),
            self.abandoned,
            self.latest.as_secs_f64() * 1e3,
            GRACE.as_millis(),
            self.violated,
        );
        text += &format!(
            " {} approximations were held to their hold-back, {} more came while predictions were \
                lost at once. Frontends were looked at {} times: {} groups at most, {:.0} MB at \
                most. {} answers of instances were spoilt; {} frontends served.",
            self.hold_backs[0],
            self.hold_backs[1],
            self.looks,
            self.most_groups,
            self.most_memory_kb as f64 / 1024.0,
            self.spoilt,
            self.frontends,
        );
        let (total, longest) = stood_still;
        if !total.is_zero() {
            text += &format!(
                " The machine stood still for {:.1} s in all ({:.1} s at most), about which \
                    nothing is said; {} requests had no answer then.",
                total.as_secs_f64(),
                longest.as_secs_f64(),
                self.excused,
            );
        }
        text.push_str("\n\nAnswers by class (longest, ms):\n");
        let mut last = "";
        for ((class, verdict), times) in &self.answers {
            let (outcome, ms) = (verdict.outcome(), times.longest.as_secs_f64() * 1e3);
            if *class == last {
                text += ", ";
            } else {
                text += &format!("\n- {class}: ");
            }
            text += &format!("{outcome} {} ({ms:.0})", times.count);
            last = class;
        }
        let done = self.done.iter().map(|(kind, times)| format!("{times} {kind}"));
        let done = done.collect::<Vec<_>>().join(", ");
        text += &format!("\n\nFaults: {done}.\n");
        if !self.violations.is_empty() {
            text.push_str("\n| broken | |\n|---|---|\n");
            for (invariant, said) in &self.violations {
                text += &format!("| {invariant} | {said} |\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_says_the_share_of_each_kind_of_answer() {
        let times = |count| Times { count, longest: Duration::from_millis(10) };
        let answers = [
            (("default", Verdict::Exact), times(700)),
            (("plain", Verdict::Exact), times(100)),
            (("default", Verdict::Reconstructed), times(50)),
            (("default", Verdict::Overloaded), times(120)),
            (("plain", Verdict::DeadlineExceeded), times(10)),
            (("default", Verdict::Refused), times(20)),
        ];
        let noted = Noted { answers: answers.into(), ..Noted::default() };
        let still = (Duration::ZERO, Duration::ZERO);
        let text = noted.text("chaos", Duration::from_secs(1), still);
        let shares = [
            "exact 80.00 %",
            "reconstructed 5.00 %",
            "errors 13.00 % (overloaded or unavailable 12.00 %, deadline_exceeded 1.00 %)",
            "refusals of wrong requests 2.00 %",
        ];
        for share in shares {
            assert!(text.contains(share), "{share} is missing: {text}");
        }
    }
}
