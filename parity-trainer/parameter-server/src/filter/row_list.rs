//! Rows by ascending key.

use std::cmp::Ordering;
use std::ops::Range;

use crate::{Key, KeyRange};

/// Ascending keys, each once, and a row for each.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct RowList {
    pub(super) keys: Vec<Key>,
    pub(super) values: Vec<f32>,
}

impl RowList {
    pub(super) fn push(&mut self, key: Key, row: impl IntoIterator<Item = f32>) {
        self.keys.push(key);
        self.values.extend(row);
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Bytes in a message that lists the keys.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&self.keys[..]) + size_of_val(&self.values[..])
    }

    pub(super) fn iter(&self, width: usize) -> impl Iterator<Item = (Key, &[f32])> {
        self.keys
            .iter()
            .copied()
            .zip(self.values.chunks_exact(width))
    }

    /// The rows whose place is true in `which`.
    pub(super) fn select(&self, which: &[bool], width: usize) -> Self {
        let mut selected = Self::default();
        for ((key, row), _) in self.iter(width).zip(which).filter(|(_, which)| **which) {
            selected.push(key, row.iter().copied());
        }
        selected
    }

    /// The places of the keys of `range`.
    fn places(&self, range: KeyRange) -> Range<usize> {
        self.keys.partition_point(|&key| key < range.start)
            ..self.keys.partition_point(|&key| key < range.end)
    }

    /// The rows of `range`.
    pub(super) fn within(
        &self,
        range: KeyRange,
        width: usize,
    ) -> impl Iterator<Item = (Key, &[f32])> {
        let places = self.places(range);
        self.iter(width).skip(places.start).take(places.len())
    }

    /// Number of rows outside `range`.
    pub(super) fn outside(&self, range: KeyRange) -> usize {
        self.len() - self.places(range).len()
    }

    /// Puts `rows`, whose keys are in `range`, in the place of what there is of
    /// `range`; returns that.
    pub(super) fn replace(&mut self, range: KeyRange, rows: Self, width: usize) -> Self {
        let places = self.places(range);
        let numbers = places.start * width..places.end * width;
        Self {
            keys: self.keys.splice(places, rows.keys).collect(),
            values: self.values.splice(numbers, rows.values).collect(),
        }
    }

    /// The sums of the rows of two lists, and which of them are in `self`.
    pub(super) fn merge<'a>(
        &'a self,
        others: impl Iterator<Item = (Key, &'a [f32])>,
        width: usize,
    ) -> (Self, Vec<bool>) {
        let mut merged = Self::default();
        let mut is_own = Vec::new();
        let (mut own, mut others) = (self.iter(width).peekable(), others.peekable());
        loop {
            let order = match (own.peek(), others.peek()) {
                (Some((a, _)), Some((b, _))) => a.cmp(b),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return (merged, is_own),
            };
            let first = if order.is_le() { own.next() } else { None };
            let second = if order.is_ge() { others.next() } else { None };
            match (first, second) {
                (Some((key, a)), Some((_, b))) => {
                    merged.push(key, a.iter().zip(b).map(|(a, b)| a + b))
                }
                (Some((key, row)), None) | (None, Some((key, row))) => {
                    merged.push(key, row.iter().copied())
                }
                (None, None) => {}
            }
            is_own.push(first.is_some());
        }
    }
}
