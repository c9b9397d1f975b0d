//! Arbitrary frames.

use parapet_cluster::node::wire::Frame;
use parapet_parameter_server::{
    ArrayId, Clock, Digest, Epoch, KeyRange, Keys, Message, NodeId, Operation, Packed, PackedKeys,
    PackedValues, Pull, PullReply, Push, PushAck, Refusal, Refused, Replicate, ReplicateAck,
    Request, RequestId, Route, Routing, Rows, Seq, ShardRef, Snapshot, SnapshotAck, SnapshotEnd,
    SnapshotPhase, TransferId, Values, ValuesError, WorkerClock, WorkerId,
};
use proptest::prelude::*;

fn range() -> impl Strategy<Value = KeyRange> {
    (any::<u64>(), any::<u64>()).prop_map(|(a, b)| KeyRange::new(a.min(b), a.max(b)))
}

fn shard() -> impl Strategy<Value = ShardRef> {
    (any::<u32>(), range(), any::<u64>()).prop_map(|(array, range, epoch)| ShardRef {
        array: ArrayId(array),
        range,
        epoch: Epoch(epoch),
    })
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(0),
        1usize..20,
        1_000usize..1_100,
        4_090usize..4_100,
        70_000usize..100_000
    ]
}

fn keys() -> impl Strategy<Value = Keys> {
    prop_oneof![
        Just(Keys::All),
        (size(), any::<u64>()).prop_map(|(n, salt)| {
            Keys::List(
                (0..n as u64)
                    .map(|i| i.wrapping_mul(salt | 1))
                    .collect::<Vec<_>>()
                    .into(),
            )
        }),
    ]
}

fn values() -> impl Strategy<Value = Values> {
    (size(), any::<u16>(), 0..3).prop_map(|(n, salt, kind)| {
        let numbers = (0..n).map(|i| (i as u16).wrapping_mul(salt | 1));
        match kind {
            0 => Values::from(numbers.map(f32::from).collect::<Vec<_>>()),
            1 => Values::Bf16(numbers.collect::<Vec<_>>().into()),
            _ => Values::F16(numbers.collect::<Vec<_>>().into()),
        }
    })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    (size(), any::<u8>()).prop_map(|(n, salt)| (0..n).map(|i| (i as u8) ^ salt).collect())
}

fn clocks() -> impl Strategy<Value = Vec<(WorkerId, Clock)>> {
    prop::collection::vec(
        (any::<u64>(), any::<u64>()).prop_map(|(w, c)| (WorkerId(w), Clock(c))),
        0..5,
    )
}

fn refusal() -> impl Strategy<Value = Refusal> {
    (0..13, any::<u64>(), any::<usize>(), any::<usize>()).prop_map(|(kind, n, a, b)| match kind {
        0 => Refusal::WrongEpoch { current: Epoch(n) },
        1 => Refusal::UnknownRange,
        2 => Refusal::NotHead,
        3 => Refusal::NotTail,
        4 => Refusal::UnknownWorker,
        5 => Refusal::Gap { expected: Clock(n) },
        6 => Refusal::BadKeys,
        7 => Refusal::BadValues(ValuesError::Length {
            expected: a,
            found: b,
        }),
        8 => Refusal::BadValues(ValuesError::NotFinite { at: a }),
        9 => Refusal::Stopped,
        10 => Refusal::Busy,
        11 => Refusal::Overflow { key: n },
        _ => Refusal::BadRows,
    })
}

fn request() -> impl Strategy<Value = Request> {
    (0..4, any::<u64>(), any::<u64>(), any::<u32>()).prop_map(|(kind, a, b, part)| match kind {
        0 => Request::Push {
            worker: WorkerId(a),
            clock: Clock(b),
        },
        1 => Request::Pull {
            request: RequestId(a),
        },
        2 => Request::Replicate { seq: Seq(a) },
        _ => Request::Snapshot {
            transfer: TransferId(a),
            part,
        },
    })
}

fn routing() -> impl Strategy<Value = Routing> {
    (
        any::<u64>(),
        prop::collection::vec((1u64..1000, 1u64..5, any::<u64>()), 0..30),
    )
        .prop_map(|(version, parts)| {
            let mut start = 0;
            let routes = parts
                .into_iter()
                .enumerate()
                .map(|(i, (length, chain, salt))| {
                    let range = KeyRange::new(start, start + length);
                    start += length;
                    let chain = (0..chain).map(|i| NodeId(salt.wrapping_add(i))).collect();
                    Route {
                        array: ArrayId(i as u32 % 3),
                        range,
                        epoch: Epoch(salt),
                        chain,
                    }
                });
            Routing::new(version, routes.collect()).unwrap()
        })
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let end = prop::option::of((
        any::<u64>(),
        any::<u64>(),
        prop::collection::vec((any::<u64>(), range(), any::<u64>()), 0..4),
    ));
    (
        shard(),
        any::<u64>(),
        any::<u32>(),
        any::<bool>(),
        (range(), keys(), values(), values(), size()),
        end,
    )
        .prop_map(
            |(at, transfer, part, delta, (range, keys, values, state, steps), end)| Snapshot {
                at,
                transfer: TransferId(transfer),
                part,
                phase: if delta {
                    SnapshotPhase::Delta
                } else {
                    SnapshotPhase::PreCopy
                },
                rows: Rows {
                    range,
                    keys,
                    values,
                    state,
                    steps: (0..steps as u32).collect(),
                },
                end: end.map(|(seq, members, clocks)| SnapshotEnd {
                    seq: Seq(seq),
                    members,
                    clocks: clocks
                        .into_iter()
                        .map(|(worker, range, clock)| WorkerClock {
                            worker: WorkerId(worker),
                            range,
                            clock: Clock(clock),
                        })
                        .collect(),
                }),
            },
        )
}

