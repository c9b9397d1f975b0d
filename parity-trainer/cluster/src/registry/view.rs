//! All that a registry knows, put together from its keys.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use parapet_parameter_server::{
    ArrayId, Clock, ClusterState, HandOver, KeyRange, LoadPlan, NodeId, Peer, Routing, ServiceTime,
    ShardRef, StepTimes, WorkerId, medians,
};
use serde::{Deserialize, Serialize};

use crate::registry::{Batch, Entry, RegistryError, Result, Revision, documents};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    Server(NodeId),
    Worker(WorkerId),
    /// Neither: it can only lead.
    Coordinator(u64),
}

impl Member {
    /// As the other servers and workers know it.
    pub const fn peer(self) -> Option<Peer> {
        match self {
            Self::Server(node) => Some(Peer::Server(node)),
            Self::Worker(worker) => Some(Peer::Worker(worker)),
            Self::Coordinator(_) => None,
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(node) => node.fmt(f),
            Self::Worker(worker) => worker.fmt(f),
            Self::Coordinator(number) => write!(f, "coordinator {number}"),
        }
    }
}

/// Something that a member holds to be so, until it retracts it or is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The server is dead: its connection was reset, or its heartbeats are missing.
    Suspect(NodeId),
    /// The hand-over is complete: append the server to the chain.
    Propose(HandOver),
    /// This server was named for a shard whose state never came here.
    Lost(ShardRef),
    /// Microseconds that one executor's part of a step takes this process.
    Pace(u64),
    /// A server's service time, as this process measures it.
    Service(NodeId, ServiceTime),
    /// Steps of the training under the routing table of this revision.
    Steps(Revision, StepTimes),
}

/// Longer times are nonsense: of a part of a step, of a row and of none.
const MAX_PACE: u64 = 3_600_000_000;
const MAX_ROW_NS: u64 = 1_000_000_000;

