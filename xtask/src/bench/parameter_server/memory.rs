//! Memory of a server with many parameters.

use std::fmt;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command};

use anyhow::{Context, Result, bail};

use super::processes::Process;
use crate::workspace;

/// The figure for one server.
#[derive(Debug)]
pub(super) struct Memory {
    millions: u64,
    rule: &'static str,
    server: &'static str,
    /// Bytes of parameters and optimiser state.
    content: u64,
    highest: u64,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            millions,
            rule,
            server,
            content,
            highest,
        } = self;
        let mib = |bytes: u64| bytes >> 20;
        let ratio = *highest as f64 / *content as f64;
        let (content, highest) = (mib(*content), mib(*highest));
        write!(
            f,
            "| {millions} M | {rule} | {server} | {content} MiB | {highest} MiB | {ratio:.2} |"
        )
    }
}

/// A process that is told and tells something in lines.
struct Talker {
    process: Process,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Talker {
    fn start(rule: &str, millions: u64, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new(workspace::target().join("release/examples/memory"));
        command
            .args(arguments)
            .args(["--rule", rule, "--millions", &millions.to_string()]);
        let (mut process, stdout) = Process::start(&mut command)?;
        let stdin = process
            .stdin()
            .context("a child without its standard input")?;
        Ok(Self {
            process,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            bail!("a process of the memory benchmark ended early");
        }
        Ok(line.trim().to_owned())
    }

    fn hear_of_join(&mut self) -> Result<()> {
        while self.hear()? != "joined" {}
        Ok(())
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        writeln!(self.stdin, "{line}").context("a process of the memory benchmark ended early")
    }
}

/// A server of `millions` of parameters: after all have been pushed to, and while and after
/// it is copied.
pub(super) fn measure(millions: u64) -> Result<Vec<Memory>> {
    let mut found = Vec::new();
    for (rule, numbers) in [("add", 1), ("adam", 3)] {
        let content = millions * 1_000_000 * 4 * numbers;
        let mut note = |server, talker: &Talker| {
            let highest = talker.process.highest_memory()?;
            found.push(Memory {
                millions,
                rule,
                server,
                content,
                highest,
            });
            Ok::<_, anyhow::Error>(())
        };
        let mut old = Talker::start(rule, millions, &["server", "0"])?;
        let address = old.hear()?;
        let mut worker = Talker::start(rule, millions, &["worker", &address])?;
        for _ in 0..2 {
            worker.hear()?;
        }
        note("alone", &old)?;
        let mut new = Talker::start(rule, millions, &["server", "1"])?;
        let address = new.hear()?;
        old.tell(&format!("copy {address}"))?;
        old.hear_of_join()?;
        for other in [&mut new, &mut worker] {
            other.tell(&format!("joined {address}"))?;
            other.hear_of_join()?;
        }
        // Twice: the first round may have begun before the join.
        for _ in 0..2 {
            worker.hear()?;
        }
        note("copied from", &old)?;
        note("copied to", &new)?;
    }
    Ok(found)
}
