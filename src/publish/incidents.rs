//! What went wrong with sources, and when: marks for the history, and the last messages. Pure: whoever
//! fills it brings the time.

use crate::kv::SourceState;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Marks that are kept.
pub const MOST_MARKS: usize = 100;

/// Messages that are kept.
pub const MOST_MESSAGES: usize = 20;

/// A source that went down, or came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When that was seen, by the history's clock.
    pub at: Duration,
    /// In words.
    pub text: Arc<str>,
}

/// Something that went wrong; equal ones stand once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The last time, by the history's clock.
    pub at: Duration,
    /// The source's name.
    pub who: Arc<str>,
    /// Who failed, what was seen, what to do.
    pub message: Arc<str>,
}

/// See the [module](self) description.
#[derive(Debug, Default)]
pub struct Incidents {
    seen: HashMap<Arc<str>, Seen>,
    marks: VecDeque<Mark>,
    messages: VecDeque<Message>,
}

/// What was last seen of a source.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    up: Option<bool>,
    failed: Option<Instant>,
}

// === impl Incidents ===

impl Incidents {
    /// Looks for what has changed. `at` and `now` are the same moment by two clocks: the history's, and
    /// that of the sources.
    pub fn look(&mut self, at: Duration, now: Instant, sources: &[Arc<SourceState>]) {
        for source in sources {
            let seen = self.seen.entry(Arc::clone(&source.name)).or_default();
            let before = *seen;
            let failure = source.failure.as_ref();
            *seen = Seen {
                up: source.up,
                failed: failure.map(|failure| failure.at),
            };
            let now_failed = seen.failed;
            if let Some(failure) = failure.filter(|_| now_failed != before.failed) {
                let ago = now.saturating_duration_since(failure.at);
                self.say(at.saturating_sub(ago), &source.name, &failure.message);
            }
            match (before.up, source.up) {
                (Some(false), Some(true)) => {
                    self.mark(at, format!("{}: is read again", source.name));
                }
                (None | Some(true), Some(false)) => {
                    let why = failure.map_or("can't be read", |failure| &failure.message);
                    self.mark(at, in_short(&source.name, why));
                }
                _ => {}
            }
        }
        if self.seen.len() > sources.len() {
            // Of those that have left nothing is kept.
            self.seen
                .retain(|name, _| sources.iter().any(|source| source.name == *name));
        }
    }

    fn mark(&mut self, at: Duration, text: String) {
        if self.marks.len() >= MOST_MARKS {
            self.marks.pop_front();
        }
        let text = text.into();
        self.marks.push_back(Mark { at, text });
    }

    fn say(&mut self, at: Duration, who: &Arc<str>, message: &Arc<str>) {
        self.messages
            .retain(|said| said.who != *who || said.message != *message);
        if self.messages.len() >= MOST_MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(Message {
            at,
            who: Arc::clone(who),
            message: Arc::clone(message),
        });
    }

    /// The oldest first.
    pub fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.marks.iter()
    }

    /// The last said last.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter()
    }
}

/// A mark has room for what was seen, not for what to do about it.
fn in_short(name: &str, message: &str) -> String {
    let seen = message.split_once(": ").map_or(message, |(seen, _)| seen);
    let seen = seen.strip_prefix(name).unwrap_or(seen).trim_start();
    let seen: String = seen.chars().take(MOST_SHOWN).collect();
    format!("{name}: {seen}")
}

/// Characters of a message in a mark.
const MOST_SHOWN: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::{Failure, FailureReason, Roles};

    /// Name, whether the last read was good, and when it failed last and with which message.
    type State<'a> = (&'a str, Option<bool>, Option<(u64, &'a str)>);

    struct Case {
        incidents: Incidents,
        start: Instant,
    }

    impl Case {
        fn new() -> Case {
            Case {
                incidents: Incidents::default(),
                start: Instant::now(),
            }
        }

        /// So many seconds from the start; the failure may be from before.
        fn look(&mut self, seconds: u64, sources: &[State<'_>]) {
            let after = |seconds| self.start + Duration::from_secs(seconds);
            let state = |(name, up, failure): &State<'_>| {
                Arc::new(SourceState {
                    up: *up,
                    failure: failure.map(|(at, message)| Failure {
                        reason: FailureReason::Connect,
                        message: message.into(),
                        at: after(at),
                    }),
                    ..source(name)
                })
            };
            let states: Vec<_> = sources.iter().map(state).collect();
            let at = Duration::from_secs(1_000 + seconds);
            self.incidents.look(at, after(seconds), &states);
        }

        fn marks(&self) -> Vec<(u64, &str)> {
            let marks = self.incidents.marks();
            marks.map(|m| (m.at.as_secs() - 1_000, &*m.text)).collect()
        }

        fn messages(&self) -> Vec<(u64, &str, &str)> {
            let all = self.incidents.messages();
            all.map(|m| (m.at.as_secs() - 1_000, &*m.who, &*m.message))
                .collect()
        }
    }

    fn source(name: &str) -> SourceState {
        SourceState {
            name: name.into(),
            url: "".into(),
            kind: "metrics",
            bearer_file: None,
            roles: Roles::default(),
            up: None,
            reading: None,
            reads: None,
            without_loads: None,
            taken: None,
            unchanged_since: None,
            interval: None,
            duration: None,
            samples: None,
            bytes: None,
            redirected: None,
            exposed: None,
            left_out: Vec::new(),
            problems: Vec::new(),
            mapping: None,
            failure: None,
            failures: [0; FailureReason::ALL.len()],
            dropped: Vec::new(),
            odd: Vec::new(),
        }
    }

    #[test]
    fn going_and_coming_back_is_marked_and_said_once() {
        let refused = "d refused the connection at h:1: check that the server runs";
        let mut case = Case::new();
        case.look(0, &[("d", None, None)]);
        case.look(2, &[("d", Some(true), None)]);
        assert!(case.marks().is_empty());
        case.look(4, &[("d", Some(false), Some((3, refused)))]);
        case.look(6, &[("d", Some(false), Some((5, refused)))]);
        case.look(8, &[("d", Some(false), Some((5, refused)))]);
        assert_eq!(case.marks(), [(4, "d: refused the connection at h:1")]);
        assert_eq!(case.messages(), [(5, "d", refused)], "the last time");
        case.look(10, &[("d", Some(true), Some((5, refused)))]);
        assert_eq!(case.marks()[1..], [(10, "d: is read again")]);
        // Failed and well again between two looks.
        case.look(12, &[("d", Some(true), Some((11, "d timed out")))]);
        assert_eq!(case.marks().len(), 2);
        assert_eq!(case.messages()[1..], [(11, "d", "d timed out")]);
    }

    #[test]
    fn a_source_that_never_answers_is_marked_and_what_leaves_is_forgotten() {
        let mut case = Case::new();
        let down = ("a", Some(false), Some((0, "a can't be had")));
        case.look(1, &[down, ("b", Some(true), None)]);
        assert_eq!(case.marks(), [(1, "a: can't be had")]);
        case.look(2, &[("b", Some(true), None)]);
        assert_eq!(case.incidents.seen.len(), 1);
        assert_eq!(case.messages().len(), 1);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut case = Case::new();
        for n in 0..300 {
            let message = format!("failure {n}");
            let up = Some(n % 2 == 0);
            case.look(n, &[("a", up, Some((n, &message)))]);
        }
        assert_eq!(case.incidents.marks.len(), MOST_MARKS);
        assert_eq!(case.messages().len(), MOST_MESSAGES);
        assert_eq!(case.messages().last(), Some(&(299, "a", "failure 299")));
    }
}
