//! `cargo xtask check live-page`: the live page in headless Chromium, while a real cluster
//! straggles under load: keys, a frozen instance, decoded groups, latency, accuracy, switches, and
//! hostile strings, which must appear as text. `steps.js` has the steps on the page. A picture of
//! the page while an instance is frozen is left in `target/live-page`.

mod browser;

use self::browser::Page;
use crate::cluster::{MODEL, PARITY, SampleCluster};
use crate::models::figure;
use crate::prelude::*;

/// Time under load before latencies are compared.
const LOAD: Duration = Duration::from_secs(12);
const STEPS: &str = include_str!("steps.js");
const REPLICAS: usize = 4;
const PARITY_INSTANCES: usize = 2;
/// Most batches take 5 to 8 ms, and one in fifty much longer.
const FAULTS: &str = "seed = 7\n\
    service_time = { distribution = \"lognormal\", median_ms = 6.0, sigma = 0.1 }\n\
    straggle = { probability = 0.02, min_ms = 150.0, max_ms = 400.0 }\n";
/// A name that a page which took it for markup would fall to pieces of.
const HOSTILE: &str = "<img src=x onerror=\"window.hostile=1\"><script>window.hostile=2</script>";
pub(crate) fn run() -> Result<()> {
    require(&[("chromium", "chromium")])?;
    build_for_checks()?;
    let (sh, folder) = (shell()?, scratch("check/live-page"));
    let frontend = debug("parapet-frontend");
    let said = cmd!(sh, "{frontend} hash-key").quiet().read()?;
    let mut words = said.split_whitespace().skip(1).step_by(2);
    let printed = words.next().zip(words.next());
    let (key, hash) = printed.context("hash-key prints no key")?;
    let admin = free_address()?;
    let config =
        |replicas: &[String], parity: &[String]| configuration(&admin, hash, replicas, parity);
    let mut cluster =
        SampleCluster::start(&folder, REPLICAS, PARITY_INSTANCES, Some(FAULTS), &config)?;
    cluster.cluster.start_load(&cluster.frontend)?;
    let end = Instant::now() + LOAD;
    let url = format!("http://{admin}/live");
    let mut page = Page::open(&folder, &url, STEPS)?;
    page.take(&format!("logIn({key:?}, {MODEL:?})"))?;
    page.take("showsAClusterThatIsWell()")?;
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    let state = page.take(&format!("state({key:?})"))?;
    let picture = sh
        .create_dir(target().join("live-page"))?
        .join("frozen.png");
    shows_a_frozen_instance(&mut page, &mut cluster, &picture)?;
    page.take("switches()")?;
    page.nothing_went_wrong()?;
    drop(page);
    shows_markup_as_text(&folder, &url, state)?;
    let report = cluster.cluster.end_load(&cluster.frontend)?;
    let answered = figure(&report, "/counts/answered")?;
    println!(
        "the live page shows what it ought to; {answered} requests meanwhile; look at {}",
        picture.display()
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

/// Shows an instance as down while it is frozen, on a small screen, too.
fn shows_a_frozen_instance(
    page: &mut Page,
    cluster: &mut SampleCluster,
    picture: &Path,
) -> Result<()> {
    cluster.signal(0, Signal::SIGSTOP)?;
    page.take("showsAFrozenInstance()")?;
    std::thread::sleep(Duration::from_secs(2));
    page.screenshot(picture)?;
    page.resize(400, 900)?;
    page.take("fitsASmallScreen()")?;
    page.resize(1280, 1000)?;
    cluster.signal(0, Signal::SIGCONT)?;
    page.take("showsThatAllAreUp()").map(drop)
}

/// Shows names and labels as they are where they hold markup: the page is given a state in which
/// every text is hostile.
fn shows_markup_as_text(folder: &Path, url: &str, mut state: Value) -> Result<()> {
    let groups = state.pointer("/models/0/decoded").and_then(Value::as_array);
    let is_decoded = groups.is_some_and(|groups| !groups.is_empty());
    ensure!(is_decoded, "no group was decoded");
    make_hostile(&mut state);
    let script =
        format!("{STEPS}window.fetch = async () => new Response(JSON.stringify({state}));");
    let mut page = Page::open(folder, url, &script)?;
    page.take(&format!("showsMarkupAsText({HOSTILE:?})"))?;
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
