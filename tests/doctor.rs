//! `kvgauge doctor`: the whole text that it says, with ports and times left open.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use kvgauge::sim::{Deployment, DeploymentConfig};
use std::sync::Arc;
use std::time::Duration;
use support::kvgauge::{run, run_with};
use support::page::Behaviour;
use support::{Page, Setup, Upstream, eventually, get};

/// What it says on standard output, and its exit code. Ports are written by the names given, times N.
fn doctor(arguments: &[&str], ports: &[(&str, u16)]) -> (String, i32) {
    let mut all = vec!["doctor"];
    all.extend(arguments);
    let output = run(&all);
    let mut text = String::from_utf8(output.stdout).unwrap();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    for (name, port) in ports {
        text = text.replace(&format!("127.0.0.1:{port}"), name);
    }
    let times = regex_lite::Regex::new(r"in \d+ ms").unwrap();
    let text = times.replace_all(&text, "in N ms").into_owned();
    (text, output.status.code().unwrap())
}

/// The deployment that kvgauge was born for, with these pages, in front of a router that answers.
fn story(decode: &Page, more: &[&str]) -> (String, i32) {
    let router = Page::real("sglang-router-0.3.2-pd-before-traffic");
    let prefill = Page::real("sglang-0.5.23-prefill-tp4-busy");
    let upstream = Upstream::ok();
    let pages = [
        format!("router={}", router.url()),
        format!("prefill={}", prefill.url()),
        format!("decode={}", decode.url()),
    ];
    let front = format!("http://{}", upstream.address());
    let mut arguments = vec!["--upstream", &*front];
    arguments.extend(pages.iter().map(String::as_str));
    arguments.extend(more);
    let ports = [
        ("UPSTREAM", upstream.address().port()),
        ("ROUTER", router.address().port()),
        ("PREFILL", prefill.address().port()),
        ("DECODE", decode.address().port()),
    ];
    let (text, code) = doctor(&arguments, &ports);
    let (others, decode) = text.split_at(text.find("  decode ").unwrap() - 5);
    assert_eq!(others, OTHERS, "what is said of the others");
    (decode.to_owned(), code)
}

/// What is said of everything but the decode server.
const OTHERS: &str = "\
ok     upstream  http://UPSTREAM
       answers at /v1/models

ok     router    http://ROUTER/metrics
       answered in N ms: 10 samples, 790 bytes
       a router's page: no KV gauges, and none are expected

ok     prefill   http://PREFILL/metrics
       answered in N ms: 859 samples, 132,420 bytes
       engine sglang, role prefill as its page says
       prefill /models/tiny  12,034 / 2,581,504 tokens  0.47% | running 3  queued 0  inflight 2  bootstrap 1
         bootstrap  from num_prefill_bootstrap_queue_reqs
         capacity   from max_total_num_tokens
         fill       from kv_available_tokens, kv_evictable_tokens, kv_used_tokens
         hit_rate   from cache_hit_rate
         inflight   from num_prefill_inflight_queue_reqs
         pending    from pending_prealloc_token_usage
         prealloc   from num_decode_prealloc_queue_reqs
         queued     from num_queue_reqs
         running    from num_running_reqs
         transfer   from num_decode_transfer_queue_reqs
         usage      from kv_used_tokens / max_total_num_tokens
         used       from kv_used_tokens
         capacity   not from num_pages: max_total_num_tokens says it in tokens
         queued     not from num_grammar_queue_reqs: waits for its grammar, before the scheduler's queue
         usage      not from full_token_usage: kv_used_tokens over the capacity is exact to the token, and never left from before
         usage      not from mamba_usage: of a pool that is less full
         usage      not from pending_prealloc_token_usage: what requests that wait for room will need: `pending`
         usage      not from swa_token_usage: of a pool that is less full
         usage      not from token_usage: the fullest pool's, rounded to two decimals
         used       not from num_used_tokens: the larger of the full and the sliding-window pool's tokens

";

#[test]
fn metrics_are_off() {
    let want = "\
WRONG  decode    http://DECODE/metrics
       decode answered 404 at /metrics: metrics are off
       -> start the server with --enable-metrics (SGLang), or correct the source's url if they are elsewhere

1 of 4 WRONG: see the arrows (->).";
    assert_eq!(
        story(&Page::new(Behaviour::Status(404)), &[]),
        (want.to_owned(), 1)
    );
}

