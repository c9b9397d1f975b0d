//! Joins and leaves, a pure function of the known and the found instances.

use std::collections::BTreeMap;

use crate::discovery::{Addresses, Place};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference<Id> {
    /// Places without a known instance.
    pub joined: Vec<Place>,
    /// Instances whose place was not found any more. One that has another name now leaves, and
    /// joins under that.
    pub left: Vec<(Place, Id)>,
}

/// Compares the instances that are known with those that are found.
pub fn difference<Id: Copy>(known: &BTreeMap<Place, Id>, found: &Addresses) -> Difference<Id> {
    let is_new = |place: &Place| !known.contains_key(place);
    let is_gone = |(place, _): &(&Place, &Id)| !found.contains(place);
    Difference {
        joined: found.iter().filter(is_new).collect(),
        left: known
            .iter()
            .filter(is_gone)
            .map(|(place, id)| (place.clone(), *id))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place((last, host): (u8, u8)) -> Place {
        let host = (host > 0).then(|| format!("host-{host}").into());
        Place {
            address: ([10, 0, 0, last], 9000).into(),
            host,
        }
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
                let Difference { joined, left } = difference(&known, &found);
                for (place, id) in &left {
                    prop_assert_eq!(known.remove(place), Some(*id));
                }
                for place in joined {
                    next += 1;
                    prop_assert_eq!(known.insert(place, next), None);
                }
                prop_assert_eq!(&known.keys().cloned().collect::<Addresses>(), &found);
                for (place, id) in before {
                    if found.contains(&place) {
                        prop_assert_eq!(
                            known.get(&place),
                            Some(&id),
                            "one that stays keeps its place"
                        );
                    }
                }
            }
        }
    }
}