fn packed_keys() -> impl Strategy<Value = PackedKeys> {
    (
        0..3,
        keys(),
        bytes(),
        any::<u64>(),
        any::<u128>(),
        any::<bool>(),
    )
        .prop_map(
            |(kind, keys, bytes, count, digest, remember)| match (kind, keys) {
                (0, keys @ Keys::List(_)) => PackedKeys::Plain {
                    keys,
                    remember: true,
                },
                (1, _) => PackedKeys::Known {
                    digest: Digest(digest),
                    count,
                },
                _ => PackedKeys::Lz4 {
                    count,
                    bytes: bytes.into(),
                    remember,
                },
            },
        )
}

fn packed_values() -> impl Strategy<Value = PackedValues> {
    (0..3, bytes(), any::<u64>()).prop_map(|(kind, bytes, count)| {
        let bytes = bytes.into();
        match kind {
            0 => PackedValues::Lz4F32 { count, bytes },
            1 => PackedValues::Lz4Bf16 { count, bytes },
            _ => PackedValues::Lz4F16 { count, bytes },
        }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let two = || (any::<u64>(), any::<u64>());
    prop_oneof![
        3 => (shard(), two(), keys(), values())
            .prop_map(|(at, (worker, clock), keys, values)| Message::Push(Push {
            at, worker: WorkerId(worker), clock: Clock(clock), keys, values
        })),
        1 => (shard(), two())
            .prop_map(|(at, (w, c))| Message::PushAck(PushAck { at, worker: WorkerId(w), clock: Clock(c) })),
        1 => (shard(), two(), any::<u64>(), keys())
            .prop_map(|(at, (w, c), request, keys)| Message::Pull(Pull {
            at, worker: WorkerId(w), request: RequestId(request), clock: Clock(c), keys
        })),
        3 => (shard(), prop::option::of(any::<u64>()), two(), keys(), values()).prop_map(
            |(at, request, (clock, own), keys, values)| Message::PullReply(PullReply {
                at, request: request.map(RequestId), clock: Clock(clock), own: Clock(own), keys,
                    values
            })
        ),
        1 => (shard(), any::<u64>(), range(), clocks(), keys(), values())
            .prop_map(|(at, seq, range, clocks, keys, values)| {
            Message::Replicate(Replicate { at, seq: Seq(seq),
                operation: Operation::Update { range, clocks, keys, values } })
        }),
        1 => (shard(), two(), clocks()).prop_map(|(at, (seq, version), workers)| {
            Message::Replicate(Replicate { at, seq: Seq(seq),
                operation: Operation::Members { version, workers } })
        }),
        1 => (shard(), any::<u64>()).prop_map(|(at,
            seq)| Message::ReplicateAck(ReplicateAck { at, seq: Seq(seq) })),
        1 => snapshot().prop_map(Message::Snapshot),
        1 => (shard(), any::<u64>(), any::<u32>())
            .prop_map(|(at, t, part)| Message::SnapshotAck(SnapshotAck { at,
                transfer: TransferId(t), part })),
        1 => routing().prop_map(Message::Routing),
        1 => (shard(), request(), refusal())
            .prop_map(|(at, request, reason)| Message::Refused(Refused { at, request, reason })),
    ]
}

/// Any frame. A message whose keys or values are beside it has none of its own, as
/// `Link` leaves it.
pub(crate) fn frame() -> impl Strategy<Value = Frame> {
    let with_packed = (
        message(),
        prop::option::of(packed_keys()),
        prop::option::of(packed_values()),
    )
        .prop_map(|(mut message, packed_keys, packed_values)| {
            let (keys, values) = match &mut message {
                Message::Push(push) => (&mut push.keys, Some(&mut push.values)),
                Message::PullReply(reply) => (&mut reply.keys, Some(&mut reply.values)),
                _ => return Frame::from(message),
            };
            if packed_keys.is_some() {
                *keys = Keys::All;
            }
            if let (Some(_), Some(values)) = (&packed_values, values) {
                *values = Values::none();
            }
            Frame::Message(Packed {
                message,
                keys: packed_keys,
                values: packed_values,
            })
        });
    prop_oneof![
        1 => Just(Frame::Heartbeat),
        1 => any::<u128>().prop_map(|digest| Frame::Forget(Digest(digest))),
        8 => message().prop_map(Frame::from),
        4 => with_packed,
    ]
}
