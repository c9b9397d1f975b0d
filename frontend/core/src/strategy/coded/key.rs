//! State per kind of query: its open group and recently answered queries to complete groups (CG-5).

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::{DomainId, GroupId, GroupKey, QueryId, Time};

/// A query that was answered exactly.
#[derive(Debug)]
pub(super) struct Answered<I, O> {
    pub(super) query: QueryId,
    pub(super) input: Arc<I>,
    pub(super) prediction: Arc<O>,
    pub(super) bytes: usize,
}

/// Groups and queries that are kept no longer.
#[derive(Debug, Default)]
pub(super) struct Gone {
    /// Open groups, which went with their kind.
    pub(super) groups: Vec<GroupId>,
    /// Answered queries. An open group that has one of them must let go of it, too, as nothing
    /// counts its memory.
    pub(super) queries: Vec<QueryId>,
}

#[derive(Debug)]
pub(super) struct KeyState<I, O> {
    pub(super) open: Option<GroupId>,
    /// Latest first; as many as a group can need, whichever of them it holds already.
    pub(super) recent: VecDeque<Answered<I, O>>,
    last_used: u64,
    last_used_at: Time,
}

/// Kinds and memory of one domain.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    kinds: usize,
    bytes: usize,
}

/// A kind that may make room: how much its domain holds, whether it is idle, its last use. The
/// greatest goes first.
type Candidate = (usize, bool, Reverse<u64>, GroupKey);

/// Any domain may have a kind that was not used for so long.
const UNUSED_FOR: Duration = Duration::from_secs(60);

/// A bounded table of kinds of query.
///
/// In a full table the domain that holds most makes room, the domain that asks included. Of D
/// domains that use the table, each keeps `capacity / D` kinds whatever the others ask for, and
/// `max_bytes / D` of memory.
#[derive(Debug)]
pub(super) struct Keys<I, O> {
    table: FxHashMap<GroupKey, KeyState<I, O>>,
    held: FxHashMap<DomainId, Held>,
    capacity: usize,
    fillers: usize,
    max_bytes: usize,
    /// Memory of all answered queries that are kept.
    bytes: usize,
    uses: u64,
}

impl<I, O> Keys<I, O> {
    /// At most `capacity` kinds, `fillers` answered queries for each, whose inputs hold
    /// `max_bytes` in all.
    pub(super) fn new(capacity: usize, fillers: usize, max_bytes: usize) -> Self {
        Self {
            table: FxHashMap::default(),
            held: FxHashMap::default(),
            capacity: capacity.max(1),
            fillers,
            max_bytes,
            bytes: 0,
            uses: 0,
        }
    }

    pub(super) fn get(&self, key: GroupKey) -> Option<&KeyState<I, O>> {
        self.table.get(&key)
    }

    pub(super) fn get_mut(&mut self, key: GroupKey) -> Option<&mut KeyState<I, O>> {
        self.table.get_mut(&key)
    }

    /// The state of `key`, made if there is room or another kind makes room. `None` when no kind
    /// may go for it. Groups that went with their kind are put into `gone`.
    pub(super) fn get_or_insert(
        &mut self,
        now: Time,
        key: GroupKey,
        abandoned: impl Fn(GroupId) -> bool,
        gone: &mut Vec<GroupId>,
    ) -> Option<&mut KeyState<I, O>> {
        self.uses += 1;
        if !self.table.contains_key(&key) {
            if self.table.len() >= self.capacity {
                let victim = self.kind_to_drop(now, key.domain, abandoned)?;
                gone.extend(self.remove(victim));
            }
            self.held.entry(key.domain).or_default().kinds += 1;
        }
        let state = self.table.entry(key).or_insert_with(|| KeyState {
            open: None,
            recent: VecDeque::new(),
            last_used: 0,
            last_used_at: now,
        });
        (state.last_used, state.last_used_at) = (self.uses, now);
        Some(state)
    }

