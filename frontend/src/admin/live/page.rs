//! The page itself.

use std::sync::LazyLock;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const FRAME: &str = include_str!("page.html");

/// The document, and the policy under which it runs.
struct Document {
    html: String,
    policy: String,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| Document {
    html: FRAME
        .replace("/* style */", STYLE)
        .replace("/* script */", SCRIPT),
    policy: format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; base-uri \
            'none'; form-action 'none'; frame-ancestors 'none'",
        hash(SCRIPT),
        hash(STYLE)
    ),
});

/// Returns the hash by which a policy names an inline script or style of this text.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

/// `GET /live`
pub(in crate::admin) async fn page() -> Response {
    let mut response = Response::new(Body::from(DOCUMENT.html.as_str()));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    if let Ok(policy) = HeaderValue::from_str(&DOCUMENT.policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_takes_nothing_from_elsewhere() {
        let html = &DOCUMENT.html;
        assert!(html.contains(STYLE) && html.contains(SCRIPT));
        for elsewhere in [
            " src=",
            " href=",
            "@import",
            "url(",
            "innerHTML",
            "insertAdjacentHTML",
            "document.write",
        ] {
            assert!(!html.contains(elsewhere), "{elsewhere:?}");
        }
        // Browsers hash what stands between the tags, to the last line break.
        let between = |tag: &str| {
            html.split_once(&format!("<{tag}>"))
                .unwrap()
                .1
                .split_once(&format!("</{tag}>"))
                .unwrap()
                .0
        };
        assert!(
            DOCUMENT.policy.contains(&hash(between("script"))),
            "the script's hash is another"
        );
        assert!(
            DOCUMENT.policy.contains(&hash(between("style"))),
            "the style's hash is another"
        );
    }
}
