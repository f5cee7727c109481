//! How settings come together, and what is said of those that can't.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are tests

use kvgauge::config::{self, ConfigError, Flags, Headline, Settings, Warning};
use kvgauge::kv::Role;
use std::path::Path;
use std::time::Duration;

type Loaded = Result<(Settings, Vec<Warning>), ConfigError>;

fn load(text: &str, env: &[(&str, &str)], flags: &Flags) -> Loaded {
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    config::load_text(Path::new("kvgauge.toml"), text, env, flags)
}

fn file(text: &str) -> Loaded {
    load(text, &[], &Flags::default())
}

fn env(env: &[(&str, &str)]) -> Loaded {
    load("", env, &Flags::default())
}

fn flags(flags: &Flags) -> Loaded {
    load("", &[], flags)
}

fn sources(texts: &[&str]) -> Flags {
    Flags {
        sources: texts.iter().map(|t| (*t).to_owned()).collect(),
        ..Flags::default()
    }
}

fn listen(text: &str) -> Flags {
    Flags {
        listen: Some(text.to_owned()),
        ..Flags::default()
    }
}

/// The settings, and no warning.
#[track_caller]
fn fine(loaded: Loaded) -> Settings {
    match loaded {
        Ok((settings, warnings)) => {
            assert_eq!(warnings, []);
            settings
        }
        Err(error) => panic!("{error}"),
    }
}

/// The error's text, whole.
#[track_caller]
fn refused(loaded: Loaded, code: u8, text: &str) {
    match loaded {
        Ok(_) => panic!("taken, but it should be refused: {text}"),
        Err(error) => {
            assert_eq!(error.to_string(), text);
            assert_eq!(error.exit_code(), code);
        }
    }
}

/// The warnings' texts, whole.
#[track_caller]
fn warned(loaded: Loaded, texts: &[&str]) {
    let warnings = loaded.map(|(_, warnings)| warnings).unwrap();
    let seen: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(seen, texts);
}

// === layers ===

#[test]
fn nothing_set_is_the_default() {
    assert_eq!(fine(file("")), Settings::defaults());
    let loaded = config::load(None, [], &Flags::default());
    assert_eq!(fine(loaded), Settings::defaults());
}

