//! Headless Chromium, driven by its DevTools protocol through a pipe: JSON objects, each with a
//! zero byte after it, which Chromium reads from its file descriptor 3 and writes to 4.

use crate::prelude::*;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

/// Chromium gets our pipes under the numbers that it wants.
const SCRIPT: &str = "exec chromium --headless --no-sandbox --disable-gpu --no-first-run \
    --disable-sync --disable-background-networking --disable-component-update \
    --disable-extensions --hide-scrollbars --remote-debugging-pipe --user-data-dir=\"$1\" \
    3<&0 4>&1 0</dev/null 1>&2";

/// A page in a browser of its own, which ends with this value.
pub(super) struct Page {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    /// Fields of every command: the last one's number, and the page's session once it has one.
    command: Value,
    /// Exceptions, and errors that the browser logged.
    complaints: Vec<String>,
}

impl Page {
    /// Opens a page, on which `script` runs before its own; profile and log go into `folder`.
    pub(super) fn open(folder: &Path, url: &str, script: &str) -> Result<Self> {
        let profile = folder.join("chromium");
        empty(&shell()?, &profile)?;
        let mut process = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(profile)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.join("chromium.log"))?)
            .spawn()
            .context("chromium cannot be started")?;
        let commands = process.stdin.take().context("no pipe")?;
        let answers = BufReader::new(process.stdout.take().context("no pipe")?);
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            let mut messages = answers.split(0).map_while(Result::ok);
            messages.try_for_each(|message| {
                sender.send(serde_json::from_slice(&message).unwrap_or(Value::Null))
            })
        });
        let mut page = Self {
            process,
            commands,
            messages,
            command: json!({ "id": 0 }),
            complaints: Vec::new(),
        };
        let target = page.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let mut session = page.call("Target.attachToTarget", attach)?;
        page.command["sessionId"] = session["sessionId"].take();
        for domain in ["Page", "Runtime", "Log"] {
            page.call(&format!("{domain}.enable"), json!({}))?;
        }
        let first = "Page.addScriptToEvaluateOnNewDocument";
        page.call(first, json!({ "source": script }))?;
        page.resize(1280, 1000)?;
        page.call("Page.navigate", json!({ "url": url }))?;
        let is_loaded = "document.readyState === 'complete' && location.href !== 'about:blank'";
        wait_for("loaded page", LIMIT, || {
            Ok(page.evaluate(is_loaded)?.as_bool().filter(|loaded| *loaded))
        })?;
        Ok(page)
    }

    fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.command["id"].as_u64().unwrap_or_default() + 1;
        (self.command["id"], self.command["method"]) = (id.into(), method.into());
        self.command["params"] = params;
        let written = write!(self.commands, "{}\0", self.command);
        written.context("Chromium is gone")?;
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left);
            let mut message = message.with_context(|| format!("{method}: no answer"))?;
            if message["id"] == id {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].take());
            }
            self.note(&message);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => &params["exceptionDetails"],
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => &params["entry"],
            _ => return,
        };
        let complaint = complaint.to_string();
        // That no key and a wrong one are refused is what is looked at, and a browser logs it.
        let expected = ["status of 401", "status of 400", "/favicon.ico"];
        if !expected.iter().any(|part| complaint.contains(part)) {
            self.complaints.push(complaint);
        }
    }

    fn evaluate(&mut self, expression: &str) -> Result<Value> {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", params)?;
        let exception = &result["exceptionDetails"]["exception"]["description"];
        let is_fine = result["exceptionDetails"].is_null();
        ensure!(
            is_fine,
            "{expression}: {}",
            exception.as_str().unwrap_or("failed")
        );
        Ok(result["result"]["value"].take())
    }

    pub(super) fn take(&mut self, step: &str) -> Result<Value> {
        self.evaluate(&format!("steps.{step}"))
    }

    pub(super) fn resize(&mut self, width: u32, height: u32) -> Result<()> {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        Ok(())
    }

    pub(super) fn screenshot(&mut self, path: &Path) -> Result<()> {
        let whole = json!({ "format": "png", "captureBeyondViewport": true });
        let picture = self.call("Page.captureScreenshot", whole)?;
        let bytes = STANDARD.decode(picture["data"].as_str().context("no picture")?)?;
        Ok(shell()?.write_file(path, bytes)?)
    }

    /// No script threw anything, and nothing was refused by the page's policy.
    pub(super) fn nothing_went_wrong(&mut self) -> Result<()> {
        // Earlier messages arrive before the answer.
        self.evaluate("0")?;
        let complaints = self.complaints.join("\n");
        let is_well = complaints.is_empty();
        ensure!(is_well, "the browser complains:\n{complaints}");
        Ok(())
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // It is a new profile each time: nothing is lost.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
