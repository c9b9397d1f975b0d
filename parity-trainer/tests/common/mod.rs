//! Writes small IDX data sets, and runs the command.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "test helpers; each test uses some"
)]

pub mod script;
pub mod serving;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parapet_encoder::CodeSpec;
use parity_trainer::backend::{OptimiserConfig, OptimiserSpec, Place, Schedule};
use parity_trainer::{Loss, ParityRun, Trainer, TrainingSet, Validation};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub const SIDE: usize = 16;

/// A training of a parity model or of a learned code's encoder, by AdamW, of 32 groups a step.
pub fn parity_run(network: &str, code: CodeSpec, steps: u64) -> ParityRun {
    let rule = OptimiserConfig {
        optimiser: OptimiserSpec::AdamW { weight_decay: 0.0 },
        learning_rate: 3e-3,
        schedule: Schedule::Cosine,
        steps,
        clip: None,
    };
    ParityRun {
        network: network.parse().unwrap(),
        code,
        row: 0,
        groups: 32,
        rule,
        validate_every: u64::MAX,
        learned: None,
        variants: None,
        start: None,
        loss: Loss::Mse,
        seed: 3,
    }
}

/// Trains to the end; returns the trainer and the last validation's figures.
pub fn trained(
    run: ParityRun,
    train: Arc<TrainingSet>,
    validation: Arc<TrainingSet>,
) -> (Trainer, Validation) {
    let mut trainer = Trainer::parity(run, train, validation, Place::InProcess).unwrap();
    let mut last = None;
    while !trainer.is_done() {
        last = trainer.step().unwrap().validation.or(last);
    }
    (trainer, last.unwrap())
}

pub fn is_close(left: &[f32], right: &[f32]) -> bool {
    let mut pairs = left.iter().zip(right);
    left.len() == right.len() && pairs.all(|(left, right)| (left - right).abs() < 1e-4)
}

pub fn idx(dims: &[usize], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, dims.len() as u8];
    for &dim in dims {
        file.extend((dim as u32).to_be_bytes());
    }
    file.extend(bytes);
    file
}

pub fn gzip(contents: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(contents).unwrap();
    encoder.finish().unwrap()
}

/// Four classes: a bright quarter of the image, in noise. The training set is gzip-compressed, the
/// test set is not.
pub fn write_quarters(folder: &Path, train: usize, test: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for (split, count) in [("train", train), ("t10k", test)] {
        let labels: Vec<u8> = (0..count).map(|_| rng.random_range(0..4)).collect();
        let mut pixels = Vec::new();
        for &label in &labels {
            for at in 0..SIDE * SIDE {
                let (y, x) = (at / SIDE, at % SIDE);
                let quarter = u8::from(x >= SIDE / 2) + 2 * u8::from(y >= SIDE / 2);
                let light = if quarter == label { 160 } else { 0 };
                pixels.push(light + rng.random_range(0..90u8));
            }
        }
        let images = idx(&[count, SIDE, SIDE], &pixels);
        for (kind, file) in [("images-idx3", images), ("labels-idx1", idx(&[count], &labels))] {
            let name = format!("{split}-{kind}-ubyte");
            match split {
                "train" => fs::write(folder.join(name + ".gz"), gzip(&file)),
                _ => fs::write(folder.join(name), file),
            }
            .unwrap();
        }
    }
}

/// Four classes, as in quarters: the bright features of each step, of sequences of 3 to 16 steps.
pub fn write_sequences(folder: &Path, train: usize, test: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    for (split, count) in [("train", train), ("t10k", test)] {
        let labels: Vec<u8> = (0..count).map(|_| rng.random_range(0..4)).collect();
        let mut values = Vec::new();
        for &label in &labels {
            let steps = rng.random_range(3..=SIDE);
            for at in 0..SIDE * SIDE {
                let (step, feature) = (at / SIDE, at % SIDE);
                let light = if feature / (SIDE / 4) == usize::from(label) { 160 } else { 1 };
                values.push(if step < steps { light + rng.random_range(0..90u8) } else { 0 });
            }
        }
        let file = |kind: &str| folder.join(format!("{split}-{kind}-ubyte"));
        fs::write(file("images-idx3"), idx(&[count, SIDE, SIDE], &values)).unwrap();
        fs::write(file("labels-idx1"), idx(&[count], &labels)).unwrap();
    }
}

/// Writes vectors of six values, each with the label that `label` gives to its number.
pub fn write_vectors(folder: &Path, label: impl Fn(usize) -> u8) {
    for (split, count) in [("train", 40), ("t10k", 10)] {
        let bytes: Vec<u8> = (0..count * 6).map(|value| value as u8).collect();
        let labels: Vec<u8> = (0..count).map(&label).collect();
        let images = folder.join(format!("{split}-images-idx2-ubyte"));
        fs::write(images, idx(&[count, 6], &bytes)).unwrap();
        let file = folder.join(format!("{split}-labels-idx1-ubyte"));
        fs::write(file, idx(&[count], &labels)).unwrap();
    }
}

