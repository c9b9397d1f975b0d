//! Arrivals that were recorded elsewhere.
//!
//! A trace has a time on each line, in seconds from the start: alone, or as the first column of a
//! CSV file, under a header line or not. Empty lines count for nothing.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::MAX_REQUESTS;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const MAX_FILE_BYTES: u64 = 256 << 20;
const MAX_LINE_BYTES: u64 = 4096;
/// Latest time after scaling: 31 days. Later ones are times of day, or in another unit.
const MAX_SECONDS: f64 = 31.0 * 86_400.0;
const SHOWN: usize = 40;

#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Ascending times in seconds from the start of the run, after scaling; at least one.
    pub times_s: Vec<f64>,
    pub sha256: String,
}

impl Trace {
    /// Reads `path`, gzip-compressed or not (its contents tell, not its name), to be sent `scale`
    /// times as fast as it was recorded: times are divided by `scale`.
    pub fn load(path: &Path, scale: f64) -> anyhow::Result<Self> {
        ensure!(
            scale.is_finite() && scale > 0.0,
            "trace scale {scale} is not a positive number; give --trace-scale as, say, 2 for twice \
             the rate"
        );
        let file = path.display();
        let unreadable = |error: std::io::Error| {
            anyhow!("{file}: cannot read it: {error}; give the path of a trace, plain or .gz")
        };
        let mut raw = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut raw))
            .map_err(unreadable)?;
        ensure!(
            raw.len() as u64 <= MAX_FILE_BYTES,
            "{file}: larger than {} MiB; cut it into several",
            MAX_FILE_BYTES >> 20
        );
        let times_s = if raw.starts_with(&GZIP_MAGIC) {
            parse(BufReader::new(MultiGzDecoder::new(raw.as_slice())), scale, MAX_REQUESTS)
        } else {
            parse(raw.as_slice(), scale, MAX_REQUESTS)
        };
        Ok(Self {
            times_s: times_s.map_err(|error| anyhow!("{file}: {error}"))?,
            sha256: Sha256::digest(&raw).iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

/// Reads `most` times line by line: lines and their number are bounded, whatever a file unpacks to.
fn parse(mut lines: impl BufRead, scale: f64, most: usize) -> anyhow::Result<Vec<f64>> {
    let mut times_s: Vec<f64> = Vec::new();
    let mut before = 0.0;
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let mut limited = lines.by_ref().take(MAX_LINE_BYTES + 1);
        let read = limited.read_until(b'\n', &mut bytes).map_err(|error| {
            anyhow!("line {line}: truncated or damaged gzip file ({error}); make it again")
        })?;
        if read == 0 {
            break;
        }
        ensure!(
            read as u64 <= MAX_LINE_BYTES,
            "line {line}: longer than {MAX_LINE_BYTES} bytes; write one time a line, in seconds \
             from the start"
        );
        let text = String::from_utf8_lossy(bytes.trim_ascii());
        // Empty lines are bounded as well.
        ensure!(
            line <= 2 * most && (times_s.len() < most || text.is_empty()),
            "line {line}: more than {MAX_REQUESTS} times; cut it into several"
        );
        if text.is_empty() {
            continue;
        }
        let first = text.split([',', ';', '\t', ' ']).next().unwrap_or_default().trim_matches('"');
        let header = |c: char| c.is_alphabetic() || c == '#' || c == '_';
        let found = match first.parse::<f64>() {
            Ok(found) if found.is_finite() => found,
            Err(_) if line == 1 && first.starts_with(header) => continue,
            _ => bail!(
                "line {line}: {:?} is not a number; write one time a line (or in the first \
                 column), in seconds from the start, as in 0.25",
                first.chars().take(SHOWN).collect::<String>()
            ),
        };
        ensure!(
            found >= 0.0,
            "line {line}: {found} is negative; count from the start of the trace"
        );
        ensure!(
            found >= before,
            "line {line}: {found} comes after {before}, which is later; sort the times"
        );
        ensure!(
            found / scale <= MAX_SECONDS,
            "line {line}: {found} is {:.0} days into the run, more than {:.0}; give seconds from \
             the start, or a larger --trace-scale",
            found / scale / 86_400.0,
            MAX_SECONDS / 86_400.0
        );
        before = found;
        times_s.push(found / scale);
    }
    ensure!(!times_s.is_empty(), "holds no times; write one a line, in seconds from the start");
    Ok(times_s)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn load(contents: &[u8], scale: f64) -> anyhow::Result<Trace> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(contents).unwrap();
        Trace::load(file.path(), scale)
    }

    fn times(contents: &str) -> Vec<f64> {
        load(contents.as_bytes(), 1.0).unwrap().times_s
    }

    #[test]
    fn plain_csv_and_gzip_read_the_same() {
        let expected = [0.0, 0.25, 0.25, 1e1];
        for contents in [
            "0\n0.25\n0.25\n10",
            "\n0\r\n.25\r\n0.25\r\n1e1\r\n\r\n",
            "time,model\n0,a\n0.25;b\n0.25\tb\n\"10\",c\n",
        ] {
            assert_eq!(times(contents), expected, "{contents:?}");
        }
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"seconds\n0\n0.25\n0.25\n10\n").unwrap();
        let packed = packed.finish().unwrap();
        assert_eq!(load(&packed, 1.0).unwrap().times_s, expected);
        let cut = load(&packed[..packed.len() - 12], 1.0).unwrap_err().to_string();
        assert!(cut.contains("truncated or damaged gzip file"), "{cut}");
    }

    #[test]
    fn scale_makes_it_faster_and_the_hash_is_of_the_file() {
        let trace = load(b"0\n1\n3\n", 2.0).unwrap();
        assert_eq!(trace.times_s, [0.0, 0.5, 1.5]);
        assert_eq!(trace.sha256, load(b"0\n1\n3\n", 1.0).unwrap().sha256);
        assert_eq!(trace.sha256.len(), 64);
        for scale in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let refused = load(b"0\n", scale).unwrap_err().to_string();
            assert!(refused.starts_with("trace scale"), "{refused}");
        }
    }

    #[test]
    fn faults_are_told_with_their_line() {
        let line = |contents: &str| load(contents.as_bytes(), 1.0).unwrap_err().to_string();
        for (contents, expected) in [
            ("0\nx\n", "line 2: \"x\" is not a number"),
            ("1,5\n,3\n", "line 2: \"\" is not a number"),
            ("nan\n", "line 1: \"nan\" is not a number"),
            ("a\nb\n", "line 2: \"b\" is not a number"),
            ("-1\n", "line 1: -1 is negative"),
            ("0\n\n2\n1.5\n", "line 4: 1.5 comes after 2"),
            ("1700000000\n", "line 1: 1700000000 is 19676 days into the run"),
            ("time\n", "holds no times"),
            ("", "holds no times"),
        ] {
            assert!(line(contents).contains(expected), "{contents:?}: {}", line(contents));
        }
        let many = |contents: &str| parse(contents.as_bytes(), 1.0, 2);
        assert_eq!(many("0\n1\n\n").unwrap(), [0.0, 1.0]);
        for contents in ["0\n1\n2\n", "\n\n\n\n\n0\n"] {
            let refused = many(contents).unwrap_err().to_string();
            assert!(refused.contains("more than"), "{contents:?}: {refused}");
        }
        assert!(line(&"1".repeat(5000)).contains("line 1: longer than"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_trace_or_an_error(contents: Vec<u8>) {
            if let Ok(trace) = load(&contents, 1.0) {
                prop_assert!(!trace.times_s.is_empty() && trace.times_s.is_sorted());
            }
        }
    }
}
