//! Lists of keys that both ends of a link know.

use std::fmt;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::{Key, Shared};

/// Stands for a list of keys: its XXH3 hash of 128 bits. Two lists of one digest are not to be
/// expected in any training run (a billion lists: one chance in 10^20) unless an attacker makes
/// them: workers and servers trust one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub u128);

impl Digest {
    pub(super) fn of(keys: &Shared<Key>) -> Self {
        Self(XxHash3_128::oneshot(keys.as_bytes()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The lists, within bounds: those that were not used for longest are forgotten first.
#[derive(Debug, Clone)]
pub(super) struct KeyLists {
    /// Least lately used first: a few hundred at most, so that they are searched one by one.
    lists: Vec<(Digest, Shared<Key>)>,
    keys: usize,
    max_lists: usize,
    max_keys: usize,
}

impl KeyLists {
    pub(super) const fn new(max_lists: usize, max_keys: usize) -> Self {
        Self { lists: Vec::new(), keys: 0, max_lists, max_keys }
    }

    /// The list, if it is known; then it is the last used.
    pub(super) fn get(&mut self, digest: Digest) -> Option<Shared<Key>> {
        let known = self.take(digest)?;
        self.keys += known.len();
        self.lists.push((digest, known.clone()));
        Some(known)
    }

    pub(super) fn insert(&mut self, digest: Digest, keys: &Shared<Key>) {
        self.take(digest);
        if self.max_lists == 0 || keys.len() > self.max_keys {
            return;
        }
        let is_over =
            |own: &Self| own.lists.len() >= own.max_lists || own.keys + keys.len() > own.max_keys;
        while !self.lists.is_empty() && is_over(self) {
            let (_, oldest) = self.lists.remove(0);
            self.keys -= oldest.len();
        }
        self.keys += keys.len();
        self.lists.push((digest, keys.compact()));
    }

    pub(super) fn take(&mut self, digest: Digest) -> Option<Shared<Key>> {
        let at = self.lists.iter().position(|(known, _)| *known == digest)?;
        let (_, keys) = self.lists.remove(at);
        self.keys -= keys.len();
        Some(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_lists_used_last_are_kept(
            uses in prop::collection::vec((0u64..12, any::<bool>()), 0..80),
            max_lists in 0usize..6,
            max_keys in 0usize..40,
        ) {
            let mut lists = KeyLists::new(max_lists, max_keys);
            // Least lately used first.
            let mut reference: Vec<(u64, usize)> = Vec::new();
            for (which, is_removal) in uses {
                let keys = Shared::from((0..which + 1).collect::<Vec<Key>>());
                let digest = Digest::of(&keys);
                let known = reference.iter().position(|&(list, _)| list == which);
                prop_assert_eq!(lists.get(digest), known.map(|_| keys.clone()));
                let entry = known.map(|at| reference.remove(at));
                if is_removal {
                    lists.take(digest);
                    continue;
                }
                if let Some(entry) = entry {
                    reference.push(entry);
                    continue;
                }
                lists.insert(digest, &keys);
                if max_lists > 0 && keys.len() <= max_keys {
                    reference.push((which, keys.len()));
                }
                while reference.len() > max_lists
                    || reference.iter().map(|&(_, len)| len).sum::<usize>() > max_keys
                {
                    reference.remove(0);
                }
                prop_assert_eq!(lists.lists.len(), reference.len());
                let keys: usize = reference.iter().map(|&(_, len)| len).sum();
                prop_assert_eq!(lists.keys, keys);
            }
        }
    }
}
