//! Endpoints of etcd as they are written.

/// Returns true if a member is asked within TLS.
pub(crate) fn is_secure(endpoint: &str) -> bool {
    endpoint.starts_with("https://")
}

/// An endpoint without its scheme, if it is `HOST:PORT`, `http://HOST:PORT` or `https://HOST:PORT`.
pub(crate) fn host_and_port(endpoint: &str) -> Option<&str> {
    let bare = endpoint
        .strip_prefix("http://")
        .or_else(|| endpoint.strip_prefix("https://"));
    let bare = bare.unwrap_or(endpoint).trim_end_matches('/');
    let (host, port) = bare.rsplit_once(':')?;
    let plain =
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0);
    plain.then_some(bare)
}
