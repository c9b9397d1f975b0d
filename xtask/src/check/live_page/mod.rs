//! `cargo xtask check live-page`: the live page in headless Chromium, while a real cluster
//! straggles under load: keys, a frozen instance, decoded groups, latency, accuracy, switches, and
//! hostile strings, which must appear as text. Screenshots are left in `target/live-page`.

mod browser;

use self::browser::Page;
use crate::cluster::{MODEL, PARITY, SampleCluster};
use crate::models::figure;
use crate::prelude::*;
use std::net::TcpListener;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Load the cluster for so many seconds before the screenshots
    #[arg(long, value_name = "SECONDS", default_value_t = 12)]
    load_s: u64,
}

const REPLICAS: usize = 4;
const PARITY_INSTANCES: usize = 2;
/// Most batches take 5 to 8 ms, and one in fifty much longer.
const FAULTS: &str = "seed = 7\n\
    service_time = { distribution = \"lognormal\", median_ms = 6.0, sigma = 0.1 }\n\
    straggle = { probability = 0.02, min_ms = 150.0, max_ms = 400.0 }\n";
/// A name that a page which took it for markup would fall to pieces of.
const HOSTILE: &str = "<img src=x onerror=\"window.hostile=1\"><script>window.hostile=2</script>";
const ALL_ARE_UP: &str = "document.querySelectorAll('[data-state=up]').length === 6";

pub(crate) fn run(args: &Args) -> Result<()> {
    require(&[("chromium", "chromium")])?;
    build_for_checks()?;
    let (sh, folder) = (shell()?, scratch("check/live-page"));
    let pictures = sh.create_dir(target().join("live-page"))?;
    let frontend = debug("parapet-frontend");
    let said = cmd!(sh, "{frontend} hash-key").quiet().read()?;
    let mut words = said.split_whitespace().skip(1).step_by(2);
    let printed = words.next().zip(words.next());
    let (key, hash) = printed.context("hash-key prints no key")?;
    let admin = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let config =
        |replicas: &[String], parity: &[String]| configuration(&admin, hash, replicas, parity);
    let mut cluster =
        SampleCluster::start(&folder, REPLICAS, PARITY_INSTANCES, Some(FAULTS), &config)?;
    cluster.start_load()?;
    let end = Instant::now() + Duration::from_secs(args.load_s);
    let url = format!("http://{admin}/live");
    let mut page = Page::open(&folder, &pictures, &url, "")?;
    page.log_in(key)?;
    let state = page.shows_a_cluster_that_is_well(key, end)?;
    page.shows_a_frozen_instance(&mut cluster)?;
    page.switches()?;
    page.nothing_went_wrong()?;
    drop(page);
    shows_markup_as_text(&folder, &pictures, &url, state)?;
    let answered = figure(&cluster.end_load()?, "/counts/answered")?;
    println!(
        "the live page shows what it ought to; {answered} requests meanwhile; look at {}",
        pictures.display()
    );
    Ok(())
}

fn configuration(admin: &str, hash: &str, replicas: &[String], parity: &[String]) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n\
         [admin]\nlisten = \"{admin}\"\nkey_sha256 = [\"{hash}\"]\n\
         [repository]\npath = \"models\"\n\
         [[models]]\nname = \"{MODEL}\"\ninstances = {replicas:?}\nslots_per_instance = 2\n\
         [models.health]\ninterval_ms = 200\ntimeout_ms = 200\n\
         [models.strategy]\nkind = \"coded\"\nencoder = \"sum\"\nk = 2\naudit_every = 8\n\
         [[models.strategy.parity]]\nmodel = \"{PARITY}\"\ninstances = {parity:?}\n\
         [[models.classes]]\nname = \"<b>batch</b>\"\n[models.classes.strategy]\nkind = \"none\"\n"
    )
}

impl Page {
    fn enter(&mut self, key: &str) -> Result<()> {
        self.evaluate(&format!("document.getElementById('key').value = {key:?}"))?;
        self.evaluate("document.getElementById('login').requestSubmit()")?;
        Ok(())
    }

    fn click(&mut self, button: &str) -> Result<()> {
        let found = format!(
            "[...document.querySelectorAll('button')].find((one) => one.textContent === {button:?})"
        );
        self.until(&found)?;
        self.evaluate(&format!("{found}.click()")).map(drop)
    }

    /// Without a key and with a wrong one nothing is shown.
    fn log_in(&mut self, key: &str) -> Result<()> {
        self.until("!document.getElementById('login').hidden")?;
        self.enter(&format!("parapet_{}", "0".repeat(64)))?;
        self.until("document.getElementById('login-error').textContent.includes('no admin key')")?;
        self.check("document.querySelectorAll('[data-model]').length === 0")?;
        self.screenshot("login")?;
        self.enter(key)?;
        self.until(&format!("document.querySelector('[data-model={MODEL:?}]')"))?;
        // The key is not left in the form.
        self.until("document.getElementById('key').value === ''")
    }