    /// Keeps an answered query. Other kinds make room for its memory with their abandoned open
    /// groups, or else single queries do, the oldest first. Queries that are no longer kept, or not
    /// at all, are put into `gone`.
    pub(super) fn remember(
        &mut self,
        now: Time,
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
            let Some(victim) = self.kind_to_shrink(now, key.domain, answered.bytes) else {
                gone.queries.push(answered.query);
                return;
            };
            let open = self.table.get(&victim).and_then(|state| state.open);
            if victim != key && open.is_none_or(&abandoned) {
                gone.groups.extend(self.remove(victim));
            } else {
                gone.queries.extend(self.forget_oldest(victim));
            }
        }
        if let Some(state) = self.table.get_mut(&key) {
            self.bytes += answered.bytes;
            self.held.entry(key.domain).or_default().bytes += answered.bytes;
            state.recent.push_front(answered);
            if state.recent.len() > self.fillers {
                gone.queries.extend(self.forget_oldest(key));
            }
        }
    }

    /// Memory of all answered queries that are kept.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    fn held_by(&self, domain: DomainId) -> Held {
        self.held.get(&domain).copied().unwrap_or_default()
    }

    /// The kind that makes room for another one of `domain`. A domain that holds more than
    /// `domain` would hold then gives up a kind even if queries of its open group wait; they go
    /// on without a group.
    fn kind_to_drop(
        &self,
        now: Time,
        domain: DomainId,
        abandoned: impl Fn(GroupId) -> bool,
    ) -> Option<GroupKey> {
        let own = self.held_by(domain).kinds + 1;
        greatest(self.table.iter().filter_map(|(key, state)| {
            let idle = state.open.is_none_or(&abandoned);
            let is_own = key.domain == domain;
            let share = if is_own { own } else { self.held_by(key.domain).kinds };
            let may_go = idle && (share >= own || state.is_unused(now)) || !is_own && share > own;
            may_go.then_some((share, idle, Reverse(state.last_used), *key))
        }))
    }

    /// The kind that makes room for so much memory of `domain`.
    fn kind_to_shrink(&self, now: Time, domain: DomainId, bytes: usize) -> Option<GroupKey> {
        let own = self.held_by(domain).bytes + bytes;
        let candidates = self.table.iter().filter_map(|(key, state)| {
            let share = if key.domain == domain { own } else { self.held_by(key.domain).bytes };
            let may_go = !state.recent.is_empty() && (share >= own || state.is_unused(now));
            may_go.then_some((share, true, Reverse(state.last_used), *key))
        });
        greatest(candidates)
    }

    /// Its open group, if it had one.
    fn remove(&mut self, key: GroupKey) -> Option<GroupId> {
        let state = self.table.remove(&key)?;
        let bytes = state.recent.iter().map(|answered| answered.bytes).sum::<usize>();
        self.bytes -= bytes;
        if let Some(held) = self.held.get_mut(&key.domain) {
            held.kinds -= 1;
            held.bytes -= bytes;
            if held.kinds == 0 {
                self.held.remove(&key.domain);
            }
        }
        state.open
    }

    fn forget_oldest(&mut self, key: GroupKey) -> Option<QueryId> {
        let answered = self.table.get_mut(&key)?.recent.pop_back()?;
        self.bytes -= answered.bytes;
        if let Some(held) = self.held.get_mut(&key.domain) {
            held.bytes -= answered.bytes;
        }
        Some(answered.query)
    }
}

impl<I, O> KeyState<I, O> {
    fn is_unused(&self, now: Time) -> bool {
        now.since(self.last_used_at) >= UNUSED_FOR
    }
}

fn greatest(candidates: impl Iterator<Item = Candidate>) -> Option<GroupKey> {
    candidates
        .max_by_key(|&(share, idle, last_used, _)| (share, idle, last_used))
        .map(|(.., key)| key)
}
