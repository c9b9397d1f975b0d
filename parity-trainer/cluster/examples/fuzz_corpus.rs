//! Writes one frame of each kind for the fuzzer to begin with; its first byte says how the input is
//! cut. To be run after a change of the format; `tests/wire.rs` checks that the files are of the
//! format.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a tool that shares its frames with the tests"
)]

#[path = "../tests/node/frames.rs"]
mod frames;

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::{fs, io};

use parapet_cluster::node::wire::{Batch, Frame, HEADER_LEN};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;

/// Kinds of frame.
const KINDS: usize = 12;
/// Longer ones are no good start.
const LONGEST: usize = 1000;

fn encode(frame: Frame) -> Vec<u8> {
    let mut batch = Batch::new(8 << 20);
    batch.push(frame).unwrap();
    let mut bytes = Vec::new();
    while !batch.is_empty() {
        let mut slices = [IoSlice::new(&[]); 3];
        let filled = batch.slices(&mut slices);
        let before = bytes.len();
        slices
            .iter()
            .take(filled)
            .for_each(|slice| bytes.extend_from_slice(slice));
        batch.advance(bytes.len() - before);
    }
    bytes
}

fn main() -> io::Result<()> {
    let mut runner = TestRunner::deterministic();
    let mut kinds = BTreeMap::new();
    while kinds.len() < KINDS {
        let bytes = encode(frames::frame().new_tree(&mut runner).unwrap().current());
        if let (true, Some(&kind)) = (bytes.len() < LONGEST, bytes.get(HEADER_LEN)) {
            kinds.insert(kind, bytes);
        }
    }
    for (kind, bytes) in kinds {
        let file = format!(
            concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/decode/kind-{:02}"),
            kind
        );
        fs::write(file, [&[63], &bytes[..]].concat())?;
    }
    Ok(())
}
