//! `cargo xtask check docs`: blocks of commands in `docs/*.md` marked `sh run` work, in the order
//! of their page, against a small cluster that stands for the demo's (`sh not-run: REASON` says why
//! not); links lead somewhere, every page is in SUMMARY.md, the reference pages name what the
//! sources declare, and mdBook builds the book.

use crate::cluster::{self, SampleCluster};
use crate::prelude::*;

pub(crate) fn run() -> Result<()> {
    let sh = shell()?;
    let docs = root().join("docs");
    let summary = sh.read_file(docs.join("SUMMARY.md"))?;
    let mut pages = Vec::new();
    for path in sh.read_dir(&docs)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.ends_with(".md") {
            continue;
        }
        let text = sh.read_file(&path)?;
        let is_listed = name == "SUMMARY.md" || summary.contains(&format!("({name})"));
        ensure!(is_listed, "{name} is not in SUMMARY.md");
        check_links(&docs, &name, &text)?;
        let blocks = blocks_of(&name, &text)?;
        pages.push((name.into_owned(), blocks));
    }
    check_references(&sh)?;
    build_book(&sh, &docs)?;
    build_for_checks()?;
    build_trainer()?;
    let folder = scratch("check/docs");
    // Blocks of an earlier run would find their own results.
    empty(&sh, &folder)?;
    sh.write_file(folder.join(".parapet/demo/query.json"), models::json_query()?)?;
    let cluster = SampleCluster::start(&folder, 2, 1, None, &cluster::coded)?;
    let mut run = 0;
    for (page, blocks) in &pages {
        for block in blocks.iter().filter(|block| block.is_run) {
            execute(&cluster, &folder, page, block)?;
            run += 1;
        }
    }
    let all: usize = pages.iter().map(|(_, blocks)| blocks.len()).sum();
    let (pages, left_out) = (pages.len(), all - run);
    println!("{pages} pages, {run} blocks run, {left_out} marked as not to be run");
    Ok(())
}

fn check_links(docs: &Path, page: &str, text: &str) -> Result<()> {
    for rest in text.split("](").skip(1) {
        let target = rest.split(')').next().unwrap_or_default();
        let file = target.split('#').next().unwrap_or_default();
        let leads_somewhere = file.contains("://") || docs.join(file).exists();
        ensure!(leads_somewhere, "docs/{page}: dead link {target}");
    }
    Ok(())
}

/// Builds the book; a warning of mdBook's is a mistake.
fn build_book(sh: &Shell, docs: &Path) -> Result<()> {
    let (mdbook, out) = (python::program("deploy", "mdbook")?, scratch("check/book"));
    let build = cmd!(sh, "{mdbook} build {docs} --dest-dir {out}").quiet();
    let output = build.ignore_status().output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let warned = ["WARN", "ERROR"].iter().any(|word| said.contains(word));
    ensure!(output.status.success() && !warned, "mdbook: {said}");
    Ok(())
}

/// Runs a block as people would, from the folder that stands for the checkout.
fn execute(cluster: &SampleCluster, folder: &Path, page: &str, block: &Block) -> Result<()> {
    let (sh, path) = (shell()?, std::env::var("PATH").unwrap_or_default());
    let python = python::program("own-model", "")?;
    sh.change_dir(folder);
    let commands = block.commands.replace("127.0.0.1:8080", cluster::bare(&cluster.frontend));
    let run = cmd!(sh, "timeout 300 bash -euo pipefail -c {commands}");
    let path = format!("{}:{}:{path}", debug("").display(), python.display());
    output(run.env("PATH", path)).with_context(|| format!("docs/{page}:{}", block.line))?;
    // Requests of one block have ended before the next one looks at metrics.
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}

/// A block of commands that is marked to be run, or not.
#[derive(Debug)]
struct Block {
    line: usize,
    is_run: bool,
    commands: String,
}

/// Programs whose names begin a command that is to be marked.
const PROGRAMS: &str = "cargo curl parity-trainer helm docker etcdctl systemctl kubectl apt";

fn blocks_of(page: &str, text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((line, content)) = lines.next() {
        let place = format!("docs/{page}:{line}");
        if let Some(info) = content.strip_prefix("```") {
            let (is_run, mut commands) = (marked(&place, info)?, String::new());
            loop {
                let (_, content) =
                    lines.next().with_context(|| format!("{place}: a block without an end"))?;
                if content.starts_with("```") {
                    break;
                }
                commands += &format!("{content}\n");
            }
            blocks.extend(is_run.map(|is_run| Block { line, is_run, commands }));
            continue;
        }
        let indented = content.strip_prefix("    ").unwrap_or_default();
        let (program, _) = indented.split_once(' ').unwrap_or_default();
        let is_command =
            program.starts_with("parapet-") || PROGRAMS.split(' ').any(|known| known == program);
        ensure!(
            !is_command,
            "{place}: put the command into a fenced block, `sh run` or `sh not-run: WHY`"
        );
    }
    Ok(blocks)
}

