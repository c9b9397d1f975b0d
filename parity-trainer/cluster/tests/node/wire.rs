//! Frames and handshakes survive the wire, and nothing else does.

use std::collections::BTreeMap;
use std::fs;
use std::io::IoSlice;

use parapet_cluster::node::transport::Batch;
use parapet_cluster::node::wire::{Decoder, Frame, HEADER_LEN, WireError};
use parapet_parameter_server::{
    ArrayId, Clock, Epoch, KeyRange, Keys, Members, Message, Operation, Packed, PackedValues, Push,
    Replicate, Seq, ShardRef, Values, ValuesError, WorkerId,
};
use proptest::prelude::*;
use twox_hash::XxHash3_64;

use crate::frames::{frame, frames};

pub(crate) const MAX_FRAME: u64 = 8 << 20;

/// Writes at most `most` bytes at a time, as a socket with little room would.
fn bytes_of(batch: &mut Batch, most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !batch.is_empty() {
        let mut slices = [IoSlice::new(&[]); 3];
        let filled = batch.slices(&mut slices);
        let before = bytes.len();
        for slice in &slices[..filled] {
            let room = most - (bytes.len() - before);
            bytes.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let written = bytes.len() - before;
        assert!(written > 0);
        batch.advance(written);
    }
    bytes
}

pub(crate) fn encode(frames: &[Frame]) -> Vec<u8> {
    encode_in_pieces(frames, usize::MAX)
}

fn encode_in_pieces(frames: &[Frame], most: usize) -> Vec<u8> {
    let mut batch = Batch::new(MAX_FRAME);
    for frame in frames {
        batch.push(frame.clone()).unwrap();
    }
    bytes_of(&mut batch, most)
}

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

/// Everything that comes out when the bytes come in pieces of these sizes, repeated.
fn decode(mut bytes: &[u8], cuts: &[usize]) -> (Vec<Frame>, Result<(), WireError>) {
    let (mut decoder, mut frames) = (Decoder::new(MAX_FRAME, 1 << 20), Vec::new());
    for cut in cuts.iter().cycle() {
        let (mut piece, rest) = bytes.split_at((*cut).min(bytes.len()));
        bytes = rest;
        loop {
            let taken = feed(&mut decoder, piece);
            piece = &piece[taken..];
            loop {
                match decoder.next() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Err(error)),
                }
            }
            if piece.is_empty() {
                break;
            }
            assert!(taken > 0, "the decoder has no room and no frame");
        }
        if bytes.is_empty() {
            break;
        }
    }
    (frames, Ok(()))
}

fn error_of(bytes: &[u8]) -> WireError {
    let (frames, end) = decode(bytes, &[usize::MAX]);
    assert_eq!(frames, []);
    end.unwrap_err()
}

pub(crate) fn push(values: impl Into<Values>) -> Frame {
    let values = values.into();
    Frame::from(Message::Push(Push {
        at: at(values.len() as u64),
        worker: WorkerId(2),
        clock: Clock(3),
        keys: Keys::All,
        values,
    }))
}

fn at(keys: u64) -> ShardRef {
    ShardRef { array: ArrayId(1), range: KeyRange::new(0, keys), epoch: Epoch(1) }
}

fn values_of(frame: &Frame) -> &Values {
    match frame {
        Frame::Message(Packed { message: Message::Push(push), .. }) => &push.values,
        other => panic!("no push: {other:?}"),
    }
}

/// Makes the header's check and the checksum right.
fn sign(bytes: &mut [u8]) {
    let check = (XxHash3_64::oneshot(&bytes[4..HEADER_LEN]) as u32).to_le_bytes();
    bytes[..4].copy_from_slice(&check);
    let end = bytes.len() - 8;
    let sum = XxHash3_64::oneshot(&bytes[HEADER_LEN..end]).to_le_bytes();
    bytes[end..].copy_from_slice(&sum);
}

fn head_of(frame: &[u8]) -> &[u8] {
    let length = u32::from_le_bytes(frame[4..8].try_into().unwrap());
    &frame[HEADER_LEN..][..length as usize]
}

