//! The live page: how the models do, and the switches that change it, in a browser.
//!
//! It is one document without anything from elsewhere, and its policy lets it run its own script
//! only. It asks for the key and sends it as any other client does; what it gets it shows as text.
//! Rates are differences between two states, which the page takes.

use std::sync::LazyLock;

use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("live/page.css");
const SCRIPT: &str = include_str!("live/page.js");
const FRAME: &str = include_str!("live/page.html");

struct Document {
    html: String,
    policy: String,
}

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| Document {
    html: FRAME.replace("/* style */", STYLE).replace("/* script */", SCRIPT),
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

pub(super) async fn page() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, DOCUMENT.policy.as_str()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, DOCUMENT.html.as_str()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_whole_and_takes_nothing_from_elsewhere() {
        let Document { html, policy } = &*DOCUMENT;
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
        for tag in ["script", "style"] {
            let (_, after) = html.split_once(&format!("<{tag}>")).unwrap();
            let (between, _) = after.split_once(&format!("</{tag}>")).unwrap();
            assert!(policy.contains(&hash(between)), "the {tag}'s hash is another");
        }
    }
}
