//! Comparing redundancy strategies that served the same schedule.
//!
//! Strategies take turns, block by block (A B C A B C ...), so that whatever the machine does
//! meanwhile happens to all of them. A *round* is one block of each. Blocks of a round share their
//! planned times and rows; so the rounds, not the requests, are what the bootstrap draws, all
//! strategies' blocks of a round together.
//!
//! All of this is pure: from [`Comparison`], which a runner or a simulator makes, to
//! [`CompareReport`].

mod analyse;
mod input;
mod pool;
mod report;
mod series;
mod warning;

pub use analyse::analyse;
pub use input::{Block, Comparison, FaultMark, Measured, Redundancy, Settings};
pub use report::{
    Bin, Bootstrap, CONFIDENCE, CompareReport, Confidence, Cost, Estimate, Interval, SCHEMA,
    Series, SpectrumPoint, StrategyReport, samples_needed,
};
pub(crate) use series::{recording_series, spectrum_of};
pub use warning::{Warning, WarningKind};