/// A frame with another head.
fn with_head(head: &[u8]) -> Vec<u8> {
    let length = (head.len() as u64).to_le_bytes();
    let mut bytes = [&[0; 4], &length[..4], &length, head, &[0; 8]].concat();
    sign(&mut bytes);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_frame_survives_every_cut(
        sent in prop::collection::vec(frames(), 1..6),
        cuts in prop::collection::vec(prop_oneof![1usize..40, 1_000usize..100_000], 1..6),
        most in prop_oneof![1_000usize..5_000, Just(usize::MAX)],
    ) {
        let (received, end) = decode(&encode_in_pieces(&sent, most), &cuts);
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(received, sent);
    }

    #[test]
    fn changed_byte_is_noticed(
        frame in frames(),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut bytes = encode(&[frame]);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let (received, end) = decode(&bytes, &[usize::MAX]);
        prop_assert_eq!(received, vec![]);
        prop_assert!(end.is_err(), "byte {} of {}", at, bytes.len());
    }

    #[test]
    fn cut_off_frame_is_waited_for(frame in frames(), at in any::<prop::sample::Index>()) {
        let bytes = encode(&[frame]);
        let (received, end) = decode(&bytes[..at.index(bytes.len())], &[usize::MAX]);
        prop_assert_eq!((received, end), (vec![], Ok(())));
    }

    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), HEADER_LEN..300)) {
        prop_assert!(decode(&bytes, &[7]).1.is_err());
    }

    /// Past the checks of header and checksum, where a peer of another release would be.
    #[test]
    fn signed_head_of_garbage_does_not_panic(
        frame in frames(),
        flips in prop::collection::vec((0usize..200, any::<u8>()), 1..4),
        length in prop::option::of(any::<u64>()),
    ) {
        let mut bytes = encode(&[frame]);
        let head = head_of(&bytes).len();
        for (at, xor) in flips {
            bytes[HEADER_LEN + at % head] ^= xor;
        }
        if let Some(length) = length {
            bytes[8..16].copy_from_slice(&length.to_le_bytes());
        }
        sign(&mut bytes);
        let _ = decode(&bytes, &[4096]);
    }
}

#[test]
fn frame_that_claims_2_to_the_60_bytes_is_refused_at_its_header() {
    let mut bytes = encode(&[push(vec![0.0; 4])]);
    bytes[8..16].copy_from_slice(&(1u64 << 60).to_le_bytes());
    sign(&mut bytes);
    let expected = WireError::TooLong { length: 1 << 60, limit: MAX_FRAME };
    assert_eq!(error_of(&bytes[..HEADER_LEN]), expected);
}

#[test]
fn malformed_heads_are_refused_before_sections_have_memory() {
    let unreadable = "a head that this release cannot read";
    let unfilled = "sections that do not fill it";
    let good = encode(&[push(vec![0.0; 1000])]);
    let head = head_of(&good);
    // The count of the values is the head's end.
    let claims = |count: &[u8]| [&head[..head.len() - 2], count].concat();
    let is_snapshot = |packed: &Packed| matches!(packed.message, Message::Snapshot(_));
    let compressed = (0..).find_map(|seed| match frame(seed) {
        Frame::Message(mut packed) if is_snapshot(&packed) => {
            packed.values = Some(PackedValues::Plain(Values::none()));
            Some(encode(&[Frame::Message(packed)]))
        }
        _ => None,
    });
    let mut backwards = head.to_vec();
    // Tags of frame and message, the array, then where its range starts.
    backwards.splice(3..4, [0xff, 0xff, 0x03]);
    for (head, wanted) in [
        (vec![99], unreadable),
        (head[..10].to_vec(), unreadable),
        (backwards, unreadable),
        (claims(&[0xff; 8]), unreadable),
        (claims(&[[0xff; 7].as_slice(), &[0x7f]].concat()), unfilled),
        ([head, &[0]].concat(), "a head that is too long"),
        (head.to_vec(), unfilled),
    ] {
        let error = WireError::Malformed(wanted);
        assert_eq!(error_of(&with_head(&head)), error, "{head:?}");
    }
    let error = WireError::Malformed("a compressed snapshot");
    assert_eq!(error_of(&compressed.unwrap()), error);
}

#[test]
fn frame_above_the_limit_is_not_sent() {
    let mut batch = Batch::new(1000);
    let [first, long, second] = [1, 1000, 2].map(|count| push(vec![1.0; count]));
    batch.push(first.clone()).unwrap();
    let error = batch.push(long).unwrap_err();
    assert!(matches!(error, WireError::TooLong { limit: 1000, .. }));
    batch.push(second.clone()).unwrap();
    let bytes = bytes_of(&mut batch, usize::MAX);
    assert_eq!(decode(&bytes, &[usize::MAX]), (vec![first, second], Ok(())));
}

