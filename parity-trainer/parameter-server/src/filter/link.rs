//! Filters between state machine and transport, for one peer: the receiver undoes them exactly.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::key_lists::KeyLists;
use super::{ArrayFilters, Digest, Filter, Precision, Traffic, lz4};
use crate::{ArrayId, Key, Keys, Message, Shared, Values};

/// Below this many keys a list is always sent: its digest would be no shorter.
const SHORT_LIST: usize = 4;

/// The bytes that a digest takes, with the number of its keys.
const DIGEST_BYTES: usize = 24;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PackedKeys {
    /// As they are. With `remember`, the receiver keeps them: their digest may replace them later.
    Plain { keys: Keys, remember: bool },
    /// A list that both ends have.
    Known { digest: Digest, count: u64 },
    /// The differences of a list's successive keys, compressed.
    Lz4 {
        count: u64,
        #[serde(skip)]
        bytes: Shared<u8>,
        remember: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PackedValues {
    Plain(Values),
    Lz4 {
        precision: Precision,
        count: u64,
        #[serde(skip)]
        bytes: Shared<u8>,
    },
}

/// A message as it goes to the transport.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Packed {
    /// The message, without keys and values if they are beside it.
    pub message: Message,
    /// The keys, if the message is of a kind that is filtered.
    pub keys: Option<PackedKeys>,
    pub values: Option<PackedValues>,
}

/// Bounds of a link (PS-8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkLimits {
    pub lists: usize,
    /// Keys in all of them.
    pub keys: usize,
    /// Bytes of a message's keys, and of its values, when they are unpacked.
    pub bytes: usize,
}

impl Default for LinkLimits {
    fn default() -> Self {
        Self { lists: 256, keys: 1 << 22, bytes: 1 << 30 }
    }
}

/// One end of the way between two peers; each end has its own. What is sent says what was done to
/// it, so that only the sender's filters matter.
///
/// A list that one end has sent, both have; so the answer to a pull needs no list either. If the
/// receiver has forgotten it, the message counts as lost: the receiver says so ([`Link::forget`] at
/// the sender), and the resend carries the list.
#[derive(Debug, Clone)]
pub struct Link {
    filters: BTreeMap<ArrayId, ArrayFilters>,
    limits: LinkLimits,
    lists: KeyLists,
    traffic: Traffic,
    received: Traffic,
}

impl Link {
    /// With these filters; arrays that are not named have none.
    pub fn new(
        limits: LinkLimits,
        filters: impl IntoIterator<Item = (ArrayId, ArrayFilters)>,
    ) -> Self {
        Self {
            filters: filters.into_iter().collect(),
            limits,
            lists: KeyLists::new(limits.lists, limits.keys),
            traffic: Traffic::default(),
            received: Traffic::default(),
        }
    }

    /// Makes an array's filters known. An array that is known stays as it is.
    pub fn define(&mut self, array: ArrayId, filters: ArrayFilters) {
        self.filters.entry(array).or_insert(filters);
    }

    /// Bytes before and after, of what was sent.
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// The same of what was received, for the arrays whose filters are known here: 16-bit floats,
    /// which a push filter has made of them at the other end, included.
    pub const fn received(&self) -> &Traffic {
        &self.received
    }

    pub fn pack(&mut self, mut message: Message) -> Packed {
        let (mut packed_keys, mut packed_values) = (None, None);
        if let Some((array, keys, values)) = message.rows_mut() {
            let filters = self.filters.get(&array).copied().unwrap_or_default();
            let keys = std::mem::replace(keys, Keys::none());
            packed_keys = Some(self.pack_keys(array, keys, filters));
            packed_values = values.map(|values| {
                let values = std::mem::replace(values, Values::none());
                self.pack_values(array, values, filters)
            });
        }
        Packed { message, keys: packed_keys, values: packed_values }
    }

    pub fn unpack(&mut self, packed: Packed) -> Result<Message, UnpackError> {
        let mut message = packed.message;
        let keys = packed.keys.map(|keys| self.unpack_keys(keys)).transpose()?;
        let values = packed.values.map(|values| self.unpack_values(values));
        let values = values.transpose()?;
        let Some((array, own_keys, own_values)) = message.rows_mut() else {
            return Ok(message);
        };
        // Of arrays that are known here alone, for a peer may name any.
        let is_known = self.filters.contains_key(&array);
        let mut count = |filter, before, after| {
            if is_known {
                self.received.count(array, filter, before, after);
            }
        };
        if let Some((keys, filter)) = keys {
            *own_keys = keys;
            if let Some((filter, after)) = filter {
                count(filter, own_keys.bytes(), after);
            }
        }
        if let Some(own_values) = own_values {
            let mut lz4 = None;
            if let Some(unpacked) = values {
                (*own_values, lz4) = unpacked;
            }
            let exact = own_values.len() * size_of::<f32>();
            let rounded = own_values.as_bytes().len();
            if let Values::Factors(_) = own_values {
                count(Filter::Factors, exact, rounded);
            } else if rounded < exact {
                count(Filter::Precision, exact, rounded);
            }
            if let Some(after) = lz4 {
                count(Filter::Lz4, rounded, after);
            }
        }
        Ok(message)
    }

