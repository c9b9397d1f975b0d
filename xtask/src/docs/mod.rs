//! `cargo xtask check docs`: what the documentation tells people to type works.
//!
//! Every block of commands in `docs/*.md` is fenced and marked: `sh run` is run, in the order of
//! its page, against a small cluster that stands for the demo's; `sh not-run: REASON` says why not.
//! Links to other files must lead somewhere, every page must be in SUMMARY.md, the reference pages
//! must name what the sources declare, and mdBook must build the book.

mod blocks;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::blocks::{Block, Run};
use crate::deploy::tools;
use crate::sample::{self, SampleCluster};
use crate::workspace;

/// Arguments of `cargo xtask check docs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the blocks of this page only
    #[arg(long, value_name = "PAGE")]
    only: Option<String>,
}

/// Limit of a block's time, in seconds.
const LIMIT: u64 = 60;

/// Runs the checks.
pub(crate) fn run(args: &Args) -> Result<()> {
    let docs = workspace::root().join("docs");
    let pages = pages(&docs)?;
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).context("no docs/SUMMARY.md")?;
    let mut blocks = Vec::new();
    for page in &pages {
        let name = page
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = workspace::read(page)?;
        ensure!(
            name == "SUMMARY.md" || summary.contains(&format!("({name})")),
            "{name} is not in SUMMARY.md"
        );
        links(&docs, &name, &text)?;
        blocks.extend(blocks::of(&name, &text)?);
    }
    reference::check()?;
    book(&docs)?;
    sample::build()?;
    let folder = sample::folder("docs");
    fs::create_dir_all(folder.join(".parapet/demo"))
        .with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(folder.join(".parapet/demo/query.json"), sample::query(0.5))
        .context("cannot write query.json")?;
    let cluster = SampleCluster::start(&folder)?;
    let (mut run, mut left_out) = (0, 0);
    for block in &blocks {
        match &block.run {
            Run::Yes if args.only.as_ref().is_none_or(|only| *only == block.page) => {
                execute(&cluster, &folder, block)?;
                run += 1;
            }
            Run::Yes => {}
            Run::No(_) => left_out += 1,
        }
    }
    println!(
        "{} pages, {run} blocks run, {left_out} marked as not to be run",
        pages.len()
    );
    Ok(())
}

fn pages(docs: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(docs).context("no docs/")?;
    let mut pages: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    Ok(pages)
}

/// Files that a page links to are there.
fn links(docs: &Path, page: &str, text: &str) -> Result<()> {
    for target in text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
    {
        let file = target.split('#').next().unwrap_or_default();
        if file.is_empty() || file.contains("://") {
            continue;
        }
        ensure!(
            docs.join(file).exists(),
            "docs/{page}: the link to {target} leads nowhere"
        );
    }
    Ok(())
}

/// Builds the book; a warning of mdBook's is a mistake.
fn book(docs: &Path) -> Result<()> {
    let mut command = Command::new(tools::mdbook()?);
    command
        .arg("build")
        .arg(docs)
        .arg("--dest-dir")
        .arg(sample::folder("book"));
    let output = command.output().context("mdbook cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let warned = said
        .lines()
        .any(|line| line.contains("WARN") || line.contains("ERROR"));
    ensure!(output.status.success() && !warned, "mdbook: {said}");
    Ok(())
}

/// Runs a block as people would, from the folder that stands for the checkout.
fn execute(cluster: &SampleCluster, folder: &Path, block: &Block) -> Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let programs = sample::binary("");
    let frontend = cluster.frontend.trim_start_matches("http://");
    let commands = block.commands.replace("127.0.0.1:8080", frontend);
    let output = Command::new("timeout")
        .args([
            &LIMIT.to_string(),
            "bash",
            "-euo",
            "pipefail",
            "-c",
            &commands,
        ])
        .current_dir(folder)
        .env("PATH", format!("{}:{path}", programs.display()))
        .stdin(Stdio::null())
        .output()
        .context("cannot start bash")?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr]
            .map(|text| String::from_utf8_lossy(&text).into_owned())
            .concat();
        bail!(
            "docs/{}:{}: {} ({})\n{commands}",
            block.page,
            block.line,
            said.trim(),
            output.status
        );
    }
    // Requests of one block have ended before the next one looks at metrics.
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}
