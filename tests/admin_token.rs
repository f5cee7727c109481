//! The operators' listener behind a token, and what is told to whom of what is secret.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use std::fs;
use support::client::post;
use support::kvgauge::{run, run_with};
use support::{Kvgauge, Page, Response, Setup, Upstream, eventually, fetch, get};

const TOKEN: &str = "s3cret-operators";

/// kvgauge whose operators' token stands in this file.
fn guarded(file: &std::path::Path, decode: &Page) -> Kvgauge {
    let settings = format!(
        "scrape.interval = \"100ms\"\nadmin.bearer_file = \"{}\"\n",
        file.display()
    );
    Setup::new(Upstream::ok().address())
        .settings(&settings)
        .source("decode", "decode", decode)
        .start()
}

fn ask(kvgauge: &Kvgauge, path: &str, fields: &str) -> Response {
    fetch(
        kvgauge.admin,
        format!("GET {path} HTTP/1.1\r\nHost: k\r\n{fields}\r\n"),
    )
}

fn with(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn until_open(kvgauge: &Kvgauge, token: &str) -> Response {
    eventually("the token opens", || {
        let answer = ask(kvgauge, "/metrics", &with(token));
        (answer.status() == 200).then_some(answer)
    })
}

#[test]
fn without_a_token_nobody_is_told_anything_but_health() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let kvgauge = guarded(&file, &decode);
    for path in ["/", "/metrics", "/kv", "/sources", "/nowhere", "/healthz/"] {
        let answer = get(kvgauge.admin, path);
        assert_eq!(answer.status(), 401, "{path}");
        let challenge = answer.head.get("www-authenticate");
        assert_eq!(challenge.as_deref(), Some("Bearer realm=\"kvgauge\""));
        assert_eq!(
            answer.text(),
            "this asks for a token: send Authorization: Bearer TOKEN with what is in admin.bearer_file\n"
        );
        for wrong in [
            with("other"),
            with("s3cret-operator"),
            with("s3cret-operatorsx"),
            with(TOKEN) + &with("other"),
            "Authorization: Basic czNjcmV0LW9wZXJhdG9ycw==\r\n".to_owned(),
            format!("Authorization: {TOKEN}\r\n"),
        ] {
            let answer = ask(&kvgauge, path, &wrong);
            assert_eq!(answer.status(), 401, "{path} {wrong}");
        }
        let answer = ask(&kvgauge, path, &with("other"));
        let challenge = answer.head.get("www-authenticate").unwrap();
        assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
        assert!(answer.text().contains("not the token"), "{}", answer.text());
        // Nor by another method.
        let answer = fetch(kvgauge.admin, post(path, "", "{}"));
        assert_eq!(answer.status(), 401, "{path}");
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(kvgauge.admin, path).status(), 200, "{path}");
    }
    for (path, status) in [
        ("/", 200),
        ("/metrics", 200),
        ("/kv", 200),
        ("/sources", 200),
        ("/nowhere", 404),
    ] {
        assert_eq!(ask(&kvgauge, path, &with(TOKEN)).status(), status, "{path}");
    }
    let bare = format!("Authorization: bearer  {TOKEN}\r\n");
    assert_eq!(ask(&kvgauge, "/kv", &bare).status(), 200);
}

#[test]
fn without_the_setting_everything_is_open() {
    let kvgauge = Setup::new(Upstream::ok().address()).start();
    for path in ["/", "/metrics", "/kv", "/sources", "/healthz", "/readyz"] {
        assert_eq!(get(kvgauge.admin, path).status(), 200, "{path}");
    }
}

#[test]
fn a_token_that_cannot_be_read_opens_nothing_and_one_that_comes_does() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let kvgauge = guarded(&file, &decode);
    let said = kvgauge.says("admin.bearer_file");
    assert!(said.contains("can't be read"), "{said}");
    assert!(said.contains("nobody is let in"), "{said}");
    for fields in [String::new(), with(""), with(TOKEN)] {
        let answer = ask(&kvgauge, "/metrics", &fields);
        assert_eq!(answer.status(), 503, "{fields}");
        let text = answer.text();
        assert!(text.contains("admin.bearer_file can't be read"), "{text}");
    }
    assert_eq!(get(kvgauge.admin, "/readyz").status(), 200);
    // An empty file is no token either.
    fs::write(&file, "\n").unwrap();
    kvgauge_says_when_asked(&kvgauge, "is empty");
    fs::write(&file, TOKEN).unwrap();
    until_open(&kvgauge, TOKEN);
    // Renewed in place; then gone, when the one before holds.
    fs::write(&file, "s3cret-new").unwrap();
    until_open(&kvgauge, "s3cret-new");
    assert_eq!(ask(&kvgauge, "/metrics", &with(TOKEN)).status(), 401);
    fs::remove_file(&file).unwrap();
    kvgauge_says_when_asked(&kvgauge, "the token read before is asked for");
    assert_eq!(ask(&kvgauge, "/kv", &with("s3cret-new")).status(), 200);
    assert_eq!(get(kvgauge.admin, "/kv").status(), 401);
}

