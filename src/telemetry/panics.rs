//! Panics: each is counted by the thread it was on, and told once on standard error with the place
//! where it was. Whoever catches it goes on.

use super::{Telemetry, names};
use metrics::Counter;
use std::collections::HashMap;
use std::panic::PanicHookInfo;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// From one line on a place to the next.
const QUIET: Duration = Duration::from_secs(10);

/// Places that are remembered; there are no more in the program than its source has.
const MOST_PLACES: usize = 64;

/// Bytes of a message that are told.
const MOST_MESSAGE: usize = 200;

/// The threads that are told apart.
const THREADS: [&str; 4] = ["worker", "accept", "metrics", "other"];

/// Counts and tells every panic of the process from now on.
pub fn watch_panics(telemetry: &Telemetry) {
    let counters = THREADS.map(|thread| telemetry.counter(names::PANICS, &[("thread", thread)]));
    let told = Mutex::new(HashMap::new());
    std::panic::set_hook(Box::new(move |panic| {
        seen(panic, &counters, &told);
    }));
}

/// When a place was told of last.
type Told = Mutex<HashMap<(String, u32), Instant>>;

fn seen(panic: &PanicHookInfo<'_>, counters: &[Counter], told: &Told) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("unnamed");
    let kind = kind_of(name);
    for (known, counter) in THREADS.iter().zip(counters) {
        if *known == kind {
            counter.increment(1);
        }
    }
    let (file, line) = panic
        .location()
        .map_or(("?", 0), |place| (place.file(), place.line()));
    if may_tell(told, (file.to_owned(), line), Instant::now()) {
        let payload = panic.payload();
        let message = payload.downcast_ref::<&str>().copied();
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message = message.map_or("no message", shortened);
        tracing::error!(
            "a panic on the thread {name} at {file}:{line} ({message}): a fault of kvgauge's own, which ended what it was about and nothing else; please report it"
        );
    }
}

fn may_tell(told: &Told, place: (String, u32), now: Instant) -> bool {
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    let quiet = told
        .get(&place)
        .is_some_and(|last| now.saturating_duration_since(*last) < QUIET);
    if quiet || (told.len() >= MOST_PLACES && !told.contains_key(&place)) {
        return false;
    }
    told.insert(place, now);
    true
}

fn kind_of(thread: &str) -> &'static str {
    match thread.strip_prefix("kvgauge-") {
        Some("accept") => "accept",
        Some("metrics") => "metrics",
        Some(number) if number.parse::<usize>().is_ok() => "worker",
        _ => "other",
    }
}

/// The message's beginning. The standard library quotes the text that was sliced in the wrong place,
/// which may be a prompt.
fn shortened(message: &str) -> &str {
    let end = message.find(" of `").unwrap_or(message.len());
    let mut end = end.min(MOST_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_counted_by_its_thread() {
        let telemetry = Telemetry::new();
        // Other tests of this process say with the one before why they fail.
        let before = std::panic::take_hook();
        watch_panics(&telemetry);
        for name in [
            "kvgauge-3",
            "kvgauge-metrics",
            "kvgauge-lookup",
            "kvgauge-3",
        ] {
            let run = thread::Builder::new().name(name.into());
            let run = run.spawn(|| panic!("a test's"));
            assert!(run.unwrap().join().is_err());
        }
        std::panic::set_hook(before);
        let page = telemetry.render();
        for (thread, count) in [("worker", 2), ("accept", 0), ("metrics", 1)] {
            let line = format!("kvgauge_panics_total{{thread=\"{thread}\"}} {count}");
            assert!(page.lines().any(|l| l == line), "{line}: {page}");
        }
    }

    #[test]
    fn a_place_is_told_of_now_and_then() {
        let told = Told::default();
        let (now, place) = (Instant::now(), |line| ("a.rs".to_owned(), line));
        assert!(may_tell(&told, place(1), now));
        assert!(!may_tell(&told, place(1), now + QUIET / 2));
        assert!(may_tell(&told, place(2), now));
        assert!(may_tell(&told, place(1), now + QUIET));
        for line in 3..200 {
            let _ = may_tell(&told, place(line), now);
        }
        assert_eq!(told.lock().unwrap().len(), MOST_PLACES);
    }

    #[test]
    fn what_was_sliced_is_not_told() {
        let sliced = "a prompt that is secret: é";
        let run = std::panic::catch_unwind(|| sliced[..sliced.len() - 1].len());
        let payload = run.unwrap_err();
        let message = payload.downcast_ref::<String>().unwrap();
        assert!(message.contains("secret"), "{message}");
        let told = shortened(message);
        assert!(!told.contains("secret") && told.len() > 10, "{told}");
        assert_eq!(shortened("explicit panic"), "explicit panic");
        assert!(shortened(&"é".repeat(400)).len() <= MOST_MESSAGE);
    }
}
