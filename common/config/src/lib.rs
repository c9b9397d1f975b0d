//! Files that several programs read: [`repository`] folders with their `model.toml`, [`faults`]
//! profiles, and TOML whose mistakes are named by line ([`toml_file`]); and their [`log`].

pub mod faults;
mod file_error;
pub mod log;
pub mod repository;
pub mod toml_file;

pub use file_error::FileError;