#[test]
fn the_default_fits_sglang_with_prefill_and_decode_on_one_host() {
    let s = Settings::defaults();
    assert_eq!(s.listen.to_string(), "127.0.0.1:30080");
    assert_eq!(s.admin.listen.to_string(), "127.0.0.1:30090");
    assert_eq!(s.upstream.to_string(), "http://127.0.0.1:30001");
    let sources: Vec<_> = s
        .sources
        .iter()
        .map(|s| (&*s.name, s.url.to_string(), s.role))
        .collect();
    let page = |port| format!("http://127.0.0.1:{port}/metrics");
    let want = [
        ("router", page(29001), None),
        ("prefill", page(30000), Some(Role::Prefill)),
        ("decode", page(30002), Some(Role::Decode)),
    ];
    assert_eq!(sources, want);
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_the_file() {
    let text = "listen = '127.0.0.1:1'\nadmin.listen = '127.0.0.1:11'\nworkers = 3\n";
    let vars = [
        ("KVGAUGE_LISTEN", "127.0.0.1:2"),
        ("KVGAUGE_ADMIN_LISTEN", "127.0.0.1:12"),
    ];
    let s = fine(load(text, &vars, &listen("127.0.0.1:3")));
    assert_eq!(s.listen.port(), 3);
    assert_eq!(s.admin.listen.port(), 12);
    assert_eq!(s.workers, 3);
}

#[test]
fn every_flag_reaches_its_setting() {
    let s = fine(flags(&Flags {
        listen: Some(":30001".to_owned()),
        upstream: Some("http://127.0.0.1:30011".to_owned()),
        admin: Some("[::1]:9".to_owned()),
        sources: vec!["engine=http://e:8000,role=unified,interval=2s".to_owned()],
        workers: Some("7".to_owned()),
    }));
    assert_eq!(s.listen.to_string(), "0.0.0.0:30001");
    assert_eq!(s.upstream.to_string(), "http://127.0.0.1:30011");
    assert_eq!(s.admin.listen.to_string(), "[::1]:9");
    assert_eq!(s.workers, 7);
    assert_eq!(s.sources.len(), 1);
    assert_eq!(s.sources[0].url.to_string(), "http://e:8000/metrics");
    assert_eq!(s.sources[0].role, Some(Role::Unified));
    assert_eq!(s.sources[0].interval, Some(Duration::from_secs(2)));
}

#[test]
fn auto_and_off_in_a_layer_undo_the_layer_below() {
    let text =
        "workers = 3\n[limits]\nconnections = 5\nin_flight = 6\n[timeouts]\nrequest = '1s'\n";
    let s = fine(file(text));
    assert_eq!((s.workers, s.limits.connections), (3, Some(5)));
    assert_eq!(
        (s.limits.in_flight, s.timeouts.request),
        (Some(6), Some(Duration::from_secs(1)))
    );
    let s = fine(load(
        text,
        &[
            ("KVGAUGE_WORKERS", "auto"),
            ("KVGAUGE_LIMITS_CONNECTIONS", "auto"),
            ("KVGAUGE_LIMITS_IN_FLIGHT", "off"),
            ("KVGAUGE_TIMEOUTS_REQUEST", "off"),
        ],
        &Flags::default(),
    ));
    assert_eq!(s, Settings::defaults());
}

#[test]
fn sources_of_a_layer_replace_those_below() {
    let text =
        "[[source]]\nname = 'a'\nurl = 'http://a'\n\n[[source]]\nname = 'b'\nurl = 'http://b'\n";
    let names = |s: Settings| {
        let names: Vec<String> = s.sources.iter().map(|s| s.name.to_string()).collect();
        names.join(" ")
    };
    assert_eq!(names(fine(file(text))), "a b");
    let vars = [("KVGAUGE_SOURCES", "c=http://c; d=http://d ;")];
    assert_eq!(names(fine(load(text, &vars, &Flags::default()))), "c d");
    assert_eq!(
        names(fine(load(text, &vars, &sources(&["e=http://e"])))),
        "e"
    );
    assert_eq!(
        names(fine(env(&[("KVGAUGE_LISTEN", ":1")]))),
        "router prefill decode"
    );
}

#[test]
fn a_name_that_is_a_role_gives_it_unless_one_is_written() {
    let s = fine(flags(&sources(&[
        "decode=http://a",
        "prefill-2=http://b",
        "router=http://c",
        "unified=http://d,role=decode",
    ])));
    let roles: Vec<_> = s.sources.iter().map(|s| s.role).collect();
    assert_eq!(
        roles,
        [
            Some(Role::Decode),
            Some(Role::Prefill),
            None,
            Some(Role::Decode)
        ]
    );
}

#[test]
fn the_upstream_is_a_url_or_a_section() {
    let short = fine(file("upstream = 'http://r:1'"));
    let long = fine(file("[upstream]\nurl = 'http://r:1'\n"));
    assert_eq!(short, long);
    assert_eq!(short.upstream.to_string(), "http://r:1");
    let idle = fine(file("[upstream]\nidle = '3s'\n"));
    assert_eq!(idle.upstream, Settings::defaults().upstream);
    assert_eq!(idle.upstream_pool.idle, Duration::from_secs(3));
    for name in ["KVGAUGE_UPSTREAM", "KVGAUGE_UPSTREAM_URL"] {
        assert_eq!(fine(env(&[(name, "http://r:1")])), short);
    }
}

#[test]
fn lists_are_written_as_toml_or_as_text() {
    let list = fine(file("trusted_proxies = ['10.0.0.0/8', '::1']"));
    assert_eq!(fine(file("trusted_proxies = '10.0.0.0/8, ::1'")), list);
    assert_eq!(
        fine(env(&[("KVGAUGE_TRUSTED_PROXIES", "10.0.0.0/8,::1")])),
        list
    );
    assert_eq!(list.trusted_proxies.len(), 2);
    assert!(
        fine(file("trusted_proxies = []"))
            .trusted_proxies
            .is_empty()
    );
}

#[test]
fn a_header_with_an_empty_name_is_off() {
    let s = fine(env(&[
        ("KVGAUGE_HEADERS_USAGE", ""),
        ("KVGAUGE_HEADERS_POOLS", "X-Pools"),
    ]));
    assert_eq!(s.headers.usage, None);
    assert_eq!(s.headers.pools.unwrap().as_str(), "x-pools");
}

#[test]
fn patterns_of_a_source_are_a_list_or_one_text() {
    let texts = |patterns: &[kvgauge::config::Pattern]| -> Vec<String> {
        patterns.iter().map(|p| p.as_str().to_owned()).collect()
    };
    let source = |keys: &str| {
        let text = format!("[[source]]\nname = 'a'\nurl = 'http://a'\n{keys}\n");
        fine(file(&text)).sources.remove(0)
    };
    let s = source("keep = ['sglang:.*', 'x{1,2}']\ndrop = 'a{1,2}|b'");
    assert_eq!(texts(&s.keep), ["sglang:.*", "x{1,2}"]);
    assert_eq!(texts(&s.drop), ["a{1,2}|b"]);
    assert_eq!(source("keep = []\ndrop = ''"), source(""));

    let text = "a=http://a,keep=sglang:.*,role=decode,drop=.*_bucket,drop=python_.*,drop=go_.*";
    let flag = fine(flags(&sources(&[text]))).sources.remove(0);
    assert_eq!(texts(&flag.keep), ["sglang:.*"]);
    assert_eq!(texts(&flag.drop), [".*_bucket", "python_.*", "go_.*"]);
    assert_eq!(flag.role, Some(Role::Decode));
    let variable = fine(env(&[("KVGAUGE_SOURCES", text)])).sources.remove(0);
    assert_eq!(variable, flag);
}

// === what is malformed ===

#[test]
fn a_bad_pattern_is_refused_with_what_is_wrong_with_it() {
    let write = "write a list of at most 64 regular expressions that whole family names fit, such as [\"sglang:.*\", \"router_.*\"]";
    let head = "[[source]]\nname = 'a'\nurl = 'http://a'\n";
    let many = format!("['{}']", ["a"; 65].join("', '"));
    for (keys, message) in [
        (
            "keep = ['a.*', 'b(']",
            "source.keep: `b(` is no regular expression (found open group without closing ')'); ",
        ),
        (
            "\ndrop = '[z'",
            "source.drop: `[z` is no regular expression (",
        ),
        (
            "drop = ['']",
            "source.drop: `` is a pattern that no name fits; ",
        ),
        (
            "drop = ['a', 1]",
            "source.drop: a list of something else than texts is not possible here; ",
        ),
        (
            &format!("keep = {many}"),
            "source.keep: 65 patterns are too many; ",
        ),
    ] {
        let error = file(&format!("{head}{keys}\n")).unwrap_err();
        let line = if keys.starts_with('\n') { 5 } else { 4 };
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("kvgauge.toml:{line}: {message}")),
            "{text}"
        );
        assert!(text.ends_with(write), "{text}");
        assert_eq!((error.problems().len(), error.exit_code()), (1, 78));
    }
    let error = flags(&sources(&["a=http://a,drop=("])).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("flag --source: source.drop: `(` is no regular expression ("),
        "{text}"
    );
    assert_eq!(error.exit_code(), 64);
    let error = env(&[("KVGAUGE_SOURCES", "a=http://a,keep=[")]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("environment KVGAUGE_SOURCES: source.keep: `[` is no"),
        "{text}"
    );
    refused(
        flags(&sources(&["a=http://a,drop=x{1,2}"])),
        64,
        "flag --source: source: `2}` is not understood; after the URL may stand role=ROLE, interval=TIME, engine=NAME, kind=KIND, bearer_file=FILE and ca_file=FILE, each once, keep=PATTERN and drop=PATTERN (a comma in a URL is written %2C, one in a pattern \\x2C)",
    );
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest() {
    refused(
        file(
            "lisen = ':1'\n\n[scrape]\nintervall = '1s'\ncolour = 'red'\n\n[scarpe]\ninterval = '1s'\n",
        ),
        78,
        "kvgauge.toml:1: unknown key `lisen`; did you mean `listen`?\n\
         kvgauge.toml:4: unknown key `scrape.intervall`; did you mean `scrape.interval`?\n\
         kvgauge.toml:5: unknown key `scrape.colour`; config/kvgauge.toml lists all there are\n\
         kvgauge.toml:7: unknown key `scarpe`; did you mean `scrape`?",
    );
    refused(
        file("[limits]\nmax_series = 5\n"),
        78,
        "kvgauge.toml:2: unknown key `limits.max_series`; did you mean `scrape.max_series`?",
    );
    refused(
        file("[[source]]\nname = 'a'\nurl = 'http://a'\nrol = 'decode'\n"),
        78,
        "kvgauge.toml:4: source: unknown key `rol`; did you mean `role`?",
    );
    refused(
        file("[[source]]\nname = 'a'\nurl = 'https://a'\ncafile = '/x'\n"),
        78,
        "kvgauge.toml:4: source: unknown key `cafile`; did you mean `ca_file`?",
    );
    refused(
        file("[[sources]]\nname = 'a'\n"),
        78,
        "kvgauge.toml:1: unknown key `sources`; did you mean `source`?",
    );
}