/// Asks with a wrong token, so that the file is looked at, until standard error has these words.
fn kvgauge_says_when_asked(kvgauge: &Kvgauge, words: &str) {
    eventually(words, || {
        let _ = ask(kvgauge, "/metrics", &with("other"));
        kvgauge.diagnostics.text().contains(words).then_some(())
    });
}

#[test]
fn status_and_another_kvgauge_bring_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, TOKEN).unwrap();
    let path = file.display().to_string();
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let kvgauge = guarded(&file, &decode);
    until_open(&kvgauge, TOKEN);
    let admin = kvgauge.admin.to_string();
    let url = format!("http://{admin}");
    eventually("the source is read", || {
        let page = ask(&kvgauge, "/metrics", &with(TOKEN)).text();
        page.contains("kvgauge_source_up{source=\"decode\"} 1")
            .then_some(())
    });

    let said = |arguments: &[&str], environment: &[(&str, &str)]| {
        let output = run_with(arguments, environment);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!text.contains("s3cret"), "{text}");
        (text, output.status.code())
    };
    let (text, code) = said(&["status", &url], &[]);
    assert_eq!(code, Some(3), "{text}");
    // What was asked, and the flag before all else.
    let asked = format!("{admin} answered 401 at /kv: it asks for a token; name a file");
    assert!(text.contains(&asked), "{text}");
    assert!(text.contains("with --bearer-file FILE"), "{text}");
    assert!(!text.contains("says anything of a KV cache"), "{text}");
    let of_page = format!("{url},bearer_file={path}");
    for arguments in [
        &["status", url.as_str(), "--bearer-file", path.as_str()][..],
        &["status", of_page.as_str()][..],
    ] {
        let (text, code) = said(arguments, &[]);
        assert!(text.starts_with("decode") && code == Some(0), "{text}");
    }
    // The one that would be started here, by its own settings.
    let here = [
        ("KVGAUGE_ADMIN_LISTEN", admin.as_str()),
        ("KVGAUGE_ADMIN_BEARER_FILE", path.as_str()),
    ];
    let (text, code) = said(&["status"], &here);
    assert!(text.starts_with("decode") && code == Some(0), "{text}");

    // As a source it is let in too, and then refused for what it is.
    for (source, words) in [
        (&url, "other answered 401 at /metrics"),
        (
            &of_page,
            "other answered at /metrics with a kvgauge's own page",
        ),
    ] {
        let other = Setup::new(Upstream::ok().address());
        let other = other.source_at("other", "", source).start();
        other.says(words);
    }
    let output = run(&["doctor", &of_page]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("kvgauge") && !text.contains("401"), "{text}");
}

