//! Real processes, killed.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "tests")]

#[path = "../examples/chaos/run/mod.rs"]
mod run;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use run::{ChaosOutcome, Plan, RegistryChoice};

const PROGRAM: &str = env!("CARGO_BIN_EXE_parapet-parameter-server");

/// The moments and the 20 kills are `cargo xtask chaos parameter-server`'s; here, that nothing is
/// lost and nothing hangs.
async fn survives(registry: RegistryChoice, stop_registry: Option<Duration>) -> ChaosOutcome {
    let program = PathBuf::from(PROGRAM);
    let plan = Plan {
        program,
        kills: 2,
        registry,
        stop_registry,
        seed: 5,
        undisturbed: 2,
        tell: true,
    };
    let mut outcome = ChaosOutcome::default();
    run::run(&plan, &mut outcome)
        .await
        .unwrap_or_else(|error| panic!("{error}: {outcome:?}"));
    assert_eq!((outcome.kills.len(), outcome.undisturbed.len()), (2, 2));
    assert!(
        outcome.acknowledged > 0 && outcome.steps > 0 && outcome.loss.is_some(),
        "{outcome:?}"
    );
    assert!(
        outcome.percentile(1.0) < Duration::from_secs(20),
        "{outcome:?}"
    );
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_servers_are_succeeded_and_nothing_acknowledged_is_lost() {
    survives(RegistryChoice::Coordinator, None).await;
}

/// The servers lead themselves, and the etcd stands still for longer than its leases last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn training_goes_on_with_an_etcd_that_stands_still() {
    if Command::new("etcd")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        let hint = "etcd is not installed (Debian, Ubuntu: `apt install etcd-server`)";
        assert!(std::env::var_os("PARAPET_TEST_ETCD").is_none(), "{hint}");
        return eprintln!("skipped: {hint}");
    }
    let length = Duration::from_secs(3);
    let outcome = survives(RegistryChoice::Etcd, Some(length)).await;
    let stop = outcome.stop.unwrap();
    assert!(
        stop.acknowledged > 0 && stop.longest < length,
        "it did not wait for etcd: {outcome:?}"
    );
}

/// Returns the output of `top --once` once it contains `what`.
fn top(registry: &str, what: &str) -> String {
    let until = Instant::now() + Duration::from_secs(100);
    loop {
        let said = Command::new(PROGRAM)
            .args(["top", "--once", "--registry", registry])
            .output()
            .unwrap();
        let text = String::from_utf8(said.stdout).unwrap();
        if text.contains(what) {
            return text;
        }
        assert!(
            Instant::now() < until,
            "{what:?} is not in {text}{}",
            String::from_utf8_lossy(&said.stderr)
        );
    }
}

#[test]
fn a_cluster_comes_up_shows_itself_and_ends_when_asked() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let (listen, registry) = (
        format!("127.0.0.1:{port}"),
        format!("parapet://127.0.0.1:{port}"),
    );
    let mut command = Command::new(PROGRAM);
    command
        .args(["cluster", "up", "--servers", "2", "--listen", &listen])
        .stderr(Stdio::piped());
    let mut cluster = command.spawn().unwrap();
    let said = top(&registry, "127.0.0.1");
    assert!(
        said.starts_with(&format!("registry {registry}, led by")),
        "{said}"
    );
    let taken = Command::new(PROGRAM)
        .args(["cluster", "up", "--listen", &listen])
        .output()
        .unwrap();
    let error = String::from_utf8(taken.stderr).unwrap();
    assert!(
        !taken.status.success() && error.contains("cannot listen at") && error.lines().count() == 1,
        "{error}"
    );
    let pid = nix::unistd::Pid::from_raw(i32::try_from(cluster.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let ended = cluster.wait_with_output_within(Duration::from_secs(100));
    assert!(ended, "it ends, and its processes with it");
}

trait Ends {
    fn wait_with_output_within(&mut self, limit: Duration) -> bool;
}

impl Ends for std::process::Child {
    /// Returns true if it ends well in time: its standard error is closed when its last child has
    /// ended, too.
    fn wait_with_output_within(&mut self, limit: Duration) -> bool {
        use std::io::Read as _;
        let mut errors = self.stderr.take().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        let said = receiver.recv_timeout(limit);
        said.is_ok() && self.wait().unwrap().success()
    }
}

#[test]
fn a_registry_that_is_not_there_is_one_line() {
    let output = Command::new(PROGRAM)
        .args(["server", "--registry", "parapet://127.0.0.1:1"])
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.contains("127.0.0.1:1") && error.lines().count() == 1,
        "{error}"
    );
}