#[test]
fn a_malformed_value_is_refused_with_what_was_seen_and_what_is_allowed() {
    let duration = "write a duration such as \"250ms\", \"10s\", \"1m30s\" or \"1h\"";
    for (text, message) in [
        ("[scrape]\ninterval = 5", format!("2: scrape.interval: `5` has no unit; {duration}")),
        ("scrape.interval = 'soon'", format!("1: scrape.interval: `soon` is not a duration; {duration}")),
        ("scrape.interval = 1.5", format!("1: scrape.interval: a number with a fraction is not possible here; {duration}")),
        ("scrape.interval = 1979-05-27", format!("1: scrape.interval: `1979-05-27` is not a duration; {duration}")),
        ("timeouts.connect = 'off'", format!("1: timeouts.connect: `off` is not possible here; {duration}")),
        (
            "timeouts.request = '-1s'",
            "1: timeouts.request: `-1s` is negative; write \"off\", or a duration such as \"250ms\", \"10s\", \"1m30s\" or \"1h\"".to_owned(),
        ),
        ("workers = true", "1: workers: true or false is not possible here; write \"auto\", or a whole number".to_owned()),
        ("workers = -1", "1: workers: `-1` is not a whole number that this machine can hold; write \"auto\", or a whole number".to_owned()),
        (
            "\nlisten = 30001",
            "2: listen: `30001` is a port without a colon before it; write an address such as \"127.0.0.1:30080\", \"[::1]:30080\", or \":30080\" for every IPv4 address of this machine (\"[::]:30080\": IPv6 too)".to_owned(),
        ),
        (
            "upstream = 'https://r'",
            "1: upstream: `https://r` is https, but the router is spoken to in plain HTTP; put what speaks TLS to it between; write a URL such as \"http://127.0.0.1:30001\"".to_owned(),
        ),
        (
            "[upstream]\nurl = 'http://r/v1'",
            "2: upstream: `http://r/v1` has a path, but requests keep the path that the client sent; write a URL such as \"http://127.0.0.1:30001\"".to_owned(),
        ),
        (
            "upstream = 5",
            "1: upstream: is a section; write [upstream] and its keys below, or upstream = \"http://127.0.0.1:30001\"".to_owned(),
        ),
        ("scrape = 'fast'", "1: scrape: is a section; write [scrape] and its keys below".to_owned()),
        ("[listen]\nport = 5", "1: listen: a table is not possible here; write an address such as \"127.0.0.1:30080\", \"[::1]:30080\", or \":30080\" for every IPv4 address of this machine (\"[::]:30080\": IPv6 too)".to_owned()),
        (
            "scrape.max_page_bytes = '32M'",
            "1: scrape.max_page_bytes: `32M` has no unit of size that is known; write bytes such as 65536, \"64KiB\" or \"32MiB\" (units: B, kB, MB, GB, KiB, MiB, GiB)".to_owned(),
        ),
        (
            "limits.request_body = 99999999999999999999",
            "1: limits.request_body: `99999999999999999999` is too large; write \"off\", or bytes such as 65536, \"64KiB\" or \"32MiB\" (units: B, kB, MB, GB, KiB, MiB, GiB)".to_owned(),
        ),
        (
            "trusted_proxies = ['10.0.0.0/40']",
            "1: trusted_proxies: `10.0.0.0/40` is no list of address ranges; write address ranges such as \"10.0.0.0/8, ::1\", or \"\" for none".to_owned(),
        ),
        (
            "headers.usage = 'Content-Length'",
            "1: headers.usage: `Content-Length` means something to clients or caches already; write a header name of your own such as \"x-kv-usage\", or \"\" for off".to_owned(),
        ),
        (
            "headers.headline = 'router'",
            "1: headers.headline: `router` is no role; write \"auto\", \"decode\", \"prefill\", \"unified\" or \"fullest\"".to_owned(),
        ),
        ("metrics.expose = 'kvs'", "1: metrics.expose: `kvs` is nothing that can be exposed; write \"all\", \"kv\" or \"none\"".to_owned()),
        (
            "metrics.source_label = 'instance'",
            "1: metrics.source_label: `instance` has a meaning of its own in Prometheus or in kvgauge's series; write a label name such as \"source\" (a letter or _, then letters, digits and _)".to_owned(),
        ),
        (
            "[[source]]\nurl = 'http://a'\nrole = 'router'\nname = 'a b'",
            "3: source.role: `router` is no role; write \"decode\", \"prefill\" or \"unified\" (a router has none: leave it out)\n\
             kvgauge.toml:4: source.name: `a b` is no name of a source; write 1 to 128 of the characters a-z A-Z 0-9 _ . : -".to_owned(),
        ),
        (
            "\n[[source]]\nrole = 'decode'",
            "2: source.name: is missing; every source has a name and a url\n\
             kvgauge.toml:2: source.url: is missing; every source has a name and a url".to_owned(),
        ),
        ("[source]\nname = 'a'", "1: source: is a list of tables; write [[source]] above the keys of each".to_owned()),
        ("source = []", "1: source: is empty; leave it out for the default sources".to_owned()),
        ("source = 'a=http://a'", "1: source: is a list of tables; write [[source]] above the keys of each".to_owned()),
    ] {
        refused(file(text), 78, &format!("kvgauge.toml:{message}"));
    }
}

