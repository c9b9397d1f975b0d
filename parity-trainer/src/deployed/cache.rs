//! Outputs of the deployed model on disk, so that they are computed once.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{BATCH, Deployed, DeployedError, check_finite};
use crate::files;

/// Files kept; the oldest go.
const KEPT: usize = 16;
/// Calls of the model between two reports of progress.
const CHUNK: usize = 4 * BATCH;

/// True if outputs had to be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// They were there.
    Cached,
    /// The model was asked.
    Computed,
}

/// A folder of outputs. A file's name is the SHA-256 of all that they depend on: the model's
/// file, its input and output, and the samples as they go in. A file that is torn or of another
/// length is computed again.
#[derive(Debug, Clone)]
pub struct OutputCache {
    folder: PathBuf,
}

impl OutputCache {
    /// A cache in `folder`, made when it is written to.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// The outputs of `deployed` for `samples`; `progress` hears how many samples are done,
    /// of how many.
    ///
    /// # Errors
    /// If the model fails, an output is not finite, or the cache cannot be written.
    pub fn outputs(
        &self,
        deployed: &Deployed,
        samples: &[f32],
        mut progress: impl FnMut(usize, usize),
    ) -> Result<(Vec<f32>, Reuse), DeployedError> {
        let sample_len: usize = deployed.model.input_shape().iter().product();
        let (count, width) = (samples.len() / sample_len.max(1), deployed.model.outputs());
        let mut hash = Sha256::new();
        hash.update(&deployed.sha256);
        hash.update(format!("{:?} {width}", deployed.model.input_shape()));
        hash.update(bytemuck::cast_slice::<f32, u8>(samples));
        let file = self.folder.join(format!("{:x}.f32", hash.finalize()));

        let cached = read(&file, count * width);
        let reuse = if cached.is_some() {
            Reuse::Cached
        } else {
            Reuse::Computed
        };
        let outputs = match cached {
            Some(outputs) => outputs,
            None => {
                let mut outputs = Vec::with_capacity(count * width);
                for chunk in samples.chunks(CHUNK * sample_len) {
                    let answers = deployed.model.infer(chunk)?;
                    // Now, and not after hours.
                    check_finite(
                        &deployed.file,
                        &answers,
                        width,
                        outputs.len() / width.max(1),
                    )?;
                    outputs.extend(answers);
                    progress(outputs.len() / width, count);
                }
                outputs
            }
        };
        check_finite(&deployed.file, &outputs, width, 0)?;
        // Another run may write the same at the same time; one of the two is enough.
        if reuse == Reuse::Computed
            && let Err(source) = self.write(&file, &outputs)
            && read(&file, count * width).is_none()
        {
            return Err(DeployedError::Cache { path: file, source });
        }
        Ok((outputs, reuse))
    }

    fn write(&self, file: &Path, outputs: &[f32]) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let bytes = bytemuck::cast_slice::<f32, u8>(outputs);
        let digest = Sha256::digest(bytes);
        files::write_aside(file, &[bytes, digest.as_slice()])?;
        self.prune()
    }

    fn prune(&self) -> std::io::Result<()> {
        let mut files = Vec::new();
        for item in fs::read_dir(&self.folder)? {
            let item = item?;
            // The folder may be one that has other files.
            let name = item.file_name();
            let own = name
                .to_str()
                .and_then(|name| name.strip_suffix(".f32"))
                .is_some_and(|digest| {
                    digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
                });
            // Another run may have removed it.
            let Ok(metadata) = item.metadata() else {
                continue;
            };
            if own && metadata.is_file() {
                files.push((metadata.modified()?, item.path()));
            }
        }
        files.sort();
        for (_, path) in files.iter().take(files.len().saturating_sub(KEPT)) {
            // Another run may have been quicker.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }
}

/// The file's outputs, if it is whole.
fn read(file: &Path, values: usize) -> Option<Vec<f32>> {
    let bytes = fs::read(file).ok()?;
    let (outputs, digest) = bytes.split_at_checked(values * size_of::<f32>())?;
    if Sha256::digest(outputs).as_slice() != digest {
        return None;
    }
    Some(
        outputs
            .as_chunks()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect(),
    )
}
