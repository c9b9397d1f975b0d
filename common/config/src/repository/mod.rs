//! Parapet: model repository on disk and the metadata of models and codes.
//!
//! A repository is a folder of models, laid out as in other servers of the Open Inference Protocol:
//!
//! ```text
//! models/
//!   fashion-parity/
//!     model.toml        what the model takes and gives; for a parity model also its code
//!     1/model.onnx      one folder for each version, named by its number
//!     2/model.onnx
//!   fashion/
//!     model.toml
//!     1/model.pt        a TorchScript module, where platform = "pytorch_libtorch"
//!   fashion-code/
//!     model.toml
//!     1/encoder.onnx    a learned code's networks, where platform = "parapet_learned_code"
//!     1/decoder.onnx
//! ```
//!
//! [`ModelRepository::load`] gives a [`ModelEntry`] that is parsed and validated; nothing else
//! reads `model.toml`. [`ModelEntry::described`] makes one of a server's metadata, for a model that
//! is in no repository. The trainer writes a `model.toml` with [`ModelToml::save`]. Every error is
//! one line that names the file, the field and the fix.

mod batch;
mod code_checks;
mod described;
mod entry;
mod model_toml;
mod shape;

pub use batch::{check_outputs, take_inputs};
pub use entry::{ModelEntry, ModelRepository, entry_folder, name_of};
pub use model_toml::{CodeMetadata, ModelToml, Platform, TensorSpec, check_name};
pub use parapet_decoder::{Calibration, OutputKind, OutputSpec, Score};
pub use parapet_encoder::{CodeSpec, EncoderKind, OutputTransform};
pub use parapet_open_inference::Datatype;
pub use shape::Shape;
