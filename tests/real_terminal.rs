//! `kvgauge status --watch` in a real terminal: what stands on the screen in each scenario of the demo,
//! other sizes of the window, and that the terminal is given back as it was, however it ends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod support;

use std::time::Duration;
use support::demo::Demo;
use support::kvgauge::program;
use support::terminal::Terminal;
use support::wait::PATIENCE;

/// Longer than a scenario takes to get there: only a failure takes that long.
const LIMIT: Duration = Duration::from_secs(60);

/// Starts the view; the shell says afterwards with what it has ended.
fn watch(terminal: &Terminal, arguments: &str) {
    terminal.type_line(&format!(
        "{} status --watch {arguments}; echo ended with $?",
        program()
    ));
}

fn watch_demo(terminal: &Terminal, demo: &Demo) {
    watch(terminal, &format!("http://{}", demo.admin));
    terminal.within(LIMIT, "the view", |screen| screen.contains("q quit"));
}

/// Waits for the end; the terminal must be as before.
fn ended(terminal: &Terminal, code: u8) {
    let words = format!("ended with {code}");
    terminal.until(&words, |screen| screen.contains(&words));
    terminal.assert_given_back();
}

/// The screen once all these words stand there; kept for people to look at.
fn scenario(name: &str, words: &[&str]) -> (Demo, Terminal, String) {
    let demo = Demo::start(name);
    let terminal = Terminal::open(80, 24, &[]);
    watch_demo(&terminal, &demo);
    let what = format!("{words:?} in {name}");
    let screen = terminal.within(LIMIT, &what, |screen| {
        words.iter().all(|word| screen.contains(word))
    });
    terminal.keep(name);
    (demo, terminal, screen)
}

/// The line of a role; empty where there is none, as while a window gets another size.
fn line<'a>(screen: &'a str, begin: &str) -> &'a str {
    let mut lines = screen.lines();
    lines
        .find(|line| line.starts_with(begin))
        .unwrap_or_default()
}

#[test]
#[ignore = "needs tmux: tests/run"]
fn calm_is_ok_and_ctrl_c_gives_the_terminal_back() {
    let (_demo, terminal, screen) = scenario(
        "calm",
        &[
            "ok: the fullest is",
            "decode  ok",
            "prefill ok",
            "requests/s",
            "TTFT     p50",
            "3 of 3 up",
        ],
    );
    assert!(line(&screen, "decode").contains('%'), "{screen}");
    assert_eq!(terminal.modes(), (true, false), "alternate screen, cursor");
    terminal.key("C-c");
    ended(&terminal, 0);
}

#[test]
#[ignore = "needs tmux: tests/run"]
fn full_becomes_critical_and_a_window_of_another_size_shows_more_or_less() {
    let (_demo, terminal, screen) = scenario("full", &["CRITICAL: decode 9", "decode  CRITICAL ["]);
    assert!(screen.contains("(from 95.00%)"), "{screen}");
    terminal.resize(130, 45);
    let words = ["decode  CRITICAL [", "pools", "last requests", "q quit"];
    terminal.until("a large window", |screen| {
        words.iter().all(|word| screen.contains(word))
    });
    terminal.keep("full-130x45");
    terminal.resize(60, 15);
    terminal.until("a small window", |screen| {
        line(screen, "decode").contains('%')
            && line(screen, "prefill").contains('%')
            && !screen.contains("last requests")
    });
    terminal.keep("full-60x15");
    terminal.resize(20, 5);
    terminal.until("a tiny window", |screen| {
        screen.contains("too small") && screen.contains("decode 9")
    });
    terminal.keep("full-20x5");
    terminal.resize(80, 24);
    terminal.until("as before", |screen| {
        screen.contains("decode  CRITICAL [") && screen.contains("q quit")
    });
    // Esc ends it, too.
    terminal.key("Escape");
    ended(&terminal, 0);
}

