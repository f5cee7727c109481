//! The traps of a reverse proxy on hyper, and where each is tested: `TRAPS` names the test, and is
//! itself tested. Some tests are here, as no other file is about them.
//!
//! Not of concern, as kvgauge does not use what has the trap:
//!
//! | trap | why not |
//! |---|---|
//! | a client of HTTP/2 in front of a router of HTTP/1.1: version, `:authority`, split cookies | no HTTP/2 is spoken; its preface is `http2` among the malformed (`the_preface_of_http2_is_not_answered`) |
//! | HTTP/2 to the router: a cancelled stream on a dead connection, pings | the same |
//! | `auto::Builder` waits for ever while it looks at the version | the plain `http1::Builder` is used, and connections that say nothing are swept |
//! | `header_read_timeout` needs a timer | it is off: the worker's sweeper holds heads to their limit |
//! | `http1_only` does nothing with `serve_connection_with_upgrades` | the connection's type is built by hand |
//! | hyper-util's legacy client: `pool_idle_timeout` needs a timer, a dial beside each wait for an idle connection, `set_connect_timeout` is divided among addresses | `net/pool.rs` and `net/dial.rs` are own: swept, one dial a request, one limit over all addresses |
//! | `tower_http::TimeoutBody` hides the length | `proxy/deadline.rs` is own (`limits_in_time_change_no_framing`) |
//! | `GracefulShutdown` is not `Clone` | each worker counts its connections, tunnels among them |
//! | closing a listener with `SO_REUSEPORT` drops its queue | one acceptor, one listener |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

mod support;

use std::path::Path;
use support::upstream::{OK, STREAM};
use support::{Client, End, Next, Setup, Upstream, fetch};

/// The trap, and the test, which stands in a file of this folder, or beside the code.
const TRAPS: [(&str, &str); 43] = [
    // Framing and smuggling.
    (
        "an answer with both a coding and a length is cut where the wrong one is taken off, and nobody learns of it",
        "an_answer_with_length_and_chunks_is_read_by_its_chunks",
    ),
    (
        "a request with both hides a second one",
        "b42_a_request_with_length_and_chunks_hides_no_second_one",
    ),
    (
        "lengths that differ, or are none",
        "a_length_is_digits_and_stands_for_one_number",
    ),
    (
        "a coding other than chunked",
        "a_coding_is_chunked_alone_and_once",
    ),
    (
        "GET or HEAD with a chunked body loses it",
        "a_body_belongs_to_any_method_that_frames_one",
    ),
    (
        "two Hosts are forwarded, none is accepted",
        "a_host_is_one_and_can_be_one",
    ),
    (
        "fields of one hop are forwarded",
        "hop_fields_of_a_request_are_taken_off",
    ),
    ("and come back", "hop_fields_of_an_answer_are_taken_off"),
    (
        "a client nominates away what the proxy adds",
        "a_client_cannot_nominate_away_what_kvgauge_adds",
    ),
    (
        "bytes go raw before the router has switched",
        "bytes_behind_a_head_wait_for_the_101_and_are_not_lost",
    ),
    (
        "the target names another host than Host",
        "an_absolute_target_becomes_a_plain_one_and_its_authority_the_host",
    ),
    (
        "OPTIONS * makes an invalid URI",
        "a_question_to_the_server_itself_passes",
    ),
    // Versions and headers.
    (
        "names are in lower case on the wire",
        "names_arrive_in_lower_case_and_values_as_they_are",
    ),
    (
        "Expect is answered and forwarded all the same",
        "b33_a_client_that_asks_for_leave_gets_it_before_it_sends_timed",
    ),
    (
        "leave is given to a body that is refused",
        "a_body_over_its_limit_is_refused_before_it_is_asked_for",
    ),
    (
        "interim answers are swallowed",
        "interim_answers_do_not_stand_for_the_final_one",
    ),
    (
        "trailers arrive only where both sides name them",
        "trailers_of_an_answer_reach_a_client_that_takes_them",
    ),
    (
        "answers to HEAD, 204 and 304 have lengths and no bodies",
        "an_answer_without_a_body_has_none_whatever_it_says",
    ),
    (
        "a client of HTTP/1.0 knows no chunks",
        "an_old_client_gets_the_length_or_the_end_of_the_connection",
    ),
    (
        "hyper's own limit on fields",
        "more_fields_than_allowed_are_refused_with_431",
    ),
    (
        "hyper's own limit on a head",
        "a_longer_head_than_allowed_is_refused_with_431",
    ),
    // Connections and cancellation.
    (
        "a client that leaves is noticed late",
        "b29_a_client_that_closes_frees_the_upstream",
    ),
    (
        "a pipelined byte hides that the client leaves",
        "a_client_that_leaves_behind_a_stray_byte_is_noticed",
    ),
    (
        "a client that closes its sending side alone",
        "a_client_that_closes_its_sending_side_counts_as_gone",
    ),
    (
        "a router closes an idle connection just when it is used",
        "b30_a_server_that_closes_idle_connections_fails_no_request_timed",
    ),
    (
        "and the request is sent a second time",
        "requests_that_race_with_the_end_of_their_connection_are_never_seen_twice",
    ),
    (
        "an idle connection is kept for longer than the router keeps it",
        "a_connection_that_waits_is_closed_after_4_seconds_by_default_timed",
    ),
    (
        "a name is resolved once, and its old address kept",
        "a_name_that_moves_is_followed",
    ),
    (
        "an early answer is lost in a reset",
        "an_early_answer_reaches_a_client_that_goes_on_sending",
    ),
    (
        "a limit on connecting is divided among addresses",
        "connecting_is_held_to_its_limit",
    ),
    (
        "a connection that says nothing is held for ever",
        "a_connection_that_never_says_anything_is_closed",
    ),
    (
        "accepting spins where descriptors run out",
        "b44_clients_that_use_up_the_descriptors_timed",
    ),
    (
        "a head that never ends holds a connection for ever",
        "a_head_that_stops_behind_a_request_is_not_taken_for_an_idle_connection",
    ),
    // Bodies, limits, time.
    (
        "a limit in time hides the length of a body",
        "limits_in_time_change_no_framing",
    ),
    (
        "a place among requests is free again at the head",
        "a_place_among_requests_is_held_until_the_last_byte",
    ),
    (
        "nobody asks again behind the last byte of a length",
        "an_answer_ends_where_its_framing_says",
    ),
    (
        "nor behind trailers",
        "an_answer_with_trailers_is_complete_and_keeps_its_connection",
    ),
    (
        "a proxy packs what it passes on",
        "an_answer_is_packed_by_nobody_but_the_router",
    ),
    (
        "what runs in Drop panics while a panic unwinds, and the process ends",
        "what_is_recorded_while_a_panic_unwinds_is_recorded_once_and_panics_no_more",
    ),
    // Shutdown, upgrades.
    (
        "an upgrade is answered and leads nowhere",
        "the_offer_reaches_the_router_and_its_answer_the_client",
    ),
    (
        "an upgraded connection is forgotten at the end",
        "a_tunnel_that_outlasts_the_drain_is_cut",
    ),
    (
        "a graceful end waits for streams for ever",
        "a_stream_that_outlasts_the_drain_is_cut",
    ),
    (
        "connections that wait are not closed",
        "an_idle_one_ends_at_once",
    ),
];

