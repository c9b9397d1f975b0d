//! A format of data each; `arrays` and `images` are what several of them share.

pub(super) mod archive;
mod arrays;
pub(super) mod cifar;
pub(super) mod folder;
pub(super) mod idx;
mod images;
pub(super) mod npz;
pub(super) mod safetensors;
