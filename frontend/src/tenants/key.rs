//! Bearer keys and what is kept of them.

use std::fmt;
use std::str::FromStr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use rand::RngCore as _;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// A key as its owner has it. Not to be logged: it has no `Debug` that shows it.
pub struct Key(String);

/// Prefix of a key, so that people and secret scanners recognise one.
const PREFIX: &str = "parapet_";

impl Key {
    /// A new key of 256 random bits, from the system's generator.
    pub fn generate() -> Self {
        let mut bits = [0; 32];
        rand::rng().fill_bytes(&mut bits);
        Self(format!("{PREFIX}{}", HEXLOWER.encode(&bits)))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    pub fn hash(&self) -> KeyHash {
        KeyHash::of(self.0.as_bytes())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    pub fn of(key: &[u8]) -> Self {
        Self(Sha256::digest(key).into())
    }

    /// Returns true if both are the same, in a time that does not depend on it.
    pub fn equals(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyHash({self})")
    }
}

/// Text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256 in 64 hexadecimal digits; `parapet-frontend hash-key` prints one")]
pub struct NoKeyHash;

impl FromStr for KeyHash {
    type Err = NoKeyHash;

    fn from_str(text: &str) -> Result<Self, NoKeyHash> {
        let hash = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map_err(|_| NoKeyHash)?;
        Ok(Self(hash.try_into().map_err(|_| NoKeyHash)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_sha_256_and_are_read_back() {
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(KeyHash::of(b"abc").to_string(), abc);
        assert_eq!(abc.parse(), Ok(KeyHash::of(b"abc")));
        assert_eq!(abc.to_uppercase().parse(), Ok(KeyHash::of(b"abc")));
        for wrong in [
            "",
            "abc",
            &abc[1..],
            &abc.replacen("ba", "+a", 1),
            &abc.replacen("ba", "é", 1),
            &format!("{abc}0"),
        ] {
            assert_eq!(wrong.parse::<KeyHash>(), Err(NoKeyHash), "{wrong}");
        }
    }

    #[test]
    fn keys_are_long_and_do_not_show_themselves() {
        let (one, other) = (Key::generate(), Key::generate());
        assert!(one.text() != other.text() && one.text().len() == PREFIX.len() + 64);
        assert!(!format!("{one:?}").contains(&one.text()[PREFIX.len()..]));
    }
}
