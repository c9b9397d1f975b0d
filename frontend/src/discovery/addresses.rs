//! Addresses of instances, each with the name by which it was found.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where an instance is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub address: SocketAddr,
    /// The host name by which it was found, which its certificate has to have: in ASCII, and
    /// without the dot at its end.
    pub host: Option<Arc<str>>,
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        let host = None;
        Self { address, host }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(BTreeMap<SocketAddr, Option<Arc<str>>>);

impl Addresses {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, place: &Place) -> bool {
        self.0.get(&place.address) == Some(&place.host)
    }

    /// All of them, by address.
    pub fn iter(&self) -> impl Iterator<Item = Place> {
        self.0.iter().map(|(&address, host)| Place {
            address,
            host: host.clone(),
        })
    }
}

/// Where an address has several names the first in the alphabet counts, in whatever order they
/// come.
impl<T: Into<Place>> FromIterator<T> for Addresses {
    fn from_iter<I: IntoIterator<Item = T>>(places: I) -> Self {
        let mut addresses = Self::default();
        for Place { address, host } in places.into_iter().map(Into::into) {
            let known = addresses.0.entry(address).or_insert_with(|| host.clone());
            if host < *known {
                *known = host;
            }
        }
        addresses
    }
}

/// Places without a known instance, and instances whose place was not found any more. One that has
/// another name now leaves, and joins under that.
pub fn difference<Id: Copy>(
    known: &BTreeMap<Place, Id>,
    found: &Addresses,
) -> (Vec<Place>, Vec<(Place, Id)>) {
    let joined = found.iter().filter(|place| !known.contains_key(place));
    let left = known.iter().filter(|(place, _)| !found.contains(place));
    let left = left.map(|(place, id)| (place.clone(), *id));
    (joined.collect(), left.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place((last, host): (u8, u8)) -> Place {
        let host = (host > 0).then(|| format!("host-{host}").into());
        let address = ([10, 0, 0, last], 9000).into();
        Place { address, host }
    }

    proptest! {
        /// Joins and leaves turn the known into the found, and leave the others alone.
        #[test]
        fn brings_the_known_to_the_found(
            rounds in prop::collection::vec(prop::collection::btree_map(0u8..12, 0u8..3, 0..8),
                1..20),
        ) {
            let mut known: BTreeMap<Place, u32> = BTreeMap::new();
            let mut next = 0;
            for found in rounds {
                let found: Addresses = found.into_iter().map(place).collect();
                let before = known.clone();
                let (joined, left) = difference(&known, &found);
                for (place, id) in &left {
                    prop_assert_eq!(known.remove(place), Some(*id));
                }
                for place in joined {
                    next += 1;
                    prop_assert_eq!(known.insert(place, next), None);
                }
                prop_assert_eq!(&known.keys().cloned().collect::<Addresses>(), &found);
                let mut stayed = before.iter().filter(|(place, _)| found.contains(place));
                prop_assert!(stayed.all(|(place, id)| known.get(place) == Some(id)));
            }
        }
    }
}
