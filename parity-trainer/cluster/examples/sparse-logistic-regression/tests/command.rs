//! The program: what it prints, and how it names what is wrong.

use std::fs;
use std::io::Write;
use std::path::Path;

use clap::Parser;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::Cli;

/// Returns the program's output; else the exit code and the error.
fn run(arguments: &[&str]) -> Result<String, (i32, String)> {
    let program = ["sparse-logistic-regression"];
    let cli = Cli::try_parse_from(program.iter().chain(arguments))
        .map_err(|error| (error.exit_code(), error.to_string()))?;
    cli.run()
        .map_err(|error| (error.exit_code().into(), error.to_string()))
}

fn error(arguments: &[&str], code: i32) -> String {
    let (found, text) = run(arguments).unwrap_err();
    assert_eq!(found, code, "{text}");
    text
}

fn in_folder(folder: &Path, more: &[&str]) -> String {
    let line = error(&[&["--data", folder.to_str().unwrap()], more].concat(), 1);
    assert!(line.trim_end().lines().count() == 1, "{line}");
    line
}

fn write(folder: &Path, name: &str, contents: &[u8]) {
    fs::write(folder.join(name), contents).unwrap();
}

/// An IDX file of `u8`.
fn idx(dims: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, dims.len() as u8];
    dims.iter().for_each(|dim| file.extend(dim.to_be_bytes()));
    file.extend(bytes);
    file
}

/// Two classes that two of three features tell apart.
fn sound(folder: &Path) {
    for (part, rows) in [("train", 200_u32), ("t10k", 40)] {
        let bytes: Vec<u8> = (0..rows)
            .flat_map(|row| {
                if row % 2 == 0 {
                    [255, 0, 255]
                } else {
                    [0, 255, 255]
                }
            })
            .collect();
        let labels: Vec<u8> = (0..rows).map(|row| (row % 2) as u8).collect();
        write(
            folder,
            &format!("{part}-images-idx2-ubyte"),
            &idx(&[rows, 3], &bytes),
        );
        write(
            folder,
            &format!("{part}-labels-idx1-ubyte"),
            &idx(&[rows], &labels),
        );
    }
}

#[test]
fn a_folder_is_learned_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    sound(folder.path());
    let json = folder.path().join("outcome.json");
    let text = run(&[
        "--data",
        folder.path().to_str().unwrap(),
        "--batch=10",
        "--passes=5",
        "--l1=0.1",
        "--json",
        json.to_str().unwrap(),
    ])
    .unwrap();
    assert!(
        text.contains("3 features, 200 rows") && text.contains("accuracy 100.00 %"),
        "{text}"
    );
    let outcome: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(
        (
            &outcome["outcome"]["score"]["auc"],
            &outcome["outcome"]["rows"]
        ),
        (&1.0.into(), &1000.into())
    );
}

#[test]
fn text_is_hashed_and_learned() {
    let folder = tempfile::tempdir().unwrap();
    for (part, rows) in [("train", 100), ("t10k", 20)] {
        let mut file = GzEncoder::new(Vec::new(), Compression::fast());
        for row in 0..rows {
            let words = if row % 2 == 0 {
                "let us meet"
            } else {
                "buy this now"
            };
            writeln!(file, "{}\tnumber {row}\tHello,\t{words}", row % 2).unwrap();
        }
        write(
            folder.path(),
            &format!("{part}-text.tsv.gz"),
            &file.finish().unwrap(),
        );
    }
    let path = folder.path().to_str().unwrap();
    let text = run(&[
        "--data",
        path,
        "--hashed=65536",
        "--batch=10",
        "--passes=5",
        "--l1=0.1",
    ])
    .unwrap();
    assert!(
        text.contains("65536 features, 100 rows") && text.contains("accuracy 100.00 %"),
        "{text}"
    );

    let whole = fs::read(folder.path().join("train-text.tsv.gz")).unwrap();
    write(
        folder.path(),
        "train-text.tsv.gz",
        &whole[..whole.len() / 2],
    );
    assert!(
        in_folder(folder.path(), &["--hashed=8"])
            .contains("train-text.tsv.gz: cannot be read to its end")
    );
    fs::remove_file(folder.path().join("train-text.tsv.gz")).unwrap();
    write(
        folder.path(),
        "train-text.tsv",
        b"0\tone\ttext\nspam\ttwo\ttext\n",
    );
    assert!(
        in_folder(folder.path(), &["--hashed=8"])
            .contains("label 'spam' of row 2 is neither 0 nor 1")
    );
    write(folder.path(), "train-text.tsv", b"0\tone\ttext\n1\ttw");
    assert!(in_folder(folder.path(), &["--hashed=8"]).contains("line 2 has no"));
    write(folder.path(), "train-text.tsv", b"");
    assert!(in_folder(folder.path(), &["--hashed=8"]).contains("no rows"));
}

#[test]
fn what_is_wrong_with_a_folder_is_named() {
    assert!(
        in_folder(Path::new("/no/such/folder"), &[]).contains("/no/such/folder: no such folder")
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    assert!(in_folder(path, &[]).contains("no file train-images-idx"));
    sound(path);
    write(path, "train-labels-idx1-ubyte", &idx(&[200], &[7; 200]));
    assert!(
        in_folder(path, &[])
            .contains("train-labels-idx1-ubyte: label 7 of row 1 is neither 0 nor 1")
    );
    write(path, "train-labels-idx1-ubyte", &idx(&[199], &[1; 199]));
    assert!(in_folder(path, &[]).contains("[200, 3] where one row for each of 199 labels"));
    write(path, "train-labels-idx1-ubyte", &idx(&[200], &[1; 150]));
    assert!(in_folder(path, &[]).contains("truncated or damaged"));
    sound(path);
    write(path, "t10k-images-idx2-ubyte", &idx(&[40, 2], &[1; 80]));
    assert!(in_folder(path, &[]).contains("its rows have 2 features, those to learn from 3"));
}

#[test]
fn arguments_that_cannot_be_used_are_refused() {
    assert!(error(&["--consistency", "sps:2"], 2).contains("write bsp, bounded-delay:4"));
    assert!(error(&["--kkt", "0.5"], 2).contains("kept:0.5"));
    assert!(error(&["--workers", "0"], 2).contains("at least 1"));
    assert!(error(&["--alpha", "0"], 2).contains("above 0"));
    assert!(error(&["--hashed", "8"], 2).contains("--data"));
    assert!(error(&["--replication", "3"], 2).contains("2 servers cannot hold 3 copies"));
}
