//! Scripts in other languages are read by their interpreters before anything runs them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;

/// Names the scripts of the repository that its own git knows.
fn scripts(pattern: &str) -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .arg(pattern)
        .current_dir(root())
        .output()
        .unwrap();
    let names = String::from_utf8(listed.stdout).unwrap();
    names.lines().map(str::to_owned).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn every_script_is_read_by_its_interpreter() {
    let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])";
    let python: &[&str] = &["-c", parse];
    for (pattern, program, options) in [("*.py", "python3", python), ("*.sh", "bash", &["-n"])] {
        let scripts = scripts(pattern);
        assert!(!scripts.is_empty(), "no {pattern}");
        for script in scripts {
            let mut command = Command::new(program);
            let read = command.args(options).arg(&script).current_dir(root());
            let output = read.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{script}: {said}");
        }
    }
}