#[test]
fn a_file_that_is_no_toml_is_refused_with_its_line() {
    for (text, message) in [
        (
            "listen = ':1'\nworkers 3\n",
            "kvgauge.toml:2: no valid TOML: ",
        ),
        (
            "workers = 1\nworkers = 2\n",
            "kvgauge.toml:2: no valid TOML: duplicate key",
        ),
        (
            "[scrape]\n\n[scrape]\n",
            "kvgauge.toml:3: no valid TOML: duplicate key",
        ),
    ] {
        let error = file(text).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        assert_eq!(error.exit_code(), 78);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let load = |path: &Path| config::load(Some(path), [], &Flags::default());
    let path = dir.path().join("kvgauge.toml");
    let shown = path.display();
    let error = load(&path).unwrap_err().to_string();
    let start = format!("{shown}: the settings file can't be read: ");
    assert!(error.starts_with(&start), "{error}");
    std::fs::write(&path, b"workers = 1\n# \xff\n").unwrap();
    refused(
        load(&path),
        78,
        &format!("{shown}:2: not UTF-8, as TOML has to be"),
    );
    std::fs::write(&path, "#".repeat(2 << 20)).unwrap();
    refused(
        load(&path),
        78,
        &format!("{shown}: more than 256 KiB; is this a settings file?"),
    );
    std::fs::write(&path, "workers = 2").unwrap();
    assert_eq!(fine(load(&path)).workers, 2);
}

#[test]
fn a_malformed_variable_is_refused_with_its_name() {
    refused(
        env(&[("KVGAUGE_SCRAPE_TIMEOUT", "3"), ("KVGAUGE_LISTEN", "")]),
        78,
        "environment KVGAUGE_LISTEN: listen: `` is not an address; write an address such as \"127.0.0.1:30080\", \"[::1]:30080\", or \":30080\" for every IPv4 address of this machine (\"[::]:30080\": IPv6 too)\n\
         environment KVGAUGE_SCRAPE_TIMEOUT: scrape.timeout: `3` has no unit; write a duration such as \"250ms\", \"10s\", \"1m30s\" or \"1h\"",
    );
    refused(
        env(&[("KVGAUGE_SOURCES", "a=http://a;b")]),
        78,
        "environment KVGAUGE_SOURCES: source: `b` has no URL; write NAME=URL[,role=ROLE][,interval=TIME][,engine=NAME][,kind=KIND][,bearer_file=FILE][,ca_file=FILE][,keep=PATTERN]…[,drop=PATTERN]…, such as decode=http://127.0.0.1:30002,role=decode",
    );
    refused(
        env(&[("KVGAUGE_SOURCES", " ; ")]),
        78,
        "environment KVGAUGE_SOURCES: source: is empty; unset the variable for the default sources",
    );
    refused(
        env(&[
            ("KVGAUGE_UPSTREAM", "http://a"),
            ("KVGAUGE_UPSTREAM_URL", "http://b"),
        ]),
        78,
        "environment KVGAUGE_UPSTREAM_URL: upstream: KVGAUGE_UPSTREAM is set too; set one of them",
    );
}

#[test]
fn a_malformed_flag_is_wrong_usage() {
    refused(
        flags(&listen("here:80")),
        64,
        "flag --listen: listen: `here:80` names no address of this machine (no name is looked up); write an address such as \"127.0.0.1:30080\", \"[::1]:30080\", or \":30080\" for every IPv4 address of this machine (\"[::]:30080\": IPv6 too)",
    );
    refused(
        flags(&sources(&["http://a"])),
        64,
        "flag --source: source: `http://a` has no name; write NAME=URL[,role=ROLE][,interval=TIME][,engine=NAME][,kind=KIND][,bearer_file=FILE][,ca_file=FILE][,keep=PATTERN]…[,drop=PATTERN]…, such as decode=http://127.0.0.1:30002,role=decode",
    );
    refused(
        flags(&sources(&["a=http://a,decode"])),
        64,
        "flag --source: source: `decode` is not understood; after the URL may stand role=ROLE, interval=TIME, engine=NAME, kind=KIND, bearer_file=FILE and ca_file=FILE, each once, keep=PATTERN and drop=PATTERN (a comma in a URL is written %2C, one in a pattern \\x2C)",
    );
    refused(
        flags(&sources(&["a=http://a,rol=decode"])),
        64,
        "flag --source: source: unknown key `rol`; did you mean `role`?",
    );
    refused(
        flags(&sources(&["a=http://a,role=x"])),
        64,
        "flag --source: source.role: `x` is no role; write \"decode\", \"prefill\" or \"unified\" (a router has none: leave it out)",
    );
    // With a wrong file too it is the settings that are wrong.
    let error = load("x = 1", &[], &listen("x")).unwrap_err();
    assert_eq!((error.problems().len(), error.exit_code()), (2, 78));
}

#[test]
fn credentials_in_a_url_are_refused_and_not_repeated() {
    for loaded in [
        file("upstream = 'http://admin:hunter2@r:1'"),
        file("[[source]]\nname = 'a'\nurl = 'http://admin:hunter2@r:1'"),
        env(&[("KVGAUGE_UPSTREAM", "http://admin:hunter2@r:1")]),
        env(&[(
            "KVGAUGE_SOURCES",
            "a=http://admin:hunter2@r:1,x;b=http://admin:hunter2@r:1",
        )]),
        flags(&sources(&["a=http://admin:hunter2@r:1"])),
        flags(&sources(&["http://admin:hunter2@r:1"])),
        flags(&Flags {
            upstream: Some("admin:hunter2@r:1".to_owned()),
            ..Flags::default()
        }),
    ] {
        let text = loaded.unwrap_err().to_string();
        assert!(
            !text.contains("hunter2") && !text.contains("admin:"),
            "{text}"
        );
    }
    refused(
        file("upstream = 'http://admin:hunter2@r:1'"),
        78,
        "kvgauge.toml:1: upstream: `http://…@r:1` holds a user or password, which would end in logs and process lists; leave them out; write a URL such as \"http://127.0.0.1:30001\"",
    );
}

// === all at once ===

#[test]
fn what_is_out_of_range_is_told_beside_what_is_malformed() {
    refused(
        file("lisen = 1\nlimits.in_flight = 0\n"),
        78,
        "kvgauge.toml:1: unknown key `lisen`; did you mean `listen`?\n\
         kvgauge.toml:2: limits.in_flight: 0 is too small; write 1 to 16777216, or \"off\"",
    );
    // In the order of the file; of two sources with one page as well, and of engines that there are not.
    refused(
        file(
            "scrape.interval = '1ms'\nlimits.header_fields = 5\nlimits.in_flight = 0\nworkers = 'many'\n\
             [[source]]\nname = 'a b'\nurl = 'http://a:1'\ninterval = '1ms'\n\
             [[source]]\nname = 'c'\nurl = 'http://a:1/metrics'\nengine = 'vlm'\nrole = 'x'\n\
             [[source]]\nname = 'c'\nurl = 'ftp://a'\n\
             [engine.acme]\nusage = { metric = 'u', unit = 'tokens' }\nused = 5\nfill = { metric = 'f', unit = 'blocks' }\n",
        ),
        78,
        "kvgauge.toml:1: scrape.interval: 1ms is too small; write 10ms to 168h\n\
         kvgauge.toml:2: limits.header_fields: 5 is too small; write 10 to 10000\n\
         kvgauge.toml:3: limits.in_flight: 0 is too small; write 1 to 16777216, or \"off\"\n\
         kvgauge.toml:4: workers: `many` is not a whole number that this machine can hold; write \"auto\", or a whole number\n\
         kvgauge.toml:6: source.name: `a b` is no name of a source; write 1 to 128 of the characters a-z A-Z 0-9 _ . : -\n\
         kvgauge.toml:8: source.interval: 1ms is too small; write at least 10ms\n\
         kvgauge.toml:11: source.url: http://a:1/metrics is also the page of a source whose name can't be read (kvgauge.toml:7), so it would be read and counted twice; leave one out\n\
         kvgauge.toml:12: source.engine: \"vlm\" is no engine that is known here; did you mean \"vllm\"? Known are sglang, vllm, trtllm, triton, tgi, llamacpp, lmdeploy, nim, mindie, dynamo, and what a section [engine.vlm] maps\n\
         kvgauge.toml:13: source.role: `x` is no role; write \"decode\", \"prefill\" or \"unified\" (a router has none: leave it out)\n\
         kvgauge.toml:15: source.name: two sources are called \"c\" (the other: kvgauge.toml:10); names tell series apart, so give each its own\n\
         kvgauge.toml:16: source.url: `ftp://a` is not an http URL; write a URL such as \"http://127.0.0.1:30002\" (without a path: /metrics)\n\
         kvgauge.toml:18: engine.acme.usage: `usage` can't be counted in tokens; it is counted in fraction or percent\n\
         kvgauge.toml:19: engine.acme.used: a metric and its unit are needed; write { metric = \"a metric's name\", unit = \"fraction, percent, tokens, blocks or requests\" }\n\
         kvgauge.toml:20: engine.acme.fill: `fill` can't be counted in blocks; it is counted in fraction or percent",
    );
    // Flags stay wrong usage, whatever is out of range besides.
    refused(
        load(
            "limits.in_flight = 0",
            &[],
            &sources(&["a=http://a,role=x"]),
        ),
        64,
        "kvgauge.toml:1: limits.in_flight: 0 is too small; write 1 to 16777216, or \"off\"\n\
         flag --source: source.role: `x` is no role; write \"decode\", \"prefill\" or \"unified\" (a router has none: leave it out)",
    );
    refused(
        file(
            "[[source]]\nname = 'a'\nurl = 'http://a'\nkeep = ['(', 'a', '']\n[discovery]\nfile_sd = ['a.yml', '*/b.json']\n",
        ),
        78,
        "kvgauge.toml:4: source.keep: `(` is no regular expression (found open group without closing ')'); `` is a pattern that no name fits; write a list of at most 64 regular expressions that whole family names fit, such as [\"sglang:.*\", \"router_.*\"]\n\
         kvgauge.toml:6: discovery.file_sd: `a.yml,*/b.json` names files that do not end in .json (YAML is not read) and has a * in the name of a folder; write \"off\", or a list of paths of .json files such as [\"/etc/kvgauge/*.json\"] (a * in the file's name only)",
    );
}

/// What can't be read has no value, so nothing that hangs on it is said: each of these has one fault.
#[test]
fn nothing_is_said_of_what_could_not_be_read() {
    let proxy = "listen = '127.0.0.1:30001'\n";
    for text in [
        // Each of these keys would mend what its default breaks.
        format!("{proxy}upstraem = 'http://127.0.0.1:30011'"),
        "admin.listen = '127.0.0.1:30080'\nlisen = ':1'".to_owned(),
        "admin.listen = '127.0.0.1:30002'\n[[sorce]]\nname = 'a'\nurl = 'http://a'".to_owned(),
        "admin.listen = '127.0.0.1:30002'\nsource = 'a=http://a'".to_owned(),
        "admin.listen = '127.0.0.1:30002'\ndiscovery.worker = 'http://a'".to_owned(),
        "admin.listen = '127.0.0.1:30002'\ndiscovery.workers = 'a'".to_owned(),
        "scrape.max_age = '2s'\nscrape.intervall = '100ms'".to_owned(),
        "scrape.interval = '10s'\nscrape.max_age = 60".to_owned(),
        "scrape.interval = '10s'\n[scarpe]\nmax_age = '60s'".to_owned(),
        "headers.usage = 'x-kv-pools'\nheaders.pools = 'age'".to_owned(),
        "[[source]]\nname = 'a'\nurl = 'http://a'\nengine = 'acme'\n[engine.acme]\nusage = 5".to_owned(),
        "[[source]]\nname = 'a'\nurl = 'http://a'\nengine = 'acme'\n[engin.acme]\nusage = 5".to_owned(),
        "[[source]]\nname = 'a'\nurl = 'http://a'\n[[source]]\nname = 'b'\nurl = 'http://a'\nkind = 'load'".to_owned(),
        "[[source]]\nname = 'a'\nurl = 'http://a'\nengine = 'vllm'\nkind = 'autos'".to_owned(),
        "[engine.acme]\nused = { metric = 'u', unit = 'tokens' }\ncapacty = 5".to_owned(),
    ] {
        let error = load(&text, &[], &Flags::default()).unwrap_err();
        let said: Vec<String> = error.problems().iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1, "{text}\n{said:#?}");
    }
    // The layer above counts: its value is known, whatever stands below.
    let vars = [("KVGAUGE_SCRAPE_INTERVAL", "1ms")];
    let error = load("scrape.interval = 5", &vars, &Flags::default()).unwrap_err();
    assert_eq!(error.problems().len(), 2, "{error}");
    let vars = [("KVGAUGE_SCRAPE_INTERVAL", "5")];
    let error = load("scrape.interval = '1ms'", &vars, &Flags::default()).unwrap_err();
    assert_eq!(error.problems().len(), 1, "{error}");
    // A file that is none says nothing; what is said above it counts.
    let flags = listen(":30001");
    let error = load("workers 3", &[], &flags).unwrap_err();
    assert_eq!(error.problems().len(), 1, "{error}");
    let error = load("workers 3", &[("KVGAUGE_WORKERS", "0")], &flags).unwrap_err();
    assert_eq!(error.problems().len(), 2, "{error}");
}

