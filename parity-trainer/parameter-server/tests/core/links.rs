//! Filters of messages: what is unpacked is what was packed, also when messages are lost and lists
//! forgotten.

use crate::support::*;

const RANGE: KeyRange = KeyRange::new(100, 1_000_000);

fn at() -> ShardRef {
    shard(RANGE.start, RANGE.end, 4)
}

fn push(keys: Keys, values: Values) -> Message {
    Message::Push(push_rows(at(), 2, 9, keys, values))
}

fn reply(keys: Keys, values: Values) -> Message {
    Message::PullReply(PullReply {
        at: at(),
        request: None,
        clock: Clock(8),
        own: Clock(9),
        held_us: 0,
        keys,
        values,
    })
}

/// One of eight lists, short and long: the same number always gives the same list.
fn numbered(which: u64) -> Keys {
    list((0..which * which * 6).map(|i| RANGE.start + i * (1 + which * 37)))
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
    let keys = prop_oneof![1 => Just(Keys::All), 4 => (0u64..8).prop_map(numbered)];
    (0..5, keys, values()).prop_map(|(kind, keys, values)| match kind {
        0 => push(keys, values),
        1 => Message::Pull(Pull {
            at: at(),
            worker: WorkerId(2),
            request: RequestId(7),
            clock: Clock(9),
            held: Clock(0),
            keys,
        }),
        2 => reply(keys, values),
        3 => update(3, &[2], keys, values),
        _ => push_ack(at(), 2, 9),
    })
}

fn link(key_lists: bool, lz4: bool, limits: LinkLimits) -> Link {
    let filters = ArrayFilters { key_lists, lz4, ..ArrayFilters::default() };
    let mut link = Link::new(limits, [(ARRAY, filters)]);
    // Known already: it stays as it is.
    link.define(ARRAY, ArrayFilters::default());
    link
}

fn bytes_of(traffic: &Traffic, filter: Filter) -> (u64, u64) {
    let bytes = traffic.of(ARRAY, filter);
    (bytes.before, bytes.after)
}

