//! See `bodies::configuration`.

#![no_main]

#[allow(dead_code, reason = "each target has its own body")]
#[path = "../bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::configuration(data));
