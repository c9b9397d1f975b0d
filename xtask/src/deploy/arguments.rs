//! Arguments of our programs in the chart's containers: the programs read them.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::output;
use crate::sample;

/// Images, and the programs in them.
const PROGRAMS: [(&str, &str); 3] = [
    ("parapet-frontend", "parapet-frontend"),
    ("parapet-instance", "parapet-instance"),
    ("parapet-trainer", "parity-trainer"),
];

/// Gives the programs the arguments of all containers, and `--help` after them: what they do not
/// know they refuse before that.
pub(super) fn check(rendered: &[String]) -> Result<()> {
    for (image, arguments) in rendered.iter().flat_map(|manifests| containers(manifests)) {
        let named = PROGRAMS.iter().find(|(part, _)| image.contains(part));
        let (_, program) =
            named.with_context(|| format!("no program is known in the image {image}"))?;
        let file = sample::binary(program);
        ensure!(
            file.is_file(),
            "{program} is not built: run `cargo build --workspace --bin {program}`"
        );
        let arguments: Vec<String> =
            serde_json::from_str(arguments).with_context(|| format!("{program}: {arguments}"))?;
        output(
            Command::new(file).args(arguments).arg("--help"),
            "the program cannot be started",
        )?;
    }
    Ok(())
}

/// Image and arguments, as JSON, of each container that has some.
fn containers(manifests: &str) -> Vec<(&str, &str)> {
    let mut image = "";
    let mut found = Vec::new();
    for line in manifests.lines().map(str::trim) {
        if let Some(name) = line.trim_start_matches("- ").strip_prefix("image: ") {
            image = name;
        } else if let Some(arguments) = line.strip_prefix("args: ") {
            found.push((image, arguments));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_with_their_image() {
        let manifests = "- image: etcd\n  command: [etcd]\n- name: a\n  image: \
            r/parapet-instance:1\n  args: [\"--model\",\"m\"]\n";
        assert_eq!(
            containers(manifests),
            [("r/parapet-instance:1", "[\"--model\",\"m\"]")]
        );
    }
}