proptest! {
    /// Messages both ways, of which any may be lost, between ends that remember different numbers
    /// of lists: each arrives as it was, at the latest when the list that was missed has been sent.
    #[test]
    fn unpacked_message_is_the_packed_one(
        messages in prop::collection::vec((message(), any::<bool>(), prop::bool::weighted(0.3)),
            1..40),
        key_lists: bool,
        lz4: bool,
        lists in prop::array::uniform2(0usize..6),
    ) {
        let end = |lists| link(key_lists, lz4, LinkLimits { lists, ..LinkLimits::default() });
        let mut ends = lists.map(end);
        for (message, is_back, is_lost) in messages {
            let [mut sender, mut receiver] = ends.each_mut();
            if is_back {
                std::mem::swap(&mut sender, &mut receiver);
            }
            let packed = sender.pack(message.clone());
            if is_lost {
                continue;
            }
            let mut unpacked = receiver.unpack(packed);
            if let Err(UnpackError::UnknownKeys { digest }) = unpacked {
                sender.forget(digest);
                unpacked = receiver.unpack(sender.pack(message.clone()));
            }
            prop_assert_eq!(unpacked.unwrap(), message);
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
        kind in 0usize..4,
    ) {
        let mut end = link(true, true, LinkLimits { bytes: 1_000, ..LinkLimits::default() });
        let bytes = bytes.into();
        let (mut keys, mut values) = (None, None);
        match kind {
            0 => keys = Some(PackedKeys::Lz4 { count, bytes, remember: true }),
            kind => {
                let precision = [Precision::F32, Precision::Bf16, Precision::F16][kind - 1];
                values = Some(PackedValues::Lz4 { precision, count, bytes });
            }
        }
        let message = push(Keys::none(), Values::none());
        match end.unpack(Packed { message, keys, values }) {
            Ok(Message::Push(push)) => {
                prop_assert!(push.values.as_bytes().len() <= 1_000);
                prop_assert!(push.keys.len(RANGE) * 8 <= 1_000);
            }
            Err(UnpackError::TooLong { length, limit }) => {
                prop_assert!(length > limit && limit == 1_000)
            }
            Err(UnpackError::Corrupt) => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }
}

#[test]
fn list_is_sent_once_in_either_direction() {
    let [mut worker, mut server] = [(); 2].map(|()| link(true, false, LinkLimits::default()));
    let keys = numbered(5);
    let bytes = keys.len(RANGE) as u64 * 8;
    let values = Values::from(vec![1.5; keys.len(RANGE)]);
    let message = push(keys.clone(), values.clone());
    for _ in 0..3 {
        assert_eq!(server.unpack(worker.pack(message.clone())).unwrap(), message);
    }
    assert_eq!(bytes_of(worker.traffic(), Filter::KeyLists), (3 * bytes, bytes + 48));
    assert_eq!(bytes_of(server.received(), Filter::KeyLists), (2 * bytes, 48));
    let reply = reply(keys, values);
    let packed = server.pack(reply.clone());
    assert!(matches!(packed.keys, Some(PackedKeys::Known { .. })));
    assert_eq!(worker.unpack(packed).unwrap(), reply);
    assert_eq!(bytes_of(server.traffic(), Filter::KeyLists), (bytes, 24));
}

#[test]
fn new_server_asks_for_the_list() {
    let [mut worker, mut server] = [(); 2].map(|()| link(true, true, LinkLimits::default()));
    let message = push(numbered(4), Values::none());
    worker.pack(message.clone());
    let Err(UnpackError::UnknownKeys { digest }) = server.unpack(worker.pack(message.clone()))
    else {
        unreachable!("a list that was never sent")
    };
    worker.forget(digest);
    assert_eq!(server.unpack(worker.pack(message.clone())).unwrap(), message);
    let keys = Some(PackedKeys::Known { digest, count: 3 });
    let values = None;
    let wrong = server.unpack(Packed { message, keys, values });
    assert_eq!(wrong, Err(UnpackError::UnknownKeys { digest }), "of another length");
    worker.forget(Digest(0));
}

#[test]
fn numbers_of_one_size_shrink_and_noise_is_left_alone() {
    let [mut end, mut other] = [(); 2].map(|()| link(false, true, LinkLimits::default()));
    // Gradients of about one size: their signs and exponents say little. Keys in steps say nothing.
    let smooth: Vec<f32> = (0..4096_u16).map(|i| 1.0 + f32::from(i) * 1e-5).collect();
    let packed = end.pack(push(list((0..4096).map(|i| RANGE.start + 3 * i)), smooth.into()));
    assert!(matches!(packed.keys, Some(PackedKeys::Lz4 { ref bytes, .. }) if bytes.len() < 400));
    assert!(matches!(packed.values, Some(PackedValues::Lz4 { .. })));
    let (before, after) = bytes_of(end.traffic(), Filter::Lz4);
    assert!(before == 4096 * 12 && after < before / 2, "{after}");
    other.unpack(packed).unwrap();
    assert_eq!(bytes_of(other.received(), Filter::Lz4), (before, after));

    let mut state = 1_u32;
    let noise = (0..64).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from_bits(state & 0xbf7f_ffff)
    });
    let values = Values::from(noise.collect::<Vec<f32>>());
    let packed = end.pack(push(Keys::All, values.clone()));
    let Some(PackedValues::Plain(left)) = packed.values else {
        unreachable!("noise does not shrink")
    };
    assert_eq!(left.as_bytes().as_ptr(), values.as_bytes().as_ptr());
}

#[test]
fn factors_are_counted_at_both_ends_and_not_compressed() {
    let [mut end, mut other] = [(); 2].map(|()| link(false, true, LinkLimits::default()));
    let factors = Factors::new(1, &[1.0; 40], &[2.0; 50]);
    let packed = end.pack(push(Keys::All, Values::Factors(factors)));
    assert!(matches!(packed.values, Some(PackedValues::Plain(_))));
    other.unpack(packed).unwrap();
    for counted in [end.traffic(), other.received()] {
        assert_eq!(bytes_of(counted, Filter::Factors), (40 * 50 * 4, 90 * 4));
    }
}

#[test]
fn rounded_numbers_are_counted_where_they_arrive() {
    let mut end = link(false, false, LinkLimits::default());
    let message = push(Keys::All, Values::Bf16(vec![0; 5].into()));
    let packed = end.pack(message);
    end.unpack(packed.clone()).unwrap();
    assert_eq!(bytes_of(end.received(), Filter::Precision), (20, 10));
    // Arrays that are not known here are not counted: a peer may name any.
    let mut other = Link::new(LinkLimits::default(), []);
    other.unpack(packed).unwrap();
    assert_eq!(other.received().iter().count(), 0);
}
