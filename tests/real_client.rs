//! The real `openai` client through kvgauge to the real `sglang-router`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

#[path = "support/engines.rs"]
mod engines;
mod support;

use engines::Engines;
use kvgauge::kv::Role;
use support::program::script;
use support::router::Router;
use support::tap::Tap;
use support::{Setup, same};

/// Lets the client make its calls, and compares every exchange in front of kvgauge with the one
/// behind it.
fn through(mode: &str, router: &Router, sources: &[(&str, &str, String)]) {
    let back = Tap::new(router.api);
    let mut setup = Setup::new(back.address()).source_at("router", "", &router.metrics_url());
    for (name, role, url) in sources {
        setup = setup.source_at(name, role, url);
    }
    let kvgauge = setup.start();
    for (name, ..) in sources {
        kvgauge.until_up(name);
    }
    let front = Tap::new(kvgauge.listen);
    let base = format!("http://{}/v1", front.address());
    let text = script(
        "openai_client.py",
        [base, engines::MODEL.to_owned(), mode.to_owned()],
    );
    let calls: usize = text.trim().lines().last().unwrap().parse().unwrap();
    assert!(calls > 10, "{text}");

    let exchanges = front.exchanges();
    assert_eq!(exchanges.len(), calls, "one exchange a call");
    let behind = back.exchanges();
    assert_eq!(behind.len(), calls, "and each was forwarded once");
    for exchange in &exchanges {
        let id = exchange.answer.get("x-request-id").expect("an id");
        let same_id = |head: &support::Head| head.get("x-request-id").as_deref() == Some(&id);
        let other = behind
            .iter()
            .find(|other| same_id(&other.request))
            .expect("the same behind");
        same::check(&exchange.request.start, exchange, other);
        let line = kvgauge.line_of(&id);
        assert_eq!(
            line["http.response.status_code"],
            exchange.answer.status(),
            "{line}"
        );
        assert_eq!(line["outcome"], "complete", "{line}");
    }
}

#[test]
#[ignore = "needs sglang-router and openai: tests/run"]
fn the_openai_client_through_a_plain_router() {
    let engines = Engines::start(&[Role::Unified]);
    let router = Router::plain(&[engines.address(0)], &["--disable-retries"]);
    through(
        "plain",
        &router,
        &[("engine", "unified", engines.metrics_url(0))],
    );
}

#[test]
#[ignore = "needs sglang-router and openai: tests/run"]
fn the_openai_client_through_a_disaggregated_router() {
    let engines = Engines::start(&[Role::Prefill, Role::Decode]);
    let router = Router::disaggregated(
        engines.address(0),
        engines.address(1),
        &["--disable-retries"],
    );
    through(
        "pd",
        &router,
        &[
            ("prefill", "prefill", engines.metrics_url(0)),
            ("decode", "decode", engines.metrics_url(1)),
        ],
    );
}
