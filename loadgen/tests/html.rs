//! The HTML reports: whole, alone, and telling.

#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "shared")]
#[path = "common/synthetic.rs"]
mod synthetic;

use parapet_loadgen::compare::{Bootstrap, Comparison, FaultMark, analyse};
use parapet_loadgen::report::{compare_page, run_page, summarise};
use synthetic::{KINDS, Kind, Size, comparison, run_settings};

const DRAWS: Bootstrap = Bootstrap { resamples: 50, seed: 1 };

fn page(comparison: &Comparison) -> String {
    let page = compare_page(&analyse(comparison, &comparison.strategies[0].name, DRAWS).unwrap());
    whole(&page);
    page
}

/// Every element that is opened is closed in its turn, no number is missing, and nothing
/// comes from elsewhere.
fn whole(page: &str) {
    const VOID: [&str; 2] = ["meta", "br"];
    let body = &page[page.find("<html").unwrap()..];
    let style = body.find("<style>").unwrap()..body.find("</style>").unwrap();
    let elements = [&body[..style.start + 7], &body[style.end..]].concat();
    let mut open: Vec<&str> = Vec::new();
    for tag in elements.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        let name = tag.trim_matches('/').split_whitespace().next().unwrap();
        if tag.starts_with('/') {
            let expected = open.pop().unwrap();
            assert_eq!(expected, name);
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    for missing in ["NaN", "inf ", "\"inf"] {
        assert!(!page.contains(missing), "{missing}");
    }
    for foreign in ["<script", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn a_comparison_shows_every_strategy_in_every_plot() {
    let page = page(&comparison(&KINDS, Size::new(10, 2.0)));
    for title in [
        "Latency by percentile",
        "Latency over time",
        "Answers and cost",
        "Settings",
        "model-2 stopped",
        "95 % interval",
    ] {
        assert!(page.contains(title), "{title}");
    }
    for kind in KINDS {
        assert!(page.matches(kind.name).count() >= 5, "{}", kind.name);
    }
    assert!(!page.contains("PARTIAL") && !page.contains("NOT VALID"));
}

#[test]
fn doubts_come_before_figures() {
    let mut measured = comparison(&KINDS, Size::new(3, 2.0));
    measured.settings.blocks = 9;
    measured.strategies[0].blocks[0].valid = false;
    let page = page(&measured);
    let table = page.find("<table>").unwrap();
    for doubt in ["PARTIAL", "NOT VALID", "not to be quoted before"] {
        assert!(page.find(doubt).unwrap() < table, "{doubt}");
    }
}

#[test]
fn odd_input_makes_a_page_all_the_same() {
    let name = "<b> & \"co\"";
    let kinds = [Kind { name, ..KINDS[0] }];
    let size = Size { rate: 3.0, ..Size::new(1, 1.0) };
    let mut measured = comparison(&kinds, size);
    let fault = |number: u32| FaultMark {
        at_s: f64::from(number) * 0.01,
        until_s: None,
        what: "slowed".to_owned(),
        instance: name.to_owned(),
        strategy: None,
    };
    measured.faults = (0..40).map(fault).collect();
    assert!(!page(&measured).contains(name));
    let recording = &mut measured.strategies[0].blocks[0].recording;
    recording.records.fill(parapet_loadgen::run::Record::default());
    page(&measured);
}

#[test]
fn a_run_has_a_page() {
    let measured = comparison(&KINDS, Size::default());
    let settings = run_settings(&measured.settings);
    let mut recording = measured.strategies[1].blocks[0].recording.clone();
    let page = run_page(&summarise(settings.clone(), &recording), &recording);
    whole(&page);
    assert!(page.contains("requests were answered: p50") && page.contains("reconstructed"));
    recording.records.clear();
    recording.partial = true;
    let page = run_page(&summarise(settings, &recording), &recording);
    whole(&page);
    assert!(page.contains("PARTIAL"));
}
