//! Frames to heads and sections.

use parapet_parameter_server::{
    Key, Keys, Message, Operation, Packed, PackedKeys, PackedValues, Routing, Rows, Shared,
    Snapshot, SnapshotPhase, Values,
};

use super::Frame;
use super::fields::Put as _;

pub(super) mod tag {
    pub(in super::super) const HEARTBEAT: u8 = 0;
    pub(in super::super) const FORGET: u8 = 1;
    pub(in super::super) const PUSH: u8 = 2;
    pub(in super::super) const PUSH_ACK: u8 = 3;
    pub(in super::super) const PULL: u8 = 4;
    pub(in super::super) const PULL_REPLY: u8 = 5;
    pub(in super::super) const REPLICATE: u8 = 6;
    pub(in super::super) const REPLICATE_ACK: u8 = 7;
    pub(in super::super) const SNAPSHOT: u8 = 8;
    pub(in super::super) const SNAPSHOT_ACK: u8 = 9;
    pub(in super::super) const ROUTING: u8 = 10;
    pub(in super::super) const REFUSED: u8 = 11;
}

/// Large part of a message, as it lies in memory.
#[derive(Debug)]
pub(super) enum Section {
    Words(Vec<u64>),
    Keys(Shared<Key>),
    Values(Values),
    Bytes(Shared<u8>),
    Steps(Vec<u32>),
}

impl Section {
    pub(super) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Words(words) => bytemuck::cast_slice(words),
            Self::Keys(keys) => keys.as_bytes(),
            Self::Values(values) => values.as_bytes(),
            Self::Bytes(bytes) => bytes,
            Self::Steps(steps) => bytemuck::cast_slice(steps),
        }
    }
}

/// About how many bytes a frame takes, in memory and on the wire.
pub(super) fn cost(frame: &Frame) -> usize {
    let Frame::Message(Packed {
        message,
        keys,
        values,
    }) = frame
    else {
        return super::HEADER_LEN + super::SUM_LEN;
    };
    let (own_keys, own_values) = match message {
        Message::Push(push) => (Some(&push.keys), Some(&push.values)),
        Message::Pull(pull) => (Some(&pull.keys), None),
        Message::PullReply(reply) => (Some(&reply.keys), Some(&reply.values)),
        Message::Replicate(entry) => match &entry.operation {
            Operation::Update { keys, values, .. } => (Some(keys), Some(values)),
            Operation::Members { .. } => (None, None),
        },
        Message::Snapshot(piece) => (Some(&piece.rows.keys), Some(&piece.rows.values)),
        _ => (None, None),
    };
    let list = |keys: &Keys| match keys {
        Keys::All => 0,
        Keys::List(keys) => size_of_val::<[Key]>(keys),
    };
    let keys = match keys {
        Some(PackedKeys::Plain { keys, .. }) => list(keys),
        Some(PackedKeys::Lz4 { bytes, .. }) => bytes.len(),
        Some(PackedKeys::Known { .. }) | None => own_keys.map_or(0, list),
    };
    let values = match values {
        Some(PackedValues::Plain(values)) => values.as_bytes().len(),
        Some(
            PackedValues::Lz4F32 { bytes, .. }
            | PackedValues::Lz4Bf16 { bytes, .. }
            | PackedValues::Lz4F16 { bytes, .. },
        ) => bytes.len(),
        None => own_values.map_or(0, |values| values.as_bytes().len()),
    };
    let rest = match message {
        Message::Snapshot(piece) => {
            let clocks = piece
                .end
                .as_ref()
                .map_or(0, |end| size_of_val(&end.clocks[..]));
            piece.rows.state.as_bytes().len() + size_of_val(&piece.rows.steps[..]) + clocks
        }
        Message::Routing(routing) => routing
            .routes()
            .iter()
            .map(|route| 40 + 8 * route.chain.len())
            .sum(),
        Message::Replicate(entry) => match &entry.operation {
            Operation::Update { clocks, .. } => size_of_val(&clocks[..]),
            Operation::Members { workers, .. } => size_of_val(&workers[..]),
        },
        _ => 0,
    };
    super::HEADER_LEN + super::SUM_LEN + 64 + keys + values + rest
}

/// Appends the frame's head to `head` and its sections to `sections`.
pub(super) fn encode(frame: Frame, head: &mut Vec<u8>, sections: &mut Vec<Section>) {
    match frame {
        Frame::Heartbeat => head.u8(tag::HEARTBEAT),
        Frame::Forget(digest) => {
            head.u8(tag::FORGET);
            head.digest(digest);
        }
        Frame::Message(packed) => Writer { head, sections }.message(packed),
    }
}

struct Writer<'a> {
    head: &'a mut Vec<u8>,
    sections: &'a mut Vec<Section>,
}

