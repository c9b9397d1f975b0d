//! What an instance's address says of the protocol it speaks.

/// The protocol of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// REST over HTTP/1.1: `host:port` or `http://host:port`.
    Http,
    /// gRPC over HTTP/2: `grpc://host:port`.
    Grpc,
}

impl Scheme {
    /// Takes the scheme off an address.
    pub fn split(address: &str) -> (Self, &str) {
        let (scheme, host) = match address.strip_prefix("grpc://") {
            Some(host) => (Self::Grpc, host),
            None => (Self::Http, address.strip_prefix("http://").unwrap_or(address)),
        };
        (scheme, host.trim_end_matches('/'))
    }

    /// The instance's name in logs and metrics, out of which [`Scheme::split`] reads the same.
    pub fn name(self, host: &str) -> String {
        match self {
            Self::Http => host.to_owned(),
            Self::Grpc => format!("grpc://{host}"),
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
            ("grpc://a:1/", Scheme::Grpc, "grpc://a:1"),
        ] {
            let (found, host) = Scheme::split(address);
            assert_eq!((found, host, found.name(host).as_str()), (scheme, "a:1", name));
            assert_eq!(Scheme::split(name), (scheme, "a:1"));
        }
    }
}
