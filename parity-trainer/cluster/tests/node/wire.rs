//! Frames and handshakes survive the wire, and nothing else does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "tests"
)]

use crate::frames;

use std::io::IoSlice;

use parapet_cluster::node::wire::{
    Batch, Decoder, Frame, HEADER_LEN, HELLO_LEN, Hello, Limits, PREFIX_LEN, VERSION, WireError,
};
use parapet_parameter_server::{
    ArrayId, Clock, Epoch, KeyRange, Keys, Message, NodeId, Peer, Push, ShardRef, Shared, Values,
    ValuesError, WorkerId,
};
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    max_frame: 8 << 20,
    pooled: 1 << 20,
};

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

fn encode(frames: &[Frame]) -> Vec<u8> {
    let mut batch = Batch::new(LIMITS.max_frame);
    frames
        .iter()
        .for_each(|frame| batch.push(frame.clone()).unwrap());
    bytes_of(&mut batch, usize::MAX)
}

/// Everything that comes out when the bytes come in pieces of these sizes, repeated.
fn decode(mut bytes: &[u8], cuts: &[usize], limits: Limits) -> (Vec<Frame>, Result<(), WireError>) {
    let (mut decoder, mut frames) = (Decoder::new(limits), Vec::new());
    for cut in cuts.iter().cycle() {
        let (mut piece, rest) = bytes.split_at((*cut).min(bytes.len()));
        loop {
            let taken = decoder.feed(piece);
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
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    (frames, Ok(()))
}

fn push(numbers: usize) -> Frame {
    push_of(Shared::from(
        (0..numbers).map(|n| n as f32).collect::<Vec<_>>(),
    ))
}

fn push_of(values: Shared<f32>) -> Frame {
    let at = ShardRef {
        array: ArrayId(1),
        range: KeyRange::new(0, values.len() as u64),
        epoch: Epoch(1),
    };
    let values = Values::F32(values);
    Message::Push(Push {
        at,
        worker: WorkerId(2),
        clock: Clock(3),
        keys: Keys::All,
        values,
    })
    .into()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_frame_survives_every_cut(
        sent in prop::collection::vec(frames::frame(), 1..6),
        cuts in prop::collection::vec(prop_oneof![1usize..40, 1_000usize..100_000], 1..6),
        most in prop_oneof![1_000usize..5_000, Just(usize::MAX)],
    ) {
        let mut batch = Batch::new(LIMITS.max_frame);
        sent.iter()
            .for_each(|frame| batch.push(frame.clone()).unwrap());
        let bytes = bytes_of(&mut batch, most);
        let (received, end) = decode(&bytes, &cuts, LIMITS);
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(received, sent);
    }

    #[test]
    fn a_changed_byte_is_noticed(
        frame in frames::frame(),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut bytes = encode(std::slice::from_ref(&frame));
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let (received, end) = decode(&bytes, &[usize::MAX], LIMITS);
        prop_assert_eq!(received, vec![]);
        prop_assert!(end.is_err(), "byte {} of {}", at, bytes.len());
    }

    #[test]
    fn a_cut_off_frame_is_waited_for(frame in frames::frame(), at in any::<prop::sample::Index>()) {
        let bytes = encode(&[frame]);
        let (received, end) = decode(&bytes[..at.index(bytes.len())], &[usize::MAX], LIMITS);
        prop_assert_eq!((received, end), (vec![], Ok(())));
    }

    #[test]
    fn garbage_is_refused(bytes in prop::collection::vec(any::<u8>(), HEADER_LEN..300)) {
        prop_assert!(decode(&bytes, &[7], LIMITS).1.is_err());
    }

    /// Past the checks of header and checksum, where a peer of another release would be.
    #[test]
    fn a_signed_head_of_garbage_does_not_panic(
        frame in frames::frame(),
        flips in prop::collection::vec((0usize..200, any::<u8>()), 1..4),
        length in prop::option::of(any::<u64>()),
    ) {
        let mut bytes = encode(&[frame]);
        let head = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
        for (at, xor) in flips {
            bytes[HEADER_LEN + at % head] ^= xor;
        }
        if let Some(length) = length {
            bytes[8..16].copy_from_slice(&length.to_le_bytes());
        }
        sign(&mut bytes);
        let _ = decode(&bytes, &[4096], LIMITS);
    }
}

/// Makes the header's check right.
fn sign(bytes: &mut [u8]) {
    let check = (twox_hash::XxHash3_64::oneshot(&bytes[4..HEADER_LEN]) as u32).to_le_bytes();
    bytes[..4].copy_from_slice(&check);
}

#[test]
fn a_frame_that_claims_2_to_the_60_bytes_is_refused_at_its_header() {
    let mut bytes = encode(&[push(4)]);
    bytes[8..16].copy_from_slice(&(1u64 << 60).to_le_bytes());
    sign(&mut bytes);
    let (_, end) = decode(&bytes[..HEADER_LEN], &[usize::MAX], LIMITS);
    assert_eq!(
        end,
        Err(WireError::TooLong {
            length: 1 << 60,
            limit: LIMITS.max_frame
        })
    );
}

#[test]
fn sections_longer_than_their_frame_are_refused_before_they_have_memory() {
    let mut bytes = encode(&[push(100_000)]);
    let head = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
    bytes[HEADER_LEN + head - 8..HEADER_LEN + head].copy_from_slice(&(1u64 << 60).to_le_bytes());
    let (_, end) = decode(&bytes[..HEADER_LEN + head], &[usize::MAX], LIMITS);
    assert_eq!(
        end,
        Err(WireError::Malformed("sections that do not fill it"))
    );
}

#[test]
fn a_frame_above_the_limit_is_not_sent() {
    let mut batch = Batch::new(1000);
    batch.push(push(1)).unwrap();
    assert!(matches!(
        batch.push(push(1000)),
        Err(WireError::TooLong { limit: 1000, .. })
    ));
    batch.push(push(2)).unwrap();
    let bytes = bytes_of(&mut batch, usize::MAX);
    assert_eq!(
        decode(&bytes, &[usize::MAX], LIMITS),
        (vec![push(1), push(2)], Ok(()))
    );
}

#[test]
fn an_unknown_kind_of_frame_is_named() {
    let mut bytes = encode(&[Frame::Heartbeat]);
    bytes[HEADER_LEN] = 99;
    let sum = twox_hash::XxHash3_64::oneshot(&[99]);
    bytes[HEADER_LEN + 1..].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(
        decode(&bytes, &[usize::MAX], LIMITS).1,
        Err(WireError::UnknownTag(99))
    );
}

#[test]
fn values_are_written_from_where_they_lie() {
    let values = Values::from(vec![1.0f32; 100_000]);
    let at = ShardRef {
        array: ArrayId(1),
        range: KeyRange::new(0, 100_000),
        epoch: Epoch(1),
    };
    let push = Push {
        at,
        worker: WorkerId(2),
        clock: Clock(3),
        keys: Keys::All,
        values: values.clone(),
    };
    let mut batch = Batch::new(LIMITS.max_frame);
    batch.push(Message::Push(push).into()).unwrap();
    let mut slices = [IoSlice::new(&[]); 4];
    assert_eq!(batch.slices(&mut slices), 2);
    assert!(
        slices[1].len() < values.as_bytes().len(),
        "summed up as a whole before it is written"
    );
    assert_eq!(slices[1].as_ptr(), values.as_bytes().as_ptr());
}

#[test]
fn buffers_are_used_again_once_nobody_has_them() {
    let bytes = encode(&[push(100_000)]);
    let mut decoder = Decoder::new(LIMITS);
    let mut receive = |keep: &mut Vec<Frame>| {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            rest = &rest[decoder.feed(rest)..];
            keep.extend(decoder.next().unwrap());
        }
        let Some(Frame::Message(packed)) = keep.last() else {
            panic!("no message")
        };
        let Message::Push(push) = &packed.message else {
            panic!("no push")
        };
        push.values.as_bytes().as_ptr()
    };
    let mut held = Vec::new();
    let first = receive(&mut held);
    let second = receive(&mut held);
    assert_ne!(first, second);
    held.clear();
    let third = receive(&mut Vec::new());
    assert!([first, second].contains(&third));
}

#[test]
fn a_number_that_is_not_finite_is_found_wherever_it_is_cut() {
    const NUMBERS: usize = 100_000;
    for bad in [None, Some(0), Some(50_001), Some(NUMBERS - 1)] {
        let mut numbers = vec![1.0; NUMBERS];
        numbers
            .iter_mut()
            .enumerate()
            .filter(|(at, _)| Some(*at) == bad)
            .for_each(|(_, n)| *n = f32::NAN);
        let at = ShardRef {
            array: ArrayId(1),
            range: KeyRange::new(0, NUMBERS as u64),
            epoch: Epoch(1),
        };
        let (values, keys) = (Values::from(numbers), Keys::All);
        let push = Message::Push(Push {
            at,
            worker: WorkerId(2),
            clock: Clock(3),
            keys,
            values,
        });
        for cut in [777, 4096, usize::MAX] {
            let (frames, end) = decode(&encode(&[push.clone().into()]), &[cut], LIMITS);
            assert_eq!(end, Ok(()));
            let [Frame::Message(packed)] = &frames[..] else {
                panic!("{frames:?}")
            };
            let Message::Push(push) = &packed.message else {
                panic!("no push")
            };
            let found = push.values.check(NUMBERS, 1);
            assert_eq!(
                found,
                bad.map_or(Ok(()), |at| Err(ValuesError::NotFinite { at })),
                "cut at {cut}"
            );
        }
    }
}

fn hello() -> Hello {
    Hello {
        peer: Peer::Worker(WorkerId(7)),
        cluster: "digits".into(),
        max_frame: 1 << 20,
    }
}

#[test]
fn a_handshake_survives() {
    for (peer, cluster) in [
        (Peer::Worker(WorkerId(7)), ""),
        (Peer::Server(NodeId(u64::MAX)), "größe"),
    ] {
        let hello = Hello {
            peer,
            cluster: cluster.into(),
            max_frame: 1,
        };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
    let long = Hello {
        cluster: "ö".repeat(40),
        ..hello()
    };
    assert_eq!(
        Hello::decode(&long.encode()).unwrap().cluster,
        "ö".repeat(32)
    );
    assert_eq!(long.accept(&Hello::decode(&long.encode()).unwrap()), Ok(()));
}

#[test]
fn handshakes_that_do_not_fit_are_told_apart() {
    let good = hello().encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = good;
        bytes[at] = byte;
        Hello::decode(&bytes)
    };
    assert_eq!(with(0, b'G'), Err(WireError::NotOurs));
    assert_eq!(with(8, 9), Err(WireError::Version { found: 9 }));
    assert_eq!(with(12, 9), Err(WireError::Handshake));
    let mut http = [0; PREFIX_LEN];
    http.copy_from_slice(b"GET / HTTP");
    assert_eq!(Hello::check_prefix(&http), Err(WireError::NotOurs));
    let other = Hello {
        cluster: "letters".into(),
        ..hello()
    };
    let error = WireError::Cluster {
        found: "letters".into(),
        own: "digits".into(),
    };
    assert_eq!(hello().accept(&other), Err(error));
    let small = Hello {
        max_frame: 1,
        ..hello()
    };
    assert_eq!(
        hello().accept(&small),
        Err(WireError::FrameLimit {
            found: 1,
            own: 1 << 20
        })
    );
    assert_eq!(u16::from_le_bytes([good[8], good[9]]), VERSION);
    assert_eq!(good.len(), HELLO_LEN);
}

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/decode");

/// Written by `cargo run -p parapet-cluster --example fuzz_corpus`, after a change
/// of the format.
#[test]
fn the_fuzzers_corpus_is_of_this_format() {
    let mut kinds = 0;
    for file in std::fs::read_dir(CORPUS).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let (frames, end) = decode(&bytes[1..], &[usize::from(bytes[0]) + 1], LIMITS);
        if path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("kind-")
        {
            assert_eq!((frames.len(), end), (1, Ok(())), "{}", path.display());
            kinds += 1;
        }
    }
    assert_eq!(kinds, 12);
}
