//! Blocks of commands in a page.

use crate::prelude::*;

/// A block of commands that is marked to be run, or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) line: usize,
    pub(super) is_run: bool,
    pub(super) commands: String,
}

/// Programs whose names begin a command that is to be marked.
const PROGRAMS: &str = "cargo curl parity-trainer helm docker etcdctl systemctl kubectl apt";

pub(super) fn of(page: &str, text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut open: Option<(Option<bool>, Block)> = None;
    for (line, content) in (1..).zip(text.lines()) {
        let place = format!("docs/{page}:{line}");
        match (open.take(), content.strip_prefix("```")) {
            (None, Some(info)) => {
                let (is_run, commands) = (marked(&place, info)?, String::new());
                let block = Block {
                    line,
                    is_run: is_run == Some(true),
                    commands,
                };
                open = Some((is_run, block));
            }
            (Some((mark, mut block)), None) => {
                block.commands += &format!("{content}\n");
                open = Some((mark, block));
            }
            (Some((mark, block)), Some(_)) => blocks.extend(mark.map(|_| block)),
            (None, None) => {
                let indented = content.strip_prefix("    ").unwrap_or_default();
                let (program, _) = indented.split_once(' ').unwrap_or_default();
                let is_command = program.starts_with("parapet-")
                    || PROGRAMS.split(' ').any(|known| known == program);
                ensure!(
                    !is_command,
                    "{place}: put the command into a fenced block, `sh run` or `sh not-run: WHY`"
                );
            }
        }
    }
    ensure!(open.is_none(), "docs/{page}: a fenced block without an end");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_and_must_be_marked() {
        let text = "```sh run\ncurl x\n```\ntext\n```toml\na = 1\n```\n\
            ```sh not-run: needs a cluster\nhelm x\n```\n";
        let block = |line, is_run, commands: &str| {
            let commands = commands.to_owned();
            Block {
                line,
                is_run,
                commands,
            }
        };
        let expected = [block(1, true, "curl x\n"), block(8, false, "helm x\n")];
        assert_eq!(of("p.md", text).unwrap(), expected);
        for wrong in [
            "```sh\nls\n```\n",
            "```sh not-run:\nls\n```\n",
            "```sh run\nls\n",
            "    cargo xtask demo\n",
            "    parity-trainer train\n",
            "```sh not-run: see `x`\nls\n```\n",
        ] {
            assert!(of("p.md", wrong).is_err(), "{wrong}");
        }
    }
}
