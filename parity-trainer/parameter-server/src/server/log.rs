//! Log of operations that the chain has not acknowledged yet.

use std::collections::VecDeque;

use super::ServerConfig;
use crate::Operation;

/// Operations in the order in which they were applied, bounded in number and in bytes (PS-8).
#[derive(Default)]
pub(super) struct Log {
    operations: VecDeque<Operation>,
    bytes: usize,
}

impl Log {
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    pub(super) fn is_full(&self, config: &ServerConfig) -> bool {
        self.operations.len() >= config.max_log || self.bytes >= config.max_bytes
    }

    pub(super) fn push(&mut self, operation: Operation) {
        self.bytes += operation.bytes();
        self.operations.push_back(operation);
    }

    pub(super) fn pop(&mut self) -> Option<Operation> {
        let operation = self.operations.pop_front()?;
        self.bytes -= operation.bytes();
        Some(operation)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Operation> {
        self.operations.iter()
    }

    pub(super) fn map(&self, change: impl Fn(&Operation) -> Operation) -> Self {
        let mut log = Self::default();
        self.iter()
            .for_each(|operation| log.push(change(operation)));
        log
    }
}
