//! `cargo xtask check live-page`: the live page in headless Chromium, while a real cluster
//! straggles under load.
//!
//! It is opened without a key, with a wrong one and with the right one; a frozen instance, decoded
//! groups, latency and accuracy must be on it; its switch is set, and refused to a client without a
//! key; hostile strings of a server must appear as text. Screenshots are left in
//! `target/live-page`, for people to look at.

mod browser;
mod hostile;
mod load;

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;

use self::browser::{Browser, Page};
use self::hostile::Hostile;
use self::load::Load;
use crate::sample::{self, Layout, MODEL, PARITY, SampleCluster};
use crate::workspace;

/// Arguments of `cargo xtask check live-page`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Load the cluster for so many seconds before the screenshots
    #[arg(long, value_name = "SECONDS", default_value_t = 12)]
    load_s: u64,
    /// Leave the cluster under load for so long afterwards, and say where the page is
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    keep_s: u64,
}

const REPLICAS: usize = 4;
const PARITY_INSTANCES: usize = 2;
/// Most batches take 5 to 8 ms, and one in fifty much longer.
const FAULTS: &str = "seed = 7\n\
    service_time = { distribution = \"lognormal\", median_ms = 6.0, sigma = 0.1 }\n\
    straggle = { probability = 0.02, min_ms = 150.0, max_ms = 400.0 }\n";

/// Runs the check.
pub(crate) fn run(args: &Args) -> Result<()> {
    Browser::require()?;
    sample::build()?;
    let folder = sample::folder("live-page");
    workspace::make_folder(&folder)?;
    let pictures = workspace::target().join("live-page");
    workspace::make_folder(&pictures)?;
    let (key, hash) = new_key()?;
    let admin = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr())?;
    let config = |replicas: &[String], parity: &[String]| {
        configuration(&admin.to_string(), &hash, replicas, parity)
    };
    let layout = Layout {
        replicas: REPLICAS,
        parity: PARITY_INSTANCES,
        faults: Some(FAULTS),
        config: &config,
    };
    let cluster = SampleCluster::start_as(&folder, &layout)?;
    let load = Load::start(&cluster);
    let checked = look(
        args,
        &cluster,
        &format!("http://{admin}"),
        &key,
        &folder,
        &pictures,
    );
    if checked.is_ok() && args.keep_s > 0 {
        println!("http://{admin}/live, key {key}, for {} s", args.keep_s);
        std::thread::sleep(Duration::from_secs(args.keep_s));
    }
    let answered = load.stop();
    checked?;
    println!(
        "the live page shows what it ought to; {answered} requests meanwhile; look at {}",
        pictures.display()
    );
    Ok(())
}

fn look(
    args: &Args,
    cluster: &SampleCluster,
    admin: &str,
    key: &str,
    folder: &Path,
    pictures: &Path,
) -> Result<()> {
    let browser = Browser::start(folder)?;
    let page = browser.open(&format!("{admin}/live"), (1280, 1000))?;
    let end = Instant::now() + Duration::from_secs(args.load_s);
    log_in(&page, key, pictures)?;
    shows_a_cluster_that_is_well(&page, pictures, end)?;
    shows_a_frozen_instance(&page, cluster, pictures)?;
    switches(&page, pictures)?;
    page.nothing_went_wrong()?;
    shows_markup_as_text(&browser, admin, pictures)
}

/// Without a key and with a wrong one nothing is shown.
fn log_in(page: &Page<'_>, key: &str, pictures: &Path) -> Result<()> {
    page.until(
        "the page asks for a key",
        "!document.getElementById('login').hidden",
    )?;
    enter(page, &format!("parapet_{}", "0".repeat(64)))?;
    page.until(
        "a wrong key is refused",
        "document.getElementById('login-error').textContent.includes('no admin key')",
    )?;
    ensure!(
        page.text("document.querySelectorAll('[data-model]').length")? == "0",
        "it shows something without a key"
    );
    page.screenshot(&pictures.join("login.png"))?;
    enter(page, key)?;
    page.until(
        "the model is shown",
        &format!("!!document.querySelector('[data-model={MODEL:?}]')"),
    )?;
    page.until(
        "the key is not left in the form",
        "document.getElementById('key').value === ''",
    )
}

fn all_are_up(page: &Page<'_>) -> Result<()> {
    let all = REPLICAS + PARITY_INSTANCES;
    page.until(
        "every instance is up",
        &format!("{} === {all}", tiles("up")),
    )
}

/// Shows groups, accuracy and latency, which reconstruction improves by `end`.
fn shows_a_cluster_that_is_well(page: &Page<'_>, pictures: &Path, end: Instant) -> Result<()> {
    all_are_up(page)?;
    page.until(
        "groups decode",
        "document.querySelectorAll('[data-groups=decoded] .chip.reconstructed').length > 0",
    )?;
    page.until(
        "accuracy is there",
        r"/\d %/.test(document.querySelector('[data-number=accuracy] b').textContent)",
    )?;
    page.until(
        "latency is there",
        r"[...document.querySelectorAll('[data-latency=answered] td')].slice(1)
            .every((cell) => /\d ms/.test(cell.textContent))",
    )?;
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    let latency = "views.get([...views.keys()][0]).model.latency";
    let spared = format!("{latency}.without.p99_ms - {latency}.answered.p99_ms");
    let spared: f64 = page.text(&spared)?.parse().context("no p99 on the page")?;
    ensure!(
        spared > 0.0,
        "p99 is no better with reconstruction than without: {spared} ms"
    );
    page.screenshot(&pictures.join("well.png"))
}

