//! Keys, and how values are written: JSON, because people look into an etcd, too.

use parapet_parameter_server::{ArrayId, NodeId, WorkerId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::registry::{Entry, Member, RegistryError, Report, Result};

/// Bytes of a value, at most; etcd takes 1.5 MiB. A table of 8,000 shards has about 600 kB.
const MAX_DOCUMENT: usize = 1 << 20;

pub(crate) const LEADER: &str = "leader";
pub(crate) const TABLE: &str = "table";
pub(crate) const WORKERS: &str = "workers";
pub(crate) const NEXT: &str = "next";
pub(crate) const JOB: &str = "job";

pub(crate) fn parse_member(text: &str) -> Option<Member> {
    let (kind, number) = text.split_once('-')?;
    let number = number.parse().ok()?;
    Some(match kind {
        "server" => Member::Server(NodeId(number)),
        "worker" => Member::Worker(WorkerId(number)),
        "coordinator" => Member::Coordinator(number),
        _ => return None,
    })
}

pub(crate) fn member_name(member: Member) -> String {
    member.to_string().replace(' ', "-")
}

pub(crate) fn member_key(member: Member) -> String {
    format!("members/{}", member_name(member))
}

pub(crate) fn array_key(array: ArrayId) -> String {
    format!("arrays/{}", array.0)
}

/// One key for each thing that can be reported, so that what is reported anew takes no more room.
pub(crate) fn report_key(by: Member, report: &Report) -> String {
    let (kind, at) = match report {
        Report::Suspect(node) => return format!("reports/{}/suspect/{}", member_name(by), node.0),
        Report::Service(node, _) => {
            return format!("reports/{}/service/{}", member_name(by), node.0);
        }
        Report::Pace(_) => return format!("reports/{}/pace", member_name(by)),
        Report::Steps(..) => return format!("reports/{}/steps", member_name(by)),
        Report::Propose(hand_over) => ("propose", hand_over.at),
        Report::Lost(at) => ("lost", *at),
    };
    let (by, array, start) = (member_name(by), at.array.0, at.range.start);
    format!("reports/{by}/{kind}/{array}/{start}")
}

pub(crate) fn write(what: &'static str, document: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(document);
    let text = text.map_err(|error| RegistryError::malformed(what, error))?;
    let (bytes, limit) = (text.len(), MAX_DOCUMENT);
    match bytes > limit {
        true => Err(RegistryError::TooLarge { what, bytes, limit }),
        false => Ok(text),
    }
}

pub(crate) fn read<T: DeserializeOwned>(entry: &Entry) -> Result<T> {
    let read = serde_json::from_str(&entry.value);
    read.map_err(|error| RegistryError::malformed(&entry.key, error))
}
