//! Causes of slow instances in an experiment: emulated, or as in ParM's evaluation (SOSP 2019,
//! section 5.2) bulk transfers between their hosts, or processors that they share.
//!
//! The load generator starts the programs that lie beside it. Here an instance's is a script that
//! moves it to its own network namespace or control group.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::netns::{ip, within};
use crate::prelude::*;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Faults {
    /// This share of the batches takes 15 to 45 ms more.
    Straggle(f64),
    /// 40 % of the instances, at the same times.
    Correlated,
    /// Bulk transfers between instances, each with a network namespace and a limited link.
    Transfers,
    /// A small share of a processor, which two of the instances have in common.
    Quotas,
}

const STRAGGLE: &str = "straggle = { probability = 0.01, min_ms = 15, max_ms = 45 }";
/// Two-second periods, about a third of the time, in which 40 % of instances take 15 to 45 ms more.
const CORRELATED: &str = "slowdown = { share = 0.4, correlated = true, mean_interval_ms = 4000, \
    length = { min_ms = 1000, max_ms = 3000 }, added = { min_ms = 15, max_ms = 45 } }";

const HUB: &str = "parapet-tail-hub";
/// Both ways of each link; 4 to 8 MB take ParM's transfers about as long, a second.
const LINK: &str = "tbf rate 50mbit burst 32kb latency 40ms";
const BYTES: std::ops::Range<usize> = 4_000_000..8_000_000;
const CONCURRENT: usize = 4;
/// Instances with a quota, and microseconds of a processor in each 100 ms for them together.
const SLOW: usize = 2;
const QUOTA: &str = "1000";
const PERIOD: &str = "100000";

impl Faults {
    /// Replaces the profile that the experiment has.
    pub(super) fn replace(self, text: &str) -> Result<String> {
        ensure!(text.contains(STRAGGLE), "the experiment has no `{STRAGGLE}`");
        let profile = match self {
            Self::Straggle(share) => STRAGGLE.replace("0.01", &share.to_string()),
            Self::Correlated => CORRELATED.to_owned(),
            Self::Transfers | Self::Quotas => String::new(),
        };
        Ok(text.replace(STRAGGLE, &profile))
    }

    /// Calls `compare` with the program of the load generator, for this many instances.
    pub(super) fn surround(
        self,
        instances: usize,
        compare: impl FnOnce(PathBuf) -> Result<()> + Send,
    ) -> Result<()> {
        match self {
            Self::Straggle(_) | Self::Correlated => compare(release("parapet-loadgen")),
            Self::Transfers => {
                require(&[("ip", "iproute2"), ("tc", "iproute2")])?;
                let network = Network::new(instances)?;
                let moved = "run=\"ip netns exec parapet-tail-$n\"; at=10.79.0.$((n + 1)):0";
                let loadgen = programs(moved)?;
                let transferred = network.with_transfers(|| within(HUB, || compare(loadgen)))?;
                println!("{transferred} transfers");
                Ok(())
            }
            Self::Quotas => {
                let group = quota_group()?;
                let procs = group.join("cgroup.procs").display().to_string();
                let compared =
                    compare(programs(&format!("[ $n -lt {SLOW} ] && echo $$ > {procs}"))?);
                // Empty by now; one that is left does no harm.
                let _ = std::fs::remove_dir(group);
                compared
            }
        }
    }
}

/// A folder with the load generator and a frontend beside `parapet-instance`, a script that runs
/// the instance of number `n` by `$run`, at `$at`, after it did what `before` says.
fn programs(before: &str) -> Result<PathBuf> {
    let (sh, folder) = (shell()?, scratch("bench-tail/programs"));
    empty(&sh, &folder)?;
    for program in ["parapet-loadgen", "parapet-frontend"] {
        sh.copy_file(release(program), folder.join(program))?;
    }
    let (script, program) = (folder.join("parapet-instance"), release("parapet-instance"));
    let text = format!(
        "#!/bin/sh\nn=0; run=; at=127.0.0.1:0\n\
         for word; do [ \"$last\" = --fault-instance ] && n=$word; last=$word; done\n{before}\n\
         for word; do shift; [ \"$last\" = --listen ] && word=$at; set -- \"$@\" \"$word\"; \
         last=$word; done\nexec $run {} \"$@\"\n",
        program.display()
    );
    sh.write_file(&script, text)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    Ok(folder.join("parapet-loadgen"))
}

