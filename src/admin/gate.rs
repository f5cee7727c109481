//! Who is told anything: whoever asks, or, with `admin.bearer_file`, who brings its token (RFC 6750).
//! Probes have none, so `/healthz` and `/readyz` stay open.
//!
//! Settings that are read anew may name another file, and the same file is read again with them: a token
//! that is taken back is then worth nothing at once. A stream asks with each event whether the token that
//! opened it is still the one.
//!
//! The file is read while nobody is kept waiting for the lock: a file system that hangs holds up the thread
//! that reads, and no other.

use super::{Answer, text};
use crate::config::Settings;
use crate::net::{Bearer, Keeper};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;

/// After a wrong token the file is read again, as it may have been renewed, but no more often than
/// this, whoever knocks.
const NOT_SOONER: Duration = Duration::from_secs(1);

/// RFC 6750, section 3: a challenge has a parameter at least, and says no more to who brought no token.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"kvgauge\"");
const WRONG: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"kvgauge\", error=\"invalid_token\"");

/// What is said of the token's file.
const KEEPER: Keeper = Keeper {
    key: "admin.bearer_file",
    kept: "the token read before is asked for",
    none: "nobody is let in but to /healthz and /readyz",
};

/// See the [module](self) description. Clones are the same gate.
#[derive(Clone)]
pub struct Gate(Arc<Mutex<Known>>);

struct Known {
    /// `None` where nobody needs one.
    token: Option<Bearer>,
    /// How often the file has been read, or another one named.
    reads: u64,
    era: Era,
}

/// Goes on when who was let in before is not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Era(u64);

/// What a reload has read, and not put in force yet.
pub struct Reading(Option<Bearer>);

/// What a reload has brought.
#[derive(Debug, PartialEq, Eq)]
pub enum TokenNews {
    /// Nothing, or that there is another file, as the settings themselves say.
    Nothing,
    /// The same file has another token.
    Another,
    /// The file can't be read, in words.
    Unread(String),
}

// === impl Gate ===

impl Gate {
    /// Reads the token's file, if one is set. One that can't be read opens nothing.
    #[must_use]
    pub fn new(settings: &Settings) -> Gate {
        let file = settings.admin.bearer_file.as_ref();
        Gate(Arc::new(Mutex::new(Known {
            token: file.map(|file| Bearer::new(file, KEEPER)),
            reads: 0,
            era: Era(0),
        })))
    }

    /// Reads the file that new settings name. It may hang as its file system may, so on a thread for that.
    #[must_use]
    pub fn read_for(&self, settings: &Settings) -> Reading {
        let Some(file) = &settings.admin.bearer_file else {
            return Reading(None);
        };
        let before = self.known().token.clone();
        let before = before.filter(|token| token.path() == &**file);
        let token = before.unwrap_or_else(|| Bearer::unread(file, KEEPER));
        Reading(Some(token.again()))
    }

    /// Puts in force what was read.
    pub fn follow(&self, reading: Reading) -> TokenNews {
        let Reading(new) = reading;
        let mut known = self.known();
        let news = match (&known.token, &new) {
            (_, None) => TokenNews::Nothing,
            (before, Some(new)) => match new.complaint() {
                Some(complaint) => TokenNews::Unread(complaint),
                None if before.as_ref().is_some_and(|before| {
                    before.path() == new.path() && before.held() != new.held()
                }) =>
                {
                    TokenNews::Another
                }
                None => TokenNews::Nothing,
            },
        };
        known.put(new);
        news
    }

    /// Whether anybody needs a token.
    pub(super) fn asks(&self) -> bool {
        self.known().token.is_some()
    }

    /// As long as it is the same, who was let in may stay.
    pub(super) fn era(&self) -> Era {
        self.known().era
    }

    /// Reads the file again where that is due, as a request would.
    pub(super) fn look(&self, now: Instant) {
        self.with(|token| {
            token.value(now);
        });
    }

    /// The answer to who is not let in.
    pub(super) fn refusal(&self, headers: &HeaderMap, now: Instant) -> Option<Answer> {
        self.with(|token| refusal(token, headers, now)).flatten()
    }

