//! Any bytes as `Accept` and `Accept-Encoding`: nothing panics, and the form that is chosen is one
//! whose content type asks for itself.
//!
//! Lines of the input are lines of the header.

#![no_main]

use kvgauge::exposition::{Format, takes_gzip};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let lines = || input.split(|b| *b == b'\n');
    let format = Format::negotiate(lines());
    assert_eq!(format, Format::negotiate(lines()));
    let asked = format.content_type();
    assert_eq!(Format::negotiate([asked.as_bytes()]), format);
    let _ = takes_gzip(lines());
});
