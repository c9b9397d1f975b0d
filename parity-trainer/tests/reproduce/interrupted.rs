//! Rows that are interrupted, and go on.

use super::*;

/// Runs the row until it says something, and then sends Ctrl-C; in between, `meanwhile` is
/// told its process.
fn interrupted_at(folder: &Path, says: &str, meanwhile: impl FnOnce(u32)) {
    let line = "reproduce --data data --models files --out out --recipes recipes.toml --only tiny";
    let mut child = command(folder, line)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
    assert!(
        lines.any(|line| line.unwrap().starts_with(says)),
        "it began"
    );
    meanwhile(child.id());
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()),
        nix::sys::signal::Signal::SIGINT,
    )
    .unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
}

#[test]
fn an_interrupted_row_goes_on_where_it_was() {
    let folder = prepared();
    let long = |steps: u32| RECIPES.replace("steps = 200", &format!("steps = {steps}"));
    fs::write(folder.path().join("recipes.toml"), long(20_000)).unwrap();
    interrupted_at(folder.path(), "tiny: step 2000/20000", |process| {
        let other = reproduce(folder.path(), "--recipes recipes.toml");
        let message = String::from_utf8(other.stderr).unwrap();
        let holder = format!("error: out: another run (process {process}) is at work there; ");
        assert!(
            message.starts_with(&holder) && message.contains("--out"),
            "{message}"
        );
        assert_eq!(
            (other.status.code(), message.lines().count()),
            (Some(2), 1),
            "{message}"
        );
    });

    let output = reproduce(folder.path(), "--recipes recipes.toml --only tiny");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && errors.contains("tiny: goes on after step"),
        "{errors}"
    );
    assert!(!errors.contains("train-deployed"), "{errors}");

    // A row of another recipe that ends before it has begun leaves nothing of the old one to go on
    // with.
    fs::write(folder.path().join("recipes.toml"), long(10_000)).unwrap();
    interrupted_at(folder.path(), "$ parity-trainer train ", |_| {});
    let output = reproduce(folder.path(), "--recipes recipes.toml --only tiny");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_killed_reproduce_takes_its_training_along() {
    let folder = prepared();
    let long = RECIPES.replace("steps = 200", "steps = 20000");
    fs::write(folder.path().join("recipes.toml"), long).unwrap();
    let line = "reproduce --data data --models files --out out --recipes recipes.toml --only tiny";
    let mut parent = command(folder.path(), line)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(parent.stderr.take().unwrap()));
    assert!(
        lines.any(|line| line.unwrap().starts_with("tiny: step ")),
        "it began"
    );
    parent.kill().unwrap();
    parent.wait().unwrap();
    // Both write there, so that it ends once both are gone.
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(lines.map(Result::unwrap).last()));
    let last = ended
        .recv_timeout(std::time::Duration::from_secs(30))
        .expect("the training goes on alone");
    assert!(
        last.is_some_and(|last| last.contains("interrupted")),
        "it did not write its checkpoint"
    );
}

#[test]
fn an_interrupted_deployed_model_goes_on_where_it_was() {
    let folder = prepared();
    let long = RECIPES.replace("epochs = 8", "epochs = 3000");
    fs::write(folder.path().join("recipes.toml"), long).unwrap();
    interrupted_at(folder.path(), "quarters: step 2100/21000", |_| {});
    assert!(!folder.path().join("out/models/quarters").exists());

    let output = reproduce(folder.path(), "--recipes recipes.toml --only tiny");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && errors.contains("quarters: goes on after step"),
        "{errors}"
    );
    let results = fs::read_to_string(folder.path().join("out/RESULTS.md")).unwrap();
    assert!(
        results.contains("train-deployed --data DATA/quarters") && !results.contains("--resume"),
        "{results}"
    );
}
