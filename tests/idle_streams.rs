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
const MOST_KIB: f64 = 100.0;

#[test]
fn an_open_stream_needs_little_memory_and_leaves_none_behind() {
    let costs = measure(500, 2);
    for cost in &costs {
        println!("{:.1} KiB a stream: {cost:?}", cost.of_one_kib());
    }
    let first = costs[0].of_one_kib();
    assert!(first < MOST_KIB, "{first:.1} KiB a stream");
    // The second time they find what the first ones have left.
    let grown = costs[1].open_kib.saturating_sub(costs[0].open_kib);
    let share = grown as f64 / costs[0].streams as f64;
    assert!(
        share < first / 4.0,
        "{share:.1} KiB a stream are left behind"
    );
}