// === what is out of range or does not go together ===

#[test]
fn a_value_out_of_range_is_refused() {
    for (text, message) in [
        ("workers = 0", "workers: 0 is too small; write 1 to 1024"),
        (
            "timeouts.connect = 0",
            "timeouts.connect: 0 is too small; write 1ms to 168h",
        ),
        (
            "timeouts.request_head = '0s'",
            "timeouts.request_head: 0 is too small; write 1ms to 168h",
        ),
        (
            "timeouts.request = 0",
            "timeouts.request: 0 is too small; write 1ms to 168h, or \"off\"",
        ),
        (
            "timeouts.response_head = 0",
            "timeouts.response_head: 0 is too small; write 1ms to 168h, or \"off\"",
        ),
        (
            "timeouts.stream_silence = 0",
            "timeouts.stream_silence: 0 is too small; write 1ms to 168h, or \"off\"",
        ),
        (
            "timeouts.client_idle = '200h'",
            "timeouts.client_idle: 200h is too large; write 1ms to 168h",
        ),
        (
            "upstream.idle = 0",
            "upstream.idle: 0 is too small; write 1ms to 168h",
        ),
        (
            "scrape.timeout = 0",
            "scrape.timeout: 0 is too small; write 1ms to 168h",
        ),
        (
            "scrape.interval = '1ms'",
            "scrape.interval: 1ms is too small; write 10ms to 168h",
        ),
        (
            "limits.header_bytes = 4096",
            "limits.header_bytes: 4KiB is too small; write 8KiB to 16MiB",
        ),
        (
            "limits.header_fields = 1000000",
            "limits.header_fields: 1000000 is too large; write 10 to 10000",
        ),
        (
            "limits.connections = 0",
            "limits.connections: 0 is too small; write 1 to 16777216, or \"auto\"",
        ),
        (
            "limits.in_flight = 0",
            "limits.in_flight: 0 is too small; write 1 to 16777216, or \"off\"",
        ),
        (
            "limits.request_body = 0",
            "limits.request_body: 0 is too small; write 1 to 1024GiB, or \"off\"",
        ),
        (
            "log.queue_bytes = 0",
            "log.queue_bytes: 0 is too small; write 64KiB to 1GiB",
        ),
    ] {
        refused(file(text), 78, &format!("kvgauge.toml:1: {message}"));
    }
    let s = fine(file("drain.timeout = 0\nupstream.max_idle = 0"));
    assert_eq!(
        (s.drain.timeout, s.upstream_pool.max_idle),
        (Duration::ZERO, 0)
    );
}

#[test]
fn a_pace_too_slow_for_max_age_is_refused() {
    refused(
        file("scrape.interval = '5s'"),
        78,
        "kvgauge.toml:1: scrape.interval: 5s is more than a third of scrape.max_age 10s (default), so a lost scrape or two would make the values unknown; write at most 3s333ms, or raise scrape.max_age",
    );
    refused(
        file("scrape.max_age = '2s'\nscrape.timeout = '1s'"),
        78,
        "kvgauge.toml:1: scrape.max_age: 2s is less than three times scrape.interval 1s (default); write at least 3s, or lower scrape.interval",
    );
    refused(
        file(
            "[scrape]\nmax_age = '30s'\n[[source]]\nname = 'a'\nurl = 'http://a'\ninterval = '1m'\n",
        ),
        78,
        "kvgauge.toml:6: source.interval: 1m is more than a third of scrape.max_age 30s (kvgauge.toml:2), so a lost scrape or two would make the values unknown; write at most 10s, or raise scrape.max_age",
    );
    refused(
        file("[[source]]\nname = 'a'\nurl = 'http://a'\ninterval = 0\n"),
        78,
        "kvgauge.toml:4: source.interval: 0 is too small; write at least 10ms",
    );
}

