//! A mixed fleet: two prefill and three decode servers of different SGLang versions and one vLLM, of
//! which one is killed, one added and one restarted, found through the real `sglang-router` and through
//! a `file_sd` file. What kvgauge says follows within two intervals, and is never made up.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::page::{Behaviour, MODEL};
use support::pools::Member;
use support::router::Router;
use support::{Kvgauge, Page, Setup, Upstream, data, eventually, get, pause, pools, strict};

/// Between two reads of a page and between two looks at the list.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a fleet says of a role, as in `X-KV-Pools`, without its age. The sums are made by hand from the
/// recorded pages:
///
/// - 0.5.23 `-hot`: 2,402,118 of 2,581,504, 311 running, 41 queued, 17 and 6 in the queues
/// - 0.5.23, 0.5.10 and 0.5.5 `-busy`: 12,034 of 2,581,504 (0.5.5 says no capacity), 3 running; 2 and 1
///   in a decode server's queues, 1 and 2 in a prefill server's
/// - 0.5.23 `-dpattn4-busy`: 331,266 of 2,581,504 in four pools, the fullest at 0.480514; 49 running,
///   5 queued
///
/// With 0.5.5 there is nothing to weigh by, so the fullest pool's usage is the role's.
mod decode {
    pub(crate) const WHOLE: &str =
        "usage=0.931;max=0.931;used=2426186;running=317;queued=41;prealloc=21;transfer=8";
    /// Without `-hot`.
    pub(crate) const KILLED: &str =
        "usage=0.005;max=0.005;used=24068;running=6;queued=0;prealloc=4;transfer=2;missing=1";
    /// With `-dpattn4-busy`, and `-hot` still on the list.
    pub(crate) const ADDED: &str =
        "usage=0.481;max=0.481;used=355334;running=55;queued=5;prealloc=4;transfer=2;missing=1";
    /// `-hot` off the list.
    pub(crate) const LEFT: &str =
        "usage=0.481;max=0.481;used=355334;running=55;queued=5;prealloc=4;transfer=2";
    /// Without 0.5.10, which is down or has no gauges yet.
    pub(crate) const RESTARTED: &str =
        "usage=0.481;max=0.481;used=343300;running=52;queued=5;prealloc=2;transfer=1;missing=1";
    /// While one is on the list that has not been read yet, beside what is missing already.
    pub(crate) const KILLED_AND_NEW: &str =
        "usage=0.005;max=0.005;used=24068;running=6;queued=0;prealloc=4;transfer=2;missing=2";
}

const PREFILL: &str =
    "usage=0.005;max=0.005;used=24068;capacity=5163008;running=6;queued=0;bootstrap=2;inflight=4";
const VLLM: &str = "usage=1.000;max=1.000;used=8064;capacity=8192;running=9;queued=14";

/// One engine, as the lists have it.
struct Engine {
    page: Page,
    /// Decode, prefill or unified.
    role: &'static str,
}

impl Engine {
    fn new(role: &'static str, page: &str) -> Engine {
        let engine = Behaviour::Engine(data::page(page));
        Engine {
            page: Page::new(engine),
            role,
        }
    }

    fn address(&self) -> SocketAddr {
        self.page.address()
    }

    fn name(&self) -> String {
        format!("{}-{}", self.role, self.address())
    }

    fn set(&self, page: &str) {
        self.page.set(Behaviour::Engine(data::page(page)));
    }
}

/// Where kvgauge finds the engines.
enum List {
    Router(Router),
    File(PathBuf),
}

impl List {
    /// Puts an engine on it; returns when it is there.
    fn add(&self, engine: &Engine) {
        match self {
            List::Router(router) => {
                let kind = if engine.role == "unified" {
                    "regular"
                } else {
                    engine.role
                };
                let url = format!("http://{}", engine.address());
                let mut worker = json!({"url": url, "worker_type": kind, "model_id": MODEL});
                if kind == "prefill" {
                    worker["bootstrap_port"] = json!(8998);
                }
                router.add(&worker, engine.address());
            }
            List::File(path) => {
                let mut groups = read(path);
                groups.push(json!({
                    "targets": [engine.address().to_string()], "labels": {"role": engine.role},
                }));
                put(path, &groups);
            }
        }
    }

