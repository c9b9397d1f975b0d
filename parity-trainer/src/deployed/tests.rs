//! Names and contents of model files.

use super::*;

#[test]
fn weights_beside_an_onnx_file_are_part_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let (graph, weights) = (
        folder.path().join("model.onnx"),
        folder.path().join("w.bin"),
    );
    fs::write(&graph, b"graph\x0a\x08location\x12\x05w.bin").unwrap();
    let digest = || {
        let mut hash = Sha256::new();
        hash_model(&graph, &mut hash).unwrap();
        format!("{:x}", hash.finalize())
    };
    fs::write(&weights, b"one").unwrap();
    let one = digest();
    fs::write(&weights, b"two").unwrap();
    assert_ne!(
        one,
        digest(),
        "cached outputs of other weights would be taken for these"
    );
}

#[test]
fn a_model_is_named_after_its_file_or_folder() {
    assert_eq!(file_name(Path::new("/tmp/digits.v2.onnx")), "digits.v2");
    assert_eq!(
        file_name(Path::new("models/fashion/3/model.onnx")),
        "fashion"
    );
    assert_eq!(file_name(Path::new("model.onnx")), "model");
    assert_eq!(file_name(Path::new("a b.pt")), "a-b");
    assert_eq!(file_name(Path::new("..onnx")), "deployed");
}
