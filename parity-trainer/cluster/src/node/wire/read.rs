//! Heads and sections to frames.
//!
//! A head is read twice by the same code: once to learn which sections follow, and once, when they
//! are there, to make the frame of them.

use parapet_parameter_server::{
    ArrayId, Clock, Epoch, Key, Keys, Message, NodeId, Operation, Packed, PackedKeys, PackedValues,
    Pull, PullReply, Push, PushAck, Refused, Replicate, ReplicateAck, RequestId, Route, Routing,
    Rows, Seq, Shared, Snapshot, SnapshotAck, SnapshotEnd, SnapshotPhase, TransferId, Values,
    WorkerClock, WorkerId,
};

use super::fields::{Fields, key_range};
use super::write::tag;
use super::{Frame, WireError};

/// The numbers of a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    U64,
    U32,
    F32,
    U16,
    U8,
}

impl Kind {
    /// Bytes of one.
    pub(super) const fn size(self) -> usize {
        match self {
            Self::U64 => 8,
            Self::U32 | Self::F32 => 4,
            Self::U16 => 2,
            Self::U8 => 1,
        }
    }
}

/// Where sections come from, in the order in which the head names them.
pub(super) trait Source {
    /// True if they are still to come: what it gives is empty.
    const IS_PLAN: bool = false;

    fn u64s(&mut self, count: usize) -> Shared<u64>;
    fn u32s(&mut self, count: usize) -> Shared<u32>;
    fn f32s(&mut self, count: usize) -> Shared<f32>;
    fn u16s(&mut self, count: usize) -> Shared<u16>;
    fn u8s(&mut self, count: usize) -> Shared<u8>;
}

/// Notes what is asked for.
#[derive(Debug, Default)]
pub(super) struct Plan(pub(super) Vec<(Kind, usize)>);

impl Source for Plan {
    const IS_PLAN: bool = true;

    fn u64s(&mut self, count: usize) -> Shared<u64> {
        self.0.push((Kind::U64, count));
        Shared::default()
    }

    fn u32s(&mut self, count: usize) -> Shared<u32> {
        self.0.push((Kind::U32, count));
        Shared::default()
    }

    fn f32s(&mut self, count: usize) -> Shared<f32> {
        self.0.push((Kind::F32, count));
        Shared::default()
    }

    fn u16s(&mut self, count: usize) -> Shared<u16> {
        self.0.push((Kind::U16, count));
        Shared::default()
    }

    fn u8s(&mut self, count: usize) -> Shared<u8> {
        self.0.push((Kind::U8, count));
        Shared::default()
    }
}

/// Sections one after another in one slice, each copied into a vector of its own.
#[derive(Debug)]
pub(super) struct Slice<'a>(pub(super) &'a [u8]);

impl Slice<'_> {
    fn take<T: bytemuck::Pod>(&mut self, count: usize) -> Shared<T> {
        let end = count.saturating_mul(size_of::<T>()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(end);
        self.0 = rest;
        bytemuck::allocation::pod_collect_to_vec::<u8, T>(bytes).into()
    }
}

impl Source for Slice<'_> {
    fn u64s(&mut self, count: usize) -> Shared<u64> {
        self.take(count)
    }

    fn u32s(&mut self, count: usize) -> Shared<u32> {
        self.take(count)
    }

    fn f32s(&mut self, count: usize) -> Shared<f32> {
        self.take(count)
    }

    fn u16s(&mut self, count: usize) -> Shared<u16> {
        self.take(count)
    }

    fn u8s(&mut self, count: usize) -> Shared<u8> {
        self.take(count)
    }
}

pub(super) fn frame<S: Source>(head: &[u8], source: &mut S) -> Result<Frame, WireError> {
    let mut reader = Reader {
        fields: Fields(head),
        source,
        keys: None,
        values: None,
    };
    let frame = reader.frame()?;
    if !reader.fields.0.is_empty() {
        return Err(WireError::Malformed("a head that is too long"));
    }
    Ok(frame)
}

struct Reader<'a, S> {
    fields: Fields<'a>,
    source: &'a mut S,
    /// The message's keys, where they are packed.
    keys: Option<PackedKeys>,
    /// The message's values, where they are packed.
    values: Option<PackedValues>,
}