#[test]
#[ignore = "needs tmux: tests/run"]
fn hot_rank_names_the_rank() {
    let (_demo, terminal, screen) = scenario(
        "hot-rank",
        &[
            "its hottest pool 9",
            "rank 2 of 4 pools",
            "  decode rank 2 [",
            "3 of 3 up, oldest read ",
            "CRITICAL",
        ],
    );
    assert!(line(&screen, "decode").contains(" ok "), "{screen}");
    terminal.resize(30, 5);
    terminal.until("a tiny window", |screen| {
        screen.contains("too small") && line(screen, "decode hottest 9").ends_with("CRITICAL")
    });
    terminal.keep("hot-rank-30x5");
    terminal.resize(80, 24);
    terminal.until("as before", |screen| screen.contains("q quit"));
    terminal.key("q");
    ended(&terminal, 0);
}

#[test]
#[ignore = "needs tmux: tests/run"]
fn decode_restart_is_unknown_in_words_and_comes_back() {
    let (_demo, terminal, screen) = scenario(
        "decode-restart",
        &[
            "UNKNOWN: decode unreachable",
            "NOT UP: decode",
            "  decode  DOWN  read ",
            "refused the connection",
        ],
    );
    // No bar and no number that could be taken for one.
    let decode = line(&screen, "decode");
    assert!(
        decode.contains("can't be reached (unreachable)") && !decode.contains(['[', '%']),
        "{screen}"
    );
    terminal.within(LIMIT, "decode is back, with what was unknown", |screen| {
        // Known before, unknown, and known again.
        let graph = line(screen, "   5 min ago").trim_end_matches(" now");
        let known = |text: &str| text.contains(['▁', '▂', '▃', '▄']);
        let gap = graph.rsplit_once('?');
        line(screen, "decode").contains(" ok ")
            && gap.is_some_and(|(before, after)| known(before) && known(after))
    });
    terminal.keep("decode-restart-back");
}

#[test]
#[ignore = "needs tmux: tests/run"]
fn metrics_off_says_what_to_do() {
    let (_demo, terminal, _) = scenario(
        "metrics-off",
        &["UNKNOWN: decode not_read", "--enable-metrics"],
    );
    terminal.key("q");
    ended(&terminal, 0);
}

#[test]
#[ignore = "needs tmux: tests/run"]
fn hung_says_that_the_page_stands_still() {
    let words = [
        "WARNING: decode's page unchanged for ",
        "while it has requests",
        "decode  WARNING  [",
        "  decode  up, UNCHANGED for ",
    ];
    let (_demo, terminal, _) = scenario("hung", &words);
    terminal.key("q");
    ended(&terminal, 0);
}

#[test]
#[ignore = "needs tmux: tests/run"]
fn rush_shows_who_waits() {
    let (_demo, terminal, _) = scenario("rush", &["running ", "queued ", "inflight ", "prealloc "]);
    let waiting = |screen: &str| {
        let words: Vec<&str> = screen.split_whitespace().collect();
        let waits = |pair: &[&str]| {
            let n: u32 = pair[1].parse().unwrap_or_default();
            matches!(pair[0], "queued" | "bootstrap" | "prealloc") && n > 5
        };
        words.windows(2).any(waits)
    };
    terminal.within(LIMIT, "some wait", waiting);
    terminal.keep("rush");
    terminal.key("q");
    ended(&terminal, 0);
}

/// Without colours and without UTF-8 the words and bars stay.
#[test]
#[ignore = "needs tmux: tests/run"]
fn no_colour_and_no_utf8() {
    let demo = Demo::start("calm");
    let terminal = Terminal::open(80, 24, &[("NO_COLOR", "1"), ("LC_ALL", "C")]);
    watch_demo(&terminal, &demo);
    let screen = terminal.within(LIMIT, "decode", |screen| {
        screen.contains("decode  ok       [#")
    });
    assert!(screen.is_ascii(), "{screen}");
    terminal.keep("calm-no-colour-ascii");
    let painted = terminal.painted();
    // Colours are 30 to 49 and 90 to 107; bold and faint are 1 and 2.
    let sequences = painted
        .split("\u{1b}[")
        .skip(1)
        .filter_map(|rest| rest.split_once('m'));
    for (codes, _) in sequences {
        for code in codes.split(';') {
            let code: u8 = code.parse().unwrap_or_default();
            assert!(code < 30 || code == 39 || code == 49, "a colour: {codes}");
        }
    }
    terminal.key("q");
    ended(&terminal, 0);
}

