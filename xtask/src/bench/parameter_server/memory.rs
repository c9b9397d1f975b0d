//! Memory of a server with many parameters.

use crate::prelude::*;
use crate::resources::memory;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process that is told and tells something in lines; it ends with this value.
struct Talker {
    process: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Talker {
    fn start(rule: &str, millions: u64, arguments: &[&str]) -> Result<Self> {
        let mut process = Command::new(release("examples/memory"))
            .args(arguments)
            .args(["--rule", rule, "--millions", &millions.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start the memory benchmark")?;
        let stdin = process.stdin.take().context("no standard input")?;
        let stdout = process.stdout.take().context("no standard output")?;
        Ok(Self {
            process,
            stdin,
            lines: BufReader::new(stdout).lines(),
        })
    }

    fn hear(&mut self) -> Result<String> {
        let line = self
            .lines
            .next()
            .context("a process of the memory benchmark ended early")?;
        Ok(line?.trim().to_owned())
    }

    fn hear_of_join(&mut self) -> Result<()> {
        while self.hear()? != "joined" {}
        Ok(())
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        writeln!(self.stdin, "{line}").context("a process of the memory benchmark ended early")
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A server of `millions` of parameters: after all have been pushed to, and while and after
/// it is copied. Returns the table's rows.
pub(super) fn measure(millions: u64) -> Result<String> {
    let mut rows = String::new();
    for (rule, numbers) in [("add", 1.0), ("adam", 3.0)] {
        // Parameters and optimiser state.
        let content = millions as f64 * 1e6 * 4.0 * numbers / f64::from(1 << 20);
        let mut note = |server: &str, talker: &Talker| -> Result<()> {
            let highest = memory(talker.process.id())?.highest;
            let ratio = highest / content;
            rows += &format!(
                "| {millions} M | {rule} | {server} | {content:.0} MiB | {highest:.0} MiB | \
                 {ratio:.2} |\n"
            );
            Ok(())
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
    Ok(rows)
}
