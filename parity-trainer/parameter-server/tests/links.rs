//! Filters of messages: what is unpacked is what was packed, also when messages are lost and lists
//! forgotten.

#![allow(clippy::unwrap_used, reason = "tests")]

use parapet_parameter_server::{
    ArrayFilters, ArrayId, Bytes, Clock, Digest, Epoch, Filter, Key, KeyRange, Keys, Link,
    LinkLimits, Message, Operation, Packed, PackedKeys, PackedValues, Pull, PullReply, Push,
    PushAck, Replicate, RequestId, Seq, ShardRef, UnpackError, Values, WorkerId,
};
use proptest::prelude::*;

const ARRAY: ArrayId = ArrayId(1);
const RANGE: KeyRange = KeyRange::new(100, 1_000_000);
const AT: ShardRef = ShardRef {
    array: ARRAY,
    range: RANGE,
    epoch: Epoch(4),
};

fn push(keys: Keys, values: Values) -> Message {
    Message::Push(Push {
        at: AT,
        worker: WorkerId(2),
        clock: Clock(9),
        keys,
        values,
    })
}

/// One of eight lists, short and long: the same number always gives the same list.
fn list(which: u64) -> Keys {
    let step = 1 + which * 37;
    Keys::List(
        (0..which * which * 6)
            .map(|i| RANGE.start + i * step)
            .collect::<Vec<Key>>()
            .into(),
    )
}

fn values() -> impl Strategy<Value = Values> {
    let bits = || prop::collection::vec(0x3c00u16..0x3d00, 0..300);
    prop_oneof![
        prop::collection::vec(-1f32..1.0, 0..200).prop_map(Values::from),
        prop::collection::vec((-3i8..3).prop_map(f32::from), 0..200).prop_map(Values::from),
        bits().prop_map(|bits| Values::Bf16(bits.into())),
        bits().prop_map(|bits| Values::F16(bits.into())),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let keys = prop_oneof![1 => Just(Keys::All), 4 => (0u64..8).prop_map(list)];
    (0..5, keys, values()).prop_map(|(kind, keys, values)| match kind {
        0 => push(keys, values),
        1 => Message::Pull(Pull {
            at: AT,
            worker: WorkerId(2),
            request: RequestId(7),
            clock: Clock(9),
            keys,
        }),
        2 => Message::PullReply(PullReply {
            at: AT,
            request: None,
            clock: Clock(8),
            own: Clock(9),
            keys,
            values,
        }),
        3 => {
            let clocks = vec![(WorkerId(2), Clock(9))];
            let operation = Operation::Update {
                range: RANGE,
                clocks,
                keys,
                values,
            };
            Message::Replicate(Replicate {
                at: AT,
                seq: Seq(3),
                operation,
            })
        }
        _ => Message::PushAck(PushAck {
            at: AT,
            worker: WorkerId(2),
            clock: Clock(9),
        }),
    })
}

fn link(key_lists: bool, lz4: bool, limits: LinkLimits) -> Link {
    Link::new(
        limits,
        [(
            ARRAY,
            ArrayFilters {
                key_lists,
                lz4,
                ..ArrayFilters::default()
            },
        )],
    )
}

proptest! {
    /// Messages both ways, of which any may be lost, between ends that remember different numbers
    /// of lists: each arrives as it was, at the latest when the list that was missed has been sent.
    #[test]
    fn what_is_unpacked_is_what_was_packed(
        messages in prop::collection::vec((message(), any::<bool>(), prop::bool::weighted(0.3)),
            1..40),
        key_lists: bool,
        lz4: bool,
        lists in 0usize..6,
        others in 0usize..6,
    ) {
        let ends = |lists| {
            link(
                key_lists,
                lz4,
                LinkLimits {
                    lists,
                    ..LinkLimits::default()
                },
            )
        };
        let mut ends = [ends(lists), ends(others)];
        for (message, is_back, is_lost) in messages {
            if is_back {
                ends.swap(0, 1);
            }
            let [sender, receiver] = &mut ends;
            let packed = sender.pack(message.clone());
            if !is_lost {
                let unpacked = match receiver.unpack(packed) {
                    Err(UnpackError::UnknownKeys { digest }) => {
                        sender.forget(digest);
                        let again = sender.pack(message.clone());
                        receiver.unpack(again)
                    }
                    other => other,
                };
                prop_assert_eq!(unpacked.unwrap(), message);
            }
            if is_back {
                ends.swap(0, 1);
            }
        }
        for (_, _, bytes) in ends.iter().flat_map(|link| link.traffic().iter()) {
            prop_assert!(bytes.after <= bytes.before);
        }
    }

    /// Whatever comes over the network: an error or some numbers, no more memory than the limit,
    /// and no panic.
    #[test]
    fn broken_blocks_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..80),
        count in prop_oneof![0u64..400, any::<u64>()],
        kind in 0..4,
    ) {
        let mut end = link(
            true,
            true,
            LinkLimits {
                bytes: 1_000,
                ..LinkLimits::default()
            },
        );
        let message = push(Keys::none(), Values::none());
        let bytes = bytes.into();
        let (keys, values) = match kind {
            0 => (
                Some(PackedKeys::Lz4 {
                    count,
                    bytes,
                    remember: true,
                }),
                None,
            ),
            1 => (None, Some(PackedValues::Lz4F32 { count, bytes })),
            2 => (None, Some(PackedValues::Lz4Bf16 { count, bytes })),
            _ => (None, Some(PackedValues::Lz4F16 { count, bytes })),
        };
        match end.unpack(Packed {
            message,
            keys,
            values,
        }) {
            Ok(Message::Push(push)) => {
                prop_assert!(
                    push.values.as_bytes().len() <= 1_000 && push.keys.len(RANGE) * 8 <= 1_000
                );
            }
            Ok(other) => prop_assert!(false, "{other:?}"),
            Err(UnpackError::TooLong { length, limit }) => {
                prop_assert!(length > limit && limit == 1_000)
            }
            Err(UnpackError::Corrupt) => {}
            Err(error) => prop_assert!(false, "{error}"),
        }
    }
}