#[test]
fn metrics_are_on_but_nobody_has_asked_yet() {
    let want = "\
WRONG  decode    http://DECODE/metrics
       answered in N ms: 266 samples, 42,560 bytes
       engine sglang, role decode as its page says
       decode /models/tiny  usage unknown of 2,581,504 tokens: there is no KV usage on its page (absent) | running unknown  queued unknown
         capacity   from max_total_num_tokens
         capacity   not from num_pages: max_total_num_tokens says it in tokens
         unknown: used, fill, running, queued (not on the page yet)
       it has no KV usage yet: its gauges come with the first request
       -> send a request through the router (kvgauge doctor --warmup does), then look again

1 of 4 WRONG: see the arrows (->).";
    assert_eq!(
        story(&Page::real("sglang-0.5.23-decode-tp4-fresh"), &[]),
        (want.to_owned(), 1)
    );
}

#[test]
fn the_port_is_wrong() {
    let want = "\
WRONG  decode    http://DECODE/metrics
       decode refused the connection at DECODE
       -> check that the server runs, and on that port

1 of 4 WRONG: see the arrows (->).";
    assert_eq!(story(&Page::refusing(), &[]), (want.to_owned(), 1));
}

#[test]
fn the_routers_page_is_given_for_the_decode_servers() {
    let want = "\
WRONG  decode    http://DECODE/metrics
       answered in N ms: 10 samples, 790 bytes
       this is the router: KV gauges live on the decode server
       -> set the source's url to the decode server's own page; if it has none, switch its metrics on (SGLang: --enable-metrics)

1 of 4 WRONG: see the arrows (->).";
    assert_eq!(
        story(&Page::real("sglang-router-0.3.2-pd-before-traffic"), &[]),
        (want.to_owned(), 1)
    );
}

#[test]
fn nothing_is_wrong() {
    let want = "\
ok     decode    http://DECODE/metrics
       answered in N ms: 824 samples, 127,353 bytes
       engine sglang, role decode as its page says
       decode /models/tiny  12,034 / 2,581,504 tokens  0.47% | running 3  queued 0  transfer 1  prealloc 2
         bootstrap  from num_prefill_bootstrap_queue_reqs
         capacity   from max_total_num_tokens
         fill       from kv_available_tokens, kv_evictable_tokens, kv_used_tokens
         inflight   from num_prefill_inflight_queue_reqs
         pending    from pending_prealloc_token_usage
         prealloc   from num_decode_prealloc_queue_reqs
         queued     from num_queue_reqs
         running    from num_running_reqs
         transfer   from num_decode_transfer_queue_reqs
         usage      from kv_used_tokens / max_total_num_tokens
         used       from kv_used_tokens
         capacity   not from num_pages: max_total_num_tokens says it in tokens
         hit_rate   not from cache_hit_rate: a decode server looks up no prefix and always says 0
         queued     not from num_grammar_queue_reqs: waits for its grammar, before the scheduler's queue
         usage      not from full_token_usage: kv_used_tokens over the capacity is exact to the token, and never left from before
         usage      not from mamba_usage: of a pool that is less full
         usage      not from pending_prealloc_token_usage: what requests that wait for room will need: `pending`
         usage      not from swa_token_usage: of a pool that is less full
         usage      not from token_usage: the fullest pool's, rounded to two decimals
         used       not from num_used_tokens: the larger of the full and the sliding-window pool's tokens

Nothing is wrong.";
    assert_eq!(
        story(&Page::real("sglang-0.5.23-decode-tp4-busy"), &[]),
        (want.to_owned(), 0)
    );
}

/// The report on one page that is meant to be a decode server's.
fn one(page: &Page) -> (String, i32) {
    let url = format!("decode={}", page.url());
    let (text, code) = doctor(&[&url], &[("DECODE", page.address().port())]);
    (text, code)
}

#[test]
fn json_at_metrics_is_said_with_where_the_page_is() {
    let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]";
    let (text, code) = one(&Page::new(Behaviour::Raw(json.into())));
    let want = "\
WRONG  decode  http://DECODE/metrics
       decode answered JSON at /metrics, not a Prometheus page
       -> correct the source's url (TensorRT-LLM's page is at /prometheus/metrics)

