//! Words, hashed (Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML
//! 2009): a feature for each hash, so that no list of words is needed. Two words of one hash share
//! a weight.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use twox_hash::XxHash3_64;

use super::{DataError, file};
use crate::Rows;

/// Most unpacked bytes read from a file: a small gzip file can unpack to any size.
const MAX_BYTES: u64 = 1 << 30;

pub(super) fn load(folder: &Path, features: u32) -> Result<(u32, Rows, Rows), DataError> {
    let part = |wanted| read(&file(folder, wanted)?, features);
    Ok((features, part("train-text.tsv")?, part("t10k-text.tsv")?))
}

/// The rows of one file, compressed if its name ends so.
fn read(path: &PathBuf, features: u32) -> Result<Rows, DataError> {
    let failed = |source| DataError::Read {
        path: path.clone(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let contents: Box<dyn Read> = match path.extension().is_some_and(|extension| extension == "gz")
    {
        true => Box::new(MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let mut lines = BufReader::new(contents.take(MAX_BYTES + 1));
    let (mut rows, mut line, mut bytes) = (Rows::default(), Vec::new(), 0);
    loop {
        line.clear();
        let length = lines.read_until(b'\n', &mut line).map_err(failed)?;
        if length == 0 {
            break;
        }
        bytes += length as u64;
        if bytes > MAX_BYTES {
            return Err(DataError::TooLarge {
                path: path.clone(),
                limit: MAX_BYTES,
            });
        }
        let number = rows.len() + 1;
        let text = String::from_utf8_lossy(&line);
        let mut columns = text.splitn(3, '\t');
        let (Some(label), Some(_), Some(words)) = (columns.next(), columns.next(), columns.next())
        else {
            return Err(DataError::Line {
                path: path.clone(),
                line: number,
            });
        };
        let label = match label {
            "0" => false,
            "1" => true,
            found => {
                return Err(DataError::Label {
                    path: path.clone(),
                    row: number,
                    found: format!("'{found}'"),
                });
            }
        };
        rows.push(
            label,
            hashed(words, features).into_iter().chain([(features, 1.0)]),
        );
    }
    if rows.is_empty() {
        Err(DataError::Empty(path.clone()))
    } else {
        Ok(rows)
    }
}

/// The words' features: `1 + ln` of how often each occurs, scaled to a row of length 1, so that
/// long texts do not count for more than short ones.
fn hashed(text: &str, features: u32) -> BTreeMap<u32, f32> {
    let mut counts: BTreeMap<u32, f32> = BTreeMap::new();
    let words = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    for word in words {
        let hash = XxHash3_64::oneshot(word.to_lowercase().as_bytes());
        let feature = u32::try_from(hash % u64::from(features.max(1))).unwrap_or_default();
        *counts.entry(feature).or_default() += 1.0;
    }
    counts
        .values_mut()
        .for_each(|count| *count = 1.0 + count.ln());
    let length = counts
        .values()
        .map(|value| value * value)
        .sum::<f32>()
        .sqrt();
    counts.values_mut().for_each(|value| *value /= length);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_whatever_their_case_and_rows_have_length_1() {
        let few = hashed("Buy, buy! now", 1 << 20);
        assert_eq!(few.len(), 2);
        assert_eq!(few, hashed("NOW buy BUY", 1 << 20));
        assert!((few.values().map(|value| value * value).sum::<f32>() - 1.0).abs() < 1e-6);
        assert!(hashed(" .,\t", 8).is_empty());
        assert!(
            hashed("a b c d e f g h i j", 4)
                .keys()
                .all(|&feature| feature < 4)
        );
    }
}
