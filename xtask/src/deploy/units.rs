//! systemd units.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::{files, output};

use crate::workspace;

/// Exposure that `systemd-analyze security` may find, of 100: "OK" ends at 30.
const EXPOSURE: &str = "20";
const MISSING: &str = "systemd-analyze is missing (Debian, Ubuntu: `apt install systemd`)";

pub(super) fn check(deploy: &Path, folder: &Path) -> Result<()> {
    let units = files(&deploy.join("systemd"), ".service")?;
    ensure!(!units.is_empty(), "no units in deploy/systemd");
    for unit in units {
        let name = unit.file_name().unwrap_or_default();
        let text = workspace::read(&unit)?;
        // The programs are not installed here: another one stands for them.
        let copy = folder.join(name);
        let text = ["/usr/bin/parapet-frontend", "/usr/bin/parapet-instance"]
            .iter()
            .fold(text, |text, program| text.replace(program, "/bin/true"));
        workspace::write(&copy, text)?;
        let verified = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&copy)
            .output()
            .context(MISSING)?;
        // It succeeds in spite of unknown settings, which it only mentions.
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        let ours = said.lines().filter(|line| line.contains("parapet"));
        let ours: Vec<&str> = ours.collect();
        if !verified.status.success() || !ours.is_empty() {
            bail!(
                "{}: {}",
                unit.display(),
                if ours.is_empty() {
                    said
                } else {
                    ours.join("; ")
                }
            );
        }
        let rated = [
            "security",
            "--no-pager",
            "--offline=true",
            "--threshold",
            EXPOSURE,
        ];
        output(
            Command::new("systemd-analyze").args(rated).arg(&copy),
            MISSING,
        )?;
    }
    Ok(())
}
