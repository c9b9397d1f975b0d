//! Readers of data sets: [`idx`] files (MNIST's format) and NumPy's [`npz`] archives.

pub mod idx;
pub mod npz;
