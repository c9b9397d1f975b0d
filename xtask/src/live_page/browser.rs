//! Headless Chromium, driven by its DevTools protocol through a pipe: JSON objects, each with a
//! zero byte after it, which Chromium reads from its file descriptor 3 and writes to 4.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::workspace;

/// For whatever is waited for on the page.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// A headless Chromium, which ends with this value.
pub(super) struct Browser {
    process: Child,
    commands: RefCell<ChildStdin>,
    messages: Receiver<Value>,
    last_id: Cell<u64>,
    /// Errors on pages: exceptions, and errors that the browser logged.
    complaints: RefCell<Vec<String>>,
}

/// One of its pages.
pub(super) struct Page<'a> {
    browser: &'a Browser,
    session: String,
}

impl Browser {
    /// Checks that there is a Chromium.
    pub(super) fn require() -> Result<()> {
        let mut version = Command::new("chromium");
        let status = version
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let works = status.is_ok_and(|status| status.success());
        ensure!(
            works,
            "Chromium is missing (Debian: `apt install chromium`)"
        );
        Ok(())
    }

    /// Starts one that has never been started before.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let profile = fresh(folder)?;
        let log = fs::File::create(folder.join("chromium.log")).context("no log of Chromium's")?;
        // The shell gives it our pipes under the numbers that it wants.
        let mut process = Command::new("sh")
            .args([
                "-c",
                "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>&2",
                "sh",
            ])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-sync",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-extensions",
            ])
            .args(["--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("chromium cannot be started")?;
        let (commands, answers) = (
            process.stdin.take().context("no pipe")?,
            process.stdout.take().context("no pipe")?,
        );
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                let parsed = serde_json::from_slice(&message).unwrap_or(Value::Null);
                if sender.send(parsed).is_err() {
                    return;
                }
            }
        });
        let (commands, complaints) = (RefCell::new(commands), RefCell::default());
        Ok(Self {
            process,
            commands,
            messages,
            last_id: Cell::new(0),
            complaints,
        })
    }

    /// Opens a page of this size.
    pub(super) fn open(&self, url: &str, size: (u32, u32)) -> Result<Page<'_>> {
        let target = self.call(None, "Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call(None, "Target.attachToTarget", attach)?;
        let session = session["sessionId"]
            .as_str()
            .context("no session")?
            .to_owned();
        let page = Page {
            browser: self,
            session,
        };
        for domain in ["Page", "Runtime", "Log"] {
            page.call(&format!("{domain}.enable"), json!({}))?;
        }
        page.resize(size)?;
        page.call("Page.navigate", json!({ "url": url }))?;
        page.until(
            "the page is loaded",
            "document.readyState === 'complete' && location.href !== 'about:blank'",
        )?;
        Ok(page)
    }

    fn call(&self, session: Option<&str>, method: &str, params: Value) -> Result<Value> {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        let mut command = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            command["sessionId"] = session.into();
        }
        let mut bytes = command.to_string().into_bytes();
        bytes.push(0);
        let mut commands = self.commands.borrow_mut();
        commands
            .write_all(&bytes)
            .and_then(|()| commands.flush())
            .context("Chromium is gone")?;
        let end = Instant::now() + LIMIT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let mut message = self
                .messages
                .recv_timeout(left)
                .with_context(|| format!("{method}: no answer"))?;
            if message["id"] == id {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].take());
            }
            self.note(&message);
        }
    }

    fn note(&self, event: &Value) {
        let params = &event["params"];
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => &params["exceptionDetails"],
            Some("Log.entryAdded") if params["entry"]["level"] == "error" => &params["entry"],
            _ => return,
        };
        // That no key and a wrong one are refused is what is looked at, and a browser logs it.
        let is_refusal = complaint["text"]
            .as_str()
            .is_some_and(|text| text.contains("status of 401") || text.contains("status of 400"));
        let is_icon = complaint["url"]
            .as_str()
            .is_some_and(|url| url.ends_with("/favicon.ico"));
        if !is_refusal && !is_icon {
            self.complaints.borrow_mut().push(complaint.to_string());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self
            .commands
            .borrow_mut()
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Page<'_> {
    fn call(&self, method: &str, params: Value) -> Result<Value> {
        self.browser.call(Some(&self.session), method, params)
    }

    /// The value of an expression, or of what it promises.
    pub(super) fn evaluate(&self, expression: &str) -> Result<Value> {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut result = self.call("Runtime.evaluate", params)?;
        ensure!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        Ok(result["result"]["value"].take())
    }

    /// The same, as text.
    pub(super) fn text(&self, expression: &str) -> Result<String> {
        match self.evaluate(expression)? {
            Value::String(text) => Ok(text),
            other => Ok(other.to_string()),
        }
    }

    /// Waits until an expression is true.
    pub(super) fn until(&self, what: &str, expression: &str) -> Result<()> {
        let end = Instant::now() + LIMIT;
        while self.evaluate(expression)? != Value::Bool(true) {
            if Instant::now() > end {
                let shown = self.text("document.body.innerText").unwrap_or_default();
                bail!("not so: {what}\n{expression}\non the page:\n{shown}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    pub(super) fn resize(&self, (width, height): (u32, u32)) -> Result<()> {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size)
            .map(|_| ())
    }

    /// Returns true if the user prefers dark pages.
    pub(super) fn dark(&self, dark: bool) -> Result<()> {
        let scheme =
            json!({ "name": "prefers-color-scheme", "value": if dark { "dark" } else { "light" } });
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [scheme] }),
        )
        .map(|_| ())
    }

    /// A picture of all of it, as long as it is.
    pub(super) fn screenshot(&self, path: &Path) -> Result<()> {
        let size = self.call("Page.getLayoutMetrics", json!({}))?["cssContentSize"].take();
        let clip =
            json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1 });
        let whole = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let picture = self.call("Page.captureScreenshot", whole)?;
        let bytes = STANDARD
            .decode(picture["data"].as_str().context("no picture")?)
            .context("no picture")?;
        workspace::write(path, bytes)
    }

    /// No script threw anything, and nothing was refused by the page's policy.
    pub(super) fn nothing_went_wrong(&self) -> Result<()> {
        // Earlier messages arrive before the answer.
        self.evaluate("0")?;
        let complaints = self.browser.complaints.borrow();
        ensure!(
            complaints.is_empty(),
            "the browser complains:\n{}",
            complaints.join("\n")
        );
        Ok(())
    }
}

/// Where Chromium keeps what it keeps; new for each run.
fn fresh(folder: &std::path::Path) -> Result<std::path::PathBuf> {
    let profile = folder.join("chromium");
    if profile.exists() {
        fs::remove_dir_all(&profile)
            .with_context(|| format!("cannot remove {}", profile.display()))?;
    }
    workspace::make_folder(&profile)?;
    Ok(profile)
}
