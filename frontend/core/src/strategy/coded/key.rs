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
    /// Memory that its input holds.
    pub(in crate::strategy) bytes: usize,
}

/// What is kept no longer.
#[derive(Debug, Default)]
pub(in crate::strategy) struct Gone {
    /// Abandoned open groups, which went with their kind.
    pub(in crate::strategy) groups: Vec<GroupId>,
    /// Answered queries. An open group that has one of them must let go of it, too, as nobody counts what it holds.
    pub(in crate::strategy) queries: Vec<QueryId>,
}

#[derive(Debug)]
pub(in crate::strategy) struct KeyState<I, O> {
    pub(in crate::strategy) open: Option<GroupId>,
    /// Latest first; as many as a group can need, whichever of them it holds already.
    pub(in crate::strategy) recent: VecDeque<Answered<I, O>>,
    last_used: u64,
}

/// A bounded table of kinds of query: one that was not seen for long makes room for a new one, or for the inputs of another.
#[derive(Debug)]
pub(in crate::strategy) struct Keys<I, O> {
    table: FxHashMap<GroupKey, KeyState<I, O>>,
    capacity: usize,
    fillers: usize,
    max_bytes: usize,
    /// Memory of all answered queries that are kept.
    bytes: usize,
    uses: u64,
}

impl<I, O> Keys<I, O> {
    /// At most `capacity` kinds, `fillers` answered queries for each, whose inputs hold `max_bytes` in all.
    pub(in crate::strategy) fn new(capacity: usize, fillers: usize, max_bytes: usize) -> Self {
        let (table, capacity) = (FxHashMap::default(), capacity.max(1));
        Self { table, capacity, fillers, max_bytes, bytes: 0, uses: 0 }
    }

    pub(in crate::strategy) fn get(&self, key: GroupKey) -> Option<&KeyState<I, O>> {
        self.table.get(&key)
    }

    pub(in crate::strategy) fn get_mut(&mut self, key: GroupKey) -> Option<&mut KeyState<I, O>> {
        self.table.get_mut(&key)
    }

    /// The state of `key`, made if there is room, for which the kind that was not seen for longest goes. `None` when every kind in
    /// the table has an open group that is not `abandoned`. Groups that went with their kind are put into `gone`.
    pub(in crate::strategy) fn get_or_insert(
        &mut self,
        key: GroupKey,
        abandoned: impl Fn(GroupId) -> bool,
        gone: &mut Vec<GroupId>,
    ) -> Option<&mut KeyState<I, O>> {
        self.uses += 1;
        if !self.table.contains_key(&key) && self.table.len() >= self.capacity {
            let oldest = self.oldest(|state| state.open.is_none_or(&abandoned))?;
            gone.extend(self.remove(oldest));
        }
        let state = self.table.entry(key).or_insert_with(|| KeyState {
            open: None,
            recent: VecDeque::new(),
            last_used: 0,
        });
        state.last_used = self.uses;
        Some(state)
    }

    /// Keeps an answered query. What was not seen for longest makes room for it: other kinds with their abandoned open groups, or
    /// else single queries, the oldest first. What is no longer kept, or not at all, is put into `gone`.
    pub(in crate::strategy) fn remember(
        &mut self,
        key: GroupKey,
        answered: Answered<I, O>,
        abandoned: impl Fn(GroupId) -> bool,
        gone: &mut Gone,
    ) {
        if answered.bytes > self.max_bytes || !self.table.contains_key(&key) {
            gone.queries.push(answered.query);
            return;
        }
        while self.bytes + answered.bytes > self.max_bytes {
            let Some(oldest) = self.oldest(|state| !state.recent.is_empty()) else { break };
            let open = self.table.get(&oldest).and_then(|state| state.open);
            if oldest != key && open.is_none_or(&abandoned) {
                gone.groups.extend(self.remove(oldest));
            } else {
                gone.queries.extend(self.forget_oldest(oldest));
            }
        }
        if let Some(state) = self.table.get_mut(&key) {
            self.bytes += answered.bytes;
            state.recent.push_front(answered);
            if state.recent.len() > self.fillers {
                gone.queries.extend(self.forget_oldest(key));
            }
        }
    }

    /// Memory of all answered queries that are kept.
    pub(in crate::strategy) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn oldest(&self, may_go: impl Fn(&KeyState<I, O>) -> bool) -> Option<GroupKey> {
        let candidates = self.table.iter().filter(|(_, state)| may_go(state));
        candidates.min_by_key(|(_, state)| state.last_used).map(|(key, _)| *key)
    }

    /// Its open group, if it had one.
    fn remove(&mut self, key: GroupKey) -> Option<GroupId> {
        let state = self.table.remove(&key)?;
        self.bytes -= state.recent.iter().map(|answered| answered.bytes).sum::<usize>();
        state.open
    }

    fn forget_oldest(&mut self, key: GroupKey) -> Option<QueryId> {
        let answered = self.table.get_mut(&key)?.recent.pop_back()?;
        self.bytes -= answered.bytes;
        Some(answered.query)
    }
}
