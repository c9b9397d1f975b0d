//! Protocol of an instance, by its address.

use std::fmt;

use serde::Deserialize;

/// The protocol of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// REST over HTTP/1.1: `host:port` or `http://host:port`.
    #[default]
    Http,
    /// The same within TLS: `https://host:port`.
    Https,
    /// gRPC over HTTP/2: `grpc://host:port`.
    Grpc,
    /// The same within TLS: `grpcs://host:port`.
    Grpcs,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Http, Self::Https, Self::Grpc, Self::Grpcs];

    pub fn is_secure(self) -> bool {
        matches!(self, Self::Https | Self::Grpcs)
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Grpc => "grpc",
            Self::Grpcs => "grpcs",
        }
    }

    /// Takes the scheme off an address, if there is one.
    pub fn split_off(address: &str) -> (Option<Self>, &str) {
        let split = |scheme: Self| address.strip_prefix(scheme.as_str())?.strip_prefix("://");
        let found = Self::ALL
            .into_iter()
            .find_map(|scheme| Some((Some(scheme), split(scheme)?)));
        let (scheme, host) = found.unwrap_or((None, address));
        (scheme, host.trim_end_matches('/'))
    }

    /// The same; REST if there is none.
    pub fn split(address: &str) -> (Self, &str) {
        let (scheme, host) = Self::split_off(address);
        (scheme.unwrap_or_default(), host)
    }

    /// The instance's name in logs and metrics, out of which [`Scheme::split`] reads the same.
    pub fn name(self, host: impl fmt::Display) -> String {
        match self {
            Self::Http => host.to_string(),
            scheme => format!("{}://{host}", scheme.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_the_scheme() {
        for (address, scheme, name) in [
            ("a:1", Scheme::Http, "a:1"),
            ("http://a:1/", Scheme::Http, "a:1"),
            ("https://a:1", Scheme::Https, "https://a:1"),
            ("grpc://a:1/", Scheme::Grpc, "grpc://a:1"),
            ("grpcs://a:1", Scheme::Grpcs, "grpcs://a:1"),
        ] {
            let (found, host) = Scheme::split(address);
            assert_eq!(
                (found, host, found.name(host).as_str()),
                (scheme, "a:1", name)
            );
            assert_eq!(Scheme::split(name), (scheme, "a:1"));
        }
        assert_eq!(Scheme::split_off("a:1"), (None, "a:1"));
    }
}
