//! Tensors: a name, a datatype, a shape, and little-endian contents.

use bytes::Bytes;

use crate::error::MAX_AXES;
use crate::{Datatype, Excerpt, Parameters, ProtocolError};

/// A tensor. `data` is row-major and little-endian, as in the binary tensor extension; BYTES
/// elements are each preceded by their length as a little-endian `u32`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Name of the model's input or output.
    pub name: String,
    /// Datatype of the elements.
    pub datatype: Datatype,
    /// Length of each axis, the batch axis first.
    pub shape: Vec<usize>,
    /// Contents; agree with `shape` and `datatype` in every tensor of [`Tensor::new`] or the codec.
    pub data: Bytes,
    /// The client's or the server's own, passed on; none of those that the codec reads.
    pub parameters: Parameters,
}

impl Datatype {
    pub(crate) fn of_tensor(tensor: &str, name: &str) -> Result<Self, ProtocolError> {
        name.parse().map_err(|_| ProtocolError::UnknownDatatype {
            tensor: tensor.into(),
            datatype: name.into(),
        })
    }
}

impl Tensor {
    /// Makes a tensor, having checked that `data` is what `shape` and `datatype` call for.
    pub fn new(
        name: impl Into<String>,
        datatype: Datatype,
        shape: Vec<usize>,
        data: Bytes,
    ) -> Result<Self, ProtocolError> {
        let parameters = Parameters::new();
        let tensor = Self { name: name.into(), datatype, shape, data, parameters };
        tensor.check()?;
        Ok(tensor)
    }

    /// Makes an FP32 tensor.
    pub fn from_f32(
        name: impl Into<String>,
        shape: impl Into<Vec<usize>>,
        values: &[f32],
    ) -> Result<Self, ProtocolError> {
        let data: Vec<[u8; 4]> = values.iter().map(|value| value.to_le_bytes()).collect();
        Self::new(name, Datatype::Fp32, shape.into(), data.into_flattened().into())
    }

    /// Copies tensors out of a message of `length` bytes in which they lie, if the message is half
    /// as long again as they are, or more: a tensor keeps all of its message in memory.
    pub fn detach(tensors: &mut [Self], length: usize) {
        if Self::detached_bytes(tensors, length) > 0 {
            for tensor in tensors {
                tensor.data = Bytes::copy_from_slice(&tensor.data);
            }
        }
    }

    /// Bytes that [`Tensor::detach`] copies.
    pub fn detached_bytes(tensors: &[Self], length: usize) -> usize {
        let own: usize = tensors.iter().map(|tensor| tensor.data.len()).sum();
        if length - length / 3 > own { own } else { 0 }
    }

    /// Number of elements that the shape makes; 1 for a scalar.
    pub fn element_count(&self) -> Result<usize, ProtocolError> {
        element_count(&self.name, &self.shape)
    }