/// Shows an instance as down while it is frozen, in the dark and on a small screen, too.
fn shows_a_frozen_instance(
    page: &Page<'_>,
    cluster: &SampleCluster,
    pictures: &Path,
) -> Result<()> {
    cluster.signal(0, Signal::SIGSTOP);
    page.until(
        "a frozen instance is shown as down",
        &format!("{} > 0", tiles("down")),
    )?;
    std::thread::sleep(Duration::from_secs(2));
    page.screenshot(&pictures.join("frozen.png"))?;
    page.dark(true)?;
    page.screenshot(&pictures.join("frozen-dark.png"))?;
    page.dark(false)?;
    page.resize((400, 900))?;
    page.screenshot(&pictures.join("frozen-400.png"))?;
    let element = "document.documentElement";
    let overflow = page.text(&format!("{element}.scrollWidth - {element}.clientWidth"))?;
    ensure!(
        overflow == "0",
        "at 400 px the page is {overflow} px too wide"
    );
    page.resize((1280, 1000))?;
    cluster.signal(0, Signal::SIGCONT);
    all_are_up(page)
}

/// Shows names and labels as they are where they hold markup.
fn shows_markup_as_text(browser: &Browser, admin: &str, pictures: &Path) -> Result<()> {
    let hostile = Hostile::start(&crate::http::get_whole(&format!("{admin}/live"))?)?;
    let page = browser.open(&hostile.url, (1280, 1000))?;
    page.until(
        "the hostile model is shown",
        "document.querySelectorAll('[data-model]').length === 1",
    )?;
    let shown = page.text("document.querySelector('h2').textContent")?;
    ensure!(shown == hostile::NAME, "the name is shown as {shown}");
    ensure!(
        page.text("document.querySelectorAll('main img, main script, main b b').length")? == "0",
        "markup was taken for markup"
    );
    ensure!(
        page.text("String(window.hostile)")? == "undefined",
        "a script of the state's ran"
    );
    page.screenshot(&pictures.join("hostile.png"))?;
    page.nothing_went_wrong()
}

/// Redundancy is switched off, which asks twice, and the hold-back changed; without the key
/// both are refused. Then both are as configured again.
fn switches(page: &Page<'_>, pictures: &Path) -> Result<()> {
    let post = "fetch('/live/models/fashion/redundancy', { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{\"on\": false}' }).then((answer) => String(answer.status))";
    ensure!(
        page.text(post)? == "401",
        "a switch can be thrown without the key"
    );
    let status = "document.querySelector('[data-switch=redundancy]').textContent";
    ensure!(page.text(status)? == "on", "and was");
    click(page, "Switch off")?;
    ensure!(page.text(status)? == "on", "it does not ask twice");
    click(page, "Really switch off?")?;
    page.until("redundancy is off", &format!("{status} === 'OFF'"))?;
    page.evaluate("document.querySelector('[placeholder=ms]').value = '12.5'")?;
    click(page, "Fix")?;
    page.until(
        "the hold-back is another",
        "document.querySelector('[data-switch=hold-back]').textContent.includes('fixed here at \
            12.5 ms')",
    )?;
    page.evaluate("document.querySelector('[aria-label^=percentile]').value = '400'")?;
    click(page, "Learn")?;
    page.until(
        "what is no percentile is refused with the reason",
        "document.querySelector('.refused').textContent.includes('0.97')",
    )?;
    page.evaluate("document.querySelector('[aria-label^=percentile]').value = ''")?;
    page.screenshot(&pictures.join("switched.png"))?;
    click(page, "As configured")?;
    page.until(
        "the hold-back is as configured",
        r"document.querySelector('[data-switch=hold-back]').textContent.endsWith('as configured')",
    )?;
    click(page, "Switch on")?;
    page.until(
        "redundancy is on again",
        "document.querySelector('[data-switch=redundancy]').textContent === 'on'",
    )
}

fn tiles(state: &str) -> String {
    format!("document.querySelectorAll('[data-state={state}]').length")
}

fn enter(page: &Page<'_>, key: &str) -> Result<()> {
    page.evaluate(&format!("document.getElementById('key').value = {key:?}"))?;
    page.evaluate("document.getElementById('login').requestSubmit()")?;
    Ok(())
}

fn click(page: &Page<'_>, button: &str) -> Result<()> {
    let found = format!(
        "[...document.querySelectorAll('button')].find((button) => button.textContent === \
            {button:?})"
    );
    page.until(
        &format!("there is a button {button:?}"),
        &format!("!!{found}"),
    )?;
    page.evaluate(&format!("{found}.click()"))
        .map(|_: Value| ())
}

/// A key and its hash, as operators make them.
fn new_key() -> Result<(String, String)> {
    let output = Command::new(sample::binary("parapet-frontend"))
        .arg("hash-key")
        .output()
        .context("no frontend")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = said.split_whitespace().collect();
    let [_, key, _, hash] = words.as_slice() else {
        bail!("hash-key says {said}")
    };
    Ok(((*key).to_owned(), (*hash).to_owned()))
}

/// Coded, with an admin listener that asks for a key, and a class of requests whose name is markup.
fn configuration(admin: &str, hash: &str, replicas: &[String], parity: &[String]) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"{admin}\"\nkey_sha256 = \
            [\"{hash}\"]\n\
         [repository]\npath = \"models\"\n\
         [[models]]\nname = \"{MODEL}\"\ninstances = {replicas:?}\nslots_per_instance = 2\n\
         [models.health]\ninterval_ms = 200\ntimeout_ms = 200\n\
         [models.strategy]\nkind = \"coded\"\nencoder = \"sum\"\nk = 2\naudit_every = 8\n\
         [[models.strategy.parity]]\nmodel = \"{PARITY}\"\ninstances = {parity:?}\n\
         [[models.classes]]\nname = \"<b>batch</b>\"\n[models.classes.strategy]\nkind = \"none\"\n"
    )
}