    /// Shows groups, accuracy and latency, which reconstruction improves by `end`; returns the
    /// frontend's state.
    fn shows_a_cluster_that_is_well(&mut self, key: &str, end: Instant) -> Result<Value> {
        for expression in [
            ALL_ARE_UP,
            "document.querySelectorAll('[data-groups=decoded] .chip.reconstructed').length > 0",
            r"/\d %/.test(document.querySelector('[data-number=accuracy] b').textContent)",
            r"[...document.querySelectorAll('[data-latency=answered] td')].slice(1)
                .every((cell) => /\d ms/.test(cell.textContent))",
        ] {
            self.until(expression)?;
        }
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        let latency = "views.get([...views.keys()][0]).model.latency";
        self.check(&format!(
            "{latency}.without.p99_ms > {latency}.answered.p99_ms"
        ))?;
        self.screenshot("well")?;
        let header = format!("{{ headers: {{ authorization: 'Bearer {key}' }} }}");
        self.evaluate(&format!(
            "fetch('/live/state', {header}).then((one) => one.json())"
        ))
    }

    /// Shows an instance as down while it is frozen, in the dark and on a small screen, too.
    fn shows_a_frozen_instance(&mut self, cluster: &mut SampleCluster) -> Result<()> {
        cluster.signal(0, Signal::SIGSTOP)?;
        self.until("document.querySelectorAll('[data-state=down]').length > 0")?;
        std::thread::sleep(Duration::from_secs(2));
        self.screenshot("frozen")?;
        for scheme in ["dark", "light"] {
            let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
            self.call(
                "Emulation.setEmulatedMedia",
                json!({ "features": [feature] }),
            )?;
            self.screenshot(&format!("frozen-{scheme}"))?;
        }
        self.resize(400, 900)?;
        self.screenshot("frozen-400")?;
        let element = "document.documentElement";
        self.check(&format!("{element}.scrollWidth === {element}.clientWidth"))?;
        self.resize(1280, 1000)?;
        cluster.signal(0, Signal::SIGCONT)?;
        self.until(ALL_ARE_UP)
    }

    /// Redundancy is switched off, which asks twice, and the hold-back changed; without the key
    /// both are refused. Then both are as configured again.
    fn switches(&mut self) -> Result<()> {
        let status = "document.querySelector('[data-switch=redundancy]').textContent";
        let hold_back = "document.querySelector('[data-switch=hold-back]').textContent";
        let is_on = format!("{status} === 'on'");
        self.check(
            "fetch('/live/models/fashion/redundancy', { method: 'POST',
                headers: { 'content-type': 'application/json' }, body: '{\"on\": false}' })
                .then((answer) => answer.status === 401 || Promise.reject(answer.status))",
        )?;
        self.check(&is_on)?;
        self.click("Switch off")?;
        self.check(&is_on)?;
        self.click("Really switch off?")?;
        self.until(&format!("{status} === 'OFF'"))?;
        self.evaluate("document.querySelector('[placeholder=ms]').value = '12.5'")?;
        self.click("Fix")?;
        self.until(&format!("{hold_back}.includes('fixed here at 12.5 ms')"))?;
        let percentile = "document.querySelector('[aria-label^=percentile]').value";
        self.evaluate(&format!("{percentile} = '400'"))?;
        self.click("Learn")?;
        // What is no percentile is refused with the reason.
        self.until("document.querySelector('.refused').textContent.includes('0.97')")?;
        self.evaluate(&format!("{percentile} = ''"))?;
        self.screenshot("switched")?;
        self.click("As configured")?;
        self.until(&format!("{hold_back}.endsWith('as configured')"))?;
        self.click("Switch on")?;
        self.until(&is_on)
    }
}

/// Shows names and labels as they are where they hold markup: the page is given a state in which
/// every text is hostile.
fn shows_markup_as_text(folder: &Path, pictures: &Path, url: &str, mut state: Value) -> Result<()> {
    let groups = state.pointer("/models/0/decoded").and_then(Value::as_array);
    let is_decoded = groups.is_some_and(|groups| !groups.is_empty());
    ensure!(is_decoded, "no group was decoded");
    make_hostile(&mut state);
    let script = format!("window.fetch = async () => new Response(JSON.stringify({state}))");
    let mut page = Page::open(folder, pictures, url, &script)?;
    page.until("document.querySelectorAll('[data-model]').length === 1")?;
    let title = "document.querySelector('h2').textContent";
    page.check(&format!("{title} === {HOSTILE:?}"))?;
    page.check("document.querySelectorAll('main img, main script, main b b').length === 0")?;
    page.check("window.hostile === undefined")?;
    page.screenshot("hostile")?;
    page.nothing_went_wrong()
}

fn make_hostile(value: &mut Value) {
    match value {
        Value::String(text) => HOSTILE.clone_into(text),
        Value::Array(values) => values.iter_mut().for_each(make_hostile),
        Value::Object(fields) => fields.values_mut().for_each(make_hostile),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
