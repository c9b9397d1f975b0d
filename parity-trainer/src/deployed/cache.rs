//! Outputs of the deployed model on disk, so that they are computed once.

use std::path::Path;
use std::{fs, io};

use sha2::{Digest, Sha256};

use super::{BATCH, Deployed, check_finite};
use crate::{Result, TrainError, files};

/// Files kept; the oldest go.
const KEPT: usize = 16;
/// Samples between two reports of progress.
const CHUNK: usize = 4 * BATCH;

/// The outputs of `deployed` for `samples`, and true if they were in the cache `folder`; `progress`
/// hears how many samples are done, of how many.
///
/// A file's name is the SHA-256 of all that its outputs depend on: the model's file, its input and
/// output, and the samples as they go in. A file that is torn or of another length is recomputed.
pub fn cached_outputs(
    folder: &Path,
    deployed: &Deployed,
    samples: &[f32],
    mut progress: impl FnMut(usize, usize),
) -> Result<(Vec<f32>, bool)> {
    let (shape, width) = (deployed.model.input_shape(), deployed.model.outputs());
    let sample_len: usize = shape.iter().product();
    let count = samples.len() / sample_len.max(1);
    let mut hash = Sha256::new();
    hash.update(&deployed.sha256);
    hash.update(format!("{shape:?} {width}"));
    hash.update(bytemuck::cast_slice::<f32, u8>(samples));
    let file = folder.join(format!("{:x}.f32", hash.finalize()));
    if let Some(outputs) = read(&file, count * width) {
        check_finite(&deployed.file, &outputs, width, 0)?;
        return Ok((outputs, true));
    }
    let mut outputs = Vec::with_capacity(count * width);
    for chunk in samples.chunks(CHUNK * sample_len) {
        let answers = deployed.model.infer(chunk)?;
        // Now, and not after hours.
        check_finite(&deployed.file, &answers, width, outputs.len() / width.max(1))?;
        outputs.extend(answers);
        progress(outputs.len() / width, count);
    }
    // Another run may write the same at the same time; one of the two is enough.
    if let Err(source) = write(folder, &file, &outputs)
        && read(&file, count * width).is_none()
    {
        return Err(TrainError::Failed(format!(
            "{}: cannot write the cached outputs: {source}; free some space, or give --cache \
                another folder",
            file.display()
        )));
    }
    Ok((outputs, false))
}

fn write(folder: &Path, file: &Path, outputs: &[f32]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let bytes = bytemuck::cast_slice::<f32, u8>(outputs);
    files::write_aside(file, &[bytes, Sha256::digest(bytes).as_slice()])?;
    prune(folder)
}

fn prune(folder: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for item in fs::read_dir(folder)? {
        let item = item?;
        // The folder may be one that has other files, and another run may have removed this.
        if let Ok(metadata) = item.metadata()
            && metadata.is_file()
            && is_own(&item.file_name().to_string_lossy())
        {
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

fn is_own(name: &str) -> bool {
    let digest = name.strip_suffix(".f32").unwrap_or_default();
    digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn read(file: &Path, values: usize) -> Option<Vec<f32>> {
    let bytes = fs::read(file).ok()?;
    let (outputs, digest) = bytes.split_at_checked(values * size_of::<f32>())?;
    let is_whole = Sha256::digest(outputs).as_slice() == digest;
    let (values, _) = outputs.as_chunks();
    is_whole.then(|| values.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
}