#[test]
fn a_listener_that_is_the_upstream_is_refused() {
    let circle = "so requests would go round in a circle; to take over the router's port, start the router on another one and name that one with --upstream";
    for text in [":30001", "127.0.0.1:30001", "localhost:30001"] {
        let address = text.replace("localhost", "127.0.0.1");
        let address = if text == ":30001" {
            "0.0.0.0:30001".to_owned()
        } else {
            address
        };
        refused(
            flags(&listen(text)),
            78,
            &format!(
                "flag --listen: listen: {address} is also upstream http://127.0.0.1:30001 (default), {circle}"
            ),
        );
    }
    refused(
        file("upstream = 'http://localhost:30080'"),
        78,
        "kvgauge.toml:1: upstream: http://localhost:30080 is the proxy: listen 127.0.0.1:30080 (default), so requests would go round in a circle; name the router",
    );
    refused(
        env(&[("KVGAUGE_UPSTREAM", "http://0.0.0.0:30090")]),
        78,
        "environment KVGAUGE_UPSTREAM: upstream: http://0.0.0.0:30090 is kvgauge's own page: admin.listen 127.0.0.1:30090 (default), so requests would go round in a circle; name the router",
    );
    let other = fine(file("listen = ':30001'\nupstream = 'http://router:30001'"));
    assert_eq!(other.upstream.to_string(), "http://router:30001");
}

#[test]
fn two_listeners_at_one_address_are_refused() {
    refused(
        load("admin.listen = ':30080'", &[], &Flags::default()),
        78,
        "kvgauge.toml:1: admin.listen: 0.0.0.0:30080 is also listen 127.0.0.1:30080 (default); give each its own port",
    );
    refused(
        flags(&Flags {
            listen: Some(":7".to_owned()),
            admin: Some("127.0.0.1:7".to_owned()),
            ..Flags::default()
        }),
        78,
        "flag --listen: listen: 0.0.0.0:7 is also admin.listen 127.0.0.1:7 (flag --admin); give each its own port",
    );
    let free = fine(flags(&Flags {
        listen: Some("127.0.0.1:0".to_owned()),
        admin: Some("127.0.0.1:0".to_owned()),
        ..Flags::default()
    }));
    assert_eq!(free.listen, free.admin.listen);
}

#[test]
fn a_source_that_is_our_own_page_is_refused() {
    refused(
        flags(&sources(&["me=http://localhost:30090"])),
        78,
        "flag --source: source.url: the page of source \"me\", http://localhost:30090/metrics, is kvgauge's own page: admin.listen 127.0.0.1:30090 (default); kvgauge adds its own series by itself; name another page, or move admin.listen",
    );
    refused(
        flags(&listen(":30000")),
        78,
        "flag --listen: listen: the page of source \"prefill\", http://127.0.0.1:30000/metrics, is the proxy: listen 0.0.0.0:30000 (flag --listen); name the engine's or the router's own metrics port, or listen elsewhere",
    );
}

#[test]
fn the_same_source_twice_is_refused() {
    refused(
        file(
            "[[source]]\nname = 'a'\nurl = 'http://127.0.0.1:1'\n\n[[source]]\nname = 'b'\nurl = 'http://localhost:1/metrics'\n",
        ),
        78,
        "kvgauge.toml:7: source.url: http://localhost:1/metrics is also the page of source \"a\" (kvgauge.toml:3), so it would be read and counted twice; leave one out",
    );
    refused(
        flags(&sources(&["a=http://a", "a=http://b"])),
        78,
        "flag --source: source.name: two sources are called \"a\" (the other: flag --source); names tell series apart, so give each its own",
    );
}

#[test]
fn both_headers_under_one_name_are_refused() {
    refused(
        file("headers.usage = 'X-KV-Pools'"),
        78,
        "kvgauge.toml:1: headers.usage: x-kv-pools is the name of both headers; give each its own",
    );
    assert!(file("headers.usage = ''\nheaders.pools = ''").is_ok());
}

#[test]
fn too_many_sources_are_refused() {
    let many: Vec<String> = (0..1025)
        .map(|n| format!("s{n}=http://h:{}", n + 1))
        .collect();
    let many = Flags {
        sources: many,
        ..Flags::default()
    };
    refused(
        flags(&many),
        64,
        "flag --source: source: more than 1024 sources; no more are read",
    );
}

// === what is odd ===

#[test]
fn an_unknown_variable_warns_and_what_kubernetes_injects_does_not() {
    warned(
        env(&[
            ("KVGAUGE_SCRAPE_INTERVALL", "2s"),
            ("KVGAUGE_PORT", "8080"),
            ("KVGAUGE_SOURCE", "a=http://a"),
            ("KVGAUGE_CONFIG", "/etc/kvgauge.toml"),
            ("KVGAUGE_SOMETHING_OF_ANOTHER_KIND", "secret"),
            ("KVGAUGE_SERVICE_HOST", "10.0.0.1"),
            ("KVGAUGE_SERVICE_PORT", "80"),
            ("KVGAUGE_PORT_30080_TCP", "tcp://10.0.0.1:30080"),
            ("KVGAUGE_ADMIN_PORT", "tcp://10.0.0.1:30090"),
            ("PATH", "/bin"),
        ]),
        &[
            "environment KVGAUGE_CONFIG: no setting, ignored; name the file with --config",
            "environment KVGAUGE_PORT: no setting, ignored; did you mean KVGAUGE_LISTEN?",
            "environment KVGAUGE_SCRAPE_INTERVALL: no setting, ignored; did you mean KVGAUGE_SCRAPE_INTERVAL?",
            "environment KVGAUGE_SOMETHING_OF_ANOTHER_KIND: no setting, ignored",
            "environment KVGAUGE_SOURCE: no setting, ignored; did you mean KVGAUGE_SOURCES?",
        ],
    );
}

#[test]
fn settings_that_are_probably_not_meant_warn() {
    warned(
        file("scrape.timeout = '20s'"),
        &[
            "kvgauge.toml:1: scrape.timeout: scrape.timeout 20s is longer than scrape.max_age 10s: a page that takes that long has no trustworthy value left while it is read",
        ],
    );
    warned(
        file("headers.headline = 'unified'"),
        &[
            "kvgauge.toml:1: headers.headline: no source has the role unified, so the usage header is left out unless a page names that role itself",
        ],
    );
    warned(
        file("trusted_proxies = ['0.0.0.0/0']"),
        &[
            "kvgauge.toml:1: trusted_proxies: 0.0.0.0/0 is everyone: whoever connects can write any client address into the log",
        ],
    );
    warned(
        file("metrics.expose = 'none'\n[[source]]\nname = 'a'\nurl = 'http://a'\ndrop = 'x'"),
        &[
            "kvgauge.toml:5: source.drop: metrics.expose is \"none\", so nothing of any source's page is shown again",
        ],
    );
    let s = fine(file("headers.headline = 'prefill'"));
    assert_eq!(s.headers.headline, Headline::Role(Role::Prefill));
}