impl<S: Source> Reader<'_, S> {
    fn frame(&mut self) -> Result<Frame, WireError> {
        let message = match self.fields.u8()? {
            tag::HEARTBEAT => return Ok(Frame::Heartbeat),
            tag::FORGET => return Ok(Frame::Forget(self.fields.digest()?)),
            kind => self.message(kind)?,
        };
        Ok(Frame::Message(Packed {
            message,
            keys: self.keys.take(),
            values: self.values.take(),
        }))
    }

    /// Fields are read in the order in which they are written.
    fn message(&mut self, kind: u8) -> Result<Message, WireError> {
        let fields = &mut self.fields;
        Ok(match kind {
            tag::PUSH => Message::Push(Push {
                at: fields.shard()?,
                worker: WorkerId(fields.u64()?),
                clock: Clock(fields.u64()?),
                keys: self.keys()?,
                values: self.values()?,
            }),
            tag::PUSH_ACK => Message::PushAck(PushAck {
                at: fields.shard()?,
                worker: WorkerId(fields.u64()?),
                clock: Clock(fields.u64()?),
            }),
            tag::PULL => Message::Pull(Pull {
                at: fields.shard()?,
                worker: WorkerId(fields.u64()?),
                request: RequestId(fields.u64()?),
                clock: Clock(fields.u64()?),
                keys: self.keys()?,
            }),
            tag::PULL_REPLY => {
                let at = fields.shard()?;
                let is_answer = fields.bool()?;
                let request = RequestId(fields.u64()?);
                Message::PullReply(PullReply {
                    at,
                    request: is_answer.then_some(request),
                    clock: Clock(fields.u64()?),
                    own: Clock(fields.u64()?),
                    keys: self.keys()?,
                    values: self.values()?,
                })
            }
            tag::REPLICATE => Message::Replicate(Replicate {
                at: fields.shard()?,
                seq: Seq(fields.u64()?),
                operation: self.operation()?,
            }),
            tag::REPLICATE_ACK => Message::ReplicateAck(ReplicateAck {
                at: fields.shard()?,
                seq: Seq(fields.u64()?),
            }),
            tag::SNAPSHOT => Message::Snapshot(self.snapshot()?),
            tag::SNAPSHOT_ACK => Message::SnapshotAck(SnapshotAck {
                at: fields.shard()?,
                transfer: TransferId(fields.u64()?),
                part: fields.u32()?,
            }),
            tag::ROUTING => Message::Routing(self.routing()?),
            tag::REFUSED => Message::Refused(Refused {
                at: fields.shard()?,
                request: fields.request()?,
                reason: fields.refusal()?,
            }),
            unknown => return Err(WireError::UnknownTag(unknown)),
        })
    }

    fn operation(&mut self) -> Result<Operation, WireError> {
        match self.fields.u8()? {
            0 => Ok(Operation::Update {
                range: self.fields.range()?,
                clocks: self.clocks()?,
                keys: self.keys()?,
                values: self.values()?,
            }),
            1 => Ok(Operation::Members {
                version: self.fields.u64()?,
                workers: self.clocks()?,
            }),
            _ => Err(WireError::Malformed("an unknown kind of log entry")),
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot, WireError> {
        let fields = &mut self.fields;
        let (at, transfer, part) = (fields.shard()?, TransferId(fields.u64()?), fields.u32()?);
        let phase = if fields.bool()? {
            SnapshotPhase::Delta
        } else {
            SnapshotPhase::PreCopy
        };
        let range = fields.range()?;
        let end = match fields.bool()? {
            true => {
                let (seq, members) = (Seq(fields.u64()?), fields.u64()?);
                Some(SnapshotEnd {
                    seq,
                    members,
                    clocks: self.worker_clocks()?,
                })
            }
            false => None,
        };
        let (keys, values, state) = (self.keys()?, self.values()?, self.values()?);
        if self.keys.is_some() || self.values.is_some() {
            return Err(WireError::Malformed("a compressed snapshot"));
        }
        let steps = self.fields.count()?;
        let steps = self.source.u32s(steps).to_vec();
        Ok(Snapshot {
            at,
            transfer,
            part,
            phase,
            rows: Rows {
                range,
                keys,
                values,
                state,
                steps,
            },
            end,
        })
    }

    fn routing(&mut self) -> Result<Routing, WireError> {
        const SHORT: WireError = WireError::Malformed("a routing table that is cut off");
        let version = self.fields.u64()?;
        let words = self.words()?;
        if S::IS_PLAN {
            return Ok(Routing::default());
        }
        let mut rest = &words[..];
        let mut routes = Vec::new();
        while !rest.is_empty() {
            let (&[array, start, end, epoch, length], after) =
                rest.split_first_chunk().ok_or(SHORT)?;
            let length = usize::try_from(length).map_err(|_| SHORT)?;
            let (chain, after) = after.split_at_checked(length).ok_or(SHORT)?;
            rest = after;
            routes.push(Route {
                array: ArrayId(
                    u32::try_from(array)
                        .map_err(|_| WireError::Malformed("an array out of range"))?,
                ),
                range: key_range(start, end)?,
                epoch: Epoch(epoch),
                chain: chain.iter().copied().map(NodeId).collect(),
            });
        }
        Routing::new(version, routes)
            .map_err(|_| WireError::Malformed("a routing table that contradicts itself"))
    }

    fn words(&mut self) -> Result<Shared<u64>, WireError> {
        let count = self.fields.count()?;
        Ok(self.source.u64s(count))
    }

    fn clocks(&mut self) -> Result<Vec<(WorkerId, Clock)>, WireError> {
        let words = self.words()?;
        let (pairs, rest) = words.as_chunks();
        if !rest.is_empty() {
            return Err(WireError::Malformed("a list of clocks that is cut off"));
        }
        Ok(pairs
            .iter()
            .map(|&[worker, clock]| (WorkerId(worker), Clock(clock)))
            .collect())
    }

    fn worker_clocks(&mut self) -> Result<Vec<WorkerClock>, WireError> {
        let words = self.words()?;
        let (entries, rest) = words.as_chunks();
        if !rest.is_empty() {
            return Err(WireError::Malformed("a list of clocks that is cut off"));
        }
        let entry = |&[worker, start, end, clock]: &[u64; 4]| {
            Ok(WorkerClock {
                worker: WorkerId(worker),
                range: key_range(start, end)?,
                clock: Clock(clock),
            })
        };
        entries.iter().map(entry).collect()
    }

    fn keys(&mut self) -> Result<Keys, WireError> {
        let kind = self.fields.u8()?;
        let packed = match kind {
            0 => return Ok(Keys::All),
            1 | 2 => {
                let count = self.fields.count()?;
                let keys: Shared<Key> = self.source.u64s(count);
                if kind == 1 {
                    return Ok(Keys::List(keys));
                }
                PackedKeys::Plain {
                    keys: Keys::List(keys),
                    remember: true,
                }
            }
            3 => PackedKeys::Known {
                digest: self.fields.digest()?,
                count: self.fields.u64()?,
            },
            4 | 5 => {
                let (count, length) = (self.fields.u64()?, self.fields.count()?);
                PackedKeys::Lz4 {
                    count,
                    bytes: self.source.u8s(length),
                    remember: kind == 5,
                }
            }
            _ => return Err(WireError::Malformed("an unknown form of keys")),
        };
        self.keys = Some(packed);
        Ok(Keys::All)
    }

    fn values(&mut self) -> Result<Values, WireError> {
        let kind = self.fields.u8()?;
        let count = self.fields.u64()?;
        let own = || {
            usize::try_from(count)
                .map_err(|_| WireError::Malformed("a count beyond this machine's memory"))
        };
        let packed = match kind {
            0 => return Ok(Values::F32(self.source.f32s(own()?))),
            1 => return Ok(Values::Bf16(self.source.u16s(own()?))),
            2 => return Ok(Values::F16(self.source.u16s(own()?))),
            3..=5 => {
                let length = self.fields.count()?;
                let bytes = self.source.u8s(length);
                match kind {
                    3 => PackedValues::Lz4F32 { count, bytes },
                    4 => PackedValues::Lz4Bf16 { count, bytes },
                    _ => PackedValues::Lz4F16 { count, bytes },
                }
            }
            _ => return Err(WireError::Malformed("an unknown form of values")),
        };
        self.values = Some(packed);
        Ok(Values::none())
    }
}
