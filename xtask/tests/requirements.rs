//! Everything that is fetched from the Python package index is pinned by version and hash.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

#[test]
fn every_requirement_is_pinned_and_hashed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("requirements");
    let mut files = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let text = fs::read_to_string(&path).unwrap().replace("\\\n", " ");
            for line in text.lines().filter(|line| !line.starts_with('#')) {
                let pinned = line.contains("==") && line.contains("--hash=sha256:");
                assert!(pinned, "{}: {line}", path.display());
            }
            files += 1;
        }
    }
    assert_eq!(files, 8, "lists of requirements");
}

/// The user's pip knows the index; a list that names one would overrule it.
#[test]
fn no_list_names_a_package_index() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("requirements");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains("://") && !text.contains("index-url"),
            "{}",
            path.display()
        );
    }
}
