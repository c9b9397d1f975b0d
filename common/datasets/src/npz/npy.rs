//! NumPy's array format: a header that is a Python dictionary of three fixed keys, then the
//! elements.
//!
//! Source: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>. Libraries for
//! it parse any Python literal, and overflow on a damaged shape; of the header, this reads what
//! NumPy writes.

use std::io::Read;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Longest header; NumPy's own limit is 10,000.
const MAX_HEADER: usize = 1 << 16;

/// Type, order and shape of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The type as NumPy writes it, such as `<f4`.
    pub descr: String,
    /// True if the array is stored in columns.
    pub fortran: bool,
    /// Lengths of the axes, the slowest first.
    pub shape: Vec<usize>,
}

/// Types of element that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Integers without sign.
    Unsigned,
    /// Integers with sign.
    Signed,
    /// IEEE floating point.
    Float,
}

/// Element type of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    /// Kind of number.
    pub kind: Kind,
    /// Size of an element, in bytes.
    pub width: usize,
    /// True if the most significant byte comes first.
    pub big_endian: bool,
}

impl Header {
    /// Reads a header and no further.
    ///
    /// # Errors
    /// A description of the mistake.
    pub fn read(mut from: impl Read) -> Result<Self, String> {
        let mut exactly = |length: usize| {
            let mut bytes = vec![0; length];
            from.read_exact(&mut bytes)
                .map_err(|source| source.to_string())
                .map(|()| bytes)
        };
        let start = exactly(8)?;
        if !start.starts_with(MAGIC) {
            return Err("is no NumPy array".to_owned());
        }
        let digits = if start.get(6) == Some(&1) { 2 } else { 4 };
        let length = exactly(digits)?
            .iter()
            .rev()
            .fold(0, |value, &byte| value << 8 | usize::from(byte));
        if length > MAX_HEADER {
            return Err(format!("its header has {length} bytes"));
        }
        let text = String::from_utf8_lossy(&exactly(length)?).into_owned();
        Self::parse(&text).ok_or_else(|| "its header is damaged".to_owned())
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            text.split_once(&format!("'{key}':"))
                .map(|(_, value)| value.trim_start())
        };
        let descr = match value("descr")?.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'')?.0.to_owned(),
            None => "structured".to_owned(),
        };
        let fortran = value("fortran_order")?.starts_with("True");
        let (shape, _) = value("shape")?.strip_prefix('(')?.split_once(')')?;
        let lengths = shape
            .split(',')
            .map(str::trim)
            .filter(|length| !length.is_empty());
        let shape = lengths
            .map(|length| length.trim_end_matches('L').parse().ok())
            .collect::<Option<_>>()?;
        Some(Self {
            descr,
            fortran,
            shape,
        })
    }

    /// The elements' type, if it is one that is read.
    pub fn element(&self) -> Option<Element> {
        let mut chars = self.descr.chars();
        let big_endian = match chars.next()? {
            '<' | '|' | '=' => false,
            '>' => true,
            _ => return None,
        };
        let kind = match chars.next()? {
            'u' => Kind::Unsigned,
            'i' => Kind::Signed,
            'f' => Kind::Float,
            _ => return None,
        };
        let width = chars.as_str().parse().ok()?;
        let known = match kind {
            Kind::Float => matches!(width, 4 | 8),
            Kind::Unsigned | Kind::Signed => matches!(width, 1 | 2 | 4 | 8),
        };
        known.then_some(Element {
            kind,
            width,
            big_endian,
        })
    }

    /// Bytes of all elements of `width` bytes; `None` if there are more than fit.
    pub fn bytes(&self, width: usize) -> Option<u64> {
        let elements = self
            .shape
            .iter()
            .try_fold(1_u64, |product, &length| product.checked_mul(length as u64));
        elements?.checked_mul(width as u64)
    }
}

impl Element {
    /// The bits of each element of `bytes`, the least significant first.
    fn bits(self, bytes: &[u8]) -> impl Iterator<Item = u64> {
        let fold = |value: u64, &byte: &u8| value << 8 | u64::from(byte);
        bytes.chunks_exact(self.width).map(move |element| {
            if self.big_endian {
                element.iter().fold(0, fold)
            } else {
                element.iter().rev().fold(0, fold)
            }
        })
    }

    /// Floating-point elements, rounded to single precision.
    pub fn floats(self, bytes: &[u8]) -> impl Iterator<Item = f32> {
        self.bits(bytes).map(move |bits| match self.width {
            4 => f32::from_bits(bits as u32),
            _ => f64::from_bits(bits) as f32,
        })
    }

    /// Reads `bytes` as integers of this type.
    pub fn integers(self, bytes: &[u8]) -> impl Iterator<Item = i128> {
        let spare = 64 - 8 * self.width as u32;
        self.bits(bytes).map(move |bits| match self.kind {
            Kind::Signed => i128::from(((bits << spare) as i64) >> spare),
            Kind::Unsigned | Kind::Float => i128::from(bits),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn element(descr: &str) -> Option<Element> {
        Header {
            descr: descr.to_owned(),
            fortran: false,
            shape: vec![],
        }
        .element()
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        let parse = |shape: &str| {
            Header::parse(&format!(
                "{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}  \n"
            ))
        };
        for (text, shape) in [("()", vec![]), ("(3,)", vec![3]), ("(2, 3L)", vec![2, 3])] {
            assert_eq!(
                parse(text).unwrap(),
                Header {
                    descr: "<f4".to_owned(),
                    fortran: false,
                    shape
                }
            );
        }
        let structured = "{'descr': [('a', '<f4')], 'fortran_order': True, 'shape': (1,), }";
        assert_eq!(Header::parse(structured).unwrap().descr, "structured");
        assert!(parse("(-1,)").is_none() && parse("(2").is_none() && Header::parse("{}").is_none());
    }

    #[test]
    fn elements_of_either_byte_order() {
        let integers =
            |descr: &str, bytes: &[u8]| element(descr).unwrap().integers(bytes).collect::<Vec<_>>();
        assert_eq!(integers("|i1", &[255, 1]), [-1, 1]);
        assert_eq!(integers("|u1", &[255, 1]), [255, 1]);
        assert_eq!(integers("<i2", &[254, 255]), [-2]);
        assert_eq!(integers(">u4", &[0, 0, 1, 2]), [258]);
        assert_eq!(integers("<i8", &[255; 8]), [-1]);
        assert_eq!(integers("<u8", &[255; 8]), [i128::from(u64::MAX)]);
        let floats =
            |descr: &str, bytes: &[u8]| element(descr).unwrap().floats(bytes).collect::<Vec<_>>();
        assert_eq!(floats("<f4", &1.5_f32.to_le_bytes()), [1.5]);
        assert_eq!(floats(">f8", &(-2.5_f64).to_be_bytes()), [-2.5]);
        for descr in ["<f2", "|b1", "|O", "<U3", "structured", "", "<i"] {
            assert_eq!(element(descr), None, "{descr}");
        }
    }

    proptest! {
        #[test]
        fn damaged_headers_are_errors(bytes: Vec<u8>, text in "[{'a-z: (0-9,)]{0,80}") {
            let _ = Header::read(bytes.as_slice());
            let _ = Header::parse(&text);
            let shape = Header {
                descr: "<f4".to_owned(),
                fortran: false,
                shape: vec![usize::MAX; 3],
            };
            prop_assert_eq!(shape.bytes(4), None);
        }
    }
}
