//! Files that several programs read: [`repository`] folders with their `model.toml`, [`faults`]
//! profiles, and TOML whose mistakes are named by line ([`toml_file`]); and their [`log`].

#![allow(missing_docs, reason = "names that say it all need no comment")]

pub mod faults;
mod file_error;
pub mod log;
pub mod repository;
pub mod toml_file;

pub use file_error::FileError;
