//! `cargo xtask check docs`: what the documentation tells people to type works.
//!
//! Every block of commands in `docs/*.md` is fenced and marked: `sh run` is run, in the order of
//! its page, against a small cluster that stands for the demo's; `sh not-run: REASON` says why not.
//! Links to other files must lead somewhere, every page must be in SUMMARY.md, the reference pages
//! must name what the sources declare, and mdBook must build the book.

mod blocks;
mod reference;

use self::blocks::Block;
use crate::cluster::{self, SampleCluster};
use crate::prelude::*;
use std::process::{Command, Stdio};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the blocks of this page only
    #[arg(long, value_name = "PAGE")]
    only: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let sh = shell()?;
    let docs = root().join("docs");
    let summary = sh.read_file(docs.join("SUMMARY.md"))?;
    let mut pages = Vec::new();
    for path in sh
        .read_dir(&docs)?
        .iter()
        .filter(|path| path.extension() == Some("md".as_ref()))
    {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = sh.read_file(path)?;
        let is_listed = name == "SUMMARY.md" || summary.contains(&format!("({name})"));
        ensure!(is_listed, "{name} is not in SUMMARY.md");
        check_links(&docs, &name, &text)?;
        let blocks = blocks::of(&name, &text)?;
        pages.push((name, blocks));
    }
    reference::check(&sh)?;
    build_book(&sh, &docs)?;
    build_for_checks()?;
    let folder = scratch("check/docs");
    sh.write_file(folder.join(".parapet/demo/query.json"), cluster::query(0.5))?;
    let cluster = SampleCluster::start(&folder, 2, 1, None, &cluster::coded)?;
    let (mut run, mut left_out) = (0, 0);
    for (page, blocks) in &pages {
        let is_wanted = args.only.as_ref().is_none_or(|only| only == page);
        for block in blocks {
            if !block.is_run {
                left_out += 1;
            } else if is_wanted {
                execute(&cluster, &folder, page, block)?;
                run += 1;
            }
        }
    }
    let pages = pages.len();
    println!("{pages} pages, {run} blocks run, {left_out} marked as not to be run");
    Ok(())
}

fn check_links(docs: &Path, page: &str, text: &str) -> Result<()> {
    for rest in text.split("](").skip(1) {
        let target = rest.split(')').next().unwrap_or_default();
        let file = target.split('#').next().unwrap_or_default();
        let leads_somewhere = file.contains("://") || docs.join(file).exists();
        ensure!(
            leads_somewhere,
            "docs/{page}: the link to {target} leads nowhere"
        );
    }
    Ok(())
}

/// Builds the book; a warning of mdBook's is a mistake.
fn build_book(sh: &Shell, docs: &Path) -> Result<()> {
    let (mdbook, out) = (python::program("deploy", "mdbook")?, scratch("check/book"));
    let output = cmd!(sh, "{mdbook} build {docs} --dest-dir {out}")
        .quiet()
        .ignore_status();
    let output = output.output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let warned = ["WARN", "ERROR"].iter().any(|word| said.contains(word));
    ensure!(output.status.success() && !warned, "mdbook: {said}");
    Ok(())
}

/// Runs a block as people would, from the folder that stands for the checkout.
fn execute(cluster: &SampleCluster, folder: &Path, page: &str, block: &Block) -> Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let frontend = cluster.frontend.trim_start_matches("http://");
    let commands = block.commands.replace("127.0.0.1:8080", frontend);
    let output = Command::new("timeout")
        .args(["60", "bash", "-euo", "pipefail", "-c", &commands])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", debug("").display()))
        .stdin(Stdio::null())
        .output()
        .context("cannot start bash")?;
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure!(
        output.status.success(),
        "docs/{page}:{}: {} ({})\n{commands}",
        block.line,
        said.concat().trim(),
        output.status
    );
    // Requests of one block have ended before the next one looks at metrics.
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}
