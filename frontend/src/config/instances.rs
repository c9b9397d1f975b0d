//! `instances`, of the deployed model and of every other pool: a list of addresses, or where to
//! look for them.

use std::fmt;

use crate::discovery::Settings;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Where a pool's instances are.
#[derive(Debug, Clone)]
pub(in crate::config) enum Instances {
    /// At these addresses.
    Listed(Vec<String>),
    /// Wherever this backend finds them, now and later.
    Discovered(Settings),
}

impl<'de> Deserialize<'de> for Instances {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

/// Tells the two apart by their form, so that a mistake within is told as what it is.
struct Written;

impl<'de> Visitor<'de> for Written {
    type Value = Instances;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of addresses, or a table with one of dns, srv, etcd and kubernetes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Instances, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Instances::Listed)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Instances, A::Error> {
        Settings::deserialize(MapAccessDeserializer::new(table)).map(Instances::Discovered)
    }
}
