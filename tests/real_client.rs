//! The official `openai` client in Python through kvgauge; `real_node.rs` does the same with the other one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "support/engines.rs"]
mod engines;
#[path = "support/sdk.rs"]
mod sdk;
mod support;

use sdk::Sdk;

const SDK: Sdk = Sdk {
    run: |name, arguments| support::program::script(name, arguments),
    ending: "py",
};

#[test]
#[ignore = "needs sglang-router and openai: tests/run"]
fn the_openai_client_through_a_plain_router() {
    SDK.through_a_plain_router();
}

#[test]
#[ignore = "needs sglang-router and openai: tests/run"]
fn the_openai_client_through_a_disaggregated_router() {
    SDK.through_a_disaggregated_router();
}

#[test]
#[ignore = "needs openai: tests/run"]
fn errors_retries_timeouts_and_broken_streams_are_what_the_client_knows_them_as() {
    SDK.knows_errors();
}

#[test]
#[ignore = "needs sglang-router and openai: tests/run"]
fn embeddings_through_the_real_router() {
    SDK.embeddings();
}

#[test]
#[ignore = "needs openai: tests/run"]
fn a_hundred_megabytes_of_images_pass_whole_and_are_not_kept() {
    SDK.images();
}

#[test]
#[ignore = "needs sglang-router and openai: tests/run"]
fn a_hundred_megabytes_of_images_through_the_real_router() {
    SDK.images_through_the_router();
}
