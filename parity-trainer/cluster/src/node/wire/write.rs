//! Frames to heads and sections.

use parapet_parameter_server::{
    Clock, Key, Keys, Message, Operation, Packed, PackedKeys, PackedValues, Routing, Rows,
    ShardRef, Shared, Snapshot, SnapshotPhase, Values, WorkerId,
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
        Frame::Message(packed) => Writer {
            head,
            sections,
            keys: packed.keys,
            values: packed.values,
        }
        .message(packed.message),
    }
}

struct Writer<'a> {
    head: &'a mut Vec<u8>,
    sections: &'a mut Vec<Section>,
    /// The message's keys, where they are packed.
    keys: Option<PackedKeys>,
    /// The message's values, where they are packed.
    values: Option<PackedValues>,
}

impl Writer<'_> {
    fn message(&mut self, message: Message) {
        match message {
            Message::Push(push) => {
                self.shard(tag::PUSH, push.at);
                self.u64s([push.worker.0, push.clock.0]);
                self.keys(push.keys);
                self.values(push.values);
            }
            Message::PushAck(ack) => {
                self.shard(tag::PUSH_ACK, ack.at);
                self.u64s([ack.worker.0, ack.clock.0]);
            }
            Message::Pull(pull) => {
                self.shard(tag::PULL, pull.at);
                self.u64s([pull.worker.0, pull.request.0, pull.clock.0]);
                self.keys(pull.keys);
            }
            Message::PullReply(reply) => {
                self.shard(tag::PULL_REPLY, reply.at);
                self.head.u8(u8::from(reply.request.is_some()));
                let request = reply.request.unwrap_or_default();
                self.u64s([request.0, reply.clock.0, reply.own.0]);
                self.keys(reply.keys);
                self.values(reply.values);
            }
            Message::Replicate(entry) => {
                self.shard(tag::REPLICATE, entry.at);
                self.head.u64(entry.seq.0);
                self.operation(entry.operation);
            }
            Message::ReplicateAck(ack) => {
                self.shard(tag::REPLICATE_ACK, ack.at);
                self.head.u64(ack.seq.0);
            }
            Message::Snapshot(piece) => self.snapshot(piece),
            Message::SnapshotAck(ack) => {
                self.shard(tag::SNAPSHOT_ACK, ack.at);
                self.head.u64(ack.transfer.0);
                self.head.u32(ack.part);
            }
            Message::Routing(routing) => self.routing(&routing),
            Message::Refused(refused) => {
                self.shard(tag::REFUSED, refused.at);
                self.head.request(refused.request);
                self.head.refusal(refused.reason);
            }
        }
    }

    fn shard(&mut self, tag: u8, at: ShardRef) {
        self.head.u8(tag);
        self.head.shard(at);
    }

    fn u64s<const N: usize>(&mut self, numbers: [u64; N]) {
        numbers.iter().for_each(|&number| self.head.u64(number));
    }

    fn operation(&mut self, operation: Operation) {
        match operation {
            Operation::Update {
                range,
                clocks,
                keys,
                values,
            } => {
                self.head.u8(0);
                self.head.range(range);
                self.clocks(&clocks);
                self.keys(keys);
                self.values(values);
            }
            Operation::Members { version, workers } => {
                self.head.u8(1);
                self.head.u64(version);
                self.clocks(&workers);
            }
        }
    }

    fn clocks(&mut self, clocks: &[(WorkerId, Clock)]) {
        let words = clocks.iter();
        self.words(
            words
                .flat_map(|(worker, clock)| [worker.0, clock.0])
                .collect(),
        );
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
        self.shard(tag::SNAPSHOT, at);
        self.head.u64(transfer.0);
        self.head.u32(part);
        self.head.u8(u8::from(phase == SnapshotPhase::Delta));
        self.head.range(range);
        self.head.u8(u8::from(end.is_some()));
        if let Some(end) = end {
            self.u64s([end.seq.0, end.members]);
            let clocks = end.clocks.iter();
            self.words(
                clocks
                    .flat_map(|c| [c.worker.0, c.range.start, c.range.end, c.clock.0])
                    .collect(),
            );
        }
        self.keys(keys);
        self.values(values);
        self.values(state);
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

    /// Writes keys, or what they are packed into.
    fn keys(&mut self, keys: Keys) {
        let remember = false;
        let plain = PackedKeys::Plain { keys, remember };
        match self.keys.take().unwrap_or(plain) {
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

    /// Writes values, or what they are packed into.
    fn values(&mut self, values: Values) {
        let plain = PackedValues::Plain(values);
        let (kind, count, bytes) = match self.values.take().unwrap_or(plain) {
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
