//! The frontends' configuration, and its variants that are loaded while they serve.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use parapet_config::repository::EncoderKind;
use parapet_frontend::tenants::Key;

use crate::model::{CHEAP, DEPLOYED, PARITY};
use crate::plan::{Mistake, REPLICAS};

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

/// Address of data listeners.
const DATA: &str = "127.0.0.1:0";

/// Strategies of the class without a name, one of which is served at a time.
const VARIANTS: [(&str, EncoderKind, usize, &str); 6] = [
    ("coded", EncoderKind::Sum, 2, "hold_back = { fixed_ms = 25 }\naudit_every = 5\n"),
    (
        "coded",
        EncoderKind::Sum,
        2,
        "hold_back = { fixed_ms = 35 }\naudit_every = 1\nsend_parity = \"at_once\"\n",
    ),
    (
        "coded",
        EncoderKind::Stack,
        2,
        "hold_back = { fixed_ms = 25 }\naudit_every = 1\nsend_parity = \"at_once\"\n",
    ),
    (
        "coded",
        EncoderKind::Stack,
        2,
        "hold_back = { fixed_ms = 25 }\nsend_parity = \"when_late\"\n",
    ),
    (
        "coded",
        EncoderKind::Sum,
        3,
        "hold_back = { fixed_ms = 25 }\naudit_every = 3\nflush_after_ms = 5\n",
    ),
    (
        "coded_hedged",
        EncoderKind::Sum,
        2,
        "hold_back = { fixed_ms = 30 }\nhedge = { share = 0.2, burst = 8 }\n",
    ),
];

pub const COUNT: usize = VARIANTS.len();

/// Name, and true if others may be in its groups.
const TENANTS: [(&str, bool); 3] = [("first", true), ("second", true), ("apart", false)];

/// Where everything is.
#[derive(Debug)]
pub struct Topology {
    pub repository: PathBuf,
    /// The replicas first.
    pub instances: Vec<SocketAddr>,
    /// Of two tenants that share groups, and of one that shares them with no other.
    pub keys: [Key; 3],
}

impl Topology {
    /// The configuration of a frontend with this admin listener. Its data listener takes any free
    /// port, so that two processes of one place never want the same.
    pub fn toml(&self, admin: SocketAddr, variant: usize) -> String {
        let (kind, encoder, k, settings) = VARIANTS[variant % COUNT];
        let parity = PARITY.iter().find(|(of, size, _)| (*of, *size) == (encoder, k));
        let parity = parity.map_or("", |(.., name)| name);
        let instances: Vec<String> = self.instances.iter().map(ToString::to_string).collect();
        let (replicas, parity_pool) = instances.split_at(REPLICAS);
        let (delay, grace) = (DRAIN_DELAY.as_millis(), DRAIN_GRACE.as_millis());
        let mut text = format!(
            "[server]\nlisten = \"{DATA}\"\ndrain_delay_ms = {delay}\ndrain_grace_ms = {grace}\n\
             [admin]\nlisten = \"{admin}\"\n[repository]\npath = {:?}\n\
             [[models]]\nname = \"{DEPLOYED}\"\ninstances = {replicas:?}\n\
             slots_per_instance = 2\nmax_queue = 32\nmax_in_flight = {MAX_IN_FLIGHT}\n\
             timeout_ms = 800\n\
             [models.health]\ninterval_ms = 300\nrecovery_interval_ms = 100\ntimeout_ms = 400\n\
             suspect_after_ms = 300\neject_ms = 1000\n\
             [models.strategy]\nkind = \"{kind}\"\nencoder = \"{encoder}\"\nk = {k}\n\
             late_truth_wait_ms = 1000\nredundant_share = 0.6\nredundant_burst = 8\n{settings}\
             [[models.strategy.parity]]\nmodel = \"{parity}\"\ninstances = {parity_pool:?}\n\
             [[models.classes]]\nname = \"{CLASS_PLAIN}\"\n\
             strategy = {{ kind = \"none\" }}\n\
             [[models.classes]]\nname = \"{CLASS_HEDGED}\"\n[models.classes.strategy]\n\
             kind = \"hedge\"\ndelay = {{ fixed_ms = 25 }}\nshare = 0.3\nburst = 8\n\
             [[models.classes]]\nname = \"{CLASS_BACKUP}\"\n[models.classes.strategy]\n\
             kind = \"approximate_backup\"\nmodel = \"{CHEAP}\"\ninstances = {parity_pool:?}\n\
             delay = {{ fixed_ms = 25 }}\nshare = 0.3\nburst = 8\nlate_truth_wait_ms = 1000\n",
            self.repository,
        );
        for ((name, may_mix), key) in TENANTS.into_iter().zip(&self.keys) {
            let hash = key.hash();
            text += &format!(
                "[[tenants]]\nname = \"{name}\"\nkey_sha256 = [\"{hash}\"]\nmay_mix = {may_mix}\n"
            );
        }
        text
    }

    /// The same with a mistake.
    pub fn mistaken(&self, admin: SocketAddr, variant: usize, mistake: Mistake) -> String {
        let sound = self.toml(admin, variant);
        match mistake {
            Mistake::NoToml => format!("{sound}\n[[models\n"),
            Mistake::UnknownModel => {
                sound.replace(&format!("name = \"{DEPLOYED}\""), "name = \"nobody\"")
            }
            Mistake::OtherAddress => sound.replace(DATA, "127.0.0.1:1"),
        }
    }
}
