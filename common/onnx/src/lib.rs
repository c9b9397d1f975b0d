//! Minimal ONNX writer: the operators that Parapet's networks need, nothing more.
//!
//! The trainer exports with it and tests build tiny exact models with it. It writes opset 17, IR
//! version 8, with a symbolic batch axis named `batch` in front of the one input and the one
//! output, and raw little-endian weights. The messages of ONNX's schema are written by hand with
//! prost, so that no build needs `protoc`.
//!
//! ```
//! use parapet_onnx::GraphBuilder;
//!
//! let file: Vec<u8> = GraphBuilder::new("input", &[1, 4, 4])
//!     .max_pool(2)
//!     .flatten()
//!     .gemm(&[1.0, 1.0, 1.0, 1.0], &[0.0])
//!     .finish("output")?;
//! # Ok::<(), parapet_onnx::BuildError>(())
//! ```

mod builder;
mod external;
mod identity;
#[cfg(feature = "learned-code")]
pub mod learned_code;
mod proto;
#[cfg(feature = "runtime")]
pub mod runtime;

#[cfg(test)]
mod tests;

pub use builder::{BatchNorm, BuildError, Conv, GraphBuilder, linear_model};
pub use external::external_data;
pub use identity::{ElementType, identity_model};
