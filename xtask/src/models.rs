//! The models of the demo and the benchmarks, trained on the Fashion-MNIST subset that the
//! repository carries, and requests to them.

use crate::prelude::*;
use parapet_datasets::idx::read_idx;

pub(crate) struct Model {
    pub(crate) name: String,
    arguments: String,
    pub(crate) entries: Vec<String>,
}

impl Model {
    /// Wide enough that a query takes longer than what the engine adds to each operator. Of narrower
    /// ones, only networks that learn little are as cheap.
    pub(crate) fn deployed() -> Self {
        Self::one("fashion", "train-deployed --network lenet:32 --epochs 60".to_owned())
    }

    pub(crate) fn small() -> Self {
        Self::one("fashion-small", "train-deployed --network lenet:4 --epochs 15".to_owned())
    }

    fn one(name: &str, arguments: String) -> Self {
        Self { name: name.to_owned(), arguments, entries: vec![name.to_owned()] }
    }

    /// The parity models for groups of k, as the trainer makes them by default, in less time; and
    /// the network of a slot alone.
    pub(crate) fn parity((k, r): (usize, usize)) -> Self {
        let name = match (k, r) {
            (2, 1) => "fashion-parity".to_owned(),
            (_, 1) => format!("fashion-parity-k{k}"),
            _ => format!("fashion-parity-k{k}-r{r}"),
        };
        let deployed = repository().join("fashion").display().to_string();
        let student = Self::student((k, r));
        let arguments =
            format!("train --k {k} --r {r} --minutes 1.5 --model {deployed} --student {student}");
        let mut model = Self::one(&name, arguments);
        if r > 1 {
            model.entries = (0..r).map(|row| format!("{name}-{row}")).collect();
        }
        model.entries.push(student);
        model
    }

    /// Name of the network of a slot of those parity models.
    pub(crate) fn student((k, r): (usize, usize)) -> String {
        format!("fashion-student-k{k}-r{r}")
    }

    pub(crate) fn is_there(&self) -> bool {
        let is_there = |name: &String| repository().join(name).join("model.toml").is_file();
        self.entries.iter().all(is_there)
    }
}

pub(crate) fn repository() -> PathBuf {
    scratch("demo/models")
}

/// Writes a model into a repository; `tensors` is the rest of its description.
pub(crate) fn write(
    sh: &Shell,
    repository: &Path,
    name: &str,
    tensors: &str,
    file: &[u8],
) -> Result<()> {
    let folder = repository.join(name);
    let text = format!("name = \"{name}\"\nplatform = \"onnxruntime_onnx\"\n{tensors}");
    sh.write_file(folder.join("model.toml"), text)?;
    Ok(sh.write_file(folder.join("1/model.onnx"), file)?)
}

/// Trains `models` by the trainer that was built, the deployed one first; `reuse` keeps old ones.
pub(crate) fn train(models: &[Model], reuse: bool) -> Result<()> {
    let sh = shell()?;
    let (trainer, data, out) = (debug("parity-trainer"), data(), repository());
    for model in models.iter().filter(|model| !(reuse && model.is_there())) {
        step(&format!("training the model {}", model.name));
        let started = Instant::now();
        let (name, words) = (&model.name, model.arguments.split(' '));
        let command = cmd!(sh, "{trainer} {words...} --name {name} --data {data}");
        let command = command.args(["--seed", "1", "--augment", "shift+flip"]);
        command.arg("--out").arg(&out).quiet().run()?;
        eprintln!("    trained in {:.0} s", started.elapsed().as_secs_f64());
    }
    Ok(())
}

/// The load generator's command that sends the test images to a model behind an address, so many
/// requests/s, and writes its report to a file.
pub(crate) fn load_command<'a>(
    generator: Cmd<'a>,
    (address, model): (&str, &str),
    (rate, seconds): (f64, u32),
    report: &Path,
) -> Cmd<'a> {
    let pace =
        format!("run --target http://{address} --model {model} --rate {rate} --duration {seconds}");
    let command = generator.args(pace.split(' ')).arg("--images");
    command.arg(images()).arg("--json").arg(report).quiet().ignore_stdout()
}

/// Runs the optimised load generator against the deployed model; returns its report.
pub(crate) fn load(address: &str, pace: (f64, u32), more: &[&str]) -> Result<Value> {
    let (sh, report) = (shell()?, scratch("load.json"));
    sh.create_dir(scratch(""))?;
    let generator = Place::Anywhere.command(&sh, release("parapet-loadgen"));
    let command = load_command(generator, (address, "fashion"), pace, &report);
    command.args(more).ignore_stderr().run()?;
    read_json(&report)
}

pub(crate) fn figure(report: &Value, pointer: &str) -> Result<f64> {
    let number = report.pointer(pointer).and_then(Value::as_f64);
    number.with_context(|| format!("a report without {pointer}"))
}

/// A figure with so many digits, in percent where a % follows them; `-` where there is none.
pub(crate) fn shown(report: &Value, pointer: &str, digits: &str) -> String {
    let places = digits.trim_end_matches('%').parse().unwrap_or(0);
    match figure(report, pointer) {
        Ok(share) if digits.ends_with('%') => format!("{:.places$} %", 100.0 * share),
        Ok(number) => format!("{number:.places$}"),
        Err(_) => "-".to_owned(),
    }
}

const SIDE: usize = 28;
pub(crate) const SHAPE: [usize; 4] = [1, 1, SIDE, SIDE];

fn images() -> PathBuf {
    data().join("t10k-images-idx3-ubyte.gz")
}

/// Pixels of the first test image, from 0 to 1.
pub(crate) fn pixels() -> Result<Vec<f32>> {
    let images = read_idx(&images())?;
    Ok(images.bytes.iter().take(SIDE * SIDE).map(|&byte| f32::from(byte) / 255.0).collect())
}

pub(crate) fn json_query() -> Result<String> {
    let input = json!({ "name": "input", "datatype": "FP32", "shape": SHAPE, "data": pixels()? });
    Ok(json!({ "id": "first", "inputs": [input] }).to_string())
}

/// The first test image with the binary tensor extension: JSON, then the tensor; the JSON's length.
pub(crate) fn binary_query() -> Result<(Vec<u8>, usize)> {
    let pixels = pixels()?;
    let size = json!({ "binary_data_size": pixels.len() * 4 });
    let input = json!(
        { "name": "input", "datatype": "FP32", "shape": SHAPE, "parameters": size }
    );
    let mut bytes = json!({ "inputs": [input] }).to_string().into_bytes();
    let header_length = bytes.len();
    bytes.extend(pixels.iter().flat_map(|value| value.to_le_bytes()));
    Ok((bytes, header_length))
}

pub(crate) fn require() -> Result<()> {
    ensure!(Model::parity((2, 1)).is_there(), "no models; run `cargo xtask demo` first");
    Ok(())
}
