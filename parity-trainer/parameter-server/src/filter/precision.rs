//! Numbers in 16 bits.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use crate::Values;

/// The format in which a push's numbers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// 32-bit floats, exact.
    #[default]
    F32,
    /// The upper half of a 32-bit float: its range, 8 bits of precision.
    Bf16,
    /// IEEE 754 binary16: 11 bits of precision between 6e-5 and 65,504.
    F16,
}

impl Precision {
    /// The nearest numbers of this format; beyond the largest, the largest: the receiver refuses
    /// infinities, and what is cut off is sent later.
    pub(super) fn round(self, numbers: &[f32]) -> Values {
        let within = |most: f32| {
            numbers
                .iter()
                .map(|v| v.clamp(-most, most))
                .collect::<Vec<f32>>()
        };
        let mut bits = vec![0u16; numbers.len()];
        match self {
            Self::F32 => Values::from(numbers.to_vec()),
            Self::Bf16 => {
                let within = within(bf16::MAX.to_f32());
                bits.reinterpret_cast_mut::<bf16>()
                    .convert_from_f32_slice(&within);
                Values::Bf16(bits.into())
            }
            Self::F16 => {
                let within = within(f16::MAX.to_f32());
                bits.reinterpret_cast_mut::<f16>()
                    .convert_from_f32_slice(&within);
                Values::F16(bits.into())
            }
        }
    }
}
