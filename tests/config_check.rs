//! What `kvgauge check FILE` says.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests are tests

use kvgauge::cli::check::report;
use std::fs;

/// The report on a file of this text, its path written as FILE; or the problems.
fn check(text: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kvgauge.toml");
    fs::write(&path, text).unwrap();
    let shown = path.display().to_string();
    match report(&path) {
        Ok(text) => Ok(text.replace(&shown, "FILE")),
        Err(error) => Err(error.to_string().replace(&shown, "FILE")),
    }
}

#[test]
fn an_empty_file_is_the_default_in_plain_words() {
    let want = "\
FILE is fine.

clients    connect to 127.0.0.1:30080
requests   go to the router, http://127.0.0.1:30001
operators  and Prometheus connect to 127.0.0.1:30090
headers    x-kv-usage and x-kv-pools; usage is that of decode

Pages that are read, each every 1s:
  router   http://127.0.0.1:29001/metrics  no role, unless its page says one
  prefill  http://127.0.0.1:30000/metrics  role prefill
  decode   http://127.0.0.1:30002/metrics  role decode

Everything else is as by default.
";
    assert_eq!(check("").unwrap(), want);
}

#[test]
fn what_differs_and_what_is_odd_is_said() {
    let want = "\
FILE is fine.

clients    connect to 0.0.0.0:30001
requests   go to the router, http://127.0.0.1:30011
operators  and Prometheus connect to 127.0.0.1:30090
headers    x-kv-usage; usage is that of the fullest role

Pages that are read, each every 2s:
  engine-1  http://e:8000/metrics  role unified
  r         http://r:80/m          no role, unless its page says one, every 1s, shown again only `sglang_.*` `up`, not \
shown again `.*\\\\d`

Different from the default too:
  headers.headline = fullest (default auto)
  headers.pools = \"\" (default x-kv-pools)
  scrape.interval = 2s (default 1s)
  scrape.timeout = 15s (default 3s)

Allowed, but is it meant?
  FILE:7: scrape.timeout: scrape.timeout 15s is longer than scrape.max_age 10s: a page that takes \
that long has no trustworthy value left while it is read
";
    let text = "listen = ':30001'\nupstream = 'http://127.0.0.1:30011'\n\
                headers.headline = 'fullest'\nheaders.pools = ''\n\
                [scrape]\ninterval = '2s'\ntimeout = '15s'\n\
                [[source]]\nname = 'engine-1'\nurl = 'http://e:8000'\nrole = 'unified'\n\
                [[source]]\nname = 'r'\nurl = 'http://r:80/m'\ninterval = '1s'\n\
                keep = ['sglang_.*', 'up']\ndrop = '.*\\d'\n";
    assert_eq!(
        check(text).unwrap(),
        want.replace("http://r/m   ", "http://r:80/m")
    );
}

#[test]
fn the_role_of_the_usage_header_is_the_one_that_there_is() {
    for (source, says) in [
        (
            "role = 'prefill'",
            "headers    x-kv-usage and x-kv-pools; usage is that of prefill",
        ),
        (
            "role = 'unified'",
            "headers    x-kv-usage and x-kv-pools; usage is that of unified",
        ),
        (
            "",
            "headers    x-kv-usage and x-kv-pools; usage is that of the role that a page names",
        ),
    ] {
        let text = check(&format!(
            "[[source]]\nname = 'a'\nurl = 'http://a'\n{source}\n"
        ));
        let text = text.unwrap();
        assert!(text.lines().any(|line| line == says), "{text}");
    }
    let text = check("headers.usage = ''\nheaders.pools = ''\n").unwrap();
    assert!(text.contains("\nheaders    none is written\n"), "{text}");
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let problems = check("listen = ':30001'\n[log]\nqueue_byte = 5\n").unwrap_err();
    assert_eq!(
        problems,
        "FILE:1: listen: 0.0.0.0:30001 is also upstream http://127.0.0.1:30001 (default), so requests would go \
         round in a circle; to take over the router's port, start the router on another one and name that one \
         with --upstream\n\
         FILE:3: unknown key `log.queue_byte`; did you mean `log.queue_bytes`?"
    );
}

#[test]
fn sources_that_are_found_are_announced() {
    let text = check("discovery.workers = \"http://r:1\"").unwrap();
    let want =
        "\nPages that are read, each every 1s:\n  and those that are found, looked for every 5s\n";
    assert!(text.contains(want), "{text}");
    assert!(
        text.contains("  discovery.workers = http://r:1 (default off)\n"),
        "{text}"
    );
    let text = check(
        "[discovery]\ndns = ['https://e']\nsource = { ca_file = '/ca.pem', keep = ['a', 'b'] }",
    );
    let text = text.unwrap();
    for line in [
        "  discovery.dns = https://e:443/metrics (default off)",
        "  discovery.source.ca_file = /ca.pem (default off)",
        "  discovery.source.keep = (?:a)|(?:b) (default off)",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
}

/// A query may hold a token, wherever a URL stands.
#[test]
fn the_query_of_a_url_is_not_repeated() {
    for text in [
        "discovery.dns = [\"decode=http://h:1/m?token=SEKRIT\"]\n",
        "[[source]]\nname = \"decode\"\nurl = \"http://h:1/m?token=SEKRIT\"\n",
        "[[source]]\nname = \"decode\"\nurl = \"h:1/m?token=SEKRIT\"\n",
        "discovery.dns = [\"decode=h:1/m?token=SEKRIT\"]\n",
    ] {
        let said = check(text).unwrap_or_else(|problem| problem);
        assert!(said.contains("h:1/m?…"), "{said}");
        assert!(!said.contains("SEKRIT"), "{said}");
    }
}