/// Makes the control group of instances with a quota, of the first version or the second.
fn quota_group() -> Result<PathBuf> {
    let (sh, all) = (shell()?, Path::new("/sys/fs/cgroup"));
    let (group, limits) = match all.join("cpu").is_dir() {
        true => {
            let limits = [("cpu.cfs_period_us", PERIOD), ("cpu.cfs_quota_us", QUOTA)];
            (all.join("cpu/parapet-tail"), limits.map(|(file, limit)| (file, limit.to_owned())))
        }
        false => {
            let limit = format!("{QUOTA} {PERIOD}");
            (all.join("parapet-tail"), ["cpu.max"; 2].map(|file| (file, limit.clone())))
        }
    };
    sh.create_dir(&group).context("control groups cannot be made; run it as root")?;
    for (file, limit) in limits {
        sh.write_file(group.join(file), limit)?;
    }
    Ok(group)
}

/// A network namespace for each instance, behind a limited link, and the hub's for the others;
/// until this is dropped.
struct Network {
    instances: usize,
}

fn space(instance: usize) -> String {
    format!("parapet-tail-{instance}")
}

impl Network {
    fn new(instances: usize) -> Result<Self> {
        let network = Self { instances };
        // A run that was killed may have left them behind.
        network.remove();
        ip(&format!("netns add {HUB}"))
            .context("network namespaces cannot be made; run it as root")?;
        for line in [
            "link set lo up",
            "link add bridge type bridge",
            "link set bridge up",
            "address add 10.79.0.254/24 dev bridge",
        ] {
            ip(&format!("-n {HUB} {line}"))?;
        }
        for instance in 0..instances {
            let space = space(instance);
            ip(&format!("netns add {space}"))?;
            ip(&format!("link add t{instance} netns {HUB} type veth peer eth0 netns {space}"))?;
            ip(&format!("-n {HUB} link set t{instance} master bridge up"))?;
            ip(&format!("-n {space} address add 10.79.0.{}/24 dev eth0", instance + 1))?;
            ip(&format!("-n {space} link set eth0 up"))?;
            for (space, device) in [(HUB, format!("t{instance}")), (&space, "eth0".to_owned())] {
                let words = format!("-n {space} qdisc add dev {device} root {LINK}");
                let (sh, words) = (shell()?, words.split(' '));
                cmd!(sh, "tc {words...}").quiet().run()?;
            }
        }
        Ok(network)
    }

    /// Calls `act` while there are always some transfers between instances, and counts them.
    fn with_transfers(&self, act: impl FnOnce() -> Result<()>) -> Result<u64> {
        let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let threads = [(); CONCURRENT].map(|()| {
                let seed = count.fetch_add(1, Ordering::Relaxed);
                scope.spawn({
                    let (over, count) = (&over, &count);
                    move || {
                        let mut random = ChaCha8Rng::seed_from_u64(seed);
                        while !over.load(Ordering::Relaxed) {
                            self.transfer(&mut random)?;
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                        anyhow::Ok(())
                    }
                })
            });
            let acted = act();
            over.store(true, Ordering::Relaxed);
            for thread in threads {
                thread.join().map_err(|_| anyhow!("a thread of transfers ended"))??;
            }
            acted
        })?;
        Ok(count.into_inner() - CONCURRENT as u64)
    }

    fn transfer(&self, random: &mut ChaCha8Rng) -> Result<()> {
        let from = random.random_range(0..self.instances);
        let to = (from + random.random_range(1..self.instances)) % self.instances;
        let bytes = random.random_range(BYTES);
        let listener = within(&space(to), || Ok(TcpListener::bind(("0.0.0.0", 0))?))?;
        let address = (format!("10.79.0.{}", to + 1), listener.local_addr()?.port());
        let mut sent = within(&space(from), || Ok(TcpStream::connect(address)?))?;
        let (mut received, _) = listener.accept()?;
        for stream in [&sent, &received] {
            stream.set_read_timeout(Some(LIMIT))?;
            stream.set_write_timeout(Some(LIMIT))?;
        }
        std::thread::scope(|scope| {
            let receiver = scope.spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while received.read(&mut buffer)? > 0 {}
                anyhow::Ok(())
            });
            sent.write_all(&vec![0; bytes])?;
            drop(sent);
            receiver.join().map_err(|_| anyhow!("a receiver ended"))?
        })
    }

    fn remove(&self) {
        for space in (0..self.instances).map(space).chain([HUB.to_owned()]) {
            let Ok(sh) = shell() else { return };
            let _ = cmd!(sh, "ip netns delete {space}").quiet().ignore_stderr().run();
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}
