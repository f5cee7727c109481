//! What an open stream that says nothing needs of memory. `cargo bench --bench idle_streams` measures
//! the release build, with 5,000.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use support::crowd::measure;

/// KiB of resident memory for each open stream at most, in the build that is tested.
const MOST_KIB: f64 = 20.0;

/// By so much more once the allocator's pages have all been touched: a buffer has 8 KiB that are not
/// written to at first.
const TOUCHED_KIB: f64 = 30.0;

/// KiB that a stream may leave behind then: a buffer that is not given back is 8.
const LEFT_KIB: f64 = 4.0;

#[test]
fn an_open_stream_needs_little_memory_and_leaves_none_behind() {
    let costs = measure(500, 6);
    for cost in &costs {
        println!("{:.1} KiB a stream: {cost:?}", cost.of_one_kib());
    }
    let first = costs[0].of_one_kib();
    assert!(first < MOST_KIB, "{first:.1} KiB a stream");
    let [.., before, last] = costs.as_slice() else {
        panic!("several times");
    };
    let streams = last.streams as f64;
    let touched = last.open_kib.saturating_sub(costs[0].before_kib) as f64 / streams;
    assert!(touched < TOUCHED_KIB, "{touched:.1} KiB a stream after all");
    let left = last.open_kib.saturating_sub(before.open_kib) as f64 / streams;
    assert!(left < LEFT_KIB, "{left:.1} KiB a stream are left behind");
}
