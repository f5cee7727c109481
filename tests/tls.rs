//! Sources over https: whom they are, whom is trusted, and what is said where nobody is.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use support::kvgauge::{run, run_with};
use support::page::Behaviour;
use support::tls::{self, Ca};
use support::{Kvgauge, Page, Setup, Upstream, eventually, get};
use tempfile::TempDir;

const DECODE: &str = "sglang-0.5.23-decode-tp4-busy";
const DECODE_USAGE: &str = "0.0047";
const LOOPBACK: &[&str] = &["127.0.0.1", "localhost"];

/// A file in a folder of its own, put in its place as a whole.
struct Pem {
    folder: TempDir,
    path: PathBuf,
}

impl Pem {
    fn of(text: &str) -> Pem {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let pem = Pem { folder, path };
        pem.put(text);
        pem
    }

    fn put(&self, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &self.path).unwrap();
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

/// In front of a router, with one decode server that is trusted by the CAs in `ca_file`.
fn start(upstream: &Upstream, url: &str, ca_file: &str) -> Kvgauge {
    let file = match ca_file {
        "" => String::new(),
        path => format!(",ca_file={path}"),
    };
    Setup::new(upstream.address())
        .source_at("decode", "decode", &format!("{url}{file}"))
        .start()
}

/// The decode server's page, over a connection that ends with it.
fn closing() -> Behaviour {
    let page = support::data::page(DECODE);
    let length = page.len();
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    Behaviour::Raw([head.into_bytes(), page.into_bytes()].concat())
}

fn until_usage(kvgauge: &Kvgauge, wanted: Option<&str>) {
    eventually(&format!("X-KV-Usage is {wanted:?}"), || {
        let usage = get(kvgauge.listen, "/").head.get("x-kv-usage");
        (usage.as_deref() == wanted).then_some(())
    });
}

fn source(kvgauge: &Kvgauge) -> Value {
    get(kvgauge.admin, "/sources").json()["sources"][0].clone()
}

/// The message of the source's last failure, which is of kind `tls`.
fn refused(kvgauge: &Kvgauge) -> String {
    eventually("the source has failed", || {
        let error = source(kvgauge)["last_error"].clone();
        let message = error["message"].as_str()?.to_owned();
        assert_eq!(error["reason"], "tls", "{message}");
        Some(message)
    })
}

#[test]
fn a_page_is_read_over_https_by_the_cas_in_a_file() {
    let upstream = Upstream::ok();
    let ca = Ca::new();
    let page = Page::real_in_tls(DECODE, &ca.server(LOOPBACK));
    let file = Pem::of(ca.pem());
    let kvgauge = start(&upstream, &page.url(), file.path());
    kvgauge.until_up("decode");
    until_usage(&kvgauge, Some(DECODE_USAGE));
    assert_eq!(source(&kvgauge)["url"], page.url());
    assert!(kvgauge.metrics_text().contains("sglang:num_running_reqs{"));

    // One connection is kept.
    let asked = page.asked();
    eventually("more reads", || (page.asked() >= asked + 5).then_some(()));
    assert_eq!(page.most_open(), 1);
}

#[test]
fn old_tls_is_read_and_a_page_that_is_cut_off_is_not_taken() {
    let upstream = Upstream::ok();
    let ca = Ca::new();
    let file = Pem::of(ca.pem());
    let server = tls::tls12_only(&ca.server(LOOPBACK));
    let page = Page::real_in_tls(DECODE, &server);
    let kvgauge = start(&upstream, &page.url(), file.path());
    kvgauge.until_up("decode");

    // Where the connection's end is the page's, TLS has to say that it is one.
    let text = support::data::page(DECODE);
    page.set(Behaviour::Raw(
        format!("HTTP/1.1 200 OK\r\n\r\n{text}").into_bytes(),
    ));
    let error = eventually("the source has failed", || {
        let error = source(&kvgauge)["last_error"].clone();
        error["message"].is_string().then_some(error)
    });
    assert_eq!(error["reason"], "body", "{error}");
}

#[test]
fn cas_are_renewed_in_place_without_a_read_that_fails() {
    let upstream = Upstream::ok();
    let (ca, new) = (Ca::new(), Ca::new());
    let page = Page::real_in_tls(DECODE, &ca.server(LOOPBACK));
    page.set(closing());
    let file = Pem::of(ca.pem());
    let kvgauge = start(&upstream, &page.url(), file.path());
    kvgauge.until_up("decode");
    file.put(&format!("{}{}", ca.pem(), new.pem()));
    page.show(&new.server(LOOPBACK));
    file.put(new.pem());
    let asked = page.asked();
    eventually("more reads", || (page.asked() >= asked + 5).then_some(()));
    let failures = [("source", "decode"), ("reason", "tls")];
    let counted = kvgauge
        .metrics()
        .value("kvgauge_source_scrape_failures_total", &failures);
    assert_eq!(counted, Some(0.0));
}

#[test]
fn of_several_certificates_in_a_file_each_is_trusted() {
    let upstream = Upstream::ok();
    let (one, other) = (Ca::new(), Ca::new());
    let page = Page::real_in_tls(DECODE, &other.server(LOOPBACK));
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let file = Pem::of(&format!("words\n{}{key}{}", one.pem(), other.pem()));
    let kvgauge = start(&upstream, &page.url(), file.path());
    kvgauge.until_up("decode");
}

#[test]
fn a_certificate_that_signs_itself_is_trusted_where_the_file_holds_it() {
    let upstream = Upstream::ok();
    let (pem, server) = tls::self_signed(LOOPBACK);
    let page = Page::real_in_tls(DECODE, &server);
    let file = Pem::of(&pem);
    let kvgauge = start(&upstream, &page.url(), file.path());
    kvgauge.until_up("decode");

    // Its date and its name count all the same, and another one is another one.
    let (stale, server) = tls::self_signed_expired(LOOPBACK);
    page.show(&server);
    let file = Pem::of(&stale);
    let message = refused(&start(&upstream, &page.url(), file.path()));
    assert!(
        message.contains("has expired at 2020-12-31T00:00:00Z"),
        "{message}"
    );
    let (elsewhere, server) = tls::self_signed(&["elsewhere"]);
    page.show(&server);
    let file = Pem::of(&elsewhere);
    let message = refused(&start(&upstream, &page.url(), file.path()));
    assert!(message.contains("it is for elsewhere"), "{message}");
    let file = Pem::of(&pem);
    let message = refused(&start(&upstream, &page.url(), file.path()));
    assert!(message.contains("is of no CA in its ca_file"), "{message}");
}

#[test]
fn what_is_wrong_with_a_server_is_said_with_the_cure() {
    let upstream = Upstream::ok();
    let (ca, stranger) = (Ca::new(), Ca::new());
    let file = Pem::of(ca.pem());
    let page = Page::refusing();
    let at = page.address();
    let fine = ca.server(LOOPBACK);
    let cases = [
        (
            stranger.server(LOOPBACK),
            format!(
                "decode has a certificate at {at} that is of no CA in its ca_file {}: put the CA that signed it into that file, or see who answers there",
                file.path()
            ),
        ),
        (
            ca.expired(LOOPBACK),
            format!(
                "decode's certificate at {at} has expired at 2020-12-31T00:00:00Z: renew it, or set the clock of this machine if that is wrong"
            ),
        ),
        (
            ca.server(&["engine.test", "10.1.2.3"]),
            format!(
                "decode's certificate at {at} is not for 127.0.0.1, it is for engine.test, 10.1.2.3: write a name that it is for in the source's url, or have one made for this name"
            ),
        ),
        (
            ca.server(&[]),
            format!(
                "decode's certificate at {at} is not for 127.0.0.1, it names nobody (only subjectAltName counts): write a name that it is for in the source's url, or have one made for this name"
            ),
        ),
        (
            tls::http2_only(&fine),
            format!(
                "decode and kvgauge have no TLS in common at {at} (NoApplicationProtocol): kvgauge speaks TLS 1.2 and 1.3, and HTTP/1.1 in it; see the server's own log"
            ),
        ),
        (
            ca.server_for_clients(LOOPBACK),
            format!(
                "decode asks at {at} for a client certificate, and kvgauge has none: have the server show /metrics without one"
            ),
        ),
    ];
    page.show(&fine);
    page.set(Behaviour::Text("probe 1\n".to_owned()));
    for (server, wanted) in cases {
        page.show(&server);
        let kvgauge = start(&upstream, &page.url(), file.path());
        assert_eq!(refused(&kvgauge), wanted);
        let failures = [("source", "decode"), ("reason", "tls")];
        let counted = kvgauge
            .metrics()
            .value("kvgauge_source_scrape_failures_total", &failures);
        assert!(counted >= Some(1.0), "{counted:?}");
    }
}

#[test]
fn who_speaks_no_tls_is_told_from_who_does() {
    let upstream = Upstream::ok();
    let ca = Ca::new();
    let file = Pem::of(ca.pem());
    // As any HTTP server answers what it does not understand.
    let plain = Page::new(Behaviour::Bare(
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec(),
    ));
    let url = format!("https://{}", plain.address());
    assert_eq!(
        refused(&start(&upstream, &url, file.path())),
        format!(
            "decode speaks no TLS at {}: write http:// in the source's url",
            plain.address()
        )
    );
    // One that says nothing at all.
    plain.set(Behaviour::Bare(Vec::new()));
    let message = refused(&start(&upstream, &url, file.path()));
    let words = "in the TLS handshake: see that this port speaks TLS (if not, write http://";
    assert!(message.contains(words), "{message}");
}

#[test]
fn a_handshake_that_hangs_is_a_timeout_and_leaves_the_reading_as_it_is() {
    let upstream = Upstream::ok();
    let ca = Ca::new();
    let page = Page::real_in_tls(DECODE, &ca.server(LOOPBACK));
    page.set(closing());
    let file = Pem::of(ca.pem());
    let kvgauge = Setup::new(upstream.address())
        .settings("scrape = { interval = \"50ms\", timeout = \"200ms\", max_age = \"60s\" }\n")
        .source_at(
            "decode",
            "decode",
            &format!("{},ca_file={}", page.url(), file.path()),
        )
        .start();
    until_usage(&kvgauge, Some(DECODE_USAGE));
    // It waits for the end of a head, as plain HTTP has one.
    page.show_nothing();
    let message = eventually("the handshake is given up", || {
        let error = source(&kvgauge)["last_error"].clone();
        (error["reason"] == "timeout").then(|| error["message"].as_str().unwrap().to_owned())
    });
    assert!(
        message.contains("did not finish the TLS handshake") && message.contains("within 180ms"),
        "{message}"
    );
    // Who is slow is there: what was read holds for its time.
    until_usage(&kvgauge, Some(DECODE_USAGE));
}

#[test]
fn an_https_server_that_is_asked_in_plain_http_is_told_where_it_says_so() {
    let upstream = Upstream::ok();
    // Go's.
    let page = Page::new(Behaviour::Raw(
        b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"
            .to_vec(),
    ));
    let message = |kvgauge: &Kvgauge| {
        eventually("the source has failed", || {
            let error = source(kvgauge)["last_error"].clone();
            error["message"].as_str().map(str::to_owned)
        })
    };
    assert_eq!(
        message(&start(&upstream, &page.url(), "")),
        format!(
            "decode answered 400 at {}, since it is to be spoken to in TLS: write https:// in the source's url",
            page.address()
        )
    );
    // A record of TLS: whoever else could send it, HTTP it is not.
    page.set(Behaviour::Raw(b"\x15\x03\x03\x00\x02\x02\x32".to_vec()));
    let said = message(&start(&upstream, &page.url(), ""));
    assert!(said.contains("with what is no HTTP"), "{said}");
    assert!(
        said.ends_with("if it speaks TLS write https:// in the source's url"),
        "{said}"
    );
    // 400 for another reason stays what it is.
    page.set(Behaviour::Status(400));
    let said = message(&start(&upstream, &page.url(), ""));
    assert!(
        said.contains("answered 400 at /metrics: see the server's own log"),
        "{said}"
    );
}

#[test]
fn a_certificate_that_is_refused_ends_the_reading_and_a_renewed_file_brings_it_back() {
    let upstream = Upstream::ok();
    let (ca, new) = (Ca::new(), Ca::new());
    let page = Page::real_in_tls(DECODE, &ca.server(LOOPBACK));
    page.set(closing());
    let file = Pem::of(ca.pem());
    let kvgauge = start(&upstream, &page.url(), file.path());
    until_usage(&kvgauge, Some(DECODE_USAGE));

    // The server has another CA's certificate now.
    page.show(&new.server(LOOPBACK));
    let message = refused_by(&kvgauge, "is of no CA in its ca_file");
    assert!(message.contains(file.path()), "{message}");
    until_usage(&kvgauge, None);
    assert!(!kvgauge.metrics_text().contains("sglang:num_running_reqs{"));

    // A file that is gone changes nothing, and is told.
    fs::remove_file(&file.path).unwrap();
    let message = refused_by(&kvgauge, "which now can't be read");
    assert!(message.contains("see to that file"), "{message}");
    kvgauge.says("until it can be read the CAs read before are trusted");

    file.put(new.pem());
    kvgauge.until_up("decode");
    until_usage(&kvgauge, Some(DECODE_USAGE));
}

/// The message of the source's failure, once it has these words.
fn refused_by(kvgauge: &Kvgauge, words: &str) -> String {
    eventually(words, || {
        let error = source(kvgauge)["last_error"].clone();
        let message = error["message"].as_str()?.to_owned();
        message.contains(words).then_some(message)
    })
}

#[test]
fn a_file_that_can_not_be_read_is_said_and_taken_up_when_it_is_there() {
    let upstream = Upstream::ok();
    let ca = Ca::new();
    let page = Page::real_in_tls(DECODE, &ca.server(LOOPBACK));
    let file = Pem::of("s3cret");
    let kvgauge = start(&upstream, &page.url(), file.path());
    let message = refused(&kvgauge);
    assert_eq!(
        message,
        format!(
            "decode can't be trusted at {}, as its ca_file {} holds no certificate in PEM: correct the source's ca_file",
            page.address(),
            file.path()
        )
    );
    fs::remove_file(&file.path).unwrap();
    refused_by(&kvgauge, "can't be read (No such file");
    file.put(ca.pem());
    kvgauge.until_up("decode");
    assert!(!kvgauge.diagnostics.text().contains("s3cret"));
}

#[test]
fn without_a_file_the_systems_cas_are_trusted() {
    let upstream = Upstream::ok();
    let ca = Ca::new();
    let page = Page::real_in_tls(DECODE, &ca.server(LOOPBACK));
    let file = Pem::of(ca.pem());
    let system = |path: &str| {
        Setup::new(upstream.address())
            .source("decode", "decode", &page)
            .environment("SSL_CERT_FILE", path)
            .environment("SSL_CERT_DIR", "")
            .start()
    };
    system(file.path()).until_up("decode");
    let (itself, server) = tls::self_signed(LOOPBACK);
    page.show(&server);
    system(Pem::of(&itself).path()).until_up("decode");

    let other = Pem::of(Ca::new().pem());
    assert_eq!(
        refused(&system(other.path())),
        format!(
            "decode has a certificate at {} that is of no CA which this machine trusts: name its CA in the source's ca_file, or in SSL_CERT_FILE",
            page.address()
        )
    );
    // As in an image with nothing else in it.
    let message = refused(&system("/nowhere/ca.pem"));
    assert!(
        message.contains("this machine's store of CA certificates has none that can be read"),
        "{message}"
    );
    assert!(
        message.ends_with(": name its CA in the source's ca_file, or install the system's (Debian: ca-certificates)"),
        "{message}"
    );
}

#[test]
fn sglangs_loads_are_asked_over_https_with_the_token() {
    let upstream = Upstream::ok();
    let ca = Ca::new();
    let file = Pem::of(ca.pem());
    let token = Pem::of("s3cret");
    let loads =
        support::data::beside_pages("sglang-0.5.23-unified-tp1-cpu-real-busy.v1_loads.json");
    let page = Page::real_in_tls(DECODE, &ca.server(LOOPBACK));
    page.set(Behaviour::Sglang(support::data::page(DECODE), Some(loads)));
    let kvgauge = Setup::new(upstream.address())
        .source_at(
            "decode",
            "decode",
            &format!(
                "{},kind=sglang-loads,ca_file={},bearer_file={}",
                page.url(),
                file.path(),
                token.path()
            ),
        )
        .start();
    kvgauge.until_up("decode");
    assert_eq!(page.authorization().as_deref(), Some("Bearer s3cret"));
    assert!(page.asked_loads() > 0);
    assert_eq!(page.asked(), page.asked_loads());
}

/// kvgauge that reads, and looks for sources, each 100 ms.
fn discovering(upstream: &Upstream, discovery: &str) -> Kvgauge {
    Setup::new(upstream.address())
        .settings(&format!(
            "scrape.interval = \"100ms\"\n[discovery]\ninterval = \"100ms\"\n{discovery}\n"
        ))
        .start()
}

/// A `file_sd` file with one target.
fn file_sd(folder: &TempDir, target: &str, labels: &Value) -> String {
    let path = folder.path().join("a.json");
    let new = folder.path().join("new");
    fs::write(
        &new,
        json!([{"targets": [target], "labels": labels}]).to_string(),
    )
    .unwrap();
    fs::rename(&new, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn what_is_found_in_a_file_is_read_as_the_settings_of_found_sources_say() {
    let upstream = Upstream::ok();
    let ca = Ca::new();
    let (file, token) = (Pem::of(ca.pem()), Pem::of("s3cret\n"));
    let page = Page::real_in_tls(DECODE, &ca.server(LOOPBACK));
    let text = support::data::page(DECODE);
    page.set(Behaviour::Token("s3cret".to_owned(), text));
    let folder = tempfile::tempdir().unwrap();
    let target = page.address().to_string();
    let path = file_sd(
        &folder,
        &target,
        &json!({"role": "decode", "__scheme__": "https"}),
    );
    let kvgauge = discovering(
        &upstream,
        &format!(
            "file_sd = [\"{path}\"]\n[discovery.source]\nca_file = \"{}\"\nbearer_file = \"{}\"\nkeep = [\"sglang:num_.*\"]\ndrop = [\"sglang:num_running_reqs\"]",
            file.path(),
            token.path()
        ),
    );
    kvgauge.until_up(&format!("decode-{target}"));
    until_usage(&kvgauge, Some(DECODE_USAGE));
    assert_eq!(page.authorization().as_deref(), Some("Bearer s3cret"));
    let shown = kvgauge.metrics_text();
    assert!(shown.contains("sglang:num_queue_reqs{"));
    assert!(!shown.contains("sglang:num_running_reqs{"));
    assert!(!shown.contains("sglang:token_usage{"));

    // Its own entry says more than that: read as a vLLM, it has no usage.
    let labels = json!({"role": "decode", "__scheme__": "https", "__kvgauge_engine__": "vllm"});
    file_sd(&folder, &target, &labels);
    until_usage(&kvgauge, None);
    let error = kvgauge.diagnostics.text();
    assert!(!error.contains("s3cret"), "{error}");
}

#[test]
fn a_found_source_that_is_not_trusted_names_the_key_of_found_sources() {
    let upstream = Upstream::ok();
    let page = Page::real_in_tls(DECODE, &Ca::new().server(LOOPBACK));
    let folder = tempfile::tempdir().unwrap();
    let path = file_sd(
        &folder,
        &page.address().to_string(),
        &json!({"__scheme__": "https"}),
    );
    let kvgauge = discovering(&upstream, &format!("file_sd = [\"{path}\"]"));
    kvgauge.says("name its CA in discovery.source.ca_file");
}

#[test]
fn every_address_of_a_name_is_asked_by_that_name() {
    let upstream = Upstream::ok();
    let ca = Ca::new();
    // For the name alone: an address would be another one.
    let page = Page::real_in_tls(DECODE, &ca.server(&["localhost"]));
    let file = Pem::of(ca.pem());
    let port = page.address().port();
    let kvgauge = discovering(
        &upstream,
        &format!(
            "dns = [\"decode=https://localhost:{port}\"]\nsource = {{ ca_file = \"{}\" }}",
            file.path()
        ),
    );
    kvgauge.until_up(&format!("decode-127.0.0.1:{port}"));
    assert_eq!(page.host(), Some(format!("localhost:{port}")));
}

#[test]
fn a_routers_list_is_asked_for_over_https_with_a_token() {
    let upstream = Upstream::ok();
    let (ca, routers) = (Ca::new(), Ca::new());
    let (file, router_file) = (Pem::of(ca.pem()), Pem::of(routers.pem()));
    let token = Pem::of("s3cret");
    let decode = Page::real_in_tls(DECODE, &ca.server(LOOPBACK));
    let url = format!("https://{}", decode.address());
    let list = json!({"workers": [{"id": url, "url": url, "worker_type": "decode"}]}).to_string();
    let router = Page::real_in_tls(DECODE, &routers.server(LOOPBACK));
    router.set(Behaviour::Token("s3cret".to_owned(), list));
    let workers = format!(
        "workers = \"https://{}\"\nca_file = \"{}\"",
        router.address(),
        router_file.path()
    );
    let found = format!("source.ca_file = \"{}\"", file.path());
    let kvgauge = discovering(
        &upstream,
        &format!("{workers}\nbearer_file = \"{}\"\n{found}", token.path()),
    );
    kvgauge.until_up(&format!("decode-{}", decode.address()));
    assert_eq!(router.authorization().as_deref(), Some("Bearer s3cret"));
    // What the router asks for is for nobody else.
    assert_eq!(decode.authorization(), None);

    let kvgauge = discovering(&upstream, &workers);
    kvgauge.says("name a file with its token in discovery.bearer_file");
    let workers = format!("workers = \"https://{}\"", router.address());
    let kvgauge = discovering(&upstream, &workers);
    kvgauge.says("name its CA in discovery.ca_file");
}

#[test]
fn doctor_and_status_read_pages_over_https() {
    let ca = Ca::new();
    let page = Page::real_in_tls(DECODE, &ca.server(LOOPBACK));
    let file = Pem::of(ca.pem());
    let named = format!("decode={},ca_file={}", page.url(), file.path());
    for (command, words) in [
        ("doctor", "engine sglang, role decode as its page says"),
        ("status", "12,034 / 2,581,504 tokens"),
    ] {
        let output = run(&[command, &named]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(words), "{text}");
        assert_eq!(output.status.code(), Some(0), "{text}");
    }

    // As settings have it, with a router that answers.
    let upstream = Upstream::ok();
    let settings = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "upstream = \"http://{}\"\n[[source]]\nname = \"decode\"\nurl = \"{}\"\nca_file = \"{}\"\n",
        upstream.address(),
        page.url(),
        file.path()
    );
    fs::write(settings.path(), text).unwrap();
    let path = settings.path().to_str().unwrap();
    let output = run(&["doctor", "--config", path]);
    assert_eq!(output.status.code(), Some(0));
    let output = run(&["check", path]);
    let text = String::from_utf8(output.stdout).unwrap();
    let words = format!("role decode, trusted by the CAs in {}", file.path());
    assert!(text.contains(&words), "{text}");

    // A bare URL has the system's CAs.
    let url = page.url();
    let stranger = Pem::of(Ca::new().pem());
    for command in ["doctor", "status"] {
        let with = |path: &str| {
            run_with(
                &[command, &url],
                &[("SSL_CERT_FILE", path), ("SSL_CERT_DIR", "")],
            )
        };
        assert_eq!(with(file.path()).status.code(), Some(0));
        let output = with(stranger.path());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("name its CA in the source's ca_file"),
            "{text}"
        );
        assert_ne!(output.status.code(), Some(0));
    }
}
