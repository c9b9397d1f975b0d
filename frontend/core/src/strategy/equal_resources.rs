//! The machines that redundancy would take serve the deployed model instead: the yardstick of
//! ParM's evaluation (SOSP 2019, section 5), against which redundant work has to be worth its
//! machines.
//!
//! Nothing happens here. The larger pool is configuration; the type is there so that reports name
//! it.

use crate::Strategy;

/// No redundancy, with as many machines as a redundant strategy has.
#[derive(Debug, Clone, Copy, Default)]
pub struct EqualResources;

impl<I, O> Strategy<I, O> for EqualResources {}