    /// Does this with the token, whose file may be read for it.
    fn with<T>(&self, act: impl FnOnce(&mut Bearer) -> T) -> Option<T> {
        let (mut token, reads) = {
            let known = self.known();
            (known.token.clone()?, known.reads)
        };
        let read_at = token.read_at();
        let done = act(&mut token);
        if token.read_at() != read_at {
            let mut known = self.known();
            // Else a reload has read later.
            if known.reads == reads {
                known.put(Some(token));
            }
        }
        Some(done)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Known ===

impl Known {
    fn put(&mut self, new: Option<Bearer>) {
        let held = |token: &Option<Bearer>| token.as_ref().map(|token| token.held().cloned());
        let (before, now) = (held(&self.token), held(&new));
        if now.is_some() && now != before {
            self.era.0 += 1;
        }
        self.reads += 1;
        self.token = new;
    }
}

fn refusal(token: &mut Bearer, headers: &HeaderMap, now: Instant) -> Option<Answer> {
    let shown = shown(headers);
    let before = token.value(now);
    let fits = |wanted: &Option<HeaderValue>| {
        let wanted = wanted.as_ref().and_then(|value| token_of(value));
        // The time it takes tells the length at most.
        matches!((wanted, shown), (Some(wanted), Some(shown)) if wanted.ct_eq(shown).into())
    };
    if fits(&before) {
        return None;
    }
    let old = now.saturating_duration_since(token.read_at()) >= NOT_SOONER;
    if old && (shown.is_some() || before.is_none()) && token.renew() && fits(&token.value(now)) {
        return None;
    }
    if token.value(now).is_none() {
        return Some(text(
            StatusCode::SERVICE_UNAVAILABLE,
            "nobody is let in, as admin.bearer_file can't be read: standard error says why\n",
        ));
    }
    let (challenge, said) = match shown {
        None => (
            CHALLENGE,
            "this asks for a token: send Authorization: Bearer TOKEN with what is in admin.bearer_file\n",
        ),
        Some(_) => (
            WRONG,
            "this is not the token that is in admin.bearer_file: renew yours, or that file\n",
        ),
    };
    let mut answer = text(StatusCode::UNAUTHORIZED, said);
    answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    Some(answer)
}

/// The token of the only `Authorization` field.
fn shown(headers: &HeaderMap) -> Option<&[u8]> {
    let mut fields = headers.get_all(AUTHORIZATION).iter();
    let field = fields.next()?;
    if fields.next().is_some() {
        return None;
    }
    token_of(field)
}

/// The token behind the scheme, whose case does not matter (RFC 9110, 11.1).
fn token_of(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(6)?;
    let token = token.strip_prefix(b" ")?.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_behind_its_scheme() {
        for (value, token) in [
            ("Bearer t", Some("t")),
            ("bearer  t", Some("t")),
            ("BEARER t ", Some("t")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearert", None),
            ("Basic dDp0", None),
            ("", None),
        ] {
            let value = HeaderValue::from_static(value);
            assert_eq!(token_of(&value), token.map(str::as_bytes), "{value:?}");
        }
    }

    /// A gate whose token is `one`.
    fn behind_one() -> (tempfile::TempDir, Arc<std::path::Path>, Settings, Gate) {
        let folder = tempfile::tempdir().unwrap();
        let path: Arc<std::path::Path> = folder.path().join("token").into();
        std::fs::write(&path, "one").unwrap();
        let mut settings = Settings::defaults();
        settings.admin.bearer_file = Some(Arc::clone(&path));
        let gate = Gate::new(&settings);
        (folder, path, settings, gate)
    }

    #[test]
    fn a_renewed_token_is_looked_for_no_more_than_once_a_second() {
        let (folder, path, mut settings, gate) = behind_one();
        let status = |token: &str, now| {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            headers.insert(AUTHORIZATION, value);
            let answer = gate.refusal(&headers, now);
            answer.map(|answer| answer.status().as_u16())
        };
        let reload = |settings: &Settings| gate.follow(gate.read_for(settings));
        let now = Instant::now();
        assert_eq!(status("one", now), None);
        let first = gate.era();
        std::fs::write(&path, "two").unwrap();
        assert_eq!(status("two", now), Some(401), "too soon");
        assert_eq!(gate.era(), first);
        assert_eq!(status("two", Instant::now() + NOT_SOONER), None);
        assert_eq!(status("one", now), Some(401));
        let second = gate.era();
        assert_ne!(second, first, "who was let in with the first one is out");
        // Two values of which one is right are none.
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer two"));
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer no"));
        assert!(gate.refusal(&headers, now).is_some());
        // Settings that are read anew: the token with them.
        assert_eq!(reload(&settings), TokenNews::Nothing);
        assert_eq!(gate.era(), second);
        std::fs::write(&path, "three").unwrap();
        assert_eq!(reload(&settings), TokenNews::Another);
        assert_eq!(status("two", now), Some(401));
        assert_eq!(status("three", now), None);
        // A file that is gone, which is said each time.
        std::fs::remove_file(&path).unwrap();
        let third = gate.era();
        for _ in 0..2 {
            let TokenNews::Unread(words) = reload(&settings) else {
                panic!("it is not said");
            };
            assert!(
                words.contains("the token read before is asked for"),
                "{words}"
            );
        }
        assert_eq!((status("three", now), gate.era()), (None, third));
        // Another file, then none.
        settings.admin.bearer_file = Some(folder.path().join("none").into());
        let TokenNews::Unread(words) = reload(&settings) else {
            panic!("it is not said");
        };
        assert!(words.contains("nobody is let in"), "{words}");
        assert_eq!(status("three", now), Some(503));
        let fourth = gate.era();
        assert_ne!(fourth, third);
        settings.admin.bearer_file = None;
        assert_eq!(reload(&settings), TokenNews::Nothing);
        assert_eq!(
            (status("", now), gate.era()),
            (None, fourth),
            "all may stay"
        );
        // From here on there is one.
        std::fs::write(&path, "three").unwrap();
        settings.admin.bearer_file = Some(path);
        assert_eq!(reload(&settings), TokenNews::Nothing);
        assert_ne!(gate.era(), fourth, "who brought none is out");
    }

    #[test]
    fn what_is_read_for_a_request_does_not_undo_a_reload() {
        let (_folder, path, settings, gate) = behind_one();
        gate.with(|token| {
            token.renew();
            std::fs::write(&path, "two").unwrap();
            assert_eq!(gate.follow(gate.read_for(&settings)), TokenNews::Another);
        });
        assert_eq!(
            gate.known().token.as_ref().unwrap().held().unwrap(),
            "Bearer two"
        );
    }
}
