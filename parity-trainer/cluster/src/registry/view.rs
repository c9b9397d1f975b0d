//! All that a registry knows, put together from its keys.

use std::collections::{BTreeMap, BTreeSet};

use parapet_parameter_server::{
    ArrayId, Clock, ClusterState, HandOver, KeyRange, NodeId, Routing, WorkerId,
};

use crate::registry::documents::{self, Key};
use crate::registry::{Batch, Entry, Member, RegistryError, Report, Revision};

/// A server, as it made itself known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// Where it takes messages, `HOST:PORT`; empty while it does not yet listen.
    pub address: String,
    /// Where it answers questions about itself, `HOST:PORT`; empty if nowhere.
    pub control: String,
    /// Its part of the load, relative to the others'; 0 to have it emptied.
    pub weight: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayInfo {
    pub keys: KeyRange,
    /// Into how many shards it is to be cut; 0 if it was given up.
    pub shards: u64,
    /// Description for servers and workers; a registry does not look into it.
    pub description: String,
}

impl ArrayInfo {
    /// Without a description.
    pub const fn new(keys: KeyRange, shards: u64) -> Self {
        Self {
            keys,
            shards,
            description: String::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// The change that wrote it: the base of the next compare-and-swap.
    pub revision: Revision,
    /// For every server and worker.
    pub routing: Routing,
    /// For the tails of these shards, together with the routing table they belong to: hand it to
    /// the server first.
    pub hand_overs: Vec<HandOver>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Workers {
    /// The change that wrote it.
    pub revision: Revision,
    /// Raised by every change.
    pub version: u64,
    /// All workers, with the clocks they joined at.
    pub workers: Vec<(WorkerId, Clock)>,
    /// Workers of the list that are executors, which move between processes (Qiao et al., "Litz",
    /// ATC 2018). They stay on the list until they are taken off it.
    pub executors: BTreeSet<WorkerId>,
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
    /// True if the registry answers. While it does not, the rest is what it said last, and stays
    /// valid: a server that was replaced meanwhile is fenced by its successors.
    pub reachable: bool,
    /// The servers that are there.
    pub servers: BTreeMap<NodeId, ServerInfo>,
    /// The workers that are there.
    pub present_workers: BTreeSet<WorkerId>,
    /// The workers whose clocks count.
    pub workers: Workers,
    pub arrays: BTreeMap<ArrayId, ArrayInfo>,
    /// Job to work on, if there is one; a registry does not look into it.
    pub job: Option<String>,
    pub table: Table,
    pub leader: Option<Leader>,
    pub reports: BTreeMap<String, (Member, Report)>,
}

impl View {
    /// As [`parapet_parameter_server::Coordinator`] wants it.
    pub fn cluster(&self) -> ClusterState {
        let listed = self.workers.workers.iter().map(|&(worker, _)| worker);
        let mut cluster = ClusterState {
            servers: self
                .servers
                .iter()
                .map(|(&node, info)| (node, info.weight))
                .collect(),
            arrays: self
                .arrays
                .iter()
                .map(|(&array, info)| (array, (info.keys, info.shards)))
                .collect(),
            routing: self.table.routing.clone(),
            hand_overs: self.table.hand_overs.clone(),
            workers: listed
                .filter(|worker| !self.workers.executors.contains(worker))
                .collect(),
            present_workers: self.present_workers.clone(),
            ..ClusterState::default()
        };
        for &(by, report) in self.reports.values() {
            match (by, report) {
                (by, Report::Suspect(node)) => cluster
                    .suspicions
                    .extend(by.peer().map(|peer| (peer, node))),
                (_, Report::Propose(hand_over)) => cluster.proposals.extend([hand_over]),
                (Member::Server(node), Report::Lost(at)) => cluster.lost.extend([(node, at)]),
                (_, Report::Lost(_)) => {}
            }
        }
        cluster
    }

    /// Takes over what a key holds now.
    fn set(&mut self, entry: &Entry) -> Result<(), RegistryError> {
        let (key, value) = (entry.key.as_str(), entry.value.as_slice());
        match Key::parse(key) {
            Some(Key::Leader) => {
                let member = documents::read_leader(key, value)?;
                self.leader = Some(Leader {
                    term: Term(entry.modified),
                    member,
                });
            }
            Some(Key::Table) => {
                self.table = Table {
                    revision: entry.modified,
                    ..documents::read_table(key, value)?
                };
            }
            Some(Key::Workers) => {
                self.workers = Workers {
                    revision: entry.modified,
                    ..documents::read_workers(key, value)?
                };
            }
            Some(Key::Member(Member::Server(node))) => {
                self.servers
                    .insert(node, documents::read_server(key, value)?);
            }
            Some(Key::Member(Member::Worker(worker))) => {
                self.present_workers.insert(worker);
            }
            Some(Key::Array(array)) => {
                self.arrays
                    .insert(array, documents::read_array(key, value)?);
            }
            Some(Key::Job) => self.job = Some(documents::read_job(key, value)?),
            Some(Key::Report(rest)) => {
                let by = documents::reporter(rest);
                let by = by.ok_or_else(|| RegistryError::malformed(key, "it names no member"))?;
                self.reports
                    .insert(key.to_owned(), (by, documents::read_report(key, value)?));
            }
            Some(Key::Next | Key::Member(Member::Coordinator(_))) | None => {}
        }
        Ok(())
    }

    /// Forgets what a key that is gone held.
    fn remove(&mut self, key: &str) {
        match Key::parse(key) {
            Some(Key::Leader) => self.leader = None,
            Some(Key::Table) => self.table = Table::default(),
            Some(Key::Workers) => self.workers = Workers::default(),
            Some(Key::Member(Member::Server(node))) => {
                self.servers.remove(&node);
            }
            Some(Key::Member(Member::Worker(worker))) => {
                self.present_workers.remove(&worker);
            }
            Some(Key::Array(array)) => {
                self.arrays.remove(&array);
            }
            Some(Key::Job) => self.job = None,
            Some(Key::Report(_)) => {
                self.reports.remove(key);
            }
            Some(Key::Next | Key::Member(Member::Coordinator(_))) | None => {}
        }
    }
}

/// Keeps a view up to date.
#[derive(Debug, Default)]
pub(crate) struct ViewBuilder {
    view: View,
    /// Revisions of the store's entries in the view.
    taken: BTreeMap<String, Revision>,
}

impl ViewBuilder {
    pub(crate) const fn view(&self) -> &View {
        &self.view
    }

    pub(crate) fn apply(&mut self, batch: Batch) {
        self.view.reachable = !matches!(batch, Batch::Away);
        match batch {
            Batch::All(entries) => {
                let mut gone = std::mem::take(&mut self.taken);
                for entry in &entries {
                    let known = gone.remove(&entry.key);
                    self.taken
                        .extend(known.map(|revision| (entry.key.clone(), revision)));
                }
                gone.keys().for_each(|key| self.view.remove(key));
                entries.iter().for_each(|entry| self.set(entry));
            }
            Batch::Changes(changes) => {
                for change in changes {
                    match change {
                        Ok(entry) => self.set(&entry),
                        Err(key) => {
                            self.taken.remove(&key);
                            self.view.remove(&key);
                        }
                    }
                }
            }
            Batch::Away => {}
        }
    }

    fn set(&mut self, entry: &Entry) {
        if self.taken.get(&entry.key) == Some(&entry.modified) {
            return;
        }
        self.taken.insert(entry.key.clone(), entry.modified);
        if let Err(error) = self.view.set(entry) {
            // What was there before is better than nothing, and the others' keys are still good.
            tracing::error!(%error, "the registry holds something unreadable");
        }
    }
}
