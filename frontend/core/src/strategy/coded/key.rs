//! What is kept for each kind of query: its open group, and recently answered queries to complete groups with (CG-5).

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::{GroupId, GroupKey, QueryId};

/// A query that was answered exactly.
#[derive(Debug)]
pub(in crate::strategy) struct Answered<I, O> {
    pub(in crate::strategy) query: QueryId,
    pub(in crate::strategy) input: Arc<I>,
    pub(in crate::strategy) prediction: Arc<O>,
}

#[derive(Debug)]
pub(in crate::strategy) struct KeyState<I, O> {
    pub(in crate::strategy) open: Option<GroupId>,
    /// Latest first; as many as a group can need, whichever of them it holds already.
    pub(in crate::strategy) recent: VecDeque<Answered<I, O>>,
    last_used: u64,
}

/// A bounded table of kinds of query: one that was not seen for long makes room for a new one.
#[derive(Debug)]
pub(in crate::strategy) struct Keys<I, O> {
    table: FxHashMap<GroupKey, KeyState<I, O>>,
    capacity: usize,
    fillers: usize,
    uses: u64,
}

impl<I, O> Keys<I, O> {
    /// At most `capacity` kinds, `fillers` answered queries for each.
    pub(in crate::strategy) fn new(capacity: usize, fillers: usize) -> Self {
        Self { table: FxHashMap::default(), capacity: capacity.max(1), fillers, uses: 0 }
    }

    pub(in crate::strategy) fn get(&self, key: GroupKey) -> Option<&KeyState<I, O>> {
        self.table.get(&key)
    }

    pub(in crate::strategy) fn get_mut(&mut self, key: GroupKey) -> Option<&mut KeyState<I, O>> {
        self.table.get_mut(&key)
    }

    /// The state of `key`, made if there is room. `None` when every kind in the table has an open group.
    pub(in crate::strategy) fn get_or_insert(&mut self, key: GroupKey) -> Option<&mut KeyState<I, O>> {
        self.uses += 1;
        if !self.table.contains_key(&key) && self.table.len() >= self.capacity {
            let idle = self.table.iter().filter(|(_, state)| state.open.is_none());
            let oldest = idle.min_by_key(|(_, state)| state.last_used).map(|(key, _)| *key)?;
            self.table.remove(&oldest);
        }
        let state = self.table.entry(key).or_insert_with(|| KeyState {
            open: None,
            recent: VecDeque::new(),
            last_used: 0,
        });
        state.last_used = self.uses;
        Some(state)
    }

    pub(in crate::strategy) fn remember(&mut self, key: GroupKey, answered: Answered<I, O>) {
        if let Some(state) = self.table.get_mut(&key) {
            state.recent.push_front(answered);
            state.recent.truncate(self.fillers);
        }
    }
}
