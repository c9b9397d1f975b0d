//! Requests to send, as the command line describes them.

use std::path::PathBuf;

use parapet_loadgen::payload::{Rows, Source};

#[derive(Debug, clap::Args)]
pub(crate) struct Payload {
    /// IDX file of images to send, plain or .gz, or an .npz file
    #[arg(long)]
    images: PathBuf,
    /// IDX or .npz file of their classes, to report accuracy [default: those in an .npz file of
    /// images]
    #[arg(long)]
    labels: Option<PathBuf>,
    /// Array of images in an .npz file [default: the only u8, f32 or f64 one with 2 or more axes]
    #[arg(long)]
    images_key: Option<String>,
    /// Array of classes in an .npz file [default: the only one of integers with 1 axis]
    #[arg(long)]
    labels_key: Option<String>,
}

impl Payload {
    pub(crate) fn load(&self) -> anyhow::Result<Rows> {
        Rows::load(Source {
            images: &self.images,
            labels: self.labels.as_deref(),
            images_key: self.images_key.as_deref(),
            labels_key: self.labels_key.as_deref(),
        })
    }
}
