//! Programs that benchmarks use beside ours: wrk as a client, nginx as a proxy, emulated instances.

use crate::prelude::*;
use std::net::TcpStream;
use ureq::Agent;

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

/// Starts one worker of nginx, called `nginx` among `processes`, that passes every request on over
/// kept-alive connections to `upstreams`, in turns, with files in `folder`; returns its address.
pub(super) fn start_nginx(
    processes: &mut Processes,
    folder: &Path,
    upstreams: &[String],
    place: &Place,
) -> Result<String> {
    let (sh, address) = (shell()?, free_address()?);
    let servers = upstreams.iter().map(|one| format!("server {one}; "));
    let text = include_str!("nginx.conf").replace("ADDRESS", &address);
    let text = text.replace("FOLDER", &folder.display().to_string());
    let file = folder.join("nginx.conf");
    sh.write_file(&file, text.replace("SERVERS", &servers.collect::<String>()))?;
    let command = place.command(&sh, "nginx").args(["-e", "stderr", "-p"]);
    processes.start("nginx", command.arg(folder).arg("-c").arg(file))?;
    wait_for("listening nginx", LIMIT, || Ok(TcpStream::connect(&address).ok()))?;
    Ok(address)
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