// === discovery ===

#[test]
fn who_has_sources_found_has_no_default_ones() {
    let found = fine(file(
        "discovery = { workers = \"http://r:1\", file_sd = [\"/a/*.json\", \"b.json\"] }",
    ));
    assert!(found.sources.is_empty());
    assert_eq!(found.discovery.file_sd.len(), 2);
    let dns = fine(env(&[(
        "KVGAUGE_DISCOVERY_DNS",
        "decode=http://d:1, http://e:2",
    )]));
    assert!(dns.sources.is_empty());
    let roles: Vec<_> = dns.discovery.dns.iter().map(|name| name.role).collect();
    assert_eq!(roles, [Some(Role::Decode), None]);
    // What is set stays, and so do the default ones where nothing is found.
    let text = "discovery.workers = \"http://r:1\"\n[[source]]\nname = \"a\"\nurl = \"http://a\"";
    assert_eq!(fine(file(text)).sources.len(), 1);
    let off = fine(file(
        "discovery.workers = \"off\"\ndiscovery.interval = \"1s\"",
    ));
    assert_eq!(off.sources, Settings::defaults().sources);
    // A role that may be found is not missed.
    fine(file(
        "headers.headline = \"unified\"\ndiscovery.workers = \"http://r:1\"",
    ));
}

