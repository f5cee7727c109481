//! The files of the page for browsers, as they are on the wire. What the page does with them is
//! `real_page.rs`'s.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use flate2::read::GzDecoder;
use std::fs;
use std::io::Read;
use support::client::post;
use support::{Kvgauge, Response, Setup, Upstream, fetch, get};

const BROWSER: &str = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

fn ask(kvgauge: &Kvgauge, path: &str, fields: &str) -> Response {
    fetch(
        kvgauge.admin,
        format!("GET {path} HTTP/1.1\r\nHost: k\r\n{fields}\r\n"),
    )
}

/// Whether a cache is told that `Accept` decides.
fn varies(answer: &Response) -> bool {
    answer
        .head
        .all("vary")
        .iter()
        .any(|value| value == b"accept")
}

/// What the page names, and what that names.
fn named(kvgauge: &Kvgauge) -> Vec<String> {
    let page = ask(kvgauge, "/", BROWSER).text();
    let mut paths: Vec<String> = page
        .split("\"assets/")
        .skip(1)
        .map(|rest| format!("/assets/{}", rest.split('"').next().unwrap()))
        .collect();
    let mut next = 0;
    while next < paths.len() {
        let text = get(kvgauge.admin, &paths[next]).text();
        for rest in text.split("from \"./").skip(1) {
            let path = format!("/assets/{}", rest.split('"').next().unwrap());
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        next += 1;
    }
    paths
}

#[test]
fn a_browser_gets_the_page_and_everybody_else_the_list() {
    let kvgauge = Setup::new(Upstream::ok().address()).start();
    let page = ask(&kvgauge, "/", BROWSER);
    assert_eq!(page.status(), 200);
    assert_eq!(
        page.head.get("content-type").unwrap(),
        "text/html; charset=utf-8"
    );
    assert!(page.text().starts_with("<!doctype html>"));
    for fields in ["", "Accept: */*\r\n", "Accept: application/json\r\n"] {
        let list = ask(&kvgauge, "/", fields);
        assert_eq!(
            list.head.get("content-type").unwrap(),
            "text/plain; charset=utf-8"
        );
        assert!(list.text().contains("\n/metrics "), "{}", list.text());
        assert!(varies(&list));
    }
    assert!(varies(&page));
    let head = format!("HEAD / HTTP/1.1\r\nHost: k\r\n{BROWSER}\r\n");
    let mut client = support::Client::connect(kvgauge.admin);
    let answer = client.send(head).response("HEAD");
    assert_eq!(answer.status(), 200);
    assert_eq!(fetch(kvgauge.admin, post("/", BROWSER, "{}")).status(), 405);
}

#[test]
fn every_file_says_what_it_is_and_what_the_page_may_do() {
    let kvgauge = Setup::new(Upstream::ok().address()).start();
    let paths = named(&kvgauge);
    assert!(paths.len() >= 9, "{paths:?}");
    for path in &paths {
        let file = get(kvgauge.admin, path);
        assert_eq!(file.status(), 200, "{path}");
        let kind = match path.rsplit('.').next().unwrap() {
            "css" => "text/css; charset=utf-8",
            "js" => "text/javascript; charset=utf-8",
            other => panic!("{other}"),
        };
        assert_eq!(file.head.get("content-type").unwrap(), kind, "{path}");
        assert_eq!(file.head.get("x-content-type-options").unwrap(), "nosniff");
        assert_eq!(file.head.get("cache-control").unwrap(), "no-cache");
        assert_eq!(file.head.get("referrer-policy").unwrap(), "no-referrer");

        let tag = file.head.get("etag").unwrap();
        let held = ask(&kvgauge, path, &format!("If-None-Match: {tag}\r\n"));
        assert_eq!((held.status(), held.body.len()), (304, 0), "{path}");
        // RFC 9110, 15.4.5: what its 200 has.
        for field in ["etag", "vary", "cache-control", "content-security-policy"] {
            let same = (file.head.all(field), held.head.all(field));
            assert_eq!(same.0, same.1, "{path} {field}");
        }
        assert_eq!(file.head.all("vary"), [b"accept-encoding"], "{path}");

        let packed = ask(&kvgauge, path, "Accept-Encoding: gzip, br\r\n");
        assert_eq!(packed.head.get("content-encoding").unwrap(), "gzip");
        assert!(packed.body.len() < file.body.len(), "{path}");
        let mut text = Vec::new();
        GzDecoder::new(&packed.body[..])
            .read_to_end(&mut text)
            .unwrap();
        assert_eq!(text, file.body, "{path}");
    }
    let page = ask(&kvgauge, "/", BROWSER);
    assert_eq!(
        page.head.get("content-security-policy").unwrap(),
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    assert_eq!(page.head.get("x-content-type-options").unwrap(), "nosniff");
    assert_eq!(get(kvgauge.admin, "/assets/nothing.js").status(), 404);
    assert_eq!(get(kvgauge.admin, "/assets/").status(), 404);
    let licence = get(kvgauge.admin, "/assets/uplot.LICENSE").text();
    assert!(licence.contains("Leon Sorokin"), "{licence}");
}

#[test]
fn behind_a_token_the_files_are_open_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "s3cret").unwrap();
    let settings = format!("admin.bearer_file = \"{}\"\n", file.display());
    let kvgauge = Setup::new(Upstream::ok().address())
        .settings(&settings)
        .start();
    assert_eq!(ask(&kvgauge, "/", BROWSER).status(), 200);
    for path in named(&kvgauge) {
        assert_eq!(get(kvgauge.admin, &path).status(), 200, "{path}");
    }
    for path in ["/", "/kv", "/sources", "/metrics", "/assets/", "/assets/x"] {
        assert_eq!(get(kvgauge.admin, path).status(), 401, "{path}");
    }
    for path in ["/kv", "/sources", "/metrics", "/kv/stream", "/kv/history"] {
        assert_eq!(ask(&kvgauge, path, BROWSER).status(), 401, "{path}");
    }
    let refused = fetch(kvgauge.admin, post("/assets/app.js", "", "{}"));
    assert_eq!(refused.status(), 401);
}
