//! The trace that a client has begun: `traceparent` of W3C Trace Context, level 1.

use http::HeaderMap;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

/// The header; what is not as the standard has it counts as none.
pub(crate) const TRACEPARENT: &str = "traceparent";

pub(super) fn of(headers: &HeaderMap) -> Option<SpanContext> {
    parse(headers.get(TRACEPARENT)?.to_str().ok()?)
}

/// `version "-" trace id "-" parent id "-" flags`, all hexadecimal; versions after 00 may
/// have more behind.
fn parse(text: &str) -> Option<SpanContext> {
    let mut fields = text.trim().split('-');
    let mut field = |length: usize| {
        let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        fields.next().filter(|field| field.len() == length && field.bytes().all(is_digit))
    };
    let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
    if version == "ff" || (version == "00" && fields.next().is_some()) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let context = SpanContext::new(trace, span, flags, true, TraceState::NONE);
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn sampled_and_not() {
        let sampled = parse(GOOD).unwrap();
        assert!(sampled.is_sampled() && sampled.is_remote());
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(sampled.trace_id().to_string(), trace);
        assert!(!parse(&GOOD.replace("-01", "-00")).unwrap().is_sampled());
        let later_version = GOOD.replace("00-4", "01-4").replace("-01", "-01-more");
        assert!(parse(&later_version).is_some());
    }

    #[test]
    fn headers_that_the_standard_forbids_are_no_parent() {
        for bad in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
