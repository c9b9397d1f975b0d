//! Files that several programs read: [`repository`] folders with their `model.toml`, [`faults`]
//! profiles, and TOML whose mistakes are named by line ([`toml_file`]); and their [`log`].

pub mod faults;
pub mod log;
pub mod repository;
pub mod toml_file;

pub use toml_file::FileError;
