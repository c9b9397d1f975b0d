//! A second application of the parameter server, beside training networks: sparse logistic
//! regression by FTRL-proximal (McMahan et al., "Ad Click Prediction", KDD 2013) on data with
//! millions of features, of which a row has a few (Li et al., OSDI 2014, section 5.1).
//!
//! Servers and workers run in this process, as the nodes that they are in a cluster: a worker pulls
//! the weights of its minibatch's features and no others, pushes the sums of their gradients, and
//! the servers' update rule is FTRL. The KKT filter keeps back gradients that would leave a weight
//! at 0.
//!
//! - [`data`]: rows from files, hashed text, or a seeded generator.
//! - [`Minibatch`] and [`logistic`]: the arithmetic of one worker.
//! - [`Cluster`], [`train`]: servers, workers and what they measure.
//! - [`Score`]: log loss, AUC and accuracy.
//! - [`staleness`]: what workers gain that may miss some of one another.

mod cluster;
pub mod data;
pub mod logistic;
mod minibatch;
mod options;
mod rows;
mod score;
pub mod staleness;
mod training;
mod worker;

pub use cluster::{ARRAY, Cluster, ClusterSettings, Place};
pub use minibatch::{Batches, Minibatch};
pub use options::KktOption;
pub use rows::{Row, Rows};
pub use score::Score;
pub use training::{Outcome, Payload, TrainError, TrainSettings, train};
