//! Fixed fields of heads and handshakes.

use parapet_parameter_server::{
    ArrayId, Clock, Digest, Epoch, KeyRange, Refusal, Request, RequestId, Seq, ShardRef,
    TransferId, ValuesError, WorkerId,
};

use super::WireError;

pub(super) trait Put {
    fn put(&mut self, bytes: &[u8]);

    fn u8(&mut self, n: u8) {
        self.put(&[n]);
    }

    fn u16(&mut self, n: u16) {
        self.put(&n.to_le_bytes());
    }

    fn u32(&mut self, n: u32) {
        self.put(&n.to_le_bytes());
    }

    fn u64(&mut self, n: u64) {
        self.put(&n.to_le_bytes());
    }

    fn count(&mut self, n: usize) {
        self.u64(n as u64);
    }

    fn digest(&mut self, digest: Digest) {
        self.put(&digest.0.to_le_bytes());
    }

    fn range(&mut self, range: KeyRange) {
        self.u64(range.start);
        self.u64(range.end);
    }

    fn shard(&mut self, at: ShardRef) {
        self.u32(at.array.0);
        self.range(at.range);
        self.u64(at.epoch.0);
    }

    fn request(&mut self, request: Request) {
        match request {
            Request::Push { worker, clock } => {
                self.u8(0);
                self.u64(worker.0);
                self.u64(clock.0);
            }
            Request::Pull { request } => {
                self.u8(1);
                self.u64(request.0);
            }
            Request::Replicate { seq } => {
                self.u8(2);
                self.u64(seq.0);
            }
            Request::Snapshot { transfer, part } => {
                self.u8(3);
                self.u64(transfer.0);
                self.u32(part);
            }
        }
    }

    fn refusal(&mut self, reason: Refusal) {
        match reason {
            Refusal::WrongEpoch { current } => {
                self.u8(0);
                self.u64(current.0);
            }
            Refusal::UnknownRange => self.u8(1),
            Refusal::NotHead => self.u8(2),
            Refusal::NotTail => self.u8(3),
            Refusal::UnknownWorker => self.u8(4),
            Refusal::Gap { expected } => {
                self.u8(5);
                self.u64(expected.0);
            }
            Refusal::BadKeys => self.u8(6),
            Refusal::BadValues(ValuesError::Length { expected, found }) => {
                self.u8(7);
                self.count(expected);
                self.count(found);
            }
            Refusal::BadValues(ValuesError::NotFinite { at }) => {
                self.u8(8);
                self.count(at);
            }
            Refusal::Stopped => self.u8(9),
            Refusal::Busy => self.u8(10),
            Refusal::Overflow { key } => {
                self.u8(11);
                self.u64(key);
            }
            Refusal::BadRows => self.u8(12),
        }
    }
}

impl Put for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (first, rest) = self
            .0
            .split_first_chunk()
            .ok_or(WireError::Malformed("a head that is too short"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.take::<1>().map(|[n]| n)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_le_bytes)
    }

    /// A number of things that must be addressable.
    pub(super) fn count(&mut self) -> Result<usize, WireError> {
        usize::try_from(self.u64()?)
            .map_err(|_| WireError::Malformed("a count beyond this machine's memory"))
    }

    pub(super) fn bool(&mut self) -> Result<bool, WireError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Malformed(
                "a truth value that is neither 0 nor 1",
            )),
        }
    }

    pub(super) fn digest(&mut self) -> Result<Digest, WireError> {
        self.take().map(|bytes| Digest(u128::from_le_bytes(bytes)))
    }

    pub(super) fn range(&mut self) -> Result<KeyRange, WireError> {
        let (start, end) = (self.u64()?, self.u64()?);
        key_range(start, end)
    }

    pub(super) fn shard(&mut self) -> Result<ShardRef, WireError> {
        Ok(ShardRef {
            array: ArrayId(self.u32()?),
            range: self.range()?,
            epoch: Epoch(self.u64()?),
        })
    }

    pub(super) fn request(&mut self) -> Result<Request, WireError> {
        Ok(match self.u8()? {
            0 => Request::Push {
                worker: WorkerId(self.u64()?),
                clock: Clock(self.u64()?),
            },
            1 => Request::Pull {
                request: RequestId(self.u64()?),
            },
            2 => Request::Replicate {
                seq: Seq(self.u64()?),
            },
            3 => Request::Snapshot {
                transfer: TransferId(self.u64()?),
                part: self.u32()?,
            },
            _ => return Err(WireError::Malformed("an unknown kind of request")),
        })
    }

    pub(super) fn refusal(&mut self) -> Result<Refusal, WireError> {
        Ok(match self.u8()? {
            0 => Refusal::WrongEpoch {
                current: Epoch(self.u64()?),
            },
            1 => Refusal::UnknownRange,
            2 => Refusal::NotHead,
            3 => Refusal::NotTail,
            4 => Refusal::UnknownWorker,
            5 => Refusal::Gap {
                expected: Clock(self.u64()?),
            },
            6 => Refusal::BadKeys,
            7 => Refusal::BadValues(ValuesError::Length {
                expected: self.count()?,
                found: self.count()?,
            }),
            8 => Refusal::BadValues(ValuesError::NotFinite { at: self.count()? }),
            9 => Refusal::Stopped,
            10 => Refusal::Busy,
            11 => Refusal::Overflow { key: self.u64()? },
            12 => Refusal::BadRows,
            _ => return Err(WireError::Malformed("an unknown reason for a refusal")),
        })
    }
}

pub(super) fn key_range(start: u64, end: u64) -> Result<KeyRange, WireError> {
    if start > end {
        return Err(WireError::Malformed(
            "a key range that ends before it starts",
        ));
    }
    Ok(KeyRange::new(start, end))
}