    /// Takes it off; returns when it is gone.
    fn remove(&self, engine: &Engine) {
        match self {
            List::Router(router) => router.remove(engine.address()),
            List::File(path) => {
                let mut groups = read(path);
                groups.retain(|group| group["targets"][0] != engine.address().to_string());
                put(path, &groups);
            }
        }
    }
}

fn read(path: &PathBuf) -> Vec<Value> {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn put(path: &PathBuf, groups: &[Value]) {
    let new = path.with_extension("new");
    std::fs::write(&new, json!(groups).to_string()).unwrap();
    std::fs::rename(&new, path).unwrap();
}

/// A member as it stands in the header, but for its role and age.
fn said(member: &Member) -> String {
    const ORDER: [&str; 14] = [
        "unknown",
        "usage",
        "max",
        "fill",
        "used",
        "capacity",
        "running",
        "queued",
        "bootstrap",
        "inflight",
        "prealloc",
        "transfer",
        "pending",
        "missing",
    ];
    let known = ORDER.iter().filter_map(|name| {
        let value = member.parameters.get(*name)?;
        Some(format!("{name}={value}"))
    });
    known.collect::<Vec<_>>().join(";")
}

/// One answer of a request through kvgauge: `X-KV-Usage`, and what each role says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stamp {
    usage: Option<String>,
    roles: Vec<(String, String)>,
}

impl Stamp {
    fn of(kvgauge: SocketAddr) -> Stamp {
        let answer = get(kvgauge, "/v1/models");
        let members = pools::pools(&answer.head);
        Stamp {
            usage: answer.head.get("x-kv-usage"),
            roles: members.iter().map(|m| (m.role.clone(), said(m))).collect(),
        }
    }

    fn role(&self, role: &str) -> &str {
        let mut roles = self.roles.iter().filter(|(name, _)| name == role);
        let (_, says) = roles
            .next()
            .unwrap_or_else(|| panic!("no {role}: {self:?}"));
        assert!(roles.next().is_none(), "{role} twice: {self:?}");
        says
    }
}

/// Waits until the header says this of a role; it must within two intervals from `since`.
fn follows(kvgauge: &Kvgauge, since: Instant, role: &str, wanted: &str) {
    loop {
        let stamp = Stamp::of(kvgauge.listen);
        if stamp.role(role) == wanted {
            break;
        }
        assert!(
            since.elapsed() < 2 * INTERVAL,
            "{role} should say {wanted}, and says after {:?}: {stamp:?}",
            since.elapsed()
        );
        pause(Duration::from_millis(10));
    }
}

/// States at `/sources` by name; the router's own page is not among them.
fn states(kvgauge: &Kvgauge) -> Vec<(String, String)> {
    let answer = get(kvgauge.admin, "/sources").json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = answer["sources"].as_array().unwrap().iter();
    let mut states: Vec<_> = all
        .map(|s| (text(&s["name"]), text(&s["state"])))
        .filter(|(name, _)| name != "router" && name != "nobody")
        .collect();
    states.sort();
    states
}

fn of(engines: &[(&Engine, &str)]) -> Vec<(String, String)> {
    let mut states: Vec<_> = engines
        .iter()
        .map(|(engine, state)| (engine.name(), (*state).to_owned()))
        .collect();
    states.sort();
    states
}

