//! Addresses as people write them: a host's name or number, and a port.

use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs as _};

use serde::de::{Deserialize as _, Deserializer, Error as _};

/// Returns the address that `text`, `HOST:PORT`, stands for; the IPv4 one of a name that has both.
///
/// # Errors
/// One line with the text, the reason and the fix.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let wrong = |reason: &dyn Display| {
        format!("{text:?}: {reason}; give host:port, such as localhost:8080")
    };
    let found = text.to_socket_addrs().map_err(|error| wrong(&error))?;
    let address = found.min_by_key(SocketAddr::is_ipv6);
    address.ok_or_else(|| wrong(&"the name has no address"))
}

/// Reads an address in a configuration file, as [`parse`] does.
pub fn deserialize<'de, D: Deserializer<'de>, A: From<SocketAddr>>(from: D) -> Result<A, D::Error> {
    parse(&String::deserialize(from)?).map(A::from).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_addresses_and_mistakes_name_the_fix() {
        for text in ["localhost:8080", "127.0.0.1:8080"] {
            assert_eq!(parse(text), Ok(SocketAddr::from(([127, 0, 0, 1], 8080))));
        }
        assert!(parse("[::1]:80").unwrap().is_ipv6());
        for text in ["8080", "localhost", "localhost:port", "127.0.0.1:99999", "", "http://a:1"] {
            let mistake = parse(text).unwrap_err();
            let named = mistake.starts_with(&format!("{text:?}: "));
            assert!(
                named && mistake.ends_with("give host:port, such as localhost:8080"),
                "{mistake}"
            );
        }
    }
}
