//! Everything that is fetched from the Python package index is pinned by version and hash.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

/// Names and contents of the files in `requirements`.
fn files() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("requirements");
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        (path.display().to_string(), text)
    };
    paths.map(read).collect()
}

#[test]
fn every_requirement_is_pinned_and_hashed() {
    let mut lists = 0;
    for (name, text) in files().iter().filter(|(name, _)| name.ends_with(".txt")) {
        let text = text.replace("\\\n", " ");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let pinned = line.contains("==") && line.contains("--hash=sha256:");
            assert!(pinned, "{name}: {line}");
        }
        lists += 1;
    }
    assert_eq!(lists, 11, "lists of requirements");
}

/// The user's pip knows the index; a list that names one would overrule it.
#[test]
fn no_list_names_a_package_index() {
    for (name, text) in files() {
        assert!(!text.contains("://") && !text.contains("index-url"), "{name}");
    }
}
