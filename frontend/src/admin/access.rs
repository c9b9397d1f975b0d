//! Authentication of operators.
//!
//! With keys in the configuration, all requests that send one. Without, the listener is on a
//! loopback address, and the pages of other sites that a browser on the same machine shows must
//! not use that: requests that a browser marks with another origin are refused, and so is a
//! `Host` that is no name of this machine, since a site's own name may be made to resolve to a
//! loopback address (DNS rebinding).

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::HeaderMap;
use http::header::{HOST, ORIGIN};

use crate::app::App;
use crate::error::ServeError;
use crate::tenants::owner;

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
pub(super) enum Operator {
    /// By the key at this place in `admin.key_sha256`.
    #[strum(to_string = "key_sha256[{0}]")]
    Key(usize),
    #[strum(to_string = "no key")]
    Local,
}

pub(super) async fn authenticate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ServeError> {
    let operator = may_enter(&app, request.headers())?;
    request.extensions_mut().insert(operator);
    Ok(next.run(request).await)
}

fn may_enter(app: &App, headers: &HeaderMap) -> Result<Operator, ServeError> {
    let serving = app.serving();
    let keys = serving.admin.as_ref().map(|admin| &admin.keys[..]).unwrap_or_default();
    if keys.is_empty() {
        return match is_of_other_site(headers) || !is_for_this_machine(headers) {
            true => Err(ServeError::OtherSite),
            false => Ok(Operator::Local),
        };
    }
    owner(headers, keys.iter().enumerate()).map(Operator::Key).ok_or(ServeError::Unauthenticated)
}

/// Returns true if a browser sent it for a page that is not the listener's own.
fn is_of_other_site(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return false };
    let authority = origin.to_str().unwrap_or_default().split("://").nth(1);
    authority.is_none() || authority != headers.get(HOST).and_then(|host| host.to_str().ok())
}

/// Returns true if it names this machine as what it asks: an address, or `localhost`. No `Host`
/// comes from no browser.
fn is_for_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let host = host.to_str().unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        headers
    }

    #[test]
    fn pages_of_other_sites_are_told_apart() {
        for (origin, is_other) in [
            (None, false),
            (Some("http://localhost:8081"), false),
            (Some("http://evil.example"), true),
            (Some("http://localhost:8080"), true),
            (Some("null"), true),
            (Some("http://evil.example/http://localhost:8081"), true),
        ] {
            let headers = headers("localhost:8081", origin);
            assert_eq!(is_of_other_site(&headers), is_other, "{origin:?}");
        }
    }

    #[test]
    fn a_name_of_another_machine_is_no_loopback_address() {
        for (host, is_here) in [
            ("localhost", true),
            ("LocalHost:8081", true),
            ("127.0.0.1:8081", true),
            ("127.8.0.1", true),
            ("[::1]:8081", true),
            ("[::1]", true),
            ("evil.example", false),
            ("evil.example:8081", false),
            ("127.0.0.1.evil.example:80", false),
            ("10.0.0.1:80", false),
            ("", false),
            (":80", false),
        ] {
            assert_eq!(is_for_this_machine(&headers(host, None)), is_here, "{host:?}");
        }
        assert!(is_for_this_machine(&HeaderMap::new()));
    }
}
