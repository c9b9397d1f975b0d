//! `cargo xtask check live-page`: the live page in headless Chromium, while a real cluster
//! straggles under load: keys, a frozen instance, decoded groups, latency, accuracy, switches, and
//! hostile strings, which must appear as text. `steps.js` has the steps on the page. A picture of
//! the page while an instance is frozen is left in `target/live-page`.

use crate::cluster::{MODEL, PARITY, SampleCluster};
use crate::models::figure;
use crate::prelude::*;

/// Time under load before latencies are compared.
const LOAD_SECONDS: &str = "12";
const REPLICAS: usize = 4;
const PARITY_INSTANCES: usize = 2;
/// Most batches take 5 to 8 ms, and one in fifty much longer.
const FAULTS: &str = "seed = 7\n\
    service_time = { distribution = \"lognormal\", median_ms = 6.0, sigma = 0.1 }\n\
    straggle = { probability = 0.02, min_ms = 150.0, max_ms = 400.0 }\n";

pub(crate) fn run() -> Result<()> {
    require(&[("chromium", "chromium")])?;
    build_for_checks()?;
    let (sh, folder) = (shell()?, scratch("check/live-page"));
    let frontend = debug("parapet-frontend");
    let said = cmd!(sh, "{frontend} hash-key").quiet().read()?;
    let mut words = said.split_whitespace().skip(1).step_by(2);
    let (key, hash) = words.next().zip(words.next()).context("hash-key prints no key")?;
    let admin = free_address()?;
    let config =
        |replicas: &[String], parity: &[String]| configuration(&admin, hash, replicas, parity);
    let mut cluster =
        SampleCluster::start(&folder, REPLICAS, PARITY_INSTANCES, Some(FAULTS), &config)?;
    cluster.cluster.start_load(&cluster.frontend)?;
    let python = python::program("live-page", "python")?;
    let script = root().join("xtask/src/check/live_page/page.py");
    let pictures = sh.create_dir(target().join("live-page"))?;
    let (picture, pid) = (pictures.join("frozen.png"), cluster.pid(0)?.to_string());
    let steps = cmd!(
        sh,
        "{python} -B {script} --url http://{admin}/live --key {key} --model {MODEL} --pid {pid}
            --picture {picture} --load-seconds {LOAD_SECONDS}"
    );
    steps.quiet().run()?;
    let answered = figure(&cluster.cluster.end_load(&cluster.frontend)?, "/counts/answered")?;
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
