//! Experiments that are read, and mistakes in them.

use super::Experiment;

const GOOD: &str = r#"
model = "fashion"
rate = 270
requests = 25
baseline = "er"
[instances]
deployed = 4
redundant = 2
[faults]
seed = 1
service_time = { distribution = "constant", ms = 18 }
[[events]]
block = 1
after_s = 0.5
what = "freeze"
instance = 5
for_s = 0.3
[[strategies]]
name = "er"
settings = { kind = "none" }
all_instances = true
[[strategies]]
name = "coded"
settings = { kind = "coded", encoder = "concat", k = 2 }
parity_models = ["parity"]
"#;

fn read(text: &str) -> Result<Experiment, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Experiment::read(file.path()).map_err(|error| error.to_string())
}

#[test]
fn a_good_one_is_read() {
    let experiment = read(GOOD).unwrap();
    assert_eq!(experiment.models(), ["fashion", "parity"]);
    assert_eq!(experiment.block_requests(), [3, 3, 3, 3, 3, 2, 2, 2, 2, 2]);
    let coded = experiment.strategies[1].resolve(experiment.instances).unwrap();
    assert_eq!(coded.pools.iter().map(|(_, count)| count).sum::<usize>(), 6);
}

const GIVEN: &str = r#"
model = "fashion"
rate = 270
requests = 25
baseline = "none"
[[strategies]]
name = "none"
url = "http://127.0.0.1:8000"
[[strategies]]
name = "coded"
url = "http://127.0.0.1:8001"
metrics_url = "http://127.0.0.1:9001"
"#;

#[test]
fn frontends_that_run_need_no_instances() {
    let experiment = read(GIVEN).unwrap();
    assert!(!experiment.starts_processes() && experiment.models() == ["fashion"]);
    assert!(read(GOOD).unwrap().starts_processes());
    let event = "[[events]]\nblock = 0\nafter_s = 0\nwhat = \"kill\"\ninstance = 0\n";
    let replaced = |from: &str, to: &str| GIVEN.replace(from, to);
    let added = |text: &str| format!("{GIVEN}{text}");
    let none = "settings = { kind = \"none\" }\nall_instances = true";
    let metrics = GOOD.replace(none, "metrics_url = \"http://a\"");
    let (beside, every) = ("strategies[1].url: beside settings", "every strategy has a url");
    let no_address = "strategies[1].url: \"http://\" is no address";
    let first = "url = \"http://127.0.0.1:8000\"";
    for (mistake, named) in [
        (replaced("127.0.0.1:8001", ""), no_address),
        (replaced("9001\"", "9001/x\""), "strategies[1].metrics_url"),
        (replaced(first, ""), "instances.deployed: 0"),
        (added("settings = { kind = \"coded\" }"), beside),
        (added("backup_model = \"b\""), beside),
        (added(event), "events: strategy \"none\" has a url"),
        (added("[instances]\ndeployed = 2"), every),
        (added("[faults]\nseed = 3"), every),
        (metrics, "metrics_url: without url"),
    ] {
        let error = read(&mistake).unwrap_err();
        assert!(error.contains(named) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn mistakes_are_named_in_one_line() {
    let mistakes = r#"
rate = 270 -> rate = 0 => rate: 0; give
rate = 270 -> rat = 270 => line 3: unknown field `rat`
deployed = 4 -> deployed = 1 => settings: k = 2 is more than the 1 instances
redundant = 2 -> redundant = 0 => without redundant instances
k = 2 -> k = 2, shares = 1 => unknown field `shares`
kind = "coded" -> kind = "coder" => unknown strategy "coder"; use one of none,
parity_models = ["parity"] -> => parity_models: 0 models for r = 1
instance = 5 -> instance = 6 => events[0].instance: instance 6 of 6
block = 1 -> block = 10 => events[0].block
for_s = 0.3 -> => a freeze without an end
baseline = "er" -> baseline = "none" => no strategy is named "none"
name = "er" -> name = "coded" => there twice
requests = 25 -> requests = 9 => 9 requests for 10 blocks
ms = 18 -> ms = -1 => service_time.ms
model = "fashion" -> => model: none
"#;
    for line in mistakes.trim().lines() {
        let (from, rest) = line.split_once(" -> ").unwrap();
        let (to, named) = rest.split_once("=> ").unwrap();
        assert!(GOOD.contains(from), "{from}");
        let error = read(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(named) && !error.contains('\n'), "{error}");
    }
}