#[test]
fn what_can_not_be_found_is_refused() {
    for (text, words) in [
        (
            "discovery.workers = \"http://127.0.0.1:30080\"",
            "is the proxy",
        ),
        ("discovery.workers = \"http://r:1/metrics\"", "has a path"),
        ("discovery.file_sd = [\"/a/b.yml\"]", "YAML is not read"),
        (
            "discovery.file_sd = [\"/*/b.json\"]",
            "a * in the name of a folder",
        ),
        (
            "discovery.dns = [\"router=http://d:1\"]",
            "has a role that is none",
        ),
        (
            "discovery.dns = [\"decode=ftp://d:1\"]",
            "is not an http URL",
        ),
        ("discovery.max_sources = 0", "too small"),
        ("discovery.interval = \"1ms\"", "too small"),
    ] {
        let error = file(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
        assert!(error.starts_with("kvgauge.toml:1: "), "{error}");
    }
}

#[test]
fn sources_that_are_found_have_settings_of_their_own() {
    let s = fine(file(
        "[discovery]\nworkers = 'https://r'\nbearer_file = '/run/r'\nca_file = 'r.pem'\n\
         source = { interval = '500ms', kind = 'auto', ca_file = '/ca.pem', keep = ['a.*', 'b'] }\n",
    ));
    assert_eq!(
        s.discovery.workers.as_ref().unwrap().to_string(),
        "https://r:443"
    );
    let path = |path: &Option<std::sync::Arc<Path>>| path.as_ref().unwrap().display().to_string();
    assert_eq!(path(&s.discovery.bearer_file), "/run/r");
    assert_eq!(path(&s.discovery.ca_file), "r.pem");
    let found = &s.discovery.source;
    assert_eq!(found.interval, Some(Duration::from_millis(500)));
    assert_eq!(found.kind, config::SourceKind::Auto);
    assert_eq!(path(&found.ca_file), "/ca.pem");
    assert_eq!(found.keep.len(), 2);

    let vars = [
        ("KVGAUGE_DISCOVERY_WORKERS", "http://r"),
        ("KVGAUGE_DISCOVERY_SOURCE_ENGINE", "acme"),
        ("KVGAUGE_DISCOVERY_SOURCE_BEARER_FILE", "/run/token"),
    ];
    let text = "[engine.acme]\nusage = { metric = 'u', unit = 'fraction' }\n";
    let s = fine(load(text, &vars, &Flags::default()));
    assert_eq!(s.discovery.source.engine.as_deref(), Some("acme"));

    refused(
        file("[discovery.source]\nrole = 'decode'\nca_files = '/x'\n"),
        78,
        "kvgauge.toml:2: unknown key `discovery.source.role`; config/kvgauge.toml lists all there are\n\
         kvgauge.toml:3: unknown key `discovery.source.ca_files`; did you mean `discovery.source.ca_file`?",
    );
    refused(
        file("[[discovery.source]]\nengine = 'vllm'\n"),
        78,
        "kvgauge.toml:1: discovery.source: is a section; write [discovery.source] and its keys below",
    );
    refused(
        file("[discovery.source]\nengine = 'vlm'\ninterval = '5s'\n"),
        78,
        "kvgauge.toml:2: discovery.source.engine: \"vlm\" is no engine that is known here; did you mean \"vllm\"? Known are sglang, vllm, trtllm, triton, tgi, llamacpp, lmdeploy, nim, mindie, dynamo, and what a section [engine.vlm] maps\n\
         kvgauge.toml:3: discovery.source.interval: 5s is more than a third of scrape.max_age 10s (default), so a lost scrape or two would make the values unknown; write at most 3s333ms, or raise scrape.max_age",
    );
    refused(
        file("[discovery.source]\nengine = 'vllm'\nkind = 'auto'\n"),
        78,
        "kvgauge.toml:3: discovery.source.kind: auto asks for SGLang's loads, and engine is \"vllm\"; leave one of them out",
    );
}

#[test]
fn a_file_that_nobody_looks_into_is_warned_of() {
    warned(
        file("[[source]]\nname = 'a'\nurl = 'http://a'\nca_file = '/x'\n"),
        &[
            "kvgauge.toml:4: source.ca_file: http://a:80/metrics is http, so there is no certificate to look at; write https:// where TLS is spoken",
        ],
    );
    warned(
        file("[discovery]\ndns = ['https://a']\nca_file = '/x'\nbearer_file = '/y'\n"),
        &[
            "kvgauge.toml:3: discovery.ca_file: discovery.workers is no https URL, so there is no certificate to look at; the CA of sources that are found is discovery.source.ca_file",
            "kvgauge.toml:4: discovery.bearer_file: discovery.workers is off, so nobody is sent this token; that of sources that are found is discovery.source.bearer_file",
        ],
    );
}

// === engines ===

/// A mapping `acme` with these lines, and a source that is read by it.
fn acme(lines: &str) -> Loaded {
    file(&format!(
        "[[source]]\nname = 'a'\nurl = 'http://a'\nengine = 'acme'\n[engine.acme]\n{lines}\n"
    ))
}

#[test]
fn a_source_says_what_its_page_is_read_as() {
    for engine in config::ENGINES.iter().copied() {
        let s = fine(flags(&sources(&[&format!("a=http://a,engine={engine}")])));
        assert_eq!(s.sources[0].engine.as_deref(), Some(engine));
        assert!(s.mapping(&s.sources[0]).is_none());
    }
    let known = config::ENGINES.join(", ");
    refused(
        file("[[source]]\nname = 'a'\nurl = 'http://a'\nengine = 'slang'\n"),
        78,
        &format!(
            "kvgauge.toml:4: source.engine: \"slang\" is no engine that is known here; did you mean \"sglang\"? Known are {known}, and what a section [engine.slang] maps"
        ),
    );
    refused(
        file("[[source]]\nname = 'a'\nurl = 'http://a'\nengine = 'a b'\n"),
        78,
        "kvgauge.toml:4: source.engine: `a b` is no name of an engine; write the name of an engine, or of a mapping [engine.NAME]: 1 to 128 of a-z A-Z 0-9 _ -",
    );
}

#[test]
fn a_mapping_has_a_metric_and_a_unit_for_each_value() {
    let s = fine(acme(
        "usage = { metric = 'a:usage', unit = 'percent' }\nused = { metric = 'a_blocks{type=\"used\"}', unit = 'blocks' }\nblock_size = 'a_block_size'\nmodel = 'model'\n",
    ));
    let (_, mapping) = s.mapping(&s.sources[0]).unwrap();
    let spec = mapping.spec();
    assert_eq!(
        spec.usage.as_ref().unwrap().unit(),
        config::MappedUnit::Percent
    );
    let used = spec.used.as_ref().unwrap();
    assert_eq!(used.labels().collect::<Vec<_>>(), [("type", "used")]);
    assert_eq!(spec.model.as_deref(), Some("model"));
    assert!(matches!(spec.block_size, Some(config::BlockSize::Gauge(_))));
    for (name, kv) in [
        ("a:usage", true),
        ("a_blocks", true),
        ("a_block_size", true),
        ("b", false),
    ] {
        assert_eq!(mapping.is_kv_family(name), kv, "{name}");
    }
    // A variable's source uses the file's mapping.
    let vars = [("KVGAUGE_SOURCES", "b=http://b,engine=acme")];
    let text = "[engine.acme]\nusage = { metric = 'u', unit = 'fraction' }\n";
    let s = fine(load(text, &vars, &Flags::default()));
    assert!(s.mapping(&s.sources[0]).is_some());
}

#[test]
fn a_mapping_that_is_wrong_is_refused_with_line_and_key() {
    let gauge = "write { metric = \"a metric's name\", unit = \"fraction, percent, tokens, blocks or requests\" }";
    let fraction = "usage = { metric = 'u', unit = 'fraction' }\n";
    for (lines, wanted) in [
        ("usage = 'u'".to_owned(), format!("6: engine.acme.usage: a metric and its unit are needed; {gauge}")),
        ("usage = { metric = 'u' }".to_owned(), format!("6: engine.acme.usage: `unit` is missing; {gauge}")),
        ("usage = { metric = 'u', unit = 'litres' }".to_owned(), format!("6: engine.acme.usage: `litres` is no unit; {gauge}")),
        ("usage = { metric = 'u', unit = 'percent', label = 'x' }".to_owned(), format!("6: engine.acme.usage: unknown key `label`; {gauge}")),
        ("usage = { metric = 5, unit = 'percent' }".to_owned(), format!("6: engine.acme.usage: `metric` is no text; {gauge}")),
        ("usage = { metric = 'a b', unit = 'percent' }".to_owned(), "6: engine.acme.usage: \"a b\" has no metric's name; write a metric's name, or name{label=\"value\"}".to_owned()),
        ("usage = { metric = 'a{1b=c}', unit = 'percent' }".to_owned(), "6: engine.acme.usage: \"a{1b=c}\" has a label's name that is none; write a metric's name, or name{label=\"value\"}".to_owned()),
        ("usage = { metric = 'u', unit = 'tokens' }".to_owned(), "6: engine.acme.usage: `usage` can't be counted in tokens; it is counted in fraction or percent".to_owned()),
        (format!("{fraction}running = {{ metric = 'r', unit = 'tokens' }}"), "7: engine.acme.running: `running` can't be counted in tokens; it is counted in requests".to_owned()),
        (format!("{fraction}rank = 'dp:rank'"), "7: engine.acme.rank: `rank` is \"dp:rank\", which is no label's name".to_owned()),
        (format!("{fraction}rank = 5"), "7: engine.acme.rank: is the name of a label, in quotes".to_owned()),
        (format!("{fraction}block_size = 0"), "7: engine.acme.block_size: `block_size` is 0".to_owned()),
        (format!("{fraction}block_size = -1"), "7: engine.acme.block_size: `-1` is no number of tokens; write a number of tokens, or the name of the metric that says it".to_owned()),
        (format!("{fraction}usages = 5"), "7: engine.acme: unknown key `usages`; did you mean `usage`?".to_owned()),
        (String::new(), "5: engine.acme: it gives no usage: name `usage`, or `used` and `capacity` in the same unit".to_owned()),
    ] {
        refused(acme(&lines), 78, &format!("kvgauge.toml:{wanted}"));
    }
    refused(
        file("[engine.vllm]\nusage = { metric = 'u', unit = 'fraction' }\n[engine.'a b']\n"),
        78,
        "kvgauge.toml:1: engine.vllm: is an engine that is read without a mapping; choose another name\nkvgauge.toml:3: engine: `a b` is no name of an engine; write the name of an engine, or of a mapping [engine.NAME]: 1 to 128 of a-z A-Z 0-9 _ -",
    );
    refused(
        file("engine = 'vllm'\n"),
        78,
        "kvgauge.toml:1: engine: is a section for each engine that kvgauge does not know; write [engine.NAME], or engine = \"NAME\" below [[source]]",
    );
    warned(
        file(&format!("[engine.acme]\n{fraction}")),
        &[
            "kvgauge.toml:1: engine.acme: no source has engine = \"acme\", so no page is read by this mapping",
        ],
    );
}

#[test]
fn loads_are_read_beside_the_page_and_no_server_is_counted_twice() {
    let s = fine(flags(&sources(&[
        "a=http://a:1,kind=sglang-loads",
        "b=http://b:1/x/metrics?y,kind=auto",
        "c=http://c:1/loads,kind=sglang-loads",
        "d=http://d:1",
    ])));
    let seen: Vec<_> = s
        .sources
        .iter()
        .map(|s| (s.kind, s.url.in_full()))
        .collect();
    use kvgauge::config::SourceKind::{Auto, Metrics, SglangLoads};
    let wanted = [
        (SglangLoads, "http://a:1/v1/loads"),
        (Auto, "http://b:1/x/metrics?y"),
        (SglangLoads, "http://c:1/loads"),
        (Metrics, "http://d:1/metrics"),
    ];
    assert_eq!(seen, wanted.map(|(kind, url)| (kind, url.to_owned())));
    assert_eq!(
        s.sources[1].url.loads().to_string(),
        "http://b:1/x/v1/loads"
    );

    refused(
        flags(&sources(&["a=http://a", "b=http://a,kind=sglang-loads"])),
        78,
        "flag --source: source.kind: http://a:80/v1/loads is of the same server as source \"a\" (flag --source), so it would be counted twice; leave one out, and give that kind = \"auto\" for both",
    );
    refused(
        flags(&sources(&["a=http://a,kind=auto,engine=vllm"])),
        78,
        "flag --source: source.kind: auto asks for SGLang's loads, and engine is \"vllm\"; leave one of them out",
    );
    refused(
        flags(&sources(&["a=http://a,kind=loads"])),
        64,
        "flag --source: source.kind: `loads` is nothing that can be read of a source; write \"metrics\", \"sglang-loads\" or \"auto\"",
    );
}
