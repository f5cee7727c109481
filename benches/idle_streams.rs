//! What an open stream that says nothing needs of kvgauge's memory: the figure of the README.
//!
//! `cargo bench --bench idle_streams` opens 5,000 of them (`-- 1000`: so many). Each needs two
//! descriptors here and two in kvgauge: `ulimit -n` must allow them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/support/mod.rs"]
mod support;

fn main() {
    let mut arguments = std::env::args().skip(1);
    // `cargo test --benches` and `cargo bench -- --test` only try whether it runs.
    let measured = std::env::args().any(|arg| arg == "--bench")
        && !std::env::args().any(|arg| arg == "--test");
    let asked = arguments.find_map(|argument| argument.parse().ok());
    let streams = asked.unwrap_or(if measured { 5000 } else { 50 });
    println!("| open streams | KiB before | while open | KiB a stream | after they were closed |");
    println!("| --- | --- | --- | --- | --- |");
    for cost in support::crowd::measure(streams, 3) {
        println!(
            "| {streams} | {} | {} | {:.1} | {} |",
            cost.before_kib,
            cost.open_kib,
            cost.of_one_kib(),
            cost.after_kib
        );
    }
}
