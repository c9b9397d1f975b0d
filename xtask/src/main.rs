//! Parapet's set-up, demo, test and CI steps.
fn main() {}