/// Reads a block's first line: true if the block is run, `None` for blocks without commands.
fn marked(place: &str, info: &str) -> Result<Option<bool>> {
    // Markdown would not take the line as the beginning of a block.
    ensure!(!info.contains('`'), "{place}: no ` in a block's first line");
    let (language, mark) = info.split_once(' ').unwrap_or((info, ""));
    if !matches!(language, "sh" | "bash" | "shell" | "console") {
        return Ok(None);
    }
    match (mark.trim(), mark.trim().strip_prefix("not-run:")) {
        ("run", _) => Ok(Some(true)),
        (_, Some(reason)) if !reason.trim().is_empty() => Ok(Some(false)),
        _ => bail!("{place}: mark the block `sh run` or `sh not-run: WHY`"),
    }
}

/// Prefix of names that a page may leave out.
const SHARED: &str = "parapet_parameter_server_";

/// Source, beginning and end of the names that it declares, and the page that must tell of them.
const REFERENCES: [(&str, &str, char, &str); 5] = [
    ("frontend/src/metrics/names.rs", METRIC, '"', METRICS),
    ("models/src/metrics.rs", METRIC, '"', METRICS),
    (TRAINERS, METRIC, '"', METRICS),
    (ALERTS, "- alert: ", '\n', "docs/operations.md"),
    (SETTINGS, "    pub ", ':', "docs/instance.md"),
];
const METRIC: &str = "&str = \"";
const METRICS: &str = "docs/metrics.md";
const TRAINERS: &str = "parity-trainer/cluster/src/roles/metrics.rs";
const ALERTS: &str = "deploy/prometheus/rules.yml";
const SETTINGS: &str = "models/src/config/settings.rs";

fn check_references(sh: &Shell) -> Result<()> {
    for (source, before, after, page) in REFERENCES {
        let (text, told) = (sh.read_file(source)?, sh.read_file(page)?);
        let names = declared(&text, before, after);
        let declares = !names.is_empty();
        ensure!(declares, "{source} declares nothing for {page} any more");
        if let Some(missing) = names.iter().find(|name| !is_told(&told, name)) {
            bail!("{page} lacks {missing}, which {source} declares");
        }
    }
    Ok(())
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn declared<'a>(source: &'a str, before: &str, after: char) -> Vec<&'a str> {
    let names = source.split(before).skip(1).filter_map(|rest| rest.split(after).next());
    names.filter(|name| name.chars().all(is_part)).collect()
}

/// Returns true if a page has a name as a word of its own, and not within a longer one.
fn is_told(page: &str, name: &str) -> bool {
    let short = name.strip_prefix(SHARED).unwrap_or(name);
    page.split(|c: char| !is_part(c)).any(|word| word == name || word == short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_and_must_be_marked() {
        let text = "```sh run\ncurl x\n```\ntext\n```toml\na = 1\n```\n\
            ```sh not-run: needs a cluster\nhelm x\n```\n";
        let blocks = blocks_of("p.md", text).unwrap();
        let found = blocks.iter().map(|block| (block.line, block.is_run, block.commands.as_str()));
        let expected = [(1, true, "curl x\n"), (8, false, "helm x\n")];
        assert_eq!(found.collect::<Vec<_>>(), expected);
        for wrong in [
            "```sh\nls\n```\n",
            "```sh not-run:\nls\n```\n",
            "```sh run\nls\n",
            "    cargo xtask demo\n",
            "    parity-trainer train\n",
            "```sh not-run: see `x`\nls\n```\n",
        ] {
            assert!(blocks_of("p.md", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn declared_names_are_found_and_told_apart() {
        let source = "pub const A: &str = \"parapet_a_total\";\n\
            const B: &str = \"parapet_parameter_server_b\";\n";
        let [a, b] = ["parapet_a_total", "parapet_parameter_server_b"];
        assert_eq!(declared(source, METRIC, '"'), [a, b]);
        for (page, name, told) in [
            ("| `parapet_a_total` |", a, true),
            ("| `parapet_a_total_more` |", a, false),
            ("and `b`", b, true),
            ("and `c`", b, false),
        ] {
            assert_eq!(is_told(page, name), told, "{page}");
        }
    }

    #[test]
    fn reference_pages_are_complete() {
        check_references(&crate::workspace::shell().unwrap()).unwrap();
    }
}