    /// The peer does not have this list: [`UnpackError::UnknownKeys`].
    pub fn forget(&mut self, digest: Digest) {
        self.lists.take(digest);
    }

    fn pack_keys(&mut self, array: ArrayId, keys: Keys, filters: ArrayFilters) -> PackedKeys {
        let Keys::List(list) = keys else {
            let remember = false;
            return PackedKeys::Plain { keys, remember };
        };
        let (count, bytes) = (list.len() as u64, size_of_val::<[Key]>(&list));
        let remember = filters.key_lists && list.len() >= SHORT_LIST;
        if remember {
            let digest = Digest::of(&list);
            let is_known = self.lists.get(digest).is_some();
            let after = if is_known { DIGEST_BYTES } else { bytes };
            self.traffic.count(array, Filter::KeyLists, bytes, after);
            if is_known {
                return PackedKeys::Known { digest, count };
            }
            self.lists.insert(digest, &list);
        }
        let differences = filters.lz4.then(|| lz4::differences(&list));
        match differences.and_then(|differences| self.compress(array, &differences)) {
            Some(bytes) => PackedKeys::Lz4 { count, bytes, remember },
            None => PackedKeys::Plain { keys: Keys::List(list), remember },
        }
    }

    fn pack_values(
        &mut self,
        array: ArrayId,
        values: Values,
        filters: ArrayFilters,
    ) -> PackedValues {
        let (precision, compressed) = match &values {
            Values::Factors(factors) => {
                let (product, sent) = (factors.len() * size_of::<f32>(), values.as_bytes().len());
                self.traffic.count(array, Filter::Factors, product, sent);
                return PackedValues::Plain(values);
            }
            _ if !filters.lz4 => return PackedValues::Plain(values),
            Values::F32(numbers) => (Precision::F32, self.compress(array, numbers)),
            Values::Bf16(bits) => (Precision::Bf16, self.compress(array, bits)),
            Values::F16(bits) => (Precision::F16, self.compress(array, bits)),
        };
        match compressed {
            Some(bytes) => PackedValues::Lz4 { precision, count: values.len() as u64, bytes },
            None => PackedValues::Plain(values),
        }
    }

    fn compress<T: bytemuck::Pod>(&mut self, array: ArrayId, numbers: &[T]) -> Option<Shared<u8>> {
        let compressed = lz4::compress(numbers);
        let before = size_of_val(numbers);
        let after = compressed.as_ref().map_or(before, |bytes| bytes.len());
        self.traffic.count(array, Filter::Lz4, before, after);
        compressed
    }

    /// The keys, the filter that has packed them, and the bytes it has left.
    fn unpack_keys(
        &mut self,
        keys: PackedKeys,
    ) -> Result<(Keys, Option<(Filter, usize)>), UnpackError> {
        let (keys, filter, remember) = match keys {
            PackedKeys::Plain { keys, remember } => (keys, None, remember),
            PackedKeys::Known { digest, count } => {
                let list = self.lists.get(digest);
                let list = list.filter(|list| list.len() as u64 == count);
                let list = list.ok_or(UnpackError::UnknownKeys { digest })?;
                let filter = (Filter::KeyLists, DIGEST_BYTES);
                (Keys::List(list), Some(filter), false)
            }
            PackedKeys::Lz4 { count, bytes, remember } => {
                let keys = lz4::sums(lz4::decompress(&bytes, count, self.limits.bytes)?);
                let filter = (Filter::Lz4, bytes.len());
                (Keys::List(keys.into()), Some(filter), remember)
            }
        };
        if let (true, Keys::List(list)) = (remember, &keys) {
            self.lists.insert(Digest::of(list), list);
        }
        Ok((keys, filter))
    }

    /// The values, and the bytes that compression has left of them.
    fn unpack_values(&self, values: PackedValues) -> Result<(Values, Option<usize>), UnpackError> {
        let (precision, count, bytes) = match values {
            PackedValues::Plain(values) => return Ok((values, None)),
            PackedValues::Lz4 { precision, count, bytes } => (precision, count, bytes),
        };
        let limit = self.limits.bytes;
        let values = match precision {
            Precision::F32 => Values::F32(lz4::decompress(&bytes, count, limit)?.into()),
            Precision::Bf16 => Values::Bf16(lz4::decompress(&bytes, count, limit)?.into()),
            Precision::F16 => Values::F16(lz4::decompress(&bytes, count, limit)?.into()),
        };
        Ok((values, Some(bytes.len())))
    }
}

/// Reason why a message cannot be unpacked; it counts as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    #[error(
        "no list of keys with digest {digest} here: tell the sender to forget it, and it will \
            send the list"
    )]
    UnknownKeys { digest: Digest },
    #[error("a message's LZ4 block does not hold what its head says: close the connection")]
    Corrupt,
    #[error(
        "a message's keys or values take {length} bytes, more than {limit}: raise the link's \
            limit or cut the push"
    )]
    TooLong { length: usize, limit: usize },
}
