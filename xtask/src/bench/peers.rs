//! Programs that benchmarks use beside ours: wrk as a client, nginx as a proxy, emulated instances.

use crate::models::binary_query;
use crate::prelude::*;
use crate::process::pinned;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use ureq::{Agent, Body, http::Response};

/// Times are in microseconds.
const SCRIPT: &str = r#"
local file = assert(io.open("BODY", "rb"))
wrk.method = "POST"
wrk.path = "/v2/models/MODEL/infer"
wrk.body = file:read("*a")
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.headers["Inference-Header-Content-Length"] = "HEADER"
function done(summary, latency, requests)
  local e = summary.errors
  local errors = e.connect + e.read + e.write + e.status + e.timeout
  local p99 = latency:percentile(99)
  io.write(string.format("RESULT %d %d %d %d\n", summary.requests, summary.duration, p99, errors))
end
"#;

/// Asks a model at an address about the first image, over so many connections for so many seconds,
/// from `core` alone if one is given; returns requests/s and the p99 in ms.
pub(super) fn wrk(
    (address, model): (&str, &str),
    (connections, seconds): (u32, u32),
    core: Option<usize>,
) -> Result<(f64, f64)> {
    let (sh, (body, header_length)) = (shell()?, binary_query()?);
    let (file, script) = (scratch("wrk.bin"), scratch("wrk.lua"));
    sh.write_file(&file, body)?;
    let text = SCRIPT.replace("MODEL", model);
    let text = text.replace("BODY", &file.display().to_string());
    sh.write_file(&script, text.replace("HEADER", &header_length.to_string()))?;
    let line = format!("-t1 -c{connections} -d{seconds}s http://{address} -s");
    let wrk = pinned(&sh, core, "wrk".as_ref()).args(line.split(' '));
    let text = output(wrk.arg(script))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RESULT "));
    let numbers = line.unwrap_or_default().split(' ').map(str::parse);
    let numbers: Vec<f64> = numbers
        .collect::<Result<_, _>>()
        .context("no result of wrk")?;
    let [requests, duration, p99, errors] = numbers[..] else {
        bail!("wrk said {text}");
    };
    ensure!(errors == 0.0, "{errors} of {requests} requests failed");
    Ok((requests / duration * 1e6, p99 / 1e3))
}

/// Starts one worker of nginx, called `nginx` among `processes`, that passes every request on over
/// kept-alive connections to the servers at `upstreams`, in turns, on one core if that is said;
/// returns its address. Its files lie in `folder`.
pub(super) fn start_nginx(
    processes: &mut Processes,
    folder: &Path,
    upstreams: &[String],
    core: Option<usize>,
) -> Result<String> {
    let (sh, address) = (shell()?, TcpListener::bind(("127.0.0.1", 0))?.local_addr()?);
    let servers = upstreams
        .iter()
        .map(|address| format!("server {address}; "));
    let (servers, place) = (servers.collect::<String>(), folder.display());
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = kinds.map(|kind| format!("  {kind}_temp_path {place}/{kind};\n"));
    let temporary = temporary.concat();
    let configuration = format!(
        "daemon off;\nmaster_process off;\npid {place}/nginx.pid;\nerror_log stderr error;\n\
         events {{ worker_connections 1024; }}\n\
         http {{\n  access_log off;\n  client_body_buffer_size 1m;\n\
         \x20 keepalive_requests 100000000;\n{temporary}\
         \x20 upstream instances {{ {servers}keepalive 64; keepalive_requests 100000000; }}\n\
         \x20 server {{\n    listen {address};\n    location / {{\n\
         \x20     proxy_pass http://instances;\n      proxy_http_version 1.1;\n\
         \x20     proxy_set_header Connection \"\";\n    }}\n  }}\n}}\n"
    );
    let file = folder.join("nginx.conf");
    sh.write_file(&file, configuration)?;
    let command = pinned(&sh, core, "nginx".as_ref()).args(["-e", "stderr"]);
    let command = command.arg("-p").arg(folder).arg("-c").arg(file);
    processes.start("nginx", command)?;
    wait_for("listening nginx", Duration::from_secs(5), || {
        Ok(TcpStream::connect(address).ok())
    })?;
    Ok(address.to_string())
}

/// The first test image, to be sent again and again over kept-alive connections.
pub(super) struct Query {
    client: Agent,
    body: Vec<u8>,
    header_length: usize,
}

impl Query {
    pub(super) fn new() -> Result<Self> {
        let (body, header_length) = models::binary_query()?;
        Ok(Self {
            client: http::client(),
            body,
            header_length,
        })
    }

    /// Asks `model` of the server at an address; returns the body of its answer, which is read.
    pub(super) fn ask(&self, address: &str, model: &str) -> Result<(Response<Body>, Vec<u8>)> {
        let url = format!("http://{address}/v2/models/{model}/infer");
        let request = self
            .client
            .post(url)
            .content_type("application/octet-stream");
        let length = self.header_length.to_string();
        let request = request.header("Inference-Header-Content-Length", length);
        let mut answer = request.send(&self.body)?;
        let (body, status) = (answer.body_mut().read_to_vec()?, answer.status());
        ensure!(status == 200, "{address} answered {status}");
        Ok((answer, body))
    }

    /// A whole HTTP response with what the instance at an address answers.
    pub(super) fn response(&self, address: &str, model: &str) -> Result<Vec<u8>> {
        let (answer, body) = self.ask(address, model)?;
        let mut response = b"HTTP/1.1 200 OK\r\n".to_vec();
        for (name, value) in answer.headers() {
            response.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        response.extend(b"\r\n");
        response.extend(body);
        Ok(response)
    }
}

/// Starts an instance that answers predictions with `response`, a whole HTTP response, after
/// `service_time`, and everything else with the JSON `metadata`; returns its address. It listens
/// until the process ends.
pub(super) fn start_emulated(
    response: &[u8],
    metadata: &str,
    service_time: Duration,
) -> Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?.to_string();
    let response: &'static [u8] = response.to_vec().leak();
    let length = metadata.len();
    let other: &'static str = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n\
         {metadata}"
    )
    .leak();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection that ends is the frontend's own business.
            std::thread::spawn(move || serve(stream, response, other.as_bytes(), service_time));
        }
    });
    Ok(address)
}

fn serve(stream: TcpStream, response: &[u8], other: &[u8], service_time: Duration) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        let is_prediction = line.starts_with("POST ");
        let mut length = 0;
        while !line.trim_end().is_empty() {
            line.clear();
            reader.read_line(&mut line)?;
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().context("content-length")?;
            }
        }
        line.clear();
        std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
        if is_prediction {
            std::thread::sleep(service_time);
        }
        let answer = if is_prediction { response } else { other };
        reader.get_mut().write_all(answer)?;
    }
    Ok(())
}