#[test]
fn each_trap_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = Vec::new();
    for folder in ["tests", "src"] {
        tests_below(&root.join(folder), &mut tests);
    }
    for (trap, name) in TRAPS {
        let found = tests.iter().filter(|test| *test == name).count();
        assert_eq!(found, 1, "{trap}: {name}");
    }
}

/// The names of the tests in the files below a folder that `tests/run` runs without being told to.
fn tests_below(folder: &Path, tests: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_below(&path, tests);
        } else if path.extension().is_some_and(|end| end == "rs") {
            tests_of(&std::fs::read_to_string(path).unwrap(), tests);
        }
    }
}

fn tests_of(text: &str, tests: &mut Vec<String>) {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for (at, line) in lines.iter().enumerate() {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let name = line.strip_prefix("fn ");
        let Some(name) = name.and_then(|line| line.strip_suffix("() {")) else {
            continue;
        };
        let attributes = lines[..at].iter().rev();
        let attributes: Vec<&&str> = attributes.take_while(|l| l.starts_with("#[")).collect();
        let is_test = attributes
            .iter()
            .any(|a| a.starts_with("#[test]") || a.starts_with("#[tokio::test"));
        // `tests/run` runs those that need a program, but the long ones only when it is told to.
        let is_left_out = attributes
            .iter()
            .any(|a| a.starts_with("#[ignore") && !a.starts_with("#[ignore = \"needs "));
        if is_test && !is_left_out {
            tests.push(name.to_owned());
        }
    }
}

#[test]
fn a_test_that_is_left_out_by_default_is_no_test_of_a_trap() {
    let text = r#"
        #[test]
        fn one() {
        }

        #[test]
        #[ignore = "needs curl: tests/run"]
        fn two() {
        }

        #[tokio::test]
        async fn three() {
        }

        mod full {
            #[test]
            #[ignore = "takes 10 minutes: tests/run --full"]
            fn four() {
            }

            #[ignore]
            #[test]
            fn five() {
            }
        }

        fn six() {
        }
    "#;
    let mut found = Vec::new();
    tests_of(text, &mut found);
    assert_eq!(found, ["one", "two", "three"]);
}

