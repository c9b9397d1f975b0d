//! Programs that benchmarks use beside ours: wrk as a client, nginx as a proxy, emulated instances.

use crate::prelude::*;
use std::net::TcpStream;
use ureq::Agent;

/// Bytes of a gRPC answer at least: ten numbers.
const GRPC_ANSWER: f64 = 40.0;

/// Asks the deployed model at an address about the first image, over so many connections for so
/// many seconds; returns requests/s and the p99 in ms.
pub(super) fn wrk(address: &str, connections: u32, seconds: u32) -> Result<(f64, f64)> {
    let (sh, (body, header_length)) = (shell()?, models::binary_query()?);
    let (file, script) = (scratch("wrk.bin"), scratch("wrk.lua"));
    sh.write_file(&file, body)?;
    let text = include_str!("wrk.lua").replace("MODEL", "fashion");
    let text = text.replace("BODY", &file.display().to_string());
    sh.write_file(&script, text.replace("HEADER", &header_length.to_string()))?;
    let line = format!("-t1 -c{connections} -d{seconds}s http://{address} -s");
    let text = output(cmd!(sh, "wrk").args(line.split(' ')).arg(script))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let numbers = line.unwrap_or_default().split(' ').map(str::parse);
    let numbers: Result<Vec<f64>, _> = numbers.collect();
    let [requests, duration, p99, errors] = numbers.context("no result of wrk")?[..] else {
        bail!("wrk said {text}");
    };
    ensure!(errors == 0.0, "{errors} of {requests} requests failed");
    Ok((requests / duration * 1e6, p99 / 1e3))
}

/// The first test image as a gRPC message `ModelInferRequest`, after its flag and length.
fn grpc_query() -> Result<Vec<u8>> {
    fn field(number: u8, mut bytes: Vec<u8>) -> Vec<u8> {
        let (mut rest, mut field) = (bytes.len(), vec![number << 3 | 2]);
        while rest > 127 {
            field.push(rest as u8 | 128);
            rest >>= 7;
        }
        field.push(rest as u8);
        field.append(&mut bytes);
        field
    }
    let shape = models::SHAPE.map(|axis| axis as u8).to_vec();
    let input = [field(1, b"input".to_vec()), field(2, b"FP32".to_vec()), field(3, shape)];
    let pixels = models::pixels()?.into_iter().flat_map(f32::to_le_bytes).collect();
    let fields = [field(1, b"fashion".to_vec()), field(5, input.concat()), field(7, pixels)];
    let message = fields.concat();
    let length = u32::try_from(message.len())?.to_be_bytes();
    Ok([&[0], &length[..], &message].concat())
}

/// Asks as [`wrk`] does, but over gRPC and by h2load.
pub(super) fn h2load(address: &str, connections: u32, seconds: u32) -> Result<(f64, f64)> {
    let (sh, file, log) = (shell()?, scratch("h2load.bin"), scratch("h2load.log"));
    sh.write_file(&file, grpc_query()?)?;
    sh.remove_path(&log)?;
    let url = format!("http://{address}/inference.GRPCInferenceService/ModelInfer");
    let line = format!(
        "-t1 -c{connections} -m1 -D{seconds} -Hcontent-type:application/grpc -Hte:trailers -d"
    );
    let h2load = cmd!(sh, "h2load").args(line.split(' ')).arg(file).arg("--log-file").arg(&log);
    let text = output(h2load.arg(url))?;
    let number = |before: &str, after: &str| {
        let found = text.split_once(after)?.0.rsplit_once(before)?.1.parse::<f64>();
        found.ok()
    };
    let said = || format!("h2load said {text}");
    let per_second = number(" ", " req/s").with_context(said)?;
    let [done, bytes] =
        [number(" ", " succeeded"), number("(", ") data")].map(Option::unwrap_or_default);
    // A call that fails has no message: its status is in the trailers, which h2load does not show.
    ensure!(done > 0.0 && bytes >= done * GRPC_ANSWER, "calls failed: {}", said());
    let log = sh.read_file(&log)?;
    let mut times: Vec<f64> =
        log.lines().filter_map(|line| line.rsplit('\t').next()?.parse().ok()).collect();
    times.sort_by(f64::total_cmp);
    let p99 = times.get(times.len() * 99 / 100).with_context(said)?;
    Ok((per_second, p99 / 1e3))
}

/// Starts one worker of nginx, called `nginx` among `processes`, that passes every request on over
/// kept-alive connections to `upstreams`, in turns, with files in `folder`; returns its address, and
/// that of gRPC.
pub(super) fn start_nginx(
    processes: &mut Processes,
    folder: &Path,
    upstreams: &[String],
    place: &Place,
) -> Result<[String; 2]> {
    let (sh, address, grpc) = (shell()?, free_address()?, free_address()?);
    let servers = upstreams.iter().map(|one| format!("server {one}; "));
    let text = include_str!("nginx.conf").replace("ADDRESS", &address).replace("GRPC", &grpc);
    let text = text.replace("FOLDER", &folder.display().to_string());
    let file = folder.join("nginx.conf");
    sh.write_file(&file, text.replace("SERVERS", &servers.collect::<String>()))?;
    let command = place.command(&sh, "nginx").args(["-e", "stderr", "-p"]);
    processes.start("nginx", command.arg(folder).arg("-c").arg(file))?;
    wait_for("listening nginx", LIMIT, || Ok(TcpStream::connect(&address).ok()))?;
    Ok([address, grpc])
}

/// Starts emulated instances of a demo's model that answer in `service_time`; returns addresses.
pub(super) fn start_emulated(
    processes: &mut Processes,
    model: &str,
    count: usize,
    service_time: Duration,
) -> Result<Vec<String>> {
    let (sh, program) = (shell()?, release("examples/trivial_server"));
    let (repository, us) = (models::repository(), service_time.as_micros().to_string());
    let start = |i| {
        let server =
            cmd!(sh, "{program} --repository {repository} --model {model} --service-us {us}");
        processes.start_ready(&format!("emulated-{model}-{i}"), server, "http://")
    };
    (0..count).map(start).collect()
}

/// The first test image, to be sent again and again over kept-alive connections.
pub(super) struct Query {
    client: Agent,
    body: Vec<u8>,
    header_length: usize,
}

impl Query {
    pub(super) fn new() -> Result<Self> {
        let (client, (body, header_length)) = (http::client(), models::binary_query()?);
        Ok(Self { client, body, header_length })
    }

    /// Asks `model` of the server at an address, and reads the answer.
    pub(super) fn ask(&self, address: &str, model: &str) -> Result<()> {
        let url = format!("http://{address}/v2/models/{model}/infer");
        let request = self.client.post(url).content_type("application/octet-stream");
        let length = self.header_length.to_string();
        let request = request.header("Inference-Header-Content-Length", length);
        let mut answer = request.send(&self.body)?;
        let (_body, status) = (answer.body_mut().read_to_vec()?, answer.status());
        ensure!(status == 200, "{address} answered {status}");
        Ok(())
    }
}
