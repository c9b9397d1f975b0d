//! Real processes, killed.

#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub, reason = "tests")]

#[path = "../examples/chaos/run/mod.rs"]
mod run;

use std::io::Read as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use run::{ChaosOutcome, Plan, RegistryChoice, etcd_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_parapet-parameter-server");
const LIMIT: Duration = Duration::from_secs(100);

/// The moments and the 20 kills are `cargo xtask chaos parameter-server`'s; here, that nothing is
/// lost and nothing hangs.
async fn survive(
    registry: RegistryChoice,
    stop_registry: Option<Duration>,
    moves: bool,
) -> ChaosOutcome {
    let plan = Plan {
        program: PROGRAM.into(),
        // Long enough for a move or two; it ends after one at least.
        kills: if moves { 6 } else { 2 },
        registry,
        stop_registry,
        seed: 5,
        undisturbed: 2,
        moves,
    };
    let mut outcome = ChaosOutcome::default();
    let ended = run::run(&plan, &mut outcome).await;
    assert!(ended.is_ok(), "{ended:?}: {outcome:?}");
    assert_eq!((outcome.kills.len(), outcome.undisturbed.len()), (plan.kills, 2));
    let has_worked = outcome.acknowledged > 0 && outcome.steps > 0 && outcome.loss.is_some();
    assert!(has_worked, "{outcome:?}");
    assert!(outcome.percentile(1.0) < Duration::from_secs(20), "{outcome:?}");
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_servers_are_succeeded_and_no_acknowledged_push_is_lost() {
    survive(RegistryChoice::Coordinator, None, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_ranges_move_away_from_slow_servers() {
    survive(RegistryChoice::Coordinator, None, true).await;
}

/// The servers lead themselves, and the etcd stands still for longer than its leases last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn training_goes_on_with_an_etcd_that_stands_still() {
    if !etcd_process::is_installed() {
        return;
    }
    let length = Duration::from_secs(3);
    let outcome = survive(RegistryChoice::Etcd, Some(length), false).await;
    let stop = outcome.stop.unwrap();
    let has_waited = stop.acknowledged == 0 || stop.longest >= length;
    assert!(!has_waited, "it waited for etcd: {outcome:?}");
}

fn run_program(args: &[&str]) -> (Output, String) {
    let output = Command::new(PROGRAM).args(args).output().unwrap();
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    (output, errors)
}

#[test]
fn cluster_comes_up_shows_itself_and_ends_when_asked() {
    let listen = format!("127.0.0.1:{}", etcd_process::free_port().unwrap());
    let registry = format!("parapet://{listen}");
    let mut command = Command::new(PROGRAM);
    command.args(["cluster", "up", "--servers", "2", "--listen", &listen]);
    let mut cluster = command.stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let shown = loop {
        let (output, errors) = run_program(&["top", "--once", "--registry", &registry]);
        let text = String::from_utf8(output.stdout).unwrap();
        if text.contains("127.0.0.1") {
            break text;
        }
        assert!(start.elapsed() < LIMIT, "{text}{errors}");
    };
    let head = format!("registry {registry}, led by");
    assert!(shown.starts_with(&head), "{shown}");
    let (taken, error) = run_program(&["cluster", "up", "--listen", &listen]);
    assert!(!taken.status.success() && error.lines().count() == 1, "{error}");
    assert!(error.contains("cannot listen at"), "{error}");

    let pid = nix::unistd::Pid::from_raw(i32::try_from(cluster.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    // Its standard error is closed when its last child has ended, too.
    let mut errors = cluster.stderr.take().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = errors.read_to_string(&mut String::new());
        let _ = sender.send(());
    });
    assert!(receiver.recv_timeout(LIMIT).is_ok(), "its processes end with it");
    assert!(cluster.wait().unwrap().success());
}

#[test]
fn registry_that_is_not_there_is_one_line() {
    let (output, error) = run_program(&["server", "--registry", "parapet://127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("127.0.0.1:1") && error.lines().count() == 1, "{error}");
}