#[test]
fn a_list_is_sent_once_in_either_direction() {
    let mut worker = link(true, false, LinkLimits::default());
    let mut server = link(true, false, LinkLimits::default());
    let keys = list(5);
    let bytes = keys.len(RANGE) as u64 * 8;
    let values = Values::from(vec![1.5; keys.len(RANGE)]);
    for _ in 0..3 {
        let packed = worker.pack(push(keys.clone(), values.clone()));
        assert_eq!(
            server.unpack(packed).unwrap(),
            push(keys.clone(), values.clone())
        );
    }
    assert_eq!(
        worker.traffic().of(ARRAY, Filter::KeyLists),
        Bytes {
            before: 3 * bytes,
            after: bytes + 48
        }
    );
    let reply = Message::PullReply(PullReply {
        at: AT,
        request: None,
        clock: Clock(1),
        own: Clock(1),
        keys: keys.clone(),
        values,
    });
    let packed = server.pack(reply.clone());
    assert!(matches!(packed.keys, Some(PackedKeys::Known { .. })));
    assert_eq!(worker.unpack(packed).unwrap(), reply);
    assert_eq!(
        server.traffic().of(ARRAY, Filter::KeyLists),
        Bytes {
            before: bytes,
            after: 24
        }
    );
}

#[test]
fn a_new_server_asks_for_the_list() {
    let mut worker = link(true, true, LinkLimits::default());
    let message = push(list(4), Values::none());
    worker.pack(message.clone());
    let mut server = link(true, true, LinkLimits::default());
    let Err(UnpackError::UnknownKeys { digest }) = server.unpack(worker.pack(message.clone()))
    else {
        unreachable!("a list that was never sent")
    };
    worker.forget(digest);
    assert_eq!(
        server.unpack(worker.pack(message.clone())).unwrap(),
        message
    );
    let wrong = Packed {
        message,
        keys: Some(PackedKeys::Known { digest, count: 3 }),
        values: None,
    };
    assert_eq!(
        server.unpack(wrong),
        Err(UnpackError::UnknownKeys { digest }),
        "of another length"
    );
    worker.forget(Digest(0));
}

#[test]
fn numbers_of_one_size_shrink_and_noise_is_left_alone() {
    let mut end = link(false, true, LinkLimits::default());
    // Gradients of about one size: their signs and exponents say little. Keys in steps say nothing.
    let smooth: Vec<f32> = (0..4096_u16).map(|i| 1.0 + f32::from(i) * 1e-5).collect();
    let keys: Vec<Key> = (0..4096).map(|i| RANGE.start + 3 * i).collect();
    let packed = end.pack(push(Keys::List(keys.into()), smooth.into()));
    assert!(matches!(packed.keys, Some(PackedKeys::Lz4 { ref bytes, .. }) if bytes.len() < 400));
    assert!(matches!(packed.values, Some(PackedValues::Lz4F32 { .. })));
    let bytes = end.traffic().of(ARRAY, Filter::Lz4);
    assert_eq!(bytes.before, 4096 * 12);
    assert!(bytes.after < bytes.before / 2, "{bytes:?}");

    let mut state = 1_u32;
    let noise: Vec<f32> = (0..64)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f32::from_bits(state & 0xbf7f_ffff)
        })
        .collect();
    let values = Values::from(noise);
    let packed = end.pack(push(Keys::All, values.clone()));
    let Some(PackedValues::Plain(left)) = packed.values else {
        unreachable!("noise does not shrink")
    };
    assert_eq!(left.as_bytes().as_ptr(), values.as_bytes().as_ptr());
}
