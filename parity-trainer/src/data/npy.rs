//! NumPy's array format: a header, a Python dictionary of three fixed keys, then the elements.
//!
//! Source: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>. Of the header,
//! this reads what NumPy writes. libtorch's own reader trusts the lengths of a damaged file.

use std::io::Read;

use tch::{Kind, Tensor};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Longest header; NumPy's own limit is 10,000.
const MAX_HEADER: usize = 1 << 16;
/// Most unpacked bytes read of an array: a small zip file can unpack to any size.
const MAX_BYTES: u64 = 1 << 30;

/// Reads an array of a type that libtorch has, least significant byte first; errors say why not.
pub(super) fn read(mut from: impl Read) -> Result<Tensor, String> {
    let (kind, shape) = parse(&header(&mut from)?)?;
    let mut lengths = shape.iter().map(|&length| length.unsigned_abs());
    let wanted = lengths.try_fold(kind.elt_size_in_bytes() as u64, u64::checked_mul);
    let Some(wanted) = wanted.filter(|&bytes| bytes <= MAX_BYTES) else {
        return Err(format!("of more than {MAX_BYTES} bytes: save fewer rows"));
    };
    let mut bytes = Vec::new();
    // One byte more: at the end of the entry, its checksum is compared.
    from.take(wanted + 1).read_to_end(&mut bytes).map_err(damaged)?;
    let found = bytes.len() as u64;
    let problem = format!("shape {shape:?} makes {wanted} bytes, there are {found}");
    ensure!(found == wanted, damaged(problem));
    Tensor::f_from_data_size(&bytes, &shape, kind).map_err(damaged)
}

fn damaged(problem: impl std::fmt::Display) -> String {
    format!("damaged: {problem}")
}

fn header(from: &mut impl Read) -> Result<String, String> {
    let mut exactly = |length: usize| {
        let mut bytes = vec![0; length];
        from.read_exact(&mut bytes).map_err(damaged)?;
        Ok::<_, String>(bytes)
    };
    let start = exactly(MAGIC.len() + 2)?;
    ensure!(start.starts_with(MAGIC), "no NumPy array".to_owned());
    // The format's version, 1 or later.
    let digits = exactly(if start[MAGIC.len()] == 1 { 2 } else { 4 })?.into_iter().rev();
    let length = digits.fold(0, |value, byte| value << 8 | usize::from(byte));
    ensure!(length <= MAX_HEADER, damaged(format!("its header has {length} bytes")));
    Ok(String::from_utf8_lossy(&exactly(length)?).into_owned())
}

/// The type and shape of which a header tells.
fn parse(header: &str) -> Result<(Kind, Vec<i64>), String> {
    let value = |key: &str| {
        let (_, value) = header.split_once(&format!("'{key}':"))?;
        Some(value.trim_start())
    };
    let fields = || {
        let (shape, _) = value("shape")?.strip_prefix('(')?.split_once(')')?;
        let lengths = shape.split(',').map(str::trim).filter(|length| !length.is_empty());
        let length = |length: &str| length.trim_end_matches('L').parse().ok().map(u32::into);
        let shape: Option<Vec<i64>> = lengths.map(length).collect();
        let is_fortran = value("fortran_order")?.starts_with("True");
        Some((value("descr")?.split('\'').nth(1)?, is_fortran, shape?))
    };
    let (descr, is_fortran, shape) = fields().ok_or_else(|| damaged("its header"))?;
    let problem = "in Fortran order: save numpy.ascontiguousarray of it";
    ensure!(!is_fortran || shape.len() <= 1, problem.to_owned());
    let kind = match descr {
        "|u1" => Kind::Uint8,
        "|i1" => Kind::Int8,
        "<i2" => Kind::Int16,
        "<i4" => Kind::Int,
        "<i8" => Kind::Int64,
        "<f2" => Kind::Half,
        "<f4" => Kind::Float,
        "<f8" => Kind::Double,
        _ => return Err(format!("of type {descr:?}: save uint8, int64 or float32")),
    };
    Ok((kind, shape))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn header_of(descr: &str, fortran: &str, shape: &str) -> String {
        format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}  \n")
    }

    fn npy(descr: &str, elements: &[u8]) -> Vec<u8> {
        let header = header_of(descr, "False", "(2,)");
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), elements].concat()
    }

    #[test]
    fn headers_as_numpy_writes_them() {
        for (text, shape) in [("()", vec![]), ("(3,)", vec![3]), ("(2, 3L)", vec![2, 3])] {
            let header = header_of("'<f4'", "False", text);
            assert_eq!(parse(&header), Ok((Kind::Float, shape)));
        }
        for (descr, fortran, shape, says) in [
            ("'<f4'", "False", "(-1,)", "damaged"),
            ("'<f4'", "False", "(2", "damaged"),
            ("'<f4'", "True", "(2, 2)", "numpy.ascontiguousarray"),
            ("[('a', '<f4')]", "False", "(1,)", "of type \"a\""),
            ("'<U3'", "False", "(1,)", "of type \"<U3\""),
            ("'>f4'", "False", "(1,)", "of type \">f4\""),
            ("'|O'", "False", "(1,)", "save uint8, int64 or float32"),
        ] {
            let error = parse(&header_of(descr, fortran, shape)).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn elements_are_as_many_as_the_header_says() {
        let integers = |descr: &str, elements: &[u8]| {
            let array = read(npy(descr, elements).as_slice())?;
            Ok::<_, String>(Vec::<i64>::try_from(array.to_kind(Kind::Int64)).unwrap())
        };
        assert_eq!(integers("'<i2'", &[254, 255, 2, 1]), Ok(vec![-2, 258]));
        assert_eq!(integers("'|u1'", &[255, 1]), Ok(vec![255, 1]));
        for elements in [&[1][..], &[1, 2, 3]] {
            assert!(integers("'|u1'", elements).unwrap_err().contains("damaged"));
        }
        let large = header_of("'<f8'", "False", "(4294967295, 4294967295, 4294967295)");
        let length = (large.len() as u16).to_le_bytes();
        let large = [b"\x93NUMPY\x01\x00", &length[..], large.as_bytes()].concat();
        assert!(read(large.as_slice()).unwrap_err().contains("fewer rows"));
    }

    proptest! {
        #[test]
        fn damaged_headers_are_errors(bytes: Vec<u8>, text in "[{'a-z: (0-9,)]{0,80}") {
            let whole = [b"\x93NUMPY\x01\x00", bytes.as_slice()].concat();
            prop_assert!(read(bytes.as_slice()).is_err() && read(whole.as_slice()).is_err());
            prop_assert!(parse(&text).is_err());
        }
    }
}
