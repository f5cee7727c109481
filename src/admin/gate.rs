//! Who is told anything: whoever asks, or, with `admin.bearer_file`, who brings its token (RFC 6750).
//! Probes have none, so `/healthz` and `/readyz` stay open.
//!
//! Settings that are read anew may name another file, and the same file is read again with them: a token
//! that is taken back is then worth nothing at once.

use super::{Answer, text};
use crate::config::Settings;
use crate::net::{Bearer, Keeper};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::cell::RefCell;
use std::sync::Arc;
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

/// See the [module](self) description.
pub struct Gate(RefCell<Known>);

struct Known {
    /// With which the file was read.
    settings: Arc<Settings>,
    token: Option<Bearer>,
}

// === impl Gate ===

impl Gate {
    /// Reads the token's file, if one is set. One that can't be read opens nothing.
    #[must_use]
    pub fn new(settings: &Arc<Settings>) -> Gate {
        Gate(RefCell::new(Known {
            settings: Arc::clone(settings),
            token: read(settings),
        }))
    }

    /// The answer to who is not let in.
    pub(super) fn refusal(
        &self,
        settings: &Arc<Settings>,
        headers: &HeaderMap,
        now: Instant,
    ) -> Option<Answer> {
        let mut known = self.0.borrow_mut();
        known.follow(settings);
        let token = known.token.as_mut()?;
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
        if old && (shown.is_some() || before.is_none()) && token.renew() && fits(&token.value(now))
        {
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
}

// === impl Known ===

impl Known {
    /// Reads the file of these settings, if they are others than before.
    fn follow(&mut self, settings: &Arc<Settings>) {
        if Arc::ptr_eq(&self.settings, settings) {
            return;
        }
        let before = std::mem::replace(&mut self.settings, Arc::clone(settings));
        match &mut self.token {
            Some(token) if before.admin.bearer_file == settings.admin.bearer_file => {
                token.renew();
            }
            token => *token = read(settings),
        }
    }
}

fn read(settings: &Settings) -> Option<Bearer> {
    let file = settings.admin.bearer_file.as_ref()?;
    Some(Bearer::new(file, KEEPER))
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

    #[test]
    fn a_renewed_token_is_looked_for_no_more_than_once_a_second() {
        let folder = tempfile::tempdir().unwrap();
        let path: Arc<std::path::Path> = folder.path().join("token").into();
        std::fs::write(&path, "one").unwrap();
        let mut settings = Settings::defaults();
        settings.admin.bearer_file = Some(Arc::clone(&path));
        let settings = Arc::new(settings);
        let gate = Gate::new(&settings);
        let status_with = |settings: &Arc<Settings>, token: &str, now| {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
            headers.insert(AUTHORIZATION, value);
            gate.refusal(settings, &headers, now)
                .map(|answer| answer.status().as_u16())
        };
        let status = |token: &str, now| status_with(&settings, token, now);
        let now = Instant::now();
        assert_eq!(status("one", now), None);
        std::fs::write(&path, "two").unwrap();
        assert_eq!(status("two", now), Some(401), "too soon");
        assert_eq!(status("two", Instant::now() + NOT_SOONER), None);
        assert_eq!(status("one", now), Some(401));
        // Two values of which one is right are none.
        let mut headers = HeaderMap::new();
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer two"));
        headers.append(AUTHORIZATION, HeaderValue::from_static("Bearer no"));
        assert!(gate.refusal(&settings, &headers, now).is_some());
        // Settings that are read anew: the token with them, then another file, then none.
        std::fs::write(&path, "three").unwrap();
        let mut settings = Settings::clone(&settings);
        assert_eq!(
            status_with(&Arc::new(settings.clone()), "two", now),
            Some(401)
        );
        settings.admin.bearer_file = Some(folder.path().join("none").into());
        assert_eq!(
            status_with(&Arc::new(settings.clone()), "three", now),
            Some(503)
        );
        settings.admin.bearer_file = None;
        assert_eq!(status_with(&Arc::new(settings), "", now), None);
    }
}