1 of 1 WRONG: see the arrows (->).";
    assert_eq!((&*text, code), (want, 1));
}

#[test]
fn a_redirect_is_said_with_where_it_goes() {
    let moved = "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://h:1/metrics/\r\nContent-Length: 0\r\n\r\n";
    let (text, code) = one(&Page::new(Behaviour::Raw(moved.into())));
    let want = "\
WRONG  decode  http://DECODE/metrics
       decode answered 307 at /metrics with a redirect to http://h:1/metrics/
       -> set the source's url to that address

1 of 1 WRONG: see the arrows (->).";
    assert_eq!((&*text, code), (want, 1));
}

#[test]
fn a_redirect_on_the_same_server_is_followed_and_said() {
    let there = support::data::page("sglang-0.5.23-decode-tp4-busy");
    let page = Page::new(Behaviour::Paths(vec![
        ("/metrics", Behaviour::Redirect(307, "/metrics/".to_owned())),
        ("/metrics/", Behaviour::Text(there)),
    ]));
    let (text, code) = one(&page);
    let said = "\
ok     decode  http://DECODE/metrics
       answered in N ms: 824 samples, 127,353 bytes
       redirected to /metrics/, which was followed
       engine sglang, role decode as its page says
";
    assert!(text.starts_with(said), "{text}");
    assert_eq!(code, 0);
}

