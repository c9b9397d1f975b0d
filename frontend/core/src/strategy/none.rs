//! No redundancy: one request for each query, retried on failure. The baseline, and what coded
//! serving degrades to.

use crate::Strategy;

/// The strategy without redundancy.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoRedundancy;

impl<I, O> Strategy<I, O> for NoRedundancy {}
