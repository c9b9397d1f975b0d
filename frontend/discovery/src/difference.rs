//! Who joined and who left, a pure function of what was known and what is found.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::Addresses;

/// What makes `found` of `known`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference<Id> {
    /// Addresses that nobody is known at.
    pub joined: Vec<SocketAddr>,
    /// Those at whose address nobody is found any more.
    pub left: Vec<(SocketAddr, Id)>,
}

/// Compares the instances that are known with the addresses that are found.
pub fn difference<Id: Copy>(known: &BTreeMap<SocketAddr, Id>, found: &Addresses) -> Difference<Id> {
    let is_new = |address: &&SocketAddr| !known.contains_key(*address);
    let is_gone = |(address, _): &(&SocketAddr, &Id)| !found.contains(*address);
    Difference {
        joined: found.iter().filter(is_new).copied().collect(),
        left: known.iter().filter(is_gone).map(|(address, id)| (*address, *id)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 9000))
    }

    proptest! {
        /// Joins and leaves bring what is known to what is found, and nobody who stays is touched.
        #[test]
        fn brings_the_known_to_the_found(rounds in prop::collection::vec(prop::collection::btree_set(0u8..12, 0..8), 1..20)) {
            let mut known: BTreeMap<SocketAddr, u32> = BTreeMap::new();
            let mut next = 0;
            for found in rounds {
                let found: Addresses = found.into_iter().map(address).collect();
                let before = known.clone();
                let Difference { joined, left } = difference(&known, &found);
                for (address, id) in &left {
                    prop_assert_eq!(known.remove(address), Some(*id));
                }
                for address in joined {
                    next += 1;
                    prop_assert_eq!(known.insert(address, next), None);
                }
                prop_assert_eq!(&known.keys().copied().collect::<Addresses>(), &found);
                for (address, id) in before {
                    if found.contains(&address) {
                        prop_assert_eq!(known.get(&address), Some(&id), "one that stays keeps its place");
                    }
                }
            }
        }
    }
}
