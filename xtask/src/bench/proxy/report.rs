//! The section that `bench proxy` writes.

use std::fmt::{self, Write as _};

use crate::bench::servers::Server;
use crate::bench::spread::Spread;
use crate::bench::wrk::Full;

/// A proxy, and what was measured of it.
pub(super) struct Target {
    name: &'static str,
    server: Server,
    full: Vec<Full>,
    even: Vec<Even>,
}

/// At the same rate for all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Even {
    pub(super) p99_ms: f64,
    /// Processor time for each request.
    pub(super) processor_us: f64,
}

impl fmt::Display for Even {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p99 {:.2} ms, {:.0} us of processor time for each",
            self.p99_ms, self.processor_us
        )
    }
}

impl Target {
    pub(super) fn new(name: &'static str, server: Server) -> Self {
        Self {
            name,
            server,
            full: Vec::new(),
            even: Vec::new(),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.name
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn add(&mut self, full: Full, even: Even) {
        self.full.push(full);
        self.even.push(even);
    }

    /// Requests/s and p99 with 32 connections, p99 and processor time at an even rate.
    fn figures(&self) -> [Vec<f64>; 4] {
        let full = |of: fn(&Full) -> f64| self.full.iter().map(of).collect();
        let even = |of: fn(&Even) -> f64| self.even.iter().map(of).collect();
        [
            full(|f| f.per_second),
            full(|f| f.p99_ms),
            even(|e| e.p99_ms),
            even(|e| e.processor_us),
        ]
    }
}

/// The median over the rounds of the ratio to `base` in the same round.
fn ratio(values: &[f64], base: &[f64]) -> f64 {
    Spread::new(
        values
            .iter()
            .zip(base)
            .map(|(value, base)| value / base)
            .collect(),
    )
    .median
}

/// The text, and the aims. `targets`: nginx, no redundancy, coded.
pub(super) fn write(
    rounds: u32,
    connections: u32,
    rate: u32,
    targets: &[Target; 3],
) -> (String, [(bool, String); 4]) {
    let mut text = format!(
        "`cargo xtask bench proxy`: binary tensors of 3 KB; the proxy on one core, clients and 4 \
            emulated instances (which answer at\n\
         once what a real one has answered; 2 more for parity queries) on the other; medians of \
         {rounds} rounds in turns.\n\n\
         | | requests/s, {connections} connections | p99 then, ms | p99 at {rate}/s, ms | \
         processor time of a request at {rate}/s, us |\n\
         |---|---|---|---|---|\n"
    );
    for target in targets {
        let [per_second, full_p99, even_p99, processor] =
            target.figures().map(|values| Spread::new(values).median);
        let _ = writeln!(
            text,
            "| {} | {per_second:.0} | {full_p99:.2} | {even_p99:.2} | {processor:.0} |",
            target.name
        );
    }
    let [nginx, none, coded] = targets.each_ref().map(Target::figures);
    let [speed, full_p99, even_p99] = [0, 1, 2].map(|of| ratio(&none[of], &nginx[of]));
    let processor = ratio(&coded[3], &none[3]);
    let aims = [
        (
            speed >= 0.5,
            format!("{speed:.2} times nginx's requests/s (wanted: 0.5 at least)"),
        ),
        (
            full_p99 <= 2.0,
            format!(
                "p99 {full_p99:.2} times nginx's with {connections} connections (wanted: 2 at most)"
            ),
        ),
        (
            even_p99 <= 2.0,
            format!("and {even_p99:.2} times at {rate}/s (wanted: 2 at most)"),
        ),
        (
            processor <= 1.3,
            format!(
                "coding takes {processor:.2} times the processor time of a request without it \
                    (wanted: 1.3 at most)"
            ),
        ),
    ];
    text.push_str("\nMedians of the rounds' ratios, without redundancy: ");
    (text, aims)
}
