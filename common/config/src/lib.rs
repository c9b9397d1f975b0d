//! Files that several programs read: [`repository`] folders with their `model.toml`, [`faults`]
//! profiles, and TOML whose mistakes are named by line and field ([`toml_file`]); their
//! [`address`]es and their [`log`].

pub mod address;
pub mod faults;
pub mod log;
pub mod repository;
pub mod toml_file;

pub use toml_file::FileError;
