//! Everything goes wrong at once, under load: the upstream is killed, stopped, restarted and refuses,
//! sources fail, clients leave, descriptors run short. At the end every request is accounted for, and
//! nothing is left over.
//!
//! `KVGAUGE_SEED=7` plays the faults of another seed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod client;
mod ledger;
mod run;
#[path = "../support/mod.rs"]
mod support;
mod upstream;

use std::time::Duration;
use support::Client;
use upstream::{AT, Upstream, all_events, plain, streamed, whole};

#[test]
fn the_upstream_answers_as_its_clients_expect() {
    // The process that plays it is this test with an address.
    if let Ok(address) = std::env::var(AT) {
        upstream::play(address.parse().unwrap());
        return;
    }
    let mut upstream = Upstream::start();
    let mut client = Client::connect(upstream.address());
    client.send(streamed("one", 5, Duration::from_millis(1)));
    assert_eq!(client.response("POST").text(), all_events("one", 5));
    client.send(plain("two", 3)).send("abc");
    assert_eq!(client.response("POST").text(), whole("two", 3));
    upstream.kill();
    assert!(client.is_closed(), "the process is gone");
    assert!(
        Client::try_connect(upstream.address()).is_err(),
        "it refuses"
    );
    upstream.run();
}

/// Half a minute of it.
#[test]
fn every_request_is_accounted_for_whatever_fails_timed() {
    run::faults(Duration::from_secs(30));
}

mod full {
    use super::{Duration, run};

    #[test]
    #[ignore = "takes 10 minutes: tests/run --full"]
    fn every_request_is_accounted_for_after_ten_minutes_of_faults_timed() {
        run::faults(Duration::from_secs(600));
    }
}
