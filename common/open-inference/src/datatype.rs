//! Element types of tensors.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// Element type of a tensor, by its name in the protocol.
#[allow(missing_docs, reason = "the names are the protocol's own")]
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "UPPERCASE")]
#[strum(serialize_all = "UPPERCASE")]
pub enum Datatype {
    Bool,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    Int8,
    Int16,
    Int32,
    Int64,
    Fp16,
    Bf16,
    Fp32,
    Fp64,
    /// Byte strings, each preceded by its length as a little-endian `u32`.
    Bytes,
}

impl Datatype {
    /// Every datatype of the protocol.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The protocol's name of the datatype.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Bytes of one element; `None` for [`Datatype::Bytes`], whose elements differ in length.
    pub const fn size(self) -> Option<usize> {
        match self {
            Self::Bool | Self::Uint8 | Self::Int8 => Some(1),
            Self::Uint16 | Self::Int16 | Self::Fp16 | Self::Bf16 => Some(2),
            Self::Uint32 | Self::Int32 | Self::Fp32 => Some(4),
            Self::Uint64 | Self::Int64 | Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }

    /// Returns true if the contents can be written as JSON: BF16 cannot, as in Triton.
    pub const fn has_json_form(self) -> bool {
        !matches!(self, Self::Bf16)
    }
}

/// Matches a [`Datatype`]: of integers the value is `$of!(u8)` and so on, others have arms.
#[macro_export]
macro_rules! match_integers {
    ($datatype:expr, $of:ident, { $($others:tt)+ }) => {
        match $datatype {
            $crate::Datatype::Uint8 => $of!(u8),
            $crate::Datatype::Uint16 => $of!(u16),
            $crate::Datatype::Uint32 => $of!(u32),
            $crate::Datatype::Uint64 => $of!(u64),
            $crate::Datatype::Int8 => $of!(i8),
            $crate::Datatype::Int16 => $of!(i16),
            $crate::Datatype::Int32 => $of!(i32),
            $crate::Datatype::Int64 => $of!(i64),
            $($others)+
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_agree_with_serde_and_parse_back() {
        for &datatype in Datatype::ALL {
            assert_eq!(serde_json::to_value(datatype).unwrap(), datatype.name());
            assert_eq!(Datatype::of_tensor("x", datatype.name()).unwrap(), datatype);
        }
        assert!(Datatype::of_tensor("x", "fp32").is_err());
    }
}