/// Whatever is secret in settings and requests stands nowhere.
#[test]
fn no_secret_is_shown_by_anything() {
    let folder = tempfile::tempdir().unwrap();
    let token = |name: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("s3cret-{name}")).unwrap();
        path.display().to_string()
    };
    let (operators, decode_token, list_token, found_token) = (
        token("operators"),
        token("decode"),
        token("list"),
        token("found"),
    );
    let decode = Page::real("sglang-0.5.23-decode-tp4-busy");
    let workers = Page::refusing();
    let gone = Page::refusing();
    let settings = format!(
        "scrape.interval = \"100ms\"\nadmin.bearer_file = \"{operators}\"\n\
         [discovery]\nworkers = \"{}\"\nbearer_file = \"{list_token}\"\n\
         [discovery.source]\nbearer_file = \"{found_token}\"\n\
         [[source]]\nname = \"decode\"\nurl = \"{}?api_key=s3cret-query\"\nrole = \"decode\"\n\
         bearer_file = \"{decode_token}\"\n\
         [[source]]\nname = \"gone\"\nurl = \"{}?api_key=s3cret-gone\"\n",
        workers.url().trim_end_matches("/metrics"),
        decode.url(),
        gone.url(),
    );
    // Answers with what it is asked, and breaks off where it is told to.
    let upstream = Upstream::new(|connection| {
        let head = connection.request()?.head;
        if head.target().starts_with("/break") {
            return Ok(support::Next::Reset);
        }
        connection.send(support::upstream::OK)?;
        Ok(support::Next::Again)
    });
    let file = folder.path().join("kvgauge.toml");
    fs::write(&file, &settings).unwrap();
    let mut kvgauge = Setup::new(upstream.address())
        .settings(&settings)
        // Whatever makes other programs say more.
        .environment("RUST_LOG", "trace")
        .environment("RUST_BACKTRACE", "1")
        .start();
    kvgauge.says("gone");
    kvgauge.says("discovery.workers");
    let mut seen = Vec::new();
    let mut note = |what: &str, text: String| seen.push((what.to_owned(), text));

    for path in ["/v1/chat/completions", "/break"] {
        let fields = "Authorization: Bearer s3cret-client\r\nCookie: session=s3cret-cookie\r\n\
                      X-Api-Key: s3cret-key\r\nProxy-Authorization: Basic s3cret-proxy\r\n";
        let body = "{\"model\":\"m\",\"user\":\"s3cret-user\",\"prompt\":\"s3cret-prompt\"}";
        let request = post(&format!("{path}?api_key=s3cret-client-query"), fields, body);
        let answer = fetch(kvgauge.listen, request);
        note("answer", answer.head.text() + &answer.text());
    }
    for request in [
        "POST / HTTP/1.1\r\nHost: a\r\nHost: s3cret-host\r\nAuthorization: s3cret-a\r\n\r\n",
        "GET /?s3cret-line HTTP/1.1\r\nHost: a\r\nCookie s3cret-malformed\r\n\r\n",
    ] {
        let answer = fetch(kvgauge.listen, request);
        assert_eq!(answer.status(), 400);
        note("refusal", answer.head.text() + &answer.text());
    }
    for path in ["/", "/metrics", "/kv", "/sources", "/nowhere?s3cret-path"] {
        note(path, get(kvgauge.admin, path).text());
        let answer = ask(&kvgauge, path, &with("s3cret-wrong"));
        note(path, answer.head.text() + &answer.text());
        let answer = ask(&kvgauge, path, &with("s3cret-operators"));
        assert_ne!(answer.status(), 401, "{path}");
        note(path, answer.head.text() + &answer.text());
    }
    let admin = format!("http://{},bearer_file={operators}", kvgauge.admin);
    let config = file.display().to_string();
    for arguments in [
        &["check", config.as_str()][..],
        &["status", admin.as_str()],
        &["status", admin.as_str(), "--json"],
        &["doctor", "--config", config.as_str()],
        // A password in an address is refused, without being repeated.
        &["status", "http://user:s3cret-password@127.0.0.1:1"],
        &["doctor", "http://user:s3cret-password@127.0.0.1:1"],
        &[
            "serve",
            "--upstream",
            "http://user:s3cret-password@127.0.0.1:1",
        ],
        &[
            "serve",
            "--source",
            "a=http://user:s3cret-password@127.0.0.1:1",
        ],
    ] {
        let output = run(arguments);
        let text = [output.stdout, output.stderr].concat();
        note(&format!("{arguments:?}"), String::from_utf8(text).unwrap());
    }
    // What every line that is to come has been made of.
    let lines = kvgauge.lines_to_the_end();
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(
        lines
            .iter()
            .any(|line| line["outcome"] == "upstream_aborted")
    );
    note("log", format!("{lines:#?}"));
    note("standard error", kvgauge.diagnostics.text());
    for (what, text) in &seen {
        assert!(!text.is_empty(), "{what}");
        assert!(!text.contains("s3cret"), "{what}: {text}");
    }
}

/// A page of somebody else's whose name leads here by DNS has that name for `Host`.
#[test]
fn by_a_name_of_somebody_else_nothing_is_told_but_to_who_has_the_token() {
    let kvgauge = Setup::new(Upstream::ok().address()).start();
    let by = |kvgauge: &Kvgauge, path: &str, host: &str, fields: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        fetch(kvgauge.admin, request)
    };
    let told = ["/", "/metrics", "/kv", "/kv/history", "/sources"];
    for path in told.into_iter().chain(["/kv/stream"]) {
        let answer = by(&kvgauge, path, "evil.com:30090", "");
        assert_eq!(answer.status(), 403, "{path}");
        let text = answer.text();
        assert!(text.contains("ask by 127.0.0.1 or localhost"), "{text}");
    }
    for path in told {
        for host in ["localhost:30090", "127.0.0.1", "[::1]:30090", "router"] {
            assert_eq!(by(&kvgauge, path, host, "").status(), 200, "{path} {host}");
        }
        let plain = format!("GET {path} HTTP/1.0\r\n\r\n");
        assert_eq!(fetch(kvgauge.admin, plain).status(), 200, "{path}");
    }
    for path in ["/healthz", "/readyz", "/assets/app.js"] {
        assert_eq!(by(&kvgauge, path, "evil.com", "").status(), 200, "{path}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, TOKEN).unwrap();
    let kvgauge = guarded(&file, &Page::refusing());
    for path in told {
        let answer = by(&kvgauge, path, "kv.example.com", &with(TOKEN));
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(by(&kvgauge, path, "evil.com", "").status(), 401, "{path}");
    }
}
