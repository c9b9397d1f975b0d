//! Digests of models, with the weights that an ONNX file keeps in files beside it.

use std::fs::{self, File};
use std::path::Path;

use parapet_onnx::external_data;
use sha2::Sha256;

use crate::{Result, TrainError};

/// A model is its file, and what an ONNX file keeps beside itself.
pub(super) fn hash_model(file: &Path, hash: &mut Sha256) -> Result<()> {
    hash_file(file, hash)?;
    if file.extension().is_some_and(|extension| extension == "onnx") {
        for name in external_data(&fs::read(file).map_err(TrainError::read(file))?) {
            let beside = file.with_file_name(&name);
            if beside.is_file() {
                hash_file(&beside, hash)?;
            }
        }
    }
    Ok(())
}

fn hash_file(file: &Path, hash: &mut Sha256) -> Result<()> {
    let copied = File::open(file).and_then(|mut file| std::io::copy(&mut file, hash));
    copied.map(drop).map_err(TrainError::read(file))
}

#[cfg(test)]
mod tests {
    use sha2::Digest;

    use super::*;

    /// Otherwise cached outputs of other weights would be taken for these.
    #[test]
    fn weights_beside_an_onnx_file_are_part_of_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let graph = folder.path().join("model.onnx");
        fs::write(&graph, b"\x0a\x08location\x12\x05w.bin").unwrap();
        let digests = ["one", "two"].map(|weights| {
            fs::write(folder.path().join("w.bin"), weights).unwrap();
            let mut hash = Sha256::new();
            hash_model(&graph, &mut hash).unwrap();
            hash.finalize()
        });
        assert_ne!(digests[0], digests[1]);
    }
}