    /// The values of an FP32 tensor.
    pub fn f32s(&self) -> Result<Vec<f32>, ProtocolError> {
        let (expected, actual) = (Datatype::Fp32, self.datatype);
        ensure!(
            actual == expected,
            ProtocolError::DatatypeMismatch { tensor: self.excerpt(), expected, actual }
        );
        Ok(self.data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// Returns true if a floating-point tensor holds a NaN or an infinity;
    /// other datatypes never do.
    pub fn has_non_finite(&self) -> bool {
        // The exponent is all ones exactly for NaN and infinities. The inner loops have no early
        // exit, so that they vectorise; a stretch at a time bounds what is read after a find.
        fn any<const N: usize>(data: &[u8], non_finite: impl Fn([u8; N]) -> bool) -> bool {
            let (elements, _) = data.as_chunks::<N>();
            elements
                .chunks(1024)
                .any(|some| some.iter().fold(false, |found, &element| found | non_finite(element)))
        }
        let data = &self.data;
        match self.datatype {
            Datatype::Fp16 => any(data, |half| u16::from_le_bytes(half) & 0x7c00 == 0x7c00),
            Datatype::Bf16 => any(data, |half| u16::from_le_bytes(half) & 0x7f80 == 0x7f80),
            Datatype::Fp32 => any(data, |float| !f32::from_le_bytes(float).is_finite()),
            Datatype::Fp64 => any(data, |double| !f64::from_le_bytes(double).is_finite()),
            _ => false,
        }
    }

    /// The `count` highest scores of each sample of an FP32 tensor, as Triton's classification
    /// extension has them: texts `SCORE:CLASS`, the highest first.
    pub fn top_classes(&self, count: usize) -> Result<Self, ProtocolError> {
        let scores = self.f32s()?;
        let batch = self.shape.first().copied().unwrap_or(1);
        let classes = scores.len() / batch.max(1);
        let count = count.min(classes);
        let mut data = Vec::new();
        for sample in scores.chunks_exact(classes.max(1)) {
            let mut ranked: Vec<(usize, f32)> = sample.iter().copied().enumerate().collect();
            ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
            for (class, score) in ranked.into_iter().take(count) {
                let text = format!("{score:.6}:{class}");
                data.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_le_bytes());
                data.extend_from_slice(text.as_bytes());
            }
        }
        Self::new(self.name.clone(), Datatype::Bytes, vec![batch, count], data.into())
    }

    /// Elements of a BYTES tensor, without their lengths; ends at the first whose length is torn.
    pub fn byte_strings(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.data[..];
        std::iter::from_fn(move || {
            let (length, tail) = rest.split_first_chunk()?;
            let (element, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            rest = tail;
            Some(element)
        })
    }

    fn check(&self) -> Result<(), ProtocolError> {
        let elements = self.element_count()?;
        let Some(size) = self.datatype.size() else { return self.check_byte_strings(elements) };
        let expected =
            elements.checked_mul(size).ok_or_else(|| overflow(&self.name, &self.shape))?;
        if self.data.len() == expected {
            return Ok(());
        }
        Err(ProtocolError::ByteCount {
            tensor: self.excerpt(),
            shape: self.shape.clone(),
            datatype: self.datatype,
            expected,
            actual: self.data.len(),
        })
    }

    fn check_byte_strings(&self, expected: usize) -> Result<(), ProtocolError> {
        let (mut count, mut read) = (0, 0);
        for element in self.byte_strings() {
            count += 1;
            read += 4 + element.len();
        }
        if read != self.data.len() {
            return Err(ProtocolError::BytesElement { tensor: self.excerpt(), element: count });
        }
        if count != expected {
            let (tensor, shape) = (self.excerpt(), self.shape.clone());
            return Err(ProtocolError::ElementCount { tensor, shape, expected, actual: count });
        }
        Ok(())
    }

    fn excerpt(&self) -> Excerpt {
        Excerpt::from(&self.name)
    }
}

pub(crate) fn element_count(tensor: &str, shape: &[usize]) -> Result<usize, ProtocolError> {
    let axes = shape.len();
    ensure!(axes <= MAX_AXES, ProtocolError::Axes { tensor: tensor.into(), axes });
    let mut axes = shape.iter();
    let count = axes.try_fold(1_usize, |count, &axis| count.checked_mul(axis));
    count.ok_or_else(|| overflow(tensor, shape))
}

fn overflow(tensor: &str, shape: &[usize]) -> ProtocolError {
    ProtocolError::ShapeOverflow { tensor: tensor.into(), shape: shape.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_must_fit_the_shape() {
        assert!(Tensor::from_f32("x", [2, 2], &[1.0; 4]).is_ok());
        let short = Tensor::from_f32("x", [2, 2], &[1.0; 3]).unwrap_err();
        assert!(matches!(short, ProtocolError::ByteCount { .. }));
        for shape in [vec![usize::MAX, 2], vec![usize::MAX / 2]] {
            let huge = Tensor::new("x", Datatype::Fp32, shape, Bytes::new()).unwrap_err();
            assert!(matches!(huge, ProtocolError::ShapeOverflow { .. }));
        }
    }

    #[test]
    fn a_shape_of_more_than_sixteen_axes_is_refused() {
        let tensor = |axes| Tensor::new("x", Datatype::Uint8, vec![1; axes], "1".into());
        assert!(tensor(16).is_ok());
        let refused = tensor(17).unwrap_err();
        assert!(matches!(refused, ProtocolError::Axes { axes: 17, .. }));
    }

    #[test]
    fn byte_strings_carry_their_lengths() {
        let data = Bytes::from_static(b"\x02\0\0\0hi\0\0\0\0");
        let tensor = |count, data| Tensor::new("x", Datatype::Bytes, vec![count], data);
        let two = tensor(2, data.clone()).unwrap();
        assert_eq!(two.byte_strings().collect::<Vec<_>>(), [&b"hi"[..], b""]);
        let short = tensor(2, data.slice(..9)).unwrap_err().to_string();
        assert!(short.contains("BYTES element 1 reaches past"), "{short}");
        let count = tensor(3, data).unwrap_err().to_string();
        assert!(count.contains("takes 3 elements, got 2"), "{count}");
    }

    #[test]
    fn top_classes_are_ranked_texts_of_each_sample() {
        let scores = Tensor::from_f32("y", [2, 3], &[0.1, 0.7, 0.2, -1.0, -3.5, 2.0]).unwrap();
        let top = scores.top_classes(2).unwrap();
        assert_eq!((&top.shape[..], top.datatype), (&[2, 2][..], Datatype::Bytes));
        let texts: Vec<&[u8]> = top.byte_strings().collect();
        let expected: [&[u8]; 4] = [b"0.700000:1", b"0.200000:2", b"2.000000:2", b"-1.000000:0"];
        assert_eq!(texts, expected);
        assert_eq!(scores.top_classes(9).unwrap().shape, [2, 3]);
        assert!(top.top_classes(1).is_err(), "of FP32 alone");
    }

    #[test]
    fn non_finite_values_are_found_in_every_float() {
        let tensor = |datatype, data: &[u8], size| {
            let data = Bytes::copy_from_slice(data);
            Tensor::new("x", datatype, vec![data.len() / size], data).unwrap()
        };
        assert!(!tensor(Datatype::Fp32, &f32::MAX.to_le_bytes(), 4).has_non_finite());
        assert!(tensor(Datatype::Fp32, &f32::NAN.to_le_bytes(), 4).has_non_finite());
        assert!(tensor(Datatype::Fp64, &f64::NEG_INFINITY.to_le_bytes(), 8).has_non_finite());
        assert!(tensor(Datatype::Fp16, &0xfc00_u16.to_le_bytes(), 2).has_non_finite());
        assert!(!tensor(Datatype::Fp16, &0x7bff_u16.to_le_bytes(), 2).has_non_finite());
        assert!(tensor(Datatype::Bf16, &0x7fc0_u16.to_le_bytes(), 2).has_non_finite());
        assert!(!tensor(Datatype::Int32, &[0xff; 4], 4).has_non_finite());
    }
}
