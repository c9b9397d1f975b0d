//! Keys, and how values are written: JSON, because people look into an etcd, too.

use parapet_parameter_server::{
    ArrayId, Clock, Epoch, HandOver, KeyRange, NodeId, Route, Routing, ShardRef, WorkerId,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::registry::{ArrayInfo, Member, RegistryError, Report, ServerInfo, Table, Workers};

/// Bytes of a value, at most; etcd takes requests of 1.5 MiB. A table of 8,000 shards has
/// about 600 kB.
pub const MAX_DOCUMENT: usize = 1 << 20;

pub(crate) const LEADER: &str = "leader";
pub(crate) const TABLE: &str = "table";
pub(crate) const WORKERS: &str = "workers";
pub(crate) const NEXT: &str = "next";
pub(crate) const JOB: &str = "job";

/// A key, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key<'a> {
    Leader,
    Table,
    Workers,
    /// The number that the next member gets.
    Next,
    /// Job of the cluster.
    Job,
    /// A member that is there.
    Member(Member),
    Array(ArrayId),
    Report(&'a str),
}

impl<'a> Key<'a> {
    /// `None`: a key of a later version, which this one does not need to understand.
    pub(crate) fn parse(key: &'a str) -> Option<Self> {
        let (kind, rest) = key.split_once('/').unwrap_or((key, ""));
        Some(match kind {
            LEADER => Self::Leader,
            TABLE => Self::Table,
            WORKERS => Self::Workers,
            NEXT => Self::Next,
            JOB => Self::Job,
            "members" => Self::Member(parse_member(rest)?),
            "arrays" => Self::Array(ArrayId(rest.parse().ok()?)),
            "reports" => Self::Report(rest),
            _ => return None,
        })
    }
}

fn parse_member(text: &str) -> Option<Member> {
    let (kind, number) = text.split_once('-')?;
    let number = number.parse().ok()?;
    Some(match kind {
        "server" => Member::Server(NodeId(number)),
        "worker" => Member::Worker(WorkerId(number)),
        "coordinator" => Member::Coordinator(number),
        _ => return None,
    })
}

fn member_name(member: Member) -> String {
    match member {
        Member::Server(NodeId(number)) => format!("server-{number}"),
        Member::Worker(WorkerId(number)) => format!("worker-{number}"),
        Member::Coordinator(number) => format!("coordinator-{number}"),
    }
}

pub(crate) fn member_key(member: Member) -> String {
    format!("members/{}", member_name(member))
}

pub(crate) fn array_key(array: ArrayId) -> String {
    format!("arrays/{}", array.0)
}

/// One key for each thing that can be reported, so that what is reported anew takes no more room.
pub(crate) fn report_key(by: Member, report: &Report) -> String {
    let by = member_name(by);
    match report {
        Report::Suspect(node) => format!("reports/{by}/suspect/{}", node.0),
        Report::Propose(HandOver { at, .. }) => {
            format!("reports/{by}/propose/{}/{}", at.array.0, at.range.start)
        }
        Report::Lost(at) => format!("reports/{by}/lost/{}/{}", at.array.0, at.range.start),
    }
}

/// Returns the member that made the report of this key, the part after `reports/`.
pub(crate) fn reporter(rest: &str) -> Option<Member> {
    parse_member(rest.split('/').next()?)
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct ShardDocument {
    array: u32,
    start: u64,
    end: u64,
    epoch: u64,
}

impl From<ShardRef> for ShardDocument {
    fn from(at: ShardRef) -> Self {
        Self {
            array: at.array.0,
            start: at.range.start,
            end: at.range.end,
            epoch: at.epoch.0,
        }
    }
}

impl From<ShardDocument> for ShardRef {
    fn from(at: ShardDocument) -> Self {
        let range = KeyRange::new(at.start, at.end);
        Self {
            array: ArrayId(at.array),
            range,
            epoch: Epoch(at.epoch),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct RouteDocument {
    #[serde(flatten)]
    at: ShardDocument,
    chain: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct HandOverDocument {
    #[serde(flatten)]
    at: ShardDocument,
    to: u64,
}

impl From<HandOver> for HandOverDocument {
    fn from(HandOver { at, to }: HandOver) -> Self {
        Self {
            at: at.into(),
            to: to.0,
        }
    }
}

impl From<HandOverDocument> for HandOver {
    fn from(HandOverDocument { at, to }: HandOverDocument) -> Self {
        Self {
            at: at.into(),
            to: NodeId(to),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct TableDocument {
    version: u64,
    routes: Vec<RouteDocument>,
    hand_overs: Vec<HandOverDocument>,
}

#[derive(Debug, Serialize, Deserialize)]
struct WorkersDocument {
    version: u64,
    /// Each with the clock it joined at.
    workers: Vec<(u64, u64)>,
    /// Workers of the list that are executors, not processes.
    #[serde(default)]
    executors: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReportDocument {
    Suspect(u64),
    Propose(HandOverDocument),
    Lost(ShardDocument),
}

#[derive(Debug, Serialize, Deserialize)]
struct ServerDocument {
    address: String,
    #[serde(default)]
    control: String,
    weight: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct ArrayDocument {
    start: u64,
    end: u64,
    shards: u64,
    #[serde(default)]
    description: String,
}

fn write(what: &'static str, document: &impl Serialize) -> Result<Vec<u8>, RegistryError> {
    let bytes =
        serde_json::to_vec(document).map_err(|error| RegistryError::malformed(what, error))?;
    if bytes.len() > MAX_DOCUMENT {
        return Err(RegistryError::TooLarge {
            what,
            bytes: bytes.len(),
            limit: MAX_DOCUMENT,
        });
    }
    Ok(bytes)
}

fn read<T: DeserializeOwned>(key: &str, value: &[u8]) -> Result<T, RegistryError> {
    serde_json::from_slice(value).map_err(|error| RegistryError::malformed(key, error))
}

pub(crate) fn write_table(
    routing: &Routing,
    hand_overs: &[HandOver],
) -> Result<Vec<u8>, RegistryError> {
    let route = |route: &Route| RouteDocument {
        at: ShardRef {
            array: route.array,
            range: route.range,
            epoch: route.epoch,
        }
        .into(),
        chain: route.chain.iter().map(|node| node.0).collect(),
    };
    let routes = routing.routes().iter().map(route).collect();
    let hand_overs = hand_overs
        .iter()
        .copied()
        .map(HandOverDocument::from)
        .collect();
    write(
        "the routing table",
        &TableDocument {
            version: routing.version(),
            routes,
            hand_overs,
        },
    )
}

pub(crate) fn read_table(key: &str, value: &[u8]) -> Result<Table, RegistryError> {
    let document: TableDocument = read(key, value)?;
    let route = |route: RouteDocument| {
        let ShardRef {
            array,
            range,
            epoch,
        } = route.at.into();
        Route {
            array,
            range,
            epoch,
            chain: route.chain.into_iter().map(NodeId).collect(),
        }
    };
    let routes = document.routes.into_iter().map(route).collect();
    let routing = Routing::new(document.version, routes)
        .map_err(|error| RegistryError::routing(key, error))?;
    let hand_overs = document
        .hand_overs
        .into_iter()
        .map(HandOver::from)
        .collect();
    Ok(Table {
        routing,
        hand_overs,
        ..Table::default()
    })
}

pub(crate) fn write_workers(workers: &Workers) -> Result<Vec<u8>, RegistryError> {
    let listed = workers
        .workers
        .iter()
        .map(|(worker, clock)| (worker.0, clock.0))
        .collect();
    let executors = workers
        .executors
        .iter()
        .map(|executor| executor.0)
        .collect();
    write(
        "the list of workers",
        &WorkersDocument {
            version: workers.version,
            workers: listed,
            executors,
        },
    )
}

pub(crate) fn read_workers(key: &str, value: &[u8]) -> Result<Workers, RegistryError> {
    let WorkersDocument {
        version,
        workers,
        executors,
    } = read(key, value)?;
    let workers = workers
        .into_iter()
        .map(|(worker, clock)| (WorkerId(worker), Clock(clock)))
        .collect();
    let executors = executors.into_iter().map(WorkerId).collect();
    Ok(Workers {
        version,
        workers,
        executors,
        ..Workers::default()
    })
}

pub(crate) fn write_report(report: &Report) -> Result<Vec<u8>, RegistryError> {
    let document = match *report {
        Report::Suspect(node) => ReportDocument::Suspect(node.0),
        Report::Propose(hand_over) => ReportDocument::Propose(hand_over.into()),
        Report::Lost(at) => ReportDocument::Lost(at.into()),
    };
    write("a report", &document)
}

pub(crate) fn read_report(key: &str, value: &[u8]) -> Result<Report, RegistryError> {
    Ok(match read(key, value)? {
        ReportDocument::Suspect(node) => Report::Suspect(NodeId(node)),
        ReportDocument::Propose(hand_over) => Report::Propose(hand_over.into()),
        ReportDocument::Lost(at) => Report::Lost(at.into()),
    })
}

pub(crate) fn write_server(server: &ServerInfo) -> Result<Vec<u8>, RegistryError> {
    let ServerInfo {
        address,
        control,
        weight,
    } = server.clone();
    write(
        "a server's entry",
        &ServerDocument {
            address,
            control,
            weight,
        },
    )
}

pub(crate) fn read_server(key: &str, value: &[u8]) -> Result<ServerInfo, RegistryError> {
    let ServerDocument {
        address,
        control,
        weight,
    } = read(key, value)?;
    Ok(ServerInfo {
        address,
        control,
        weight,
    })
}

pub(crate) fn write_array(array: &ArrayInfo) -> Result<Vec<u8>, RegistryError> {
    let ArrayInfo {
        keys: KeyRange { start, end },
        shards,
        description,
    } = array.clone();
    write(
        "an array's entry",
        &ArrayDocument {
            start,
            end,
            shards,
            description,
        },
    )
}

pub(crate) fn read_array(key: &str, value: &[u8]) -> Result<ArrayInfo, RegistryError> {
    let ArrayDocument {
        start,
        end,
        shards,
        description,
    } = read(key, value)?;
    Ok(ArrayInfo {
        keys: KeyRange::new(start, end),
        shards,
        description,
    })
}

pub(crate) fn write_job(job: &str) -> Result<Vec<u8>, RegistryError> {
    write("the job", &job)
}

pub(crate) fn read_job(key: &str, value: &[u8]) -> Result<String, RegistryError> {
    read(key, value)
}

pub(crate) fn write_leader(member: Member) -> Vec<u8> {
    member_name(member).into_bytes()
}

pub(crate) fn read_leader(key: &str, value: &[u8]) -> Result<Member, RegistryError> {
    let name = std::str::from_utf8(value).ok().and_then(parse_member);
    name.ok_or_else(|| RegistryError::malformed(key, "it names no member"))
}

pub(crate) fn read_number(key: &str, value: &[u8]) -> Result<u64, RegistryError> {
    read(key, value)
}
