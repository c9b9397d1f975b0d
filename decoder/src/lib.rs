//! Decoders of coded computation: the missing predictions of a coding group from the others and the parity outputs.
//!
//! After *Parity Models* (SOSP 2019), section 3.3. Pure: `f32` slices in and out, no allocation per query, no IO.
//!
//! - [`LinearDecoder`]: any u <= r missing predictions, from any u parity rows that answered.
//! - [`confidence`]: how sure a reconstruction is of its top class.

mod confidence;
mod linear;

pub use confidence::{agrees, confidence, top_class};
pub use linear::{DecodeError, LinearDecoder};