/// kvgauge ends and comes back at the same place.
#[test]
#[ignore = "needs tmux: tests/run"]
fn a_lost_connection_is_said_and_found_again() {
    let demo = Demo::start("calm");
    let admin = demo.admin;
    let terminal = Terminal::open(80, 24, &[]);
    watch_demo(&terminal, &demo);
    terminal.within(LIMIT, "decode", |screen| screen.contains("decode  ok"));
    drop(demo);
    let screen = terminal.until("lost", |screen| screen.contains("CONNECTION LOST"));
    assert!(screen.contains("decode  OLD"), "{screen}");
    terminal.until("why", |screen| screen.contains("refused the connection"));
    terminal.keep("lost");
    let _again = Demo::start_at("calm", &admin.to_string());
    terminal.within(LIMIT, "connected again", |screen| {
        !screen.contains("CONNECTION LOST") && screen.contains("heard 0 s ago")
    });
    terminal.key("q");
    ended(&terminal, 0);
}

#[test]
#[ignore = "needs tmux: tests/run"]
fn signals_give_the_terminal_back() {
    for signal in ["TERM", "HUP", "INT", "QUIT"] {
        let terminal = Terminal::open(80, 24, &[]);
        // Nobody is there.
        watch(&terminal, "http://127.0.0.1:1");
        terminal.until("the view", |screen| screen.contains("NO CONNECTION"));
        let pids = terminal.child_of_the_shell();
        let done = std::process::Command::new("kill")
            .args([&format!("-{signal}"), &pids])
            .status();
        assert!(done.unwrap().success());
        ended(&terminal, 0);
    }
}

#[test]
#[ignore = "needs tmux: tests/run"]
fn ctrl_z_gives_the_terminal_back_until_it_goes_on() {
    let terminal = Terminal::open(80, 24, &[]);
    watch(&terminal, "http://127.0.0.1:1");
    terminal.until("the view", |screen| screen.contains("NO CONNECTION"));
    terminal.key("C-z");
    terminal.until("the prompt", |_| terminal.modes() == (false, true));
    terminal.assert_given_back();
    terminal.type_line("fg");
    terminal.until("the view again", |screen| screen.contains("NO CONNECTION"));
    assert_eq!(terminal.modes(), (true, false));
    terminal.key("p");
    terminal.until("it stands still", |screen| screen.contains("PAUSED"));
    terminal.key("?");
    terminal.until("the help", |screen| screen.contains("which is not 0"));
    terminal.key("q");
    terminal.until("the prompt", |_| terminal.modes() == (false, true));
    terminal.assert_given_back();
}

/// A terminal without a cursor has lines.
#[test]
#[ignore = "needs tmux: tests/run"]
fn a_dumb_terminal_has_lines() {
    let demo = Demo::start("calm");
    let terminal = Terminal::open(120, 24, &[("TERM", "dumb")]);
    watch(&terminal, &format!("http://{}", demo.admin));
    terminal.within(LIMIT, "lines", |screen| {
        screen.matches("Z  decode ").count() > 2
    });
    assert_eq!(terminal.modes(), (false, true));
    terminal.key("C-c");
    ended(&terminal, 0);
}

/// Runs itself in a terminal, where it panics while it has it.
#[test]
#[ignore = "needs tmux: tests/run"]
fn a_panic_gives_the_terminal_back_and_is_read() {
    const INSIDE: &str = "KVGAUGE_PANIC_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        let mut screen = kvgauge::cli::status::watch::terminal::Screen::open().unwrap();
        screen.draw(|_| panic!("on purpose")).unwrap();
        return;
    }
    let terminal = Terminal::open(80, 24, &[(INSIDE, "1"), ("RUST_BACKTRACE", "0")]);
    let program = std::env::current_exe().unwrap();
    let name = "a_panic_gives_the_terminal_back_and_is_read";
    terminal.type_line(&format!(
        "{} --exact {name} --ignored --nocapture; echo ended with $?",
        program.display()
    ));
    terminal.within(PATIENCE, "the panic", |screen| {
        screen.contains("on purpose") && screen.contains("ended with 101")
    });
    terminal.assert_given_back();
}