#[test]
fn names_arrive_in_lower_case_and_values_as_they_are() {
    let upstream =
        Upstream::answering("HTTP/1.1 200 OK\r\nX-Mixed-CASE: VaLue\r\nContent-Length: 0\r\n\r\n");
    let kvgauge = Setup::new(upstream.address()).start();
    let request = "GET / HTTP/1.1\r\nHoSt: K\r\nX-Other-CASE: VaLue\r\n\r\n";
    let answer = fetch(kvgauge.listen, request);
    let seen = upstream.request(1).head;
    for (head, name) in [(&answer.head, "x-mixed-case"), (&seen, "x-other-case")] {
        let field = head.fields.iter().find(|(found, _)| found == name);
        let value = field.map(|(_, value)| value.as_slice());
        assert_eq!(value, Some(b"VaLue".as_slice()), "{}", head.text());
    }
}

#[test]
fn a_body_over_its_limit_is_refused_before_it_is_asked_for() {
    let upstream = Upstream::ok();
    let kvgauge = Setup::new(upstream.address())
        .settings("limits.request_body = 1000\n")
        .start();
    let mut client = Client::connect(kvgauge.listen);
    client
        .send("POST / HTTP/1.1\r\nHost: k\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n");
    // Not 100 in front of it.
    assert_eq!(client.head().status(), 413);
    assert_eq!(upstream.requests().len(), 0);
}

#[test]
fn a_client_that_closes_its_sending_side_counts_as_gone() {
    let upstream = Upstream::new(|connection| {
        connection.request()?;
        connection.send(STREAM)?;
        connection.chunk("data: 1\n\n")?;
        connection.until_peer_leaves()?;
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.listen);
    client.send("GET / HTTP/1.1\r\nHost: k\r\n\r\n").head();
    assert_eq!(client.chunk().unwrap(), b"data: 1\n\n");
    client.finish();
    upstream.none_open(support::wait::PATIENCE);
    let (rest, end) = client.rest();
    assert!(
        rest.is_empty() && matches!(end, End::Cut | End::Reset),
        "{end:?}"
    );
    assert_eq!(kvgauge.line(1)["outcome"], "client_gone");
}

/// Many clients send all of a body before they look for an answer. Bytes that come to a closed socket
/// would be answered by RST, and with it the answer may be lost.
#[test]
fn an_early_answer_reaches_a_client_that_goes_on_sending() {
    let upstream = Upstream::new(|connection| {
        connection.request_head()?;
        connection.send(
            "HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntoo long",
        )?;
        // By a reset, as bytes of the body stand there unread.
        Ok(Next::Close)
    });
    let kvgauge = Setup::new(upstream.address()).start();
    let mut client = Client::connect(kvgauge.listen);
    let piece = vec![b'x'; 1 << 20];
    client.send("POST / HTTP/1.1\r\nHost: k\r\nContent-Length: 32000000\r\n\r\n");
    for _ in 0..16 {
        client.send(&piece);
    }
    let answer = client.response("POST");
    assert_eq!((answer.status(), answer.text().as_str()), (413, "too long"));
    client.send(&piece);
    client.finish();
    assert_eq!(client.rest(), (Vec::new(), End::Cut));
    let line = kvgauge.line(1);
    assert_eq!(line["outcome"], "complete", "{line}");
    assert_eq!(line["http.response.status_code"], 413, "{line}");
}

#[test]
fn limits_in_time_change_no_framing() {
    let upstream = Upstream::replying(|request| match request.head.target() {
        "/long" => "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "/none" => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        _ => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    });
    let kvgauge = Setup::new(upstream.address())
        .settings("timeouts.response_head = \"1h\"\ntimeouts.stream_silence = \"1h\"\ntimeouts.request = \"1h\"\n")
        .start();
    for (target, length, coding) in [
        ("/long", Some("5"), None),
        ("/none", Some("0"), None),
        ("/chunked", None, Some("chunked")),
    ] {
        let head = support::get(kvgauge.listen, target).head;
        assert_eq!(head.get("content-length").as_deref(), length, "{target}");
        assert_eq!(head.get("transfer-encoding").as_deref(), coding, "{target}");
    }
}

#[test]
fn an_answer_is_packed_by_nobody_but_the_router() {
    let upstream = Upstream::answering(OK);
    let kvgauge = Setup::new(upstream.address()).start();
    let request = "GET / HTTP/1.1\r\nHost: k\r\nAccept-Encoding: gzip, br, zstd, deflate\r\n\r\n";
    let answer = fetch(kvgauge.listen, request);
    assert!(
        !answer.head.has("content-encoding"),
        "{}",
        answer.head.text()
    );
    assert!(!answer.head.has("vary"), "{}", answer.head.text());
    assert_eq!(answer.text(), "{}");
}