#[test]
fn what_looks_like_kv_usage_on_an_unknown_engine_is_shown_and_not_believed() {
    let page = "# TYPE acme_kv_cache_usage gauge\n\
                acme_kv_cache_usage{shard=\"0\"} 0.25\nacme_kv_cache_usage{shard=\"1\"} 0.5\n\
                # TYPE acme_requests_running gauge\nacme_requests_running 3\n";
    let (text, code) = one(&Page::text(page));
    let want = "\
WRONG  decode  http://DECODE/metrics
       answered in N ms: 3 samples, 163 bytes
       these names on it look like KV usage:
         acme_kv_cache_usage 0.25 may be usage, in fraction; several, told apart by shard
         acme_requests_running 3 may be running, in requests
       no engine known here has KV gauges on it; some names look like KV usage, but nothing is guessed by names
       -> see what the engine's documentation says of them; then put this mapping, mended where it has to be, into the settings:
            [engine.mine]
            usage = { metric = \"acme_kv_cache_usage\", unit = \"fraction\" }
            running = { metric = \"acme_requests_running\", unit = \"requests\" }
            # rank = \"shard\"  # if each has a pool of its own; or metric = 'NAME{shard=\"…\"}' for the one that is meant; else the largest counts
            [[source]]
            name = \"decode\"
            url = \"http://DECODE/metrics\"
            role = \"decode\"
            engine = \"mine\"

1 of 1 WRONG: see the arrows (->).";
    assert_eq!((&*text, code), (want, 1));
}

/// The lines to paste behind an arrow, as a person would copy them.
fn pasted(text: &str) -> String {
    let from = text.find("[engine.").unwrap_or_else(|| panic!("{text}"));
    let lines = text[from..].lines().take_while(|line| !line.is_empty());
    lines.fold(String::new(), |all, line| all + line + "\n")
}

const ACME: &str = "\
# TYPE acme_kv_blocks_used gauge
acme_kv_blocks_used{shard=\"0\",model=\"m\"} 10
acme_kv_blocks_used{shard=\"1\",model=\"m\"} 30
# TYPE acme_max_kv_blocks gauge
acme_max_kv_blocks{shard=\"0\",model=\"m\"} 40
acme_max_kv_blocks{shard=\"1\",model=\"m\"} 40
# TYPE acme_requests_running gauge
acme_requests_running 3
";

/// As it comes off the screen it is settings that kvgauge starts with, and the usage is there.
#[test]
fn what_is_to_be_pasted_gives_the_usage_when_it_is() {
    let page = Page::text(ACME);
    let (text, _) = doctor(&[&format!("decode={}", page.url())], &[]);
    let settings = pasted(&text);
    let upstream = Upstream::ok();
    let usage = |settings: &str| {
        let kvgauge = Setup::new(upstream.address()).settings(settings).start();
        kvgauge.until_up("decode");
        let engine = get(kvgauge.admin, "/sources").json()["sources"][0]["engine"].clone();
        assert_eq!(engine, "mine", "{settings}");
        let said = kvgauge.says("reading mine (mapping in the settings) at");
        assert!(
            said.contains("usage from acme_kv_blocks_used / acme_max_kv_blocks"),
            "{said}"
        );
        eventually("the usage is there", || {
            get(kvgauge.listen, "/").head.get("x-kv-usage")
        })
    };
    // The fullest shard, as long as nobody says that each is a pool; then 40 of 80 blocks.
    assert_eq!(usage(&settings), "0.7500", "{settings}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kvgauge.toml");
    let front = format!("upstream = \"http://{}\"\n", upstream.address());
    let doctor_of = |settings: &str| {
        std::fs::write(&file, format!("{front}{settings}")).unwrap();
        doctor(&["--config", file.to_str().unwrap()], &[])
    };
    let (text, _) = doctor_of(&settings);
    let why = "has several series for one pool, which may be pools that are not told apart";
    assert!(
        text.contains(&format!("capacity   not from acme_max_kv_blocks: {why}"))
            && text.contains(&format!("unknown: used, capacity ({why}; see the labels")),
        "{text}"
    );
    let mended = settings.replacen("# rank", "rank", 1);
    let mended = mended.replacen("# block_size", "block_size", 1);
    assert_eq!(mended.len() + 4, settings.len(), "{settings}");
    assert_eq!(usage(&mended), "0.5000", "{mended}");
    // And doctor has nothing to say any more.
    let (text, code) = doctor_of(&mended);
    assert!(
        text.contains("running    not from acme_requests_running: has no label of `rank`"),
        "{text}"
    );
    assert!(
        text.contains("engine mine (mapping in the settings), role decode as set"),
        "{text}"
    );
    assert!(text.ends_with("Nothing is wrong."), "{text}");
    assert_eq!(code, 0);
}

/// Where the sources stand in settings already, only the mapping is to be pasted; each engine gets one
/// of its own, beside those that are there.
#[test]
fn what_is_to_be_pasted_goes_beside_what_the_settings_have() {
    let (first, second) = (Page::text(ACME), Page::text("other_kv_cache_usage 0.25\n"));
    let settings = format!(
        "[engine.mine]\nusage = {{ metric = \"x\", unit = \"fraction\" }}\n\
         [[source]]\nname = \"a\"\nurl = \"{}\"\nrole = \"decode\"\n\
         [[source]]\nname = \"b\"\nurl = \"{}\"\nrole = \"prefill\"\n",
        first.url(),
        second.url()
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kvgauge.toml");
    std::fs::write(&file, &settings).unwrap();
    let upstream = Upstream::ok();
    let front = format!("http://{}", upstream.address());
    let arguments = ["--config", file.to_str().unwrap(), "--upstream", &front];
    let (text, code) = doctor(&arguments, &[]);
    assert_eq!(code, 1);
    assert!(!text.contains("[[source]]"), "{text}");
    let mut mended = settings;
    for (source, name) in [("a", "mine-2"), ("b", "mine-3")] {
        let into = format!("and engine = \"{name}\" into the section of the source {source}:");
        assert!(text.contains(&into), "{text}");
        mended = mended.replace(
            &format!("name = \"{source}\"\n"),
            &format!("name = \"{source}\"\nengine = \"{name}\"\n"),
        );
        let from = text.find(&format!("[engine.{name}]")).unwrap();
        mended.push_str(&pasted(&text[from..]));
    }
    std::fs::write(&file, &mended).unwrap();
    let (text, code) = doctor(&arguments, &[]);
    assert!(text.contains("\n\nNothing is wrong."), "{text}\n{mended}");
    assert_eq!(code, 0);
}

#[test]
fn swapped_servers_are_told_by_their_pages() {
    let (text, code) = one(&Page::real("sglang-0.5.23-prefill-tp4-busy"));
    let said = "       it is set as decode, but its page says that it is a prefill server\n       \
                -> set the source's url to the right server, or correct its role\n";
    assert!(text.contains(said), "{text}");
    assert_eq!(code, 1);
}

#[test]
fn a_gauge_that_holds_nonsense_is_told_apart_from_one_that_is_not_there() {
    let page = "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} NaN\n";
    let (text, code) = one(&Page::text(page));
    let want = "\
WRONG  decode  http://DECODE/metrics
       answered in N ms: 1 sample, 56 bytes
       engine vllm, role decode as set
       decode m  usage unknown: a gauge holds what can't be a value (invalid) | running unknown  queued unknown
         usage      not from kv_cache_usage_perc: holds what can't be a value
         unknown: used (not on the page; it is left out everywhere; another version of the engine may publish it)
         unknown: capacity (the labels of cache_config_info do not say for sure how many tokens fit; newer versions say it in the label kv_cache_size_tokens)
         unknown: fill (vllm publishes none; nothing is to be done, as only SGLang does)
         unknown: running, queued (not on the page; it is left out everywhere; another version of the engine may publish it)
       a gauge holds what can't be a value (nan)
       -> look at the gauge on the engine's page, and at the engine's own log

1 of 1 WRONG: see the arrows (->).";
    assert_eq!((&*text, code), (want, 1));
}

/// Not sent, and not said to have been.
#[test]
fn a_warm_up_needs_a_router() {
    let (router, engine) = (
        Page::refusing(),
        Page::real("sglang-0.5.23-decode-tp4-fresh"),
    );
    let front = format!("http://{}", router.address());
    let (text, code) = doctor(
        &["--warmup", "--upstream", &front, &engine.url()],
        &[("ROUTER", router.address().port())],
    );
    let said = "warm-up: nothing is sent: upstream refused the connection at ROUTER: check that the \
                server runs, and on that port\n\n";
    assert!(text.starts_with(said), "{text}");
    assert!(text.contains("it has no KV usage yet"), "{text}");
    assert_eq!(code, 1);
}

#[test]
fn a_router_that_nobody_answers_for_is_wrong_too() {
    let (router, engine) = (Page::refusing(), Page::real("vllm-0.32.0-loaded"));
    let front = format!("http://{}", router.address());
    let (text, code) = doctor(
        &["--upstream", &front, &engine.url()],
        &[("ROUTER", router.address().port())],
    );
    let said = "\
WRONG  upstream         http://ROUTER
       upstream refused the connection at ROUTER
       -> check that the server runs, and on that port
";
    assert!(text.starts_with(said), "{text}");
    assert!(
        text.ends_with("\n1 of 2 WRONG: see the arrows (->)."),
        "{text}"
    );
    assert_eq!(code, 1);
}

// === sources that are found ===

/// The report on what these settings find; `ports` as in [`doctor`]. There is no router.
fn found(settings: &str, ports: &[(&str, u16)]) -> (String, i32) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kvgauge.toml");
    std::fs::write(&file, settings).unwrap();
    let upstream = Upstream::ok();
    let front = format!("http://{}", upstream.address());
    let arguments = ["--config", file.to_str().unwrap(), "--upstream", &front];
    let (text, code) = doctor(&arguments, ports);
    let rest = text.split_once("\n\n").unwrap().1;
    (rest.to_owned(), code)
}

fn worker(page: &Page, kind: &str) -> serde_json::Value {
    serde_json::json!({"url": format!("http://{}", page.address()), "worker_type": kind})
}

fn listing(workers: &[serde_json::Value]) -> Page {
    Page::text(serde_json::json!({ "workers": workers }).to_string())
}

#[test]
fn sources_that_are_found_are_looked_at_like_those_that_are_set() {
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let prefill = Page::new(Behaviour::Status(404));
    let router = listing(&[worker(&decode, "decode"), worker(&prefill, "prefill")]);
    let folder = tempfile::tempdir().unwrap();
    let targets = folder.path().join("targets.json");
    let vllm = Page::real("vllm-0.32.0-loaded");
    let groups = serde_json::json!([{"targets": [vllm.address().to_string()]}]);
    std::fs::write(&targets, groups.to_string()).unwrap();
    let (text, code) = found(
        &format!(
            "[discovery]\nworkers = \"http://{}\"\nfile_sd = [{:?}]\n",
            router.address(),
            targets
        ),
        &[
            ("ROUTER", router.address().port()),
            ("DECODE", decode.address().port()),
            ("PREFILL", prefill.address().port()),
            ("VLLM", vllm.address().port()),
        ],
    );
    let verdicts: Vec<String> = text
        .lines()
        .filter(|line| !line.starts_with(' ') && !line.is_empty())
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let wanted = [
        "ok discovery.workers http://ROUTER/workers".to_owned(),
        format!("ok discovery.file_sd {}", targets.display()),
        "ok VLLM http://VLLM/metrics".to_owned(),
        "ok decode-DECODE http://DECODE/metrics".to_owned(),
        "WRONG prefill-PREFILL http://PREFILL/metrics".to_owned(),
        "1 of 6 WRONG: see the arrows (->).".to_owned(),
    ];
    assert_eq!(verdicts, wanted, "{text}");
    assert!(text.contains("       found 2 pages\n"), "{text}");
    assert!(text.contains("       found 1 page\n"), "{text}");
    assert!(text.contains("12,034 / 2,581,504 tokens"), "{text}");
    assert!(text.contains("metrics are off"), "{text}");
    assert_eq!(code, 1);
}

#[test]
fn a_list_without_sources_is_wrong_and_says_what_to_do() {
    let router = listing(&[]);
    let folder = tempfile::tempdir().unwrap();
    let pattern = folder.path().join("*.json");
    let (text, code) = found(
        &format!(
            "[discovery]\nworkers = \"http://{}\"\nfile_sd = [{pattern:?}]\n\
             dns = [\"decode=http://no.invalid:30002\"]\n",
            router.address(),
        ),
        &[("ROUTER", router.address().port())],
    );
    let text = text.replace(pattern.to_str().unwrap(), "PATTERN");
    let error = regex_lite::Regex::new(r"resolve: .* \(disc").unwrap();
    let text = error.replace(&text, "resolve: WHY (disc");
    let want = "\
WRONG  discovery.workers  http://ROUTER/workers
       the router has no workers
       -> start them, and name them to the router (--worker-urls, --prefill, --decode); those of a router that has just started take a moment

WRONG  discovery.file_sd  PATTERN
       no file that fits names a target
       -> see that the files are there, and that their groups have targets

WRONG  discovery.dns      no.invalid:30002
       the name \"no.invalid\" does not resolve: WHY (discovery.dns)
       -> check the name, and who resolves it here

3 of 4 WRONG: see the arrows (->).";
    assert_eq!((&*text, code), (want, 1));
}

#[test]
fn a_list_that_can_not_be_had_and_one_that_is_too_long_are_wrong() {
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let more: Vec<_> = (1..=3)
        .map(|n| serde_json::json!({"url": format!("http://z{n}.invalid:1"), "worker_type": "decode"}))
        .collect();
    let all: Vec<_> = [worker(&decode, "decode")]
        .into_iter()
        .chain(more)
        .collect();
    let router = listing(&all);
    let ports = [
        ("ROUTER", router.address().port()),
        ("DECODE", decode.address().port()),
    ];
    let settings = format!(
        "[discovery]\nmax_sources = 1\nworkers = \"http://{}\"\n",
        router.address()
    );
    let (text, code) = found(&settings, &ports);
    let said = "\
WRONG  discovery.workers       http://ROUTER/workers
       found 4 pages
       3 of them are not read, as discovery.max_sources is 1
       -> raise discovery.max_sources if all are meant

ok     decode-DECODE  http://DECODE/metrics
";
    // Names are padded to the longest, which has a port in it.
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(squeezed(&text).starts_with(&squeezed(said)), "{text}");
    assert!(!text.contains("invalid"), "{text}");
    assert_eq!(code, 1);

    router.set(Behaviour::Status(404));
    let (text, code) = found(&settings, &ports);
    let want = "\
WRONG  discovery.workers  http://ROUTER/workers
       the router (discovery.workers) answered 404 at http://ROUTER/workers
       -> only sglang-router has this list; name its API port, not that of its metrics

1 of 2 WRONG: see the arrows (->).";
    assert_eq!((&*text, code), (want, 1));
}

#[test]
fn wrong_usage_is_said_in_the_words_of_who_typed_it() {
    let (text, code) = doctor(&["127.0.0.1:30002"], &[]);
    assert!(
        text.starts_with("`127.0.0.1:30002` has no http:// before it"),
        "{text}"
    );
    assert_eq!(code, 64);
    let (text, code) = doctor(&["a=http://h:1", "a=http://h:2"], &[]);
    assert!(
        text.contains("two sources are called \"a\" (the other: argument)"),
        "{text}"
    );
    assert_eq!(code, 64);
    let (text, code) = doctor(&["--config", "/nowhere/kvgauge.toml"], &[]);
    assert!(text.contains("/nowhere/kvgauge.toml"), "{text}");
    assert_eq!(code, 78);
}

/// One request for each model that the router serves, and no more: small, and said beforehand.
#[test]
fn a_warm_up_is_one_small_completion_for_each_model() {
    let engine = Arc::new(Page::real("sglang-0.5.23-decode-tp4-fresh"));
    let there = Arc::clone(&engine);
    let router = Upstream::replying(move |request| {
        let body = if request.head.method() == "POST" {
            let busy = support::data::page("sglang-0.5.23-decode-tp4-busy");
            there.set(Behaviour::Text(busy));
            "{}"
        } else {
            r#"{"object":"list","data":[{"id":"b"},{"id":"a"},{"id":"a"}]}"#
        };
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
    });
    let front = format!("http://{}", router.address());
    let page = format!("decode={}", engine.url());
    let (text, code) = doctor(
        &["--warmup", "--upstream", &front, &page],
        &[("ROUTER", router.address().port())],
    );
    let said = "warm-up: POST http://ROUTER/v1/chat/completions, at most 64 tokens and 60 s, for a, b\n  \
                answered 200 in N ms\n  answered 200 in N ms\n\n";
    assert!(text.starts_with(said), "{text}");
    assert_eq!(code, 0, "{text}");
    let sent: Vec<serde_json::Value> = router
        .requests()
        .iter()
        .filter(|request| request.head.method() == "POST")
        .map(|request| {
            assert_eq!(request.head.target(), "/v1/chat/completions");
            serde_json::from_slice(&request.body).unwrap()
        })
        .collect();
    let models: Vec<&str> = sent.iter().map(|r| r["model"].as_str().unwrap()).collect();
    assert_eq!(models, ["a", "b"]);
    for request in &sent {
        assert!(request["max_tokens"].as_u64().unwrap() <= 64, "{request}");
        assert!(request.get("stream").is_none(), "{request}");
    }
    // An engine that never publishes its usage is not asked for it.
    let never = Page::real("llamacpp-2025-no-kv-gauge.facts");
    let page = format!("decode={}", never.url());
    let (text, code) = doctor(&["--warmup", "--upstream", &front, &page], &[]);
    assert!(text.starts_with("warm-up: nothing is sent"), "{text}");
    assert!(text.contains("have dropped the gauge"), "{text}");
    assert_eq!(code, 1);
    let posts = router.requests();
    let posts = posts.iter().filter(|r| r.head.method() == "POST").count();
    assert_eq!(posts, 2);
}

/// Fresh engines get their gauges by the one request that is sent through the router.
#[test]
fn a_warm_up_brings_the_first_gauges() {
    let mut config = DeploymentConfig::new("m", 1);
    for engine in [&mut config.prefill_engine, &mut config.decode_engine] {
        engine.decode_step = Duration::from_millis(2);
    }
    let deployment = Deployment::start(config).unwrap();
    let at = |name: &str, address| format!("{name}=http://{address}");
    let front = format!("http://{}", deployment.router);
    let sources = [
        at("router", deployment.router_metrics),
        at("prefill", deployment.prefill),
        at("decode", deployment.decode),
    ];
    let mut arguments = vec!["--upstream", &*front];
    arguments.extend(sources.iter().map(String::as_str));
    let ports = [("UPSTREAM", deployment.router.port())];
    let (text, code) = doctor(&arguments, &ports);
    assert!(text.contains("usage unknown of 2,581,504 tokens"), "{text}");
    assert_eq!(code, 1);

    arguments.push("--warmup");
    let (text, code) = doctor(&arguments, &ports);
    let said = "warm-up: POST http://UPSTREAM/v1/chat/completions, at most 64 tokens and 60 s, for m\n  \
                answered 200 in N ms\n\n";
    assert!(text.starts_with(said), "{text}");
    assert!(text.ends_with("Nothing is wrong."), "{text}");
    assert_eq!(code, 0);

    let (text, code) = doctor(&arguments, &ports);
    let said = "warm-up: nothing is sent, since there is no engine whose first gauges would come with it\n\n";
    assert!(text.starts_with(said), "{text}");
    assert_eq!(code, 0);
}

/// An engine that has just started has no gauges, while its loads say that its cache is empty.
#[test]
fn loads_are_read_as_serve_reads_them() {
    let fresh = support::data::page("sglang-0.5.23-decode-tp4-fresh");
    let loads = r#"{"loads":[{"dp_rank":0,"num_running_reqs":0,"num_waiting_reqs":0,"num_used_tokens":0,
        "max_total_num_tokens":2581504,"token_usage":0.0,"disaggregation":{"mode":"decode"}}]}"#;
    let page = Page::new(Behaviour::Sglang(fresh.clone(), Some(loads.to_owned())));
    let look = |kind: &str| {
        let url = format!("decode={},kind={kind}", page.url());
        doctor(&[&url], &[("DECODE", page.address().port())])
    };
    let bytes = loads.len();
    for (kind, answered) in [
        ("auto", "266 samples, 42,560 bytes".to_owned()),
        ("sglang-loads", format!("loads in JSON, {bytes} bytes")),
    ] {
        let (text, code) = look(kind);
        assert!(
            text.contains(&format!("answered in N ms: {answered}\n")),
            "{text}"
        );
        for line in [
            "its values are from SGLang's loads\n",
            "decode   0 / 2,581,504 tokens  0.00%",
            "usage      from /v1/loads num_used_tokens / max_total_num_tokens\n",
        ] {
            let line = if kind == "auto" {
                // The model is the page's.
                line.replace("decode   0", "decode /models/tiny  0")
            } else {
                line.replace("decode   0", "decode  0")
            };
            assert!(text.contains(&line), "{kind}, {line}: {text}");
        }
        assert_eq!(code, 0, "{text}");
    }

    // Found with that kind, it is the same.
    let folder = tempfile::tempdir().unwrap();
    let targets = folder.path().join("targets.json");
    let groups = serde_json::json!([{"targets": [page.address().to_string()]}]);
    std::fs::write(&targets, groups.to_string()).unwrap();
    let settings =
        format!("[discovery]\nfile_sd = [{targets:?}]\n[discovery.source]\nkind = \"auto\"\n");
    let (text, _) = found(&settings, &[]);
    assert!(text.contains("0 / 2,581,504 tokens  0.00%"), "{text}");

    // Without them, the page's values stand there, and why.
    let busy = support::data::page("sglang-0.5.23-decode-tp4-busy");
    page.set(Behaviour::Sglang(busy, None));
    for kind in ["auto", "sglang-loads"] {
        let (text, code) = look(kind);
        for line in [
            "its values are from its page, not the loads: decode answered 404 at /v1/loads: only newer SGLang has it",
            "12,034 / 2,581,504 tokens  0.47%",
        ] {
            assert!(text.contains(line), "{kind}, {line}: {text}");
        }
        assert_eq!(code, 0, "{text}");
    }
}

/// As beside `kvgauge demo`, whose servers are on other ports.
#[test]
fn where_nobody_answers_a_kvgauge_beside_it_says_who_does() {
    let page = Page::real("sglang-0.5.23-decode-tp4-busy");
    let kvgauge = Setup::new(Upstream::ok().address())
        .source("decode", "decode", &page)
        .start();
    kvgauge.until_up("decode");
    let nobody = Page::refusing();
    let here = |sources: &str| {
        let environment = [
            ("KVGAUGE_ADMIN_LISTEN", kvgauge.admin.to_string()),
            ("KVGAUGE_UPSTREAM", format!("http://{}", nobody.address())),
            ("KVGAUGE_SOURCES", sources.to_owned()),
        ];
        let environment = environment
            .each_ref()
            .map(|(name, value)| (*name, &**value));
        let output = run_with(&["doctor"], &environment);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = here(&format!("decode={}", nobody.url()));
    let admin = kvgauge.admin;
    let want = format!(
        "2 of 2 WRONG: see the arrows (->).\n\nA kvgauge answers at http://{admin}, and reads other pages \
         than these. What it knows:\n  kvgauge status http://{admin}\nA look at its pages:\n  kvgauge doctor \
         decode=http://{}/metrics,role=decode",
        page.address()
    );
    assert!(text.ends_with(&want), "{text}");
    // What it says to call does.
    let command = text.lines().last().unwrap().split_whitespace().skip(1);
    let output = run(&command.collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(0));
    // Where one of them answers there is nothing to add.
    let text = here(&format!("decode={};prefill={}", page.url(), nobody.url()));
    assert!(!text.contains("A kvgauge answers"), "{text}");
}
