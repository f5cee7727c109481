//! The page at `/` in a real Chromium, on what the demo plays. The scripts are in `tests/page/`; their
//! pictures are kept in `target/page-shots/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::path::Path;
use support::program::page_script;

/// Runs a script of `tests/page` to its end.
fn run(script: &str) {
    let shots = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/page-shots");
    let output = page_script(
        script,
        [Path::new(&support::kvgauge::program()), shots.as_path()],
    );
    assert!(output.ends_with("ok\n"), "{output}");
}

#[test]
#[ignore = "needs node: tests/run"]
fn what_is_kept_of_the_past_has_gaps_and_bounds() {
    run("series.mjs");
}

#[test]
#[ignore = "needs chromium: tests/run"]
fn a_pool_that_fills_is_seen_to_rise_into_the_warning_band() {
    run("full.mjs");
}

#[test]
#[ignore = "needs chromium: tests/run"]
fn an_engine_that_restarts_is_unknown_in_words_and_a_gap_and_then_back() {
    run("decode_restart.mjs");
}

#[test]
#[ignore = "needs chromium: tests/run"]
fn a_rank_that_is_full_is_named_where_the_whole_looks_harmless() {
    run("hot_rank.mjs");
}

#[test]
#[ignore = "needs chromium: tests/run"]
fn an_engine_that_may_hang_is_a_warning_in_words() {
    run("hung.mjs");
}

#[test]
#[ignore = "needs chromium: tests/run"]
fn a_kvgauge_that_is_gone_is_said_and_found_again() {
    run("lost.mjs");
}

#[test]
#[ignore = "needs chromium: tests/run"]
fn what_is_hot_missing_or_not_known_is_said_in_words() {
    run("told.mjs");
}

#[test]
#[ignore = "needs chromium: tests/run"]
fn a_token_is_asked_for_and_kept_in_the_tab() {
    run("token.mjs");
}
