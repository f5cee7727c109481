//! What is wrong with a page that can be read, and what to do: `/sources`, the diagnostics and `status`
//! say what `doctor` says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use serde_json::Value;
use support::kvgauge::run;
use support::page::Behaviour;
use support::{Kvgauge, Page, Setup, Upstream, eventually, get};

const DECODE: &str = "sglang-0.5.23-decode-tp4-busy";
const PREFILL: &str = "sglang-0.5.23-prefill-tp4-busy";

/// A real decode server's page, as an engine that nobody knows would write it.
fn strange() -> String {
    support::data::page(DECODE).replace("sglang:", "rtp:")
}

/// What a command says, standard error behind standard output.
fn said(arguments: &[&str]) -> String {
    let output = run(arguments);
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

/// kvgauge that reads this page alone, with these options of the source.
fn reading(page: &Page, name: &str, options: &str) -> (Kvgauge, Upstream) {
    let upstream = Upstream::ok();
    let source = format!("{}{options}", page.url());
    let kvgauge = Setup::new(upstream.address())
        .source_at(name, "", &source)
        .start();
    kvgauge.until_up(name);
    (kvgauge, upstream)
}

fn source(kvgauge: &Kvgauge) -> Value {
    get(kvgauge.admin, "/sources").json()["sources"][0].clone()
}

fn status(kvgauge: &Kvgauge) -> String {
    said(&["status", &format!("http://{}", kvgauge.admin)])
}

/// Each of them as it stands behind an arrow of `doctor`, at `/sources`, in the log, and in `status`.
#[test]
fn sources_say_the_next_step_as_doctor_does() {
    let router = "sglang-router-0.3.2-pd-before-traffic";
    // Page, the source's name and options, cause, next step.
    for (page, name, options, cause, next) in [
        (
            support::data::page(router),
            "decode",
            "",
            "this is the router: KV gauges live on the decode server",
            "set the source's url to the decode server's own page",
        ),
        (
            support::data::page(PREFILL),
            "decode",
            "",
            "it is set as decode, but its page says that it is a prefill server",
            "set the source's url to the right server, or correct its role",
        ),
        (
            support::data::page("vllm-0.32.0-loaded"),
            "decode",
            ",engine=sglang",
            "it is read as sglang, as it is set, but its page is vllm's",
            "leave its engine out, or set \"vllm\"",
        ),
        (
            support::data::page(router),
            "decode",
            ",engine=sglang",
            "this is the router",
            "set the source's url",
        ),
        (
            support::data::page("sglang-0.5.10-decode-tp4-fresh"),
            "engine",
            "",
            "its page names no role, and none is set, so it feeds no role",
            "set the source's role: decode, prefill or unified",
        ),
        (
            (0..1100)
                .map(|rank| format!("sglang:token_usage{{dp_rank=\"{rank}\"}} 0.5\n"))
                .collect(),
            "decode",
            "",
            "it has 76 pools more than the 1024 that are read of a page",
            "name the pages of its engines, each in a source of its own",
        ),
        (
            "up 1\n".to_owned(),
            "decode",
            "",
            "a good page, but no engine known here has KV gauges on it",
            "see whether the url is the engine's own page",
        ),
        (
            strange(),
            "decode",
            "",
            "no engine known here has KV gauges on it; some names look like KV usage",
            "put this mapping, mended where it has to be, into the settings, and engine = \"mine\" into",
        ),
    ] {
        let page = Page::text(page);
        let (kvgauge, _upstream) = reading(&page, name, options);
        let source = source(&kvgauge);
        let problem = &source["problems"][0];
        let has = |key: &str, words: &str| problem[key].as_str().is_some_and(|t| t.contains(words));
        assert!(has("cause", cause) && has("next", next), "{source}");
        let line = kvgauge.says(cause);
        assert!(line.contains("WARN") && line.contains(next), "{line}");
        let line = status(&kvgauge);
        let wanted = format!("{name}: {cause}");
        assert!(line.contains(&wanted) && line.contains(next), "{line}");
        let text = said(&["doctor", &format!("{name}={}{options}", page.url())]);
        let arrow = text.lines().skip_while(|line| !line.contains(cause)).nth(1);
        let arrow = arrow.unwrap_or_else(|| panic!("{text}"));
        let next = next.split(", and engine").next().unwrap();
        assert!(arrow.contains("-> ") && arrow.contains(next), "{text}");
    }
}

#[test]
fn a_page_on_which_nothing_is_wrong_has_no_problems() {
    for (page, name) in [
        (DECODE, "decode"),
        (PREFILL, "engine"),
        ("sglang-router-0.3.2-pd-before-traffic", "router"),
        ("vllm-0.32.0-loaded", "decode"),
    ] {
        let page = Page::real(page);
        let (kvgauge, _upstream) = reading(&page, name, "");
        let source = source(&kvgauge);
        assert_eq!(source["problems"], serde_json::json!([]), "{source}");
        assert_eq!(source["mapping"], Value::Null, "{source}");
    }
}

/// What is wrong is told when it begins and when it is over, and gone with its reading.
#[test]
fn problems_come_and_go_with_the_page() {
    let page = Page::real(PREFILL);
    let (kvgauge, _upstream) = reading(&page, "decode", "");
    kvgauge.says("it is set as decode, but its page says that it is a prefill server");
    page.set(Behaviour::Text(support::data::page(DECODE)));
    kvgauge.says("nothing is wrong with it any more");
    assert_eq!(source(&kvgauge)["problems"], serde_json::json!([]));
    page.set(Behaviour::Text(strange()));
    eventually("there is a mapping", || {
        source(&kvgauge)["mapping"].is_string().then_some(())
    });
    page.set(Behaviour::Refuse);
    eventually("nothing is said of a page that is gone", || {
        let source = source(&kvgauge);
        let gone = source["mapping"].is_null() && source["problems"] == serde_json::json!([]);
        gone.then_some(())
    });
}

/// A fresh engine is no cause for a warning.
#[test]
fn a_fresh_engine_is_told_and_not_warned_of() {
    let page = Page::real("sglang-0.5.23-decode-tp4-fresh");
    let (kvgauge, _upstream) = reading(&page, "decode", "");
    let line = kvgauge.says("its gauges come with the first request");
    assert!(line.contains("INFO"), "{line}");
    let problem = &source(&kvgauge)["problems"][0];
    assert!(
        problem["next"].as_str().unwrap().contains("send a request"),
        "{problem}"
    );
}

/// Free tokens are no capacity and memory is no usage: as it is pasted, the mapping gives what the page
/// says under the names that are known.
#[test]
fn the_mapping_at_sources_gives_the_right_tokens() {
    let page = Page::text(strange());
    let (kvgauge, upstream) = reading(&page, "decode", "");
    let mapping = source(&kvgauge)["mapping"].as_str().unwrap().to_owned();
    let settings = format!(
        "{mapping}\n[[source]]\nname = \"decode\"\nurl = \"{}\"\nengine = \"mine\"\n",
        page.url()
    );
    let mended = Setup::new(upstream.address()).settings(&settings).start();
    mended.until_up("decode");
    let text = status(&mended);
    assert!(
        text.starts_with("decode  12,034 / 2,581,504 tokens  0.4"),
        "{text}\n{settings}"
    );
    let doctor = said(&["doctor", &format!("decode={}", page.url())]);
    for wrong in ["available_tokens", "evictable_tokens", "memory", "_gb"] {
        let line = doctor.lines().find(|line| line.contains(wrong));
        assert_eq!(line, None, "{doctor}");
    }
}

fn not_found(head: &str, body: &str) -> Page {
    let length = body.len();
    let answer = format!("HTTP/1.1 404 Not Found\r\n{head}Content-Length: {length}\r\n\r\n{body}");
    Page::new(Behaviour::Raw(answer.into()))
}

#[test]
fn a_404_of_the_routers_api_is_told_from_metrics_that_are_off() {
    let empty = not_found("", "");
    let detail = not_found("", "{\"detail\":\"Not Found\"}");
    let router = "KV gauges live on the decode server";
    let off = "-> start the server with --enable-metrics (SGLang), or correct the source's url if they \
               are elsewhere";
    let doctor = |page: &Page, upstream: &Page| {
        let front = format!("http://{}", upstream.address());
        said(&[
            "doctor",
            "--upstream",
            &front,
            &format!("decode={}", page.url()),
        ])
    };
    let text = doctor(&empty, &empty);
    assert!(
        text.contains(
            "this is the API of the router (upstream), and KV gauges live on the decode server"
        ),
        "{text}"
    );
    assert!(!text.contains("--enable-metrics"), "{text}");
    // Behind upstream may be an engine itself.
    let text = doctor(&detail, &detail);
    assert!(
        text.contains(router) && text.contains("--enable-metrics"),
        "{text}"
    );
    let text = doctor(&empty, &detail);
    assert!(text.contains(off) && text.contains(router), "{text}");
    let text = doctor(&detail, &empty);
    assert!(text.contains(off) && !text.contains(router), "{text}");
}

#[test]
fn status_of_the_proxys_own_port_is_sent_to_the_operators_listener() {
    let router =
        Upstream::replying(|_| "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned());
    let page = Page::real(DECODE);
    let kvgauge = Setup::new(router.address())
        .source("decode", "", &page)
        .start();
    kvgauge.until_up("decode");
    let text = said(&["status", &format!("http://{}", kvgauge.listen)]);
    assert!(
        text.contains("name that kvgauge's operators' listener"),
        "{text}"
    );
}

#[test]
fn an_engine_without_a_role_is_not_said_to_have_no_kv_cache() {
    let page = Page::real("sglang-0.5.10-decode-tp4-fresh");
    let text = said(&["status", &page.url()]);
    assert!(text.starts_with("usage unknown: of no engine"), "{text}");
    assert!(text.contains("first request"), "{text}");
}

/// Wherever a page is named to people, its query is not.
#[test]
fn the_query_of_a_pages_url_is_shown_nowhere() {
    let secret = "hush-hush";
    let page = Page::text(strange());
    let query = format!("?token={secret}");
    let (kvgauge, _upstream) = reading(&page, "decode", &query);
    let url = format!("{}{query}", page.url());
    let mut all = get(kvgauge.admin, "/sources").text();
    assert!(all.contains("/metrics?…\""), "{all}");
    kvgauge.says("/metrics?…; no engine known here");
    all.push_str(&status(&kvgauge));
    let asked = page.take_targets();
    assert!(asked.iter().all(|path| path.contains(secret)), "{asked:?}");
    for behaviour in [
        Behaviour::Text(strange()),
        Behaviour::Status(404),
        Behaviour::Status(500),
        Behaviour::Html,
        Behaviour::Reset,
        Behaviour::Redirect(307, "http://h:1/?token=hush-hush".to_owned()),
        Behaviour::Refuse,
    ] {
        page.set(behaviour);
        all.push_str(&said(&["doctor", &format!("decode={url}")]));
        all.push_str(&said(&["status", &url]));
        all.push_str(&said(&["status", "--json", &url]));
    }
    kvgauge.says("refused the connection");
    all.push_str(&get(kvgauge.admin, "/sources").text());
    all.push_str(&kvgauge.metrics_text());
    // What is refused is quoted.
    all.push_str(&said(&["doctor", &format!("decode={url}#x")]));
    all.push_str(&said(&["doctor", &url, &url]));
    assert!(!all.contains(secret), "{all}");
}