#[test]
fn head_longer_than_what_is_read_ahead_survives_up_to_a_limit() {
    let of_workers = |count| {
        let operation = Operation::Members(Members {
            version: 1,
            workers: vec![(WorkerId(u64::MAX), Clock(u64::MAX)); count],
        });
        let (at, seq) = (at(1), Seq(1));
        Frame::from(Message::Replicate(Replicate { at, seq, operation }))
    };
    let sent = vec![of_workers(30_000), Frame::Heartbeat];
    let bytes = encode(&sent);
    assert!(head_of(&bytes).len() > 500_000);
    for cut in [777, usize::MAX] {
        assert_eq!(decode(&bytes, &[cut]), (sent.clone(), Ok(())));
    }
    let error = Batch::new(MAX_FRAME).push(of_workers(60_000)).unwrap_err();
    assert!(matches!(error, WireError::TooLong { .. }), "{error}");
}

#[test]
fn values_are_written_from_where_they_lie() {
    let values = Values::from(vec![1.0f32; 100_000]);
    let mut batch = Batch::new(MAX_FRAME);
    batch.push(push(values.clone())).unwrap();
    let mut slices = [IoSlice::new(&[]); 4];
    assert_eq!(batch.slices(&mut slices), 2);
    let whole = values.as_bytes();
    // Not summed up as a whole before it is written.
    assert!(slices[1].len() < whole.len());
    assert_eq!(slices[1].as_ptr(), whole.as_ptr());
}

#[test]
fn buffers_are_used_again_once_they_are_released() {
    let bytes = encode(&[push(vec![1.0; 100_000])]);
    let mut decoder = Decoder::new(MAX_FRAME, 1 << 20);
    let mut receive = || {
        let mut rest = &bytes[..];
        let mut received = None;
        while !rest.is_empty() {
            rest = &rest[feed(&mut decoder, rest)..];
            received = decoder.next().unwrap().or(received);
        }
        let frame = received.unwrap();
        let place = values_of(&frame).as_bytes().as_ptr();
        (frame, place)
    };
    let (first, second) = (receive(), receive());
    assert_ne!(first.1, second.1);
    let places = [first.1, second.1];
    drop((first, second));
    assert!(places.contains(&receive().1));
}

#[test]
fn number_that_is_not_finite_is_found_wherever_it_is_cut() {
    // Of a short frame, and of a long one.
    for (count, bad) in [
        (10, None),
        (10, Some(9)),
        (100_000, None),
        (100_000, Some(0)),
        (100_000, Some(50_001)),
        (100_000, Some(99_999)),
    ] {
        let mut numbers = vec![1.0; count];
        bad.iter().for_each(|&at: &usize| numbers[at] = f32::NAN);
        let bytes = encode(&[push(numbers)]);
        for cut in [777, 4096, usize::MAX] {
            let (frames, end) = decode(&bytes, &[cut]);
            assert_eq!((frames.len(), end), (1, Ok(())));
            let found = values_of(&frames[0]).check(count, 1);
            let expected = bad.map_or(Ok(()), |at| Err(ValuesError::NotFinite { at }));
            assert_eq!(found.map(drop), expected, "cut at {cut}");
        }
    }
}

/// Two bytes tell the kinds of frames and messages apart.
const KINDS: usize = 9;

/// The files begin with how the fuzzer cuts the input. With `UPDATE_CORPUS`, writes one of each
/// kind of frame.
#[test]
fn fuzzers_corpus_is_of_this_format() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/decode");
    if std::env::var_os("UPDATE_CORPUS").is_some() {
        let mut kinds = BTreeMap::new();
        let small = (0..).map(|seed| encode(&[frame(seed)]));
        for bytes in small.filter(|bytes| bytes.len() < 1000) {
            let message = if bytes[HEADER_LEN] == 2 { bytes[HEADER_LEN + 1] } else { 0 };
            kinds.insert((bytes[HEADER_LEN], message), bytes);
            if kinds.len() == KINDS {
                break;
            }
        }
        for (kind, bytes) in kinds.values().enumerate() {
            let file = [&[63], &bytes[..]].concat();
            fs::write(format!("{folder}/kind-{kind:02}"), file).unwrap();
        }
    }
    let mut kinds = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let (frames, end) = decode(&bytes[1..], &[usize::from(bytes[0]) + 1]);
        if path.display().to_string().contains("kind-") {
            assert_eq!((frames.len(), end), (1, Ok(())), "{}", path.display());
            kinds += 1;
        }
    }
    assert_eq!(kinds, KINDS);
}