impl Writer<'_> {
    fn message(
        &mut self,
        Packed {
            message,
            keys,
            values,
        }: Packed,
    ) {
        let plain = |own| {
            keys.unwrap_or(PackedKeys::Plain {
                keys: own,
                remember: false,
            })
        };
        let plain_values = |own| values.unwrap_or(PackedValues::Plain(own));
        match message {
            Message::Push(push) => {
                self.head.u8(tag::PUSH);
                self.head.shard(push.at);
                self.head.u64(push.worker.0);
                self.head.u64(push.clock.0);
                self.keys(plain(push.keys));
                self.values(plain_values(push.values));
            }
            Message::PushAck(ack) => {
                self.head.u8(tag::PUSH_ACK);
                self.head.shard(ack.at);
                self.head.u64(ack.worker.0);
                self.head.u64(ack.clock.0);
            }
            Message::Pull(pull) => {
                self.head.u8(tag::PULL);
                self.head.shard(pull.at);
                self.head.u64(pull.worker.0);
                self.head.u64(pull.request.0);
                self.head.u64(pull.clock.0);
                self.keys(plain(pull.keys));
            }
            Message::PullReply(reply) => {
                self.head.u8(tag::PULL_REPLY);
                self.head.shard(reply.at);
                self.head.u8(u8::from(reply.request.is_some()));
                self.head.u64(reply.request.unwrap_or_default().0);
                self.head.u64(reply.clock.0);
                self.head.u64(reply.own.0);
                self.keys(plain(reply.keys));
                self.values(plain_values(reply.values));
            }
            Message::Replicate(entry) => {
                self.head.u8(tag::REPLICATE);
                self.head.shard(entry.at);
                self.head.u64(entry.seq.0);
                match entry.operation {
                    Operation::Update {
                        range,
                        clocks,
                        keys: own,
                        values: numbers,
                    } => {
                        self.head.u8(0);
                        self.head.range(range);
                        self.words(
                            clocks
                                .iter()
                                .flat_map(|(worker, clock)| [worker.0, clock.0])
                                .collect(),
                        );
                        self.keys(plain(own));
                        self.values(plain_values(numbers));
                    }
                    Operation::Members { version, workers } => {
                        self.head.u8(1);
                        self.head.u64(version);
                        self.words(
                            workers
                                .iter()
                                .flat_map(|(worker, clock)| [worker.0, clock.0])
                                .collect(),
                        );
                    }
                }
            }
            Message::ReplicateAck(ack) => {
                self.head.u8(tag::REPLICATE_ACK);
                self.head.shard(ack.at);
                self.head.u64(ack.seq.0);
            }
            Message::Snapshot(piece) => self.snapshot(piece),
            Message::SnapshotAck(ack) => {
                self.head.u8(tag::SNAPSHOT_ACK);
                self.head.shard(ack.at);
                self.head.u64(ack.transfer.0);
                self.head.u32(ack.part);
            }
            Message::Routing(routing) => self.routing(&routing),
            Message::Refused(refused) => {
                self.head.u8(tag::REFUSED);
                self.head.shard(refused.at);
                self.head.request(refused.request);
                self.head.refusal(refused.reason);
            }
        }
    }

    fn snapshot(&mut self, piece: Snapshot) {
        let Snapshot {
            at,
            transfer,
            part,
            phase,
            rows,
            end,
        } = piece;
        let Rows {
            range,
            keys,
            values,
            state,
            steps,
        } = rows;
        self.head.u8(tag::SNAPSHOT);
        self.head.shard(at);
        self.head.u64(transfer.0);
        self.head.u32(part);
        self.head.u8(u8::from(phase == SnapshotPhase::Delta));
        self.head.range(range);
        self.head.u8(u8::from(end.is_some()));
        if let Some(end) = end {
            self.head.u64(end.seq.0);
            self.head.u64(end.members);
            let clocks = end.clocks.iter();
            self.words(
                clocks
                    .flat_map(|c| [c.worker.0, c.range.start, c.range.end, c.clock.0])
                    .collect(),
            );
        }
        self.keys(PackedKeys::Plain {
            keys,
            remember: false,
        });
        self.values(PackedValues::Plain(values));
        self.values(PackedValues::Plain(state));
        self.head.count(steps.len());
        self.sections.push(Section::Steps(steps));
    }

    fn routing(&mut self, routing: &Routing) {
        self.head.u8(tag::ROUTING);
        self.head.u64(routing.version());
        let mut words = Vec::new();
        for route in routing.routes() {
            let chain = route.chain.len() as u64;
            words.extend([
                route.array.0.into(),
                route.range.start,
                route.range.end,
                route.epoch.0,
                chain,
            ]);
            words.extend(route.chain.iter().map(|node| node.0));
        }
        self.words(words);
    }

    fn words(&mut self, words: Vec<u64>) {
        self.head.count(words.len());
        self.sections.push(Section::Words(words));
    }

    fn keys(&mut self, keys: PackedKeys) {
        match keys {
            PackedKeys::Plain {
                keys: Keys::All, ..
            } => self.head.u8(0),
            PackedKeys::Plain {
                keys: Keys::List(keys),
                remember,
            } => {
                self.head.u8(1 + u8::from(remember));
                self.head.count(keys.len());
                self.sections.push(Section::Keys(keys));
            }
            PackedKeys::Known { digest, count } => {
                self.head.u8(3);
                self.head.digest(digest);
                self.head.u64(count);
            }
            PackedKeys::Lz4 {
                count,
                bytes,
                remember,
            } => {
                self.head.u8(4 + u8::from(remember));
                self.head.u64(count);
                self.bytes(bytes);
            }
        }
    }

    fn values(&mut self, values: PackedValues) {
        let (kind, count, bytes) = match values {
            PackedValues::Plain(values) => {
                let kind = match &values {
                    Values::F32(_) => 0,
                    Values::Bf16(_) => 1,
                    Values::F16(_) => 2,
                };
                self.head.u8(kind);
                self.head.count(values.len());
                self.sections.push(Section::Values(values));
                return;
            }
            PackedValues::Lz4F32 { count, bytes } => (3, count, bytes),
            PackedValues::Lz4Bf16 { count, bytes } => (4, count, bytes),
            PackedValues::Lz4F16 { count, bytes } => (5, count, bytes),
        };
        self.head.u8(kind);
        self.head.u64(count);
        self.bytes(bytes);
    }

    fn bytes(&mut self, bytes: Shared<u8>) {
        self.head.count(bytes.len());
        self.sections.push(Section::Bytes(bytes));
    }
}
