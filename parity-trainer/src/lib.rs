//! Trains deployed models and their parity models into entries of a model repository.
//!
//! The method is that of *Parity Models* (Kosaian, Rashmi, Venkataraman, SOSP 2019): the deployed
//! model F is frozen; a parity model F_P learns `F_P(P) ~ sum_i a_i F(X_i)` for parity queries P
//! encoded from groups of k queries, by the mean squared error on raw outputs; or, with slots, F
//! itself for each query of a group. Encoding and decoding are those of `parapet-encoder` and
//! `parapet-decoder`, so that training and serving cannot disagree.

#![allow(missing_docs, reason = "the program builds on it alone")]

/// Returns the error unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($holds:expr, $error:expr) => {
        if !$holds {
            return Err($error);
        }
    };
}

pub mod backend;
pub mod data;
pub mod deployed;
pub mod device;
mod entry;
mod error;
pub mod evaluation;
pub mod files;
pub mod network;
pub mod run;
mod student;
mod training;

pub use entry::Entry;
pub use error::TrainError;
pub(crate) use error::{Result, first_line};
pub use evaluation::accuracy;
pub use student::{needs_mlps, students, widest};
pub use training::{
    Best, DeployedRun, LayerTraffic, LearnedRun, Loss, ParityRun, Sampler, StepReport, Trained,
    Trainer, TrainerState, TrainingSet, TransformChoice, VALIDATION_SAMPLES, Validation, Variants,
    group_shape, split_validation, training_inputs,
};