/// The whole story.
fn story(upstream: SocketAddr, list: &List, settings: &str, engines: Vec<Engine>) {
    let Ok([prefill, older_prefill, hot, middle, oldest, vllm]) = <[Engine; 6]>::try_from(engines)
    else {
        panic!("a fleet of six")
    };
    let seconds = INTERVAL.as_secs();
    let kvgauge = Setup::new(upstream)
        .settings(&format!(
            "scrape.interval = \"{seconds}s\"\n[discovery]\ninterval = \"{seconds}s\"\n{settings}\n"
        ))
        .start();
    for engine in [&prefill, &older_prefill, &hot, &middle, &oldest, &vllm] {
        kvgauge.until_up(&engine.name());
    }
    follows(&kvgauge, Instant::now(), "decode", decode::WHOLE);
    let whole = Stamp::of(kvgauge.listen);
    assert_eq!(whole.usage.as_deref(), Some("0.9305"));
    assert_eq!(whole.role("prefill"), PREFILL);
    assert_eq!(whole.role("unified"), VLLM);
    strict::check(&kvgauge.metrics_text());

    // From here on somebody looks all the time.
    let ended = AtomicBool::new(false);
    let listen = kvgauge.listen;
    let seen = std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            let mut seen = BTreeSet::new();
            while !ended.load(Ordering::Relaxed) {
                seen.insert(Stamp::of(listen));
                pause(Duration::from_millis(2));
            }
            seen
        });
        // The flag is set also when an assertion below fails, or the scope would never end.
        let _guard = SetOnDrop(&ended);

        // One is killed.
        let since = Instant::now();
        hot.page.set(Behaviour::Refuse);
        follows(&kvgauge, since, "decode", decode::KILLED);
        assert_eq!(Stamp::of(listen).usage.as_deref(), Some("0.0047"));
        kvgauge.until_metric("kvgauge_source_up", &[("source", &hot.name())], Some(0.0));
        let up = [&prefill, &older_prefill, &middle, &oldest, &vllm].map(|e| (e, "up"));
        let fleet = [&up[..], &[(&hot, "down")]].concat();
        assert_eq!(states(&kvgauge), of(&fleet));
        let page = kvgauge.metrics_text();
        strict::check(&page);
        let of_it = format!("source=\"{}\"", hot.name());
        let ours = |line: &&str| line.contains(&of_it) && !line.starts_with("kvgauge_source_");
        assert_eq!(page.lines().find(ours), None, "a killed engine's series");
        let labels = [("role", "decode"), ("model", MODEL)];
        kvgauge.until_metric("kvgauge_kv_used_tokens", &labels, Some(24_068.0));

        // One is added.
        let new = Engine::new("decode", "sglang-0.5.23-decode-dpattn4-busy");
        list.add(&new);
        follows(&kvgauge, Instant::now(), "decode", decode::ADDED);
        let fleet = [&fleet[..], &[(&new, "up")]].concat();
        assert_eq!(states(&kvgauge), of(&fleet));

        // The one that was killed leaves the list, and with it all that is known of it.
        list.remove(&hot);
        follows(&kvgauge, Instant::now(), "decode", decode::LEFT);
        let fleet = [&up[..], &[(&new, "up")]].concat();
        assert_eq!(states(&kvgauge), of(&fleet));
        let name = format!("\"{}\"", hot.name());
        assert!(!kvgauge.metrics_text().contains(&name), "it has left");

        // One is restarted. It is away for longer than several intervals, and when it is back, it has no
        // gauges before its first request.
        let since = Instant::now();
        middle.page.set(Behaviour::Refuse);
        follows(&kvgauge, since, "decode", decode::RESTARTED);
        let refused = |n: f64| {
            let labels = [("source", &*middle.name()), ("reason", "connect")];
            let name = "kvgauge_source_scrape_failures_total";
            kvgauge
                .metrics()
                .value(name, &labels)
                .is_some_and(|v| v >= n)
        };
        eventually("it was tried several times", || refused(4.0).then_some(()));
        let since = Instant::now();
        middle.set("sglang-0.5.10-decode-tp4-fresh");
        let labels = [("source", &*middle.name())];
        kvgauge.until_metric("kvgauge_source_up", &labels, Some(1.0));
        assert!(since.elapsed() < 2 * INTERVAL, "{:?}", since.elapsed());
        let unknown = |source: &Value| source["pools"][0]["unknown"] == "absent";
        let answer = get(kvgauge.admin, "/sources").json();
        let sources = answer["sources"].as_array().unwrap();
        let source = sources.iter().find(|s| s["name"] == middle.name()).unwrap();
        assert!(unknown(source), "{source:#}");
        assert_eq!(Stamp::of(listen).role("decode"), decode::RESTARTED);
        let since = Instant::now();
        middle.set("sglang-0.5.10-decode-tp4-busy");
        follows(&kvgauge, since, "decode", decode::LEFT);

        ended.store(true, Ordering::Relaxed);
        looker.join().unwrap()
    });

    // Nobody has ever seen anything else, and neither has the log.
    let legitimate = [
        decode::WHOLE,
        decode::KILLED,
        decode::KILLED_AND_NEW,
        decode::ADDED,
        decode::LEFT,
        decode::RESTARTED,
    ];
    for stamp in &seen {
        assert!(legitimate.contains(&stamp.role("decode")), "{stamp:?}");
        assert_eq!(stamp.role("prefill"), PREFILL, "{stamp:?}");
        assert_eq!(stamp.role("unified"), VLLM, "{stamp:?}");
        let usage = stamp.usage.as_deref();
        assert!([Some("0.9305"), Some("0.0047"), Some("0.4805")].contains(&usage));
    }
    for wanted in [
        decode::WHOLE,
        decode::KILLED,
        decode::ADDED,
        decode::RESTARTED,
    ] {
        assert!(seen.iter().any(|s| s.role("decode") == wanted), "{wanted}");
    }
    let mut kvgauge = kvgauge;
    let lines = kvgauge.lines_to_the_end();
    let used = [2_426_186_u64, 24_068, 355_334, 343_300];
    let read = lines.iter().filter(|line| !line["kv.start.used"].is_null());
    let mut n = 0;
    for line in read {
        let tokens = line["kv.start.used"].as_u64().unwrap();
        if n > 0 || tokens == used[0] {
            // From the whole fleet on: before it, only a part had been read.
            n += 1;
            assert!(used.contains(&tokens), "{line:#}");
            assert!(line["kv.start.capacity"].is_null(), "{line:#}");
        }
    }
    assert!(n >= seen.len(), "{n} lines of {}", lines.len());
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn fleet() -> Vec<Engine> {
    vec![
        Engine::new("prefill", "sglang-0.5.23-prefill-tp4-busy"),
        Engine::new("prefill", "sglang-0.5.10-prefill-tp4-busy"),
        Engine::new("decode", "sglang-0.5.23-decode-tp4-hot"),
        Engine::new("decode", "sglang-0.5.10-decode-tp4-busy"),
        Engine::new("decode", "sglang-0.5.5-decode-tp4-busy"),
        Engine::new("unified", "vllm-0.32.0-loaded"),
    ]
}

#[test]
fn a_fleet_in_a_file_is_followed_timed() {
    let upstream = Upstream::ok();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fleet.json");
    put(&path, &[]);
    let settings = format!("file_sd = [\"{}\"]", path.display());
    let (list, engines) = (List::File(path), fleet());
    engines.iter().for_each(|engine| list.add(engine));
    story(upstream.address(), &list, &settings, engines);
}

#[test]
#[ignore = "needs sglang-router: tests/run"]
fn a_fleet_behind_the_real_router_is_followed_timed() {
    let engines = fleet();
    let router = Router::disaggregated(engines[0].address(), engines[3].address(), &[]);
    let (api, settings) = (router.api, format!("workers = \"http://{}\"", router.api));
    let list = List::Router(router);
    for at in [1, 2, 4, 5] {
        list.add(&engines[at]);
    }
    story(api, &list, &settings, engines);
}