pub fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

/// A folder that commands run in.
pub struct Workplace(tempfile::TempDir);

/// A command's end: exit code, standard output, standard error.
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub errors: String,
}

impl Workplace {
    /// Has data of so many training and test samples.
    pub fn new(train: usize, test: usize) -> Self {
        let workplace = Self::empty();
        write_quarters(workplace.path(), train, test);
        workplace
    }

    pub fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The same with the deployed model `quarters`, trained with `settings`.
    pub fn with_model(train: usize, test: usize, settings: &str) -> Self {
        let workplace = Self::new(train, test);
        workplace.train_deployed(settings);
        workplace
    }

    pub fn train_deployed(&self, settings: &str) {
        let line = "train-deployed --data . --augment none --out models --name quarters";
        self.succeed(&format!("{line} {settings}"));
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    /// `parity-trainer` on one thread; arguments are separated by blanks.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_parity-trainer"));
        command.current_dir(self.path()).args(["--threads", "1"]);
        command.args(line.split_whitespace());
        command
    }

    pub fn run(&self, line: &str) -> Ended {
        let output = self.command(line).output().unwrap();
        Ended {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            errors: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command that has to succeed.
    pub fn succeed(&self, line: &str) -> Ended {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(0), "{line}: {}", ended.errors);
        ended
    }

    /// Runs a command that has to refuse its input (exit code 2), with these parts in the last line
    /// that it writes to standard error.
    pub fn refused(&self, line: &str, parts: &[&str]) {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(2), "{line}: {}", ended.errors);
        assert_has(ended.errors.lines().last().unwrap(), parts);
    }

    /// The same of a command that writes nothing else.
    pub fn refused_at_once(&self, line: &str, parts: &[&str]) {
        let ended = self.run(line);
        assert_eq!(ended.code, Some(2), "{line}: {}", ended.errors);
        assert_eq!(ended.errors.lines().count(), 1, "{}", ended.errors);
        assert_has(&ended.errors, parts);
    }

    /// Starts a command whose standard error is read.
    pub fn start(&self, line: &str) -> Running {
        let mut command = self.command(line);
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        Running::start(&mut command)
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    pub fn json(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.read(path)).unwrap()
    }

    pub fn toml(&self, path: &str) -> toml::Table {
        self.read(path).parse().unwrap()
    }

    /// All files of an entry's version, one after another; of a learned code both networks.
    pub fn model(&self, name: &str) -> Vec<u8> {
        let files = sorted(&self.at(&format!("models/{name}/1")), "");
        assert!(files.len() > 1, "{files:?}");
        files.iter().flat_map(|file| fs::read(file).unwrap()).collect()
    }

    /// Checkpoints of a run, the oldest first.
    pub fn checkpoints(&self, run: &str) -> Vec<PathBuf> {
        sorted(&self.at(&format!("models/.runs/{run}")), "checkpoint-")
    }
}

/// The files of a folder whose names begin with `prefix`.
fn sorted(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|item| item.unwrap().path());
    let is_one = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(prefix);
    let mut found: Vec<PathBuf> = paths.filter(is_one).collect();
    found.sort();
    found
}

/// Cuts the file's end off.
pub fn tear(path: &Path) {
    let contents = fs::read(path).unwrap();
    fs::write(path, &contents[..contents.len() / 2]).unwrap();
}

/// A command that runs. It ends with this.
pub struct Running {
    pub child: Child,
    lines: std::io::Lines<BufReader<ChildStderr>>,
}

impl Running {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits until it has said `part` so many times; returns the last of those lines.
    pub fn wait_for(&mut self, part: &str, times: usize) -> String {
        let lines = self.lines.by_ref().map(Result::unwrap);
        let mut found = lines.filter(|line| line.contains(part));
        found.nth(times - 1).expect("it has ended")
    }

    pub fn signal(&self, signal: Signal) {
        let process = i32::try_from(self.child.id()).unwrap();
        kill(Pid::from_raw(process), signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The lines that are still to come, once it has ended.
    pub fn rest(&mut self) -> Vec<String> {
        self.lines.by_ref().map(Result::unwrap).collect()
    }

    /// Sends Ctrl-C and returns the lines until its end, which is that of an interrupted command.
    pub fn interrupt(&mut self) -> Vec<String> {
        self.signal(Signal::SIGINT);
        let rest = self.rest();
        assert_eq!(self.child.wait().unwrap().code(), Some(130), "{rest:?}");
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}
