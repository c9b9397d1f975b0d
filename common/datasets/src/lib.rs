//! Readers of data sets: [`idx`] files, MNIST's format.

pub mod idx;
