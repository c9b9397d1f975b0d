//! The frontends' configuration, and its variants that are loaded while they serve.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use parapet_frontend::tenants::Key;

use crate::model::{CHEAP, DEPLOYED, PARITY};
use crate::plan::Mistake;

/// Requests of this class get no redundancy.
pub const CLASS_PLAIN: &str = "plain";
pub const CLASS_HEDGED: &str = "hedged";
/// Another model's answer.
pub const CLASS_BACKUP: &str = "backup";
/// No variant counts a query as late sooner.
pub const SHORTEST_HOLD_BACK: Duration = Duration::from_millis(25);
/// Queries that a frontend may have in memory.
pub const MAX_IN_FLIGHT: usize = 512;
/// Redundant requests for each query over time, at most, in any class and variant; and at once.
pub const REDUNDANT_SHARE: f64 = 0.8;
pub const REDUNDANT_BURST: f64 = 16.0;
/// For which a frontend that was asked to stop serves on.
pub const DRAIN_DELAY: Duration = Duration::from_millis(400);
/// After that, for requests in flight.
pub const DRAIN_GRACE: Duration = Duration::from_secs(4);

/// Strategies of the class without a name, one of which is served at a time.
const VARIANTS: [(&str, usize, &str); 4] = [
    (
        "coded",
        2,
        "hold_back = { fixed_ms = 25 }\naudit_every = 5\n",
    ),
    (
        "coded",
        2,
        "hold_back = { fixed_ms = 35 }\naudit_every = 1\ndefer_parity = false\n",
    ),
    (
        "coded",
        3,
        "hold_back = { fixed_ms = 25 }\naudit_every = 3\nflush_after_ms = 5\n",
    ),
    (
        "coded_hedged",
        2,
        "hold_back = { fixed_ms = 30 }\nhedge = { share = 0.2, burst = 8 }\n",
    ),
];

pub const COUNT: usize = VARIANTS.len();

#[derive(Debug)]
pub struct Tenants {
    /// Two that share groups, and one that shares them with no other.
    pub keys: [Key; 3],
}

impl Tenants {
    pub fn new() -> Self {
        Self {
            keys: std::array::from_fn(|_| Key::generate()),
        }
    }

    fn toml(&self) -> String {
        let tenant = |(name, may_mix): (&str, bool), key: &Key| {
            format!(
                "[[tenants]]\nname = \"{name}\"\nkey_sha256 = [\"{}\"]\nmay_mix = {may_mix}\n",
                key.hash()
            )
        };
        let names = [("first", true), ("second", true), ("apart", false)];
        names
            .into_iter()
            .zip(&self.keys)
            .map(|(name, key)| tenant(name, key))
            .collect()
    }
}

/// Where everything is.
#[derive(Debug)]
pub struct Topology<'a> {
    pub repository: &'a Path,
    pub replicas: &'a [SocketAddr],
    pub parity: &'a [SocketAddr],
    pub tenants: &'a Tenants,
}

impl Topology<'_> {
    /// The configuration of a frontend with these listeners.
    pub fn toml(&self, data: SocketAddr, admin: SocketAddr, variant: usize) -> String {
        let (kind, k, settings) = VARIANTS[variant % COUNT];
        let parity = PARITY
            .iter()
            .find(|(of, _)| *of == k)
            .map_or("", |(_, name)| name);
        let (replicas, parity_pool) = (list(self.replicas), list(self.parity));
        format!(
            "[server]\nlisten = \"{data}\"\ndrain_delay_ms = {}\ndrain_grace_ms = {}\n\
                [admin]\nlisten = \"{admin}\"\n\
                {}[repository]\npath = {:?}\n\
                [[models]]\nname = \"{DEPLOYED}\"\ninstances = {replicas}\nslots_per_instance = \
                2\nmax_queue = 32\n\
                max_in_flight = {MAX_IN_FLIGHT}\ntimeout_ms = 800\n\
                [models.health]\ninterval_ms = 300\nrecovery_interval_ms = 100\ntimeout_ms = \
                400\nsuspect_after_ms = 300\n\
                eject_ms = 1000\n\
                [models.strategy]\nkind = \"{kind}\"\nencoder = \"sum\"\nk = \
                {k}\nlate_truth_wait_ms = 1000\n\
                redundant_share = 0.6\nredundant_burst = \
                8\n{settings}[[models.strategy.parity]]\nmodel = \"{parity}\"\ninstances = \
                {parity_pool}\n\
                [[models.classes]]\nname = \"{CLASS_PLAIN}\"\n[models.classes.strategy]\nkind = \
                \"none\"\n\
                [[models.classes]]\nname = \"{CLASS_HEDGED}\"\n[models.classes.strategy]\nkind = \
                \"hedge\"\n\
                delay = {{ fixed_ms = 25 }}\nshare = 0.3\nburst = 8\n\
                [[models.classes]]\nname = \"{CLASS_BACKUP}\"\n[models.classes.strategy]\nkind = \
                \"approximate_backup\"\n\
                model = \"{CHEAP}\"\ninstances = {parity_pool}\ndelay = {{ fixed_ms = 25 \
                }}\nshare = 0.3\nburst = 8\n\
                late_truth_wait_ms = 1000\n",
            DRAIN_DELAY.as_millis(),
            DRAIN_GRACE.as_millis(),
            self.tenants.toml(),
            self.repository,
        )
    }

    /// The same with a mistake.
    pub fn mistaken(
        &self,
        data: SocketAddr,
        admin: SocketAddr,
        variant: usize,
        mistake: Mistake,
    ) -> String {
        let sound = self.toml(data, admin, variant);
        match mistake {
            Mistake::NoToml => format!("{sound}\n[[models\n"),
            Mistake::UnknownModel => {
                sound.replace(&format!("name = \"{DEPLOYED}\""), "name = \"nobody\"")
            }
            Mistake::OtherAddress => {
                sound.replace(&format!("listen = \"{data}\""), "listen = \"127.0.0.1:1\"")
            }
        }
    }
}

fn list(addresses: &[SocketAddr]) -> String {
    let quoted: Vec<String> = addresses
        .iter()
        .map(|address| format!("\"{address}\""))
        .collect();
    format!("[{}]", quoted.join(", "))
}
