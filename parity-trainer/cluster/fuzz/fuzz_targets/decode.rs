//! Any bytes, in any cuts: no panic, no memory beyond the limit, and what is decoded is encoded
//! again to the same frame.
//!
//! Checksums are not looked at with the feature `fuzzing`, so that the fuzzer gets past them.

#![no_main]

use std::io::IoSlice;

use libfuzzer_sys::fuzz_target;
use parapet_cluster::node::transport::Batch;
use parapet_cluster::node::wire::{Decoder, Frame};

const MAX_FRAME: u64 = 1 << 20;

/// Takes bytes from a slice, as a connection reads them; returns how many.
fn feed(decoder: &mut Decoder, bytes: &[u8]) -> usize {
    let mut rest = bytes;
    for space in decoder.spaces() {
        let (now, later) = rest.split_at(space.len().min(rest.len()));
        space[..now.len()].copy_from_slice(now);
        rest = later;
    }
    let count = bytes.len() - rest.len();
    decoder.filled(count);
    count
}

fn decode(mut bytes: &[u8], cut: usize) -> Vec<Frame> {
    let (mut decoder, mut frames) = (Decoder::new(MAX_FRAME, 1 << 16), Vec::new());
    while !bytes.is_empty() {
        let taken = feed(&mut decoder, &bytes[..cut.min(bytes.len())]);
        bytes = &bytes[taken..];
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return frames,
            }
        }
    }
    frames
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, bytes)) = data.split_first() else { return };
    let frames = decode(bytes, usize::from(cut) + 1);
    let mut batch = Batch::new(MAX_FRAME);
    for frame in &frames {
        batch.push(frame.clone()).expect("it was within the limit when it came");
    }
    let mut again = Vec::new();
    while !batch.is_empty() {
        let mut slices = [IoSlice::new(&[]); 16];
        let filled = batch.slices(&mut slices);
        let before = again.len();
        slices[..filled].iter().for_each(|slice| again.extend_from_slice(slice));
        let written = again.len() - before;
        batch.advance(written);
    }
    // Not the frames themselves: a NaN is not equal to itself.
    assert_eq!(format!("{:?}", decode(&again, 4096)), format!("{frames:?}"));
});