impl Report {
    fn check(self, key: &str) -> Result<Self> {
        match self {
            Self::Pace(0 | MAX_PACE..) => {
                Err(RegistryError::malformed(key, "a pace of 1 us to an hour was expected"))
            }
            Self::Service(_, time) if time.push_ns.max(time.read_ns) > MAX_ROW_NS => Err(
                RegistryError::malformed(key, "a service time of a second at most was expected"),
            ),
            other => Ok(other),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerInfo {
    /// `HOST:PORT` for messages; empty while it does not yet listen.
    pub address: String,
    #[serde(default)]
    pub control: String,
    /// Its part of the load, relative to the others'; 0 to have it emptied.
    pub weight: u32,
    /// It holds nothing unless it is needed.
    #[serde(default)]
    pub standby: bool,
    /// Version of the protocol that it speaks.
    #[serde(default)]
    pub protocol: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayInfo {
    pub keys: KeyRange,
    /// Its shards, one after another; none if it was given up.
    pub shards: Vec<KeyRange>,
    /// Description for servers and workers; a registry does not look into it.
    #[serde(default)]
    pub description: String,
}

impl ArrayInfo {
    fn check(self, key: &str) -> Result<Self> {
        let mut end = self.keys.start;
        let follows = |shard: &KeyRange| {
            let follows = shard.start == end && !shard.is_empty();
            end = shard.end;
            follows
        };
        let is_whole = self.shards.iter().all(follows) && end == self.keys.end;
        if is_whole || self.shards.is_empty() {
            return Ok(self);
        }
        Err(RegistryError::malformed(key, "shards that are all keys, one after another, expected"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Table {
    /// The change that wrote it: the base of the next compare-and-swap.
    #[serde(skip)]
    pub revision: Revision,
    #[serde(flatten)]
    pub routing: Routing,
    pub hand_overs: Vec<HandOver>,
    #[serde(default)]
    pub plan: LoadPlan,
}

impl Table {
    pub fn holds(&self, server: NodeId) -> bool {
        let mut routes = self.routing.routes().iter();
        routes.any(|route| route.chain.contains(&server))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Workers {
    #[serde(skip)]
    pub revision: Revision,
    pub version: u64,
    /// With the clocks they began at. They move between processes, and stay until taken off.
    pub workers: Vec<(WorkerId, Clock)>,
}

impl Workers {
    pub fn listed(&self) -> impl Iterator<Item = WorkerId> {
        self.workers.iter().map(|&(worker, _)| worker)
    }

    pub(crate) fn read(entry: &Entry) -> Result<Self> {
        let workers = documents::read(entry)?;
        Ok(Self { revision: entry.modified, ..workers })
    }
}

/// One leadership of one member; the next has a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub Revision);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leader {
    pub term: Term,
    pub member: Member,
}

/// All that the registry knows, as far as it has been heard of here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// True if the registry answers. While it does not, the rest is what it said last.
    pub reachable: bool,
    pub servers: BTreeMap<NodeId, ServerInfo>,
    /// The processes that executors may be given to.
    pub present_workers: BTreeSet<WorkerId>,
    /// The executors: the workers whose clocks count.
    pub workers: Workers,
    pub arrays: BTreeMap<ArrayId, ArrayInfo>,
    /// Job to work on, if there is one; a registry does not look into it.
    pub job: Option<String>,
    pub table: Table,
    pub leader: Option<Leader>,
    /// By their keys, so that none stands twice.
    pub reports: BTreeMap<String, (Member, Report)>,
}

impl View {
    /// As [`parapet_parameter_server::Coordinator`] wants it.
    pub fn cluster(&self) -> ClusterState {
        let servers = self.servers.iter().map(|(&node, info)| (node, info.weight));
        let standbys = self.servers.iter().filter(|(_, info)| info.standby);
        let arrays = self.arrays.iter();
        let arrays = arrays.map(|(&array, info)| (array, info.shards.clone()));
        let mut cluster = ClusterState {
            servers: servers.collect(),
            standbys: standbys.map(|(&node, _)| node).collect(),
            arrays: arrays.collect(),
            routing: self.table.routing.clone(),
            hand_overs: self.table.hand_overs.clone(),
            present_workers: self.present_workers.clone(),
            executors: self.workers.workers.len() as u64,
            services: medians(self.services()),
            plan: self.table.plan.clone(),
            ..ClusterState::default()
        };
        for &(by, report) in self.reports.values() {
            match (by, report) {
                (by, Report::Suspect(node)) => {
                    let suspicion = by.peer().map(|peer| (peer, node));
                    cluster.suspicions.extend(suspicion);
                }
                (_, Report::Propose(hand_over)) => cluster.proposals.extend([hand_over]),
                (Member::Server(node), Report::Lost(at)) => cluster.lost.extend([(node, at)]),
                (_, Report::Steps(table, steps)) if table == self.table.revision => {
                    cluster.steps = Some(steps);
                }
                (
                    _,
                    Report::Lost(_) | Report::Pace(_) | Report::Service(..) | Report::Steps(..),
                ) => {}
            }
        }
        cluster
    }

    /// The servers' service times, as each process measures them.
    pub fn services(&self) -> impl Iterator<Item = (NodeId, ServiceTime)> {
        let reports = self.reports.values();
        reports.filter_map(|&(_, report)| match report {
            Report::Service(node, time) => Some((node, time)),
            _ => None,
        })
    }

    pub fn suspicions(&self) -> impl Iterator<Item = (Member, NodeId)> {
        let reports = self.reports.values();
        reports.filter_map(|&(by, report)| match report {
            Report::Suspect(node) => Some((by, node)),
            _ => None,
        })
    }

    /// Microseconds that an executor's part takes this process, if it has told.
    pub fn pace(&self, process: WorkerId) -> Option<u64> {
        let key = documents::report_key(Member::Worker(process), &Report::Pace(0));
        match self.reports.get(&key) {
            Some(&(_, Report::Pace(pace))) => Some(pace),
            _ => None,
        }
    }

    /// Takes over what a key holds now, or that it is gone.
    fn set(&mut self, key: &str, entry: Option<&Entry>) -> Result<()> {
        let (kind, rest) = key.split_once('/').unwrap_or((key, ""));
        let unnamed = || RegistryError::malformed(key, "it names no member");
        match kind {
            documents::LEADER => {
                let leader = |entry: &Entry| {
                    let term = Term(entry.modified);
                    let member = documents::parse_member(&entry.value).ok_or_else(unnamed)?;
                    Ok(Leader { term, member })
                };
                self.leader = entry.map(leader).transpose()?;
            }
            documents::TABLE => {
                self.table = read(entry)?.unwrap_or_default();
                self.table.revision = entry.map_or(Revision(0), |entry| entry.modified);
            }
            documents::WORKERS => {
                let workers = entry.map(Workers::read).transpose()?;
                self.workers = workers.unwrap_or_default();
            }
            documents::JOB => self.job = entry.map(documents::read).transpose()?,
            "members" => match documents::parse_member(rest) {
                Some(Member::Server(node)) => put(&mut self.servers, node, read(entry)?),
                Some(Member::Worker(worker)) if entry.is_some() => {
                    self.present_workers.insert(worker);
                }
                Some(Member::Worker(worker)) => {
                    self.present_workers.remove(&worker);
                }
                Some(Member::Coordinator(_)) | None => {}
            },
            "arrays" => {
                let number = rest.parse().map_err(|e| RegistryError::malformed(key, e))?;
                let array = read(entry)?.map(|array: ArrayInfo| array.check(key)).transpose()?;
                put(&mut self.arrays, ArrayId(number), array);
            }
            "reports" => {
                let by = rest.split('/').next().and_then(documents::parse_member);
                let by = by.ok_or_else(unnamed)?;
                let report = read(entry)?.map(|report: Report| report.check(key)).transpose()?;
                let report = report.map(|report| (by, report));
                put(&mut self.reports, key.to_owned(), report);
            }
            // A key of a later version, or one that members alone need.
            _ => {}
        }
        Ok(())
    }
}

fn read<T: serde::de::DeserializeOwned>(entry: Option<&Entry>) -> Result<Option<T>> {
    entry.map(documents::read).transpose()
}

fn put<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    };
}

#[derive(Debug, Default)]
pub(crate) struct ViewBuilder {
    pub(crate) view: View,
    /// Revisions of the store's entries in the view.
    taken: BTreeMap<String, Revision>,
}

impl ViewBuilder {
    pub(crate) fn apply(&mut self, batch: Batch) {
        self.view.reachable = !matches!(batch, Batch::Away);
        match batch {
            Batch::All(entries) => {
                let there: BTreeSet<&String> = entries.iter().map(|entry| &entry.key).collect();
                let known: Vec<String> = self.taken.keys().cloned().collect();
                let gone = known.iter().filter(|key| !there.contains(key));
                gone.for_each(|key| self.set(key, None));
                for entry in &entries {
                    self.set(&entry.key, Some(entry));
                }
            }
            Batch::Changes(changes) => changes.iter().for_each(|change| match change {
                Ok(entry) => self.set(&entry.key, Some(entry)),
                Err(key) => self.set(key, None),
            }),
            Batch::Away => {}
        }
    }

    fn set(&mut self, key: &str, entry: Option<&Entry>) {
        let before = match entry {
            Some(entry) => self.taken.insert(key.to_owned(), entry.modified),
            None => self.taken.remove(key),
        };
        if before.is_some() && before == entry.map(|entry| entry.modified) {
            return;
        }
        if let Err(error) = self.view.set(key, entry) {
            // What was there before is better than nothing, and the others' keys are still good.
            tracing::error!(%error, "the registry holds something unreadable");
        }
    }
}
