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

use std::fs;
use std::net::TcpListener;
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
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let pictures = workspace::target().join("live-page");
    fs::create_dir_all(&pictures).with_context(|| format!("cannot make {}", pictures.display()))?;
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
    folder: &std::path::Path,
    pictures: &std::path::Path,
) -> Result<()> {
    let browser = Browser::start(folder)?;
    let page = browser.open(&format!("{admin}/live"), (1280, 1000))?;
    let picture = |name: &str| pictures.join(name);

    page.until(
        "the page asks for a key",
        "!document.getElementById('login').hidden",
    )?;
    enter(
        &page,
        "parapet_0000000000000000000000000000000000000000000000000000000000000000",
    )?;
    page.until(
        "a wrong key is refused",
        "document.getElementById('login-error').textContent.includes('no admin key')",
    )?;
    ensure!(
        page.text("document.querySelectorAll('[data-model]').length")? == "0",
        "it shows something without a key"
    );
    page.screenshot(&picture("login.png"))?;
    enter(&page, key)?;
    page.until(
        "the model is shown",
        &format!("!!document.querySelector('[data-model={MODEL:?}]')"),
    )?;
    page.until(
        "the key is not left in the form",
        "document.getElementById('key').value === ''",
    )?;

    let end = Instant::now() + Duration::from_secs(args.load_s);
    page.until(
        "every instance is up",
        &format!("{} === {}", tiles("up"), REPLICAS + PARITY_INSTANCES),
    )?;
    page.until(
        "groups decode",
        "document.querySelectorAll('[data-groups=decoded] .chip.reconstructed').length > 0",
    )?;
    page.until(
        "accuracy is there",
        r"/\d %/.test(document.querySelector('[data-number=accuracy] b').textContent)",
    )?;
    page.until("latency is there", r"[...document.querySelectorAll('[data-latency=answered] td')].slice(1).every((cell) => /\d ms/.test(cell.textContent))")?;
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    let spared: f64 = page
        .text(
            "views.get([...views.keys()][0]).model.latency.without.p99_ms - \
        views.get([...views.keys()][0]).model.latency.answered.p99_ms",
        )?
        .parse()
        .context("no p99 on the page")?;
    ensure!(
        spared > 0.0,
        "p99 is no better with reconstruction than without: {spared} ms"
    );
    page.screenshot(&picture("well.png"))?;

    cluster.signal(0, Signal::SIGSTOP);
    page.until(
        "a frozen instance is shown as down",
        &format!("{} > 0", tiles("down")),
    )?;
    std::thread::sleep(Duration::from_secs(2));
    page.screenshot(&picture("frozen.png"))?;
    page.dark(true)?;
    page.screenshot(&picture("frozen-dark.png"))?;
    page.dark(false)?;
    page.resize((400, 900))?;
    page.screenshot(&picture("frozen-400.png"))?;
    let overflow =
        page.text("document.documentElement.scrollWidth - document.documentElement.clientWidth")?;
    ensure!(
        overflow == "0",
        "at 400 px the page is {overflow} px too wide"
    );
    page.resize((1280, 1000))?;
    cluster.signal(0, Signal::SIGCONT);
    page.until(
        "it is up again",
        &format!("{} === {}", tiles("up"), REPLICAS + PARITY_INSTANCES),
    )?;

    switches(&page)?;
    page.screenshot(&picture("switched.png"))?;
    click(&page, "As configured")?;
    page.until(
        "the hold-back is as configured",
        r"document.querySelector('[data-switch=hold-back]').textContent.endsWith('as configured')",
    )?;
    click(&page, "Switch on")?;
    page.until(
        "redundancy is on again",
        "document.querySelector('[data-switch=redundancy]').textContent === 'on'",
    )?;
    page.nothing_went_wrong()?;

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
    page.screenshot(&picture("hostile.png"))?;
    page.nothing_went_wrong()
}

/// Redundancy is switched off, which asks twice, and the hold-back changed; without the key
/// both are refused.
fn switches(page: &Page<'_>) -> Result<()> {
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
    Ok(())
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
