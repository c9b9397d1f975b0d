//! `parapet-loadgen run` with images and labels of an `.npz` file.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "common/program.rs"]
mod program;

use std::io::Write;
use std::path::Path;

use common::Act;
use parapet_loadgen::report::RunReport;
use program::{Ended, cases, run_beside};
use tempfile::TempDir;

/// An array as NumPy writes it.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\0", &length[..], header.as_bytes(), data].concat()
}

fn write_npz(path: &Path, arrays: &[(&str, &[u8])]) {
    let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
    for (name, contents) in arrays {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(format!("{name}.npy"), options).unwrap();
        zip.write_all(contents).unwrap();
    }
    zip.finish().unwrap();
}

/// A folder with `.npz` files, good and bad, beside the usual images and labels.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    common::write_data(folder.path(), 20);
    let pixels = (0..16).map(|at| if at == 0 { 3.0_f32 / 255.0 } else { 0.5 });
    let pixels: Vec<u8> = pixels.flat_map(f32::to_le_bytes).collect();
    let x = npy("<f4", "(1, 4, 4)", &pixels);
    let x2 = npy("|u1", "(1, 4, 4)", &[3; 16]);
    let y = npy("<i8", "(1,)", &3_i64.to_le_bytes());
    let minus = npy("<i4", "(1,)", &(-1_i32).to_le_bytes());
    let nan = npy(">f8", "(1, 1)", &f64::NAN.to_be_bytes());
    let short = npy("<f4", "(9, 9)", &[0; 8]);
    let write = |name: &str, arrays: &[(&str, &[u8])]| write_npz(&folder.path().join(name), arrays);
    write("one.npz", &[("x", &x), ("y", &y)]);
    write("two.npz", &[("x", &x), ("x2", &x2), ("y", &y)]);
    write("minus.npz", &[("x", &x), ("y", &minus)]);
    write("nan.npz", &[("x", &nan)]);
    write("short.npz", &[("x", &short)]);
    std::fs::write(folder.path().join("damaged.npz"), b"PK\x03\x04 and no more").unwrap();
    folder
}

async fn run(folder: &TempDir, changes: &str) -> Ended {
    let (address, _) = common::start(|_, _| Act::Exact).await;
    let line = format!(
        "run --target http://{address} --model digits --rate 1000 --requests 5 --json report.json \
         --images {changes}"
    );
    run_beside(folder.path(), &line).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_npz_file_has_images_and_labels() {
    let folder = folder();
    for (changes, images) in [
        ("one.npz", "one.npz[x]"),
        ("two.npz --images-key x2 --labels-key y", "two.npz[x2]"),
    ] {
        run(&folder, changes).await.succeeded();
        let report = std::fs::read(folder.path().join("report.json")).unwrap();
        let report: RunReport = serde_json::from_slice(&report).unwrap();
        let found = (
            report.accuracy.unwrap().correct,
            report.settings.images.as_str(),
        );
        assert_eq!(found, (5, images));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn unfit_arrays_are_refused_in_one_line() {
    let folder = folder();
    for (changes, says) in cases(
        r#"
two.npz => has 2 arrays that could be images (u8, f32 or f64 with 2 or more axes)
one.npz --images-key z => has no array "z"; give --images-key as one of: "x" (<f4 [1, 4, 4])
one.npz --images-key y => array "y" (<i8 [1]) cannot be images
minus.npz => array "y": element 0 is -1
nan.npz => array "x": element 0 is NaN
short.npz => shape [9, 9] makes 324 bytes, there are 8
damaged.npz => damaged.npz: cannot read it as .npz
images --images-key x => images: is no .npz file
one.npz --labels nan.npz => has 0 arrays that could be labels
one.npz --labels labels => has 1 samples but labels has 20 labels
"#,
    ) {
        run(&folder, changes).await.refused(says);
    }
}
