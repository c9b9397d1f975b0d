//! The fuzzers' corpora, and changes of them: the same bodies as under `cargo fuzz`, for compilers
//! that cannot fuzz.

use std::path::Path;

use crate::site::Random;

#[path = "../../fuzz/bodies.rs"]
mod bodies;

/// Changes of each file.
const CHANGES: u64 = 1500;

const WORDS: [&[u8]; 14] = [
    b"18446744073709551615",
    b"-1",
    b"1e999",
    b"null",
    b"[",
    b"]",
    b"{",
    b"\"",
    b"\\u0000",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\n",
    b"[[models]]\n",
    b" = ",
];

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn word(&mut self) -> impl Iterator<Item = u8> + use<> {
        WORDS[self.below(WORDS.len())].iter().copied()
    }

    /// One to four changes: a bit, a byte, a word put in or over, a piece doubled or cut out, the
    /// end cut off.
    fn change(&mut self, original: &[u8]) -> Vec<u8> {
        let mut data = original.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(data.len() + 1);
            let length = self.below(data.len() - at + 1);
            match self.below(6) {
                0 if at < data.len() => data[at] ^= 1 << self.below(8),
                1 if at < data.len() => data[at] = self.below(256) as u8,
                2 => drop(data.splice(at..at, self.word())),
                3 => drop(data.splice(at..at + length.min(8), self.word())),
                4 => {
                    let piece = data[at..at + length].to_vec();
                    let to = self.below(data.len() + 1);
                    drop(data.splice(to..to, piece));
                }
                _ => drop(data.drain(at..at + length)),
            }
        }
        data
    }
}

fn replay(target: &str, body: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let files = std::fs::read_dir(corpus.join(target)).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for file in files {
        let original = std::fs::read(&file).unwrap();
        body(&original);
        for _ in 0..CHANGES {
            body(&random.change(&original));
        }
    }
}

#[test]
fn requests() {
    replay("request", bodies::request);
}

#[test]
fn binary_requests() {
    replay("binary", bodies::binary);
}

#[test]
fn configurations() {
    replay("configuration", bodies::configuration);
}
