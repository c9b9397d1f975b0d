//! Where instances are, and by which name they were found.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where an instance is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub address: SocketAddr,
    /// The host name that was asked for to find it, if one was: what its certificate has to say. A
    /// host name as certificates have it: in ASCII, and without the dot at its end.
    pub host: Option<Arc<str>>,
}

/// The addresses of all instances, each with the name by which it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(BTreeMap<SocketAddr, Option<Arc<str>>>);

impl Addresses {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if an instance is just there.
    pub fn contains(&self, place: &Place) -> bool {
        self.0.get(&place.address) == Some(&place.host)
    }

    /// All of them, by address.
    pub fn iter(&self) -> impl Iterator<Item = Place> {
        self.0.iter().map(|(address, host)| Place {
            address: *address,
            host: host.clone(),
        })
    }

    /// The first `count` by address.
    #[must_use]
    pub fn take(self, count: usize) -> Self {
        Self(self.0.into_iter().take(count).collect())
    }

    /// One more. Where an address has several names the first in the alphabet counts, in whatever
    /// order they come.
    pub(crate) fn insert(&mut self, place: Place) {
        let host = self
            .0
            .entry(place.address)
            .or_insert_with(|| place.host.clone());
        if place.host < *host {
            *host = place.host;
        }
    }
}

impl FromIterator<SocketAddr> for Addresses {
    fn from_iter<I: IntoIterator<Item = SocketAddr>>(addresses: I) -> Self {
        Self(
            addresses
                .into_iter()
                .map(|address| (address, None))
                .collect(),
        )
    }
}

impl FromIterator<Place> for Addresses {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Self {
        let mut addresses = Self::new();
        places.into_iter().for_each(|place| addresses.insert(place));
        addresses
    }
}
