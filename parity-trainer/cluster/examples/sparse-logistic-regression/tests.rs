//! Trainings against plain FTRL-proximal, and the command line with sound and wrong arguments.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod command;
mod training;
