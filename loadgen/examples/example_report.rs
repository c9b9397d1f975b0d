//! Writes reports of made-up measurements, to look at: `cargo run --example example_report --
//! FOLDER`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "an example for developers"
)]

#[path = "../tests/common/synthetic.rs"]
mod synthetic;

use std::path::PathBuf;

use parapet_loadgen::compare::{Bootstrap, FaultMark, SweepPoint, SweepReport, analyse};
use parapet_loadgen::report::{compare_page, run_page, sweep_page};
use synthetic::{KINDS, Kind, Size, comparison, run_of};

/// So many, so close, that not all have room for a name.
fn fault(number: u32) -> FaultMark {
    let at_s = 1.0 + 2.3 * f64::from(number);
    let until_s = number.is_multiple_of(2).then_some(at_s + 1.2);
    let instance = format!("model-{}", number % 4);
    FaultMark {
        at_s,
        until_s,
        what: "slowed by 30 ms".to_owned(),
        instance,
        strategy: None,
    }
}

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".to_owned()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: String| std::fs::write(folder.join(name), text).unwrap();

    let measured = comparison(&KINDS, Size::default());
    let report = analyse(&measured, "spread", Bootstrap::default()).unwrap();
    print!("{}", report);
    write("compare.html", compare_page(&report));
    let json = serde_json::to_string_pretty(&report).unwrap();
    write("compare.json", json);

    let mut doubtful = comparison(&KINDS, Size::new(3, 3.0));
    doubtful.settings.blocks = 10;
    doubtful.faults = (0..14).map(fault).collect();
    doubtful.strategies[1].blocks[1].valid = false;
    let report = analyse(&doubtful, "spread", Bootstrap::default()).unwrap();
    write("partial.html", compare_page(&report));

    let points = [0.005, 0.02].into_iter().flat_map(|stragglers| {
        [100.0, 150.0, 200.0, 250.0, 300.0].map(|rate| {
            // A made-up queue: all latencies grow near capacity, the more with more redundancy.
            let kinds = KINDS.map(|kind| {
                let spare = (1.0 - rate * (1.0 + kind.extra) / 620.0).max(0.03);
                Kind {
                    slower: kind.slower / spare,
                    rescue_ms: kind.rescue_ms.map(|at| at / spare),
                    ..kind
                }
            });
            let mut size = Size::new(10, 6.0);
            (size.rate, size.straggler_probability) = (rate, stragglers);
            let measured = comparison(&kinds, size);
            let report = analyse(&measured, "spread", Bootstrap::default()).unwrap();
            let axes = [
                ("rate", rate),
                ("k", 2.0),
                ("straggler_probability", stragglers),
            ];
            let axes = axes.map(|(axis, value)| (axis.to_owned(), value));
            SweepPoint::new(axes.into(), &report)
        })
    });
    let sweep = SweepReport::new("spread".to_owned(), points.collect(), false);
    write("sweep.html", sweep_page(&sweep));
    write("sweep.json", serde_json::to_string_pretty(&sweep).unwrap());

    let (report, recording) = run_of(&measured);
    write("run.html", run_page(&report, recording));
    write("run.json", serde_json::to_string_pretty(&report).unwrap());
}
