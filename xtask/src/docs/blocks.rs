//! Blocks of commands in a page.

use anyhow::{Result, bail, ensure};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Run {
    Yes,
    No(String),
}

/// A block of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) page: String,
    pub(super) line: usize,
    pub(super) run: Run,
    pub(super) commands: String,
}

/// Programs whose names begin a command that is to be marked.
const PROGRAMS: [&str; 10] = [
    "cargo ",
    "curl ",
    "parapet-",
    "parity-trainer ",
    "helm ",
    "docker ",
    "etcdctl ",
    "systemctl ",
    "kubectl ",
    "apt ",
];

/// All blocks of commands of a page.
pub(super) fn of(page: &str, text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => open = Some((number, info.to_owned(), String::new())),
            (Some((_, _, body)), None) => *body += &format!("{line}\n"),
            (Some((begin, info, body)), Some(_)) => {
                if let Some(run) = marked(page, *begin, info)? {
                    let commands = std::mem::take(body);
                    blocks.push(Block {
                        page: page.to_owned(),
                        line: *begin,
                        run,
                        commands,
                    });
                }
                open = None;
            }
            (None, None) => {
                let indented = line.strip_prefix("    ").unwrap_or_default();
                let command = PROGRAMS.iter().any(|program| indented.starts_with(program));
                ensure!(
                    !command,
                    "docs/{page}:{number}: put the command into a fenced block, `sh run` or `sh \
                        not-run: WHY`"
                );
            }
        }
    }
    ensure!(open.is_none(), "docs/{page}: a fenced block without an end");
    Ok(blocks)
}

/// Reads a block's first line; `None` for blocks without commands.
fn marked(page: &str, line: usize, info: &str) -> Result<Option<Run>> {
    // Markdown would not take the line as the beginning of a block.
    ensure!(
        !info.contains('`'),
        "docs/{page}:{line}: no ` in a block's first line"
    );
    let (language, mark) = info.split_once(' ').unwrap_or((info, ""));
    if !matches!(language, "sh" | "bash" | "shell" | "console") {
        return Ok(None);
    }
    match (
        mark.trim(),
        mark.trim().strip_prefix("not-run:").map(str::trim),
    ) {
        ("run", _) => Ok(Some(Run::Yes)),
        (_, Some(reason)) if !reason.is_empty() => Ok(Some(Run::No(reason.to_owned()))),
        _ => bail!("docs/{page}:{line}: mark the block `sh run` or `sh not-run: WHY`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_and_must_be_marked() {
        let text = "```sh run\ncurl x\n```\ntext\n```toml\na = 1\n```\n```sh not-run: needs a \
            cluster\nhelm x\n```\n";
        let blocks = of("p.md", text).unwrap();
        assert_eq!(blocks.len(), 2);
        assert_eq!(
            (
                blocks[0].line,
                blocks[0].run.clone(),
                blocks[0].commands.as_str()
            ),
            (1, Run::Yes, "curl x\n")
        );
        assert_eq!(blocks[1].run, Run::No("needs a cluster".to_owned()));
        for wrong in [
            "```sh\nls\n```\n",
            "```sh not-run:\nls\n```\n",
            "```sh run\nls\n",
            "    cargo xtask demo\n",
            "```sh not-run: see `x`\nls\n```\n",
        ] {
            assert!(of("p.md", wrong).is_err(), "{wrong}");
        }
    }
}
