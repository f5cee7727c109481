//! A bearer token (RFC 6750) that stands in a file, shown nowhere: what is said of it names the file.
//!
//! The file is read at the start, again each minute, and when a token was not taken, so one that is
//! renewed in place is taken up by itself. While the file can't be read the token before is used.

use super::small_file;
use http::HeaderValue;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The file is read again after this.
const AGAIN: Duration = Duration::from_secs(60);

/// The most bytes of a token's file. Kubernetes' have about 1 KiB.
const MOST_BYTES: u64 = 16 << 10;

/// Who keeps a token, in the words that are said of its file.
#[derive(Clone, Copy, Debug)]
pub struct Keeper {
    /// The setting that names the file.
    pub key: &'static str,
    /// What holds while the file can't be read, and a token has been read before.
    pub kept: &'static str,
    /// The same where none has been.
    pub none: &'static str,
}

impl Keeper {
    /// Who asks a server that wants a token. It may be open, or says itself what it wants.
    pub const ASKING: Keeper = Keeper {
        key: "bearer_file",
        kept: "the token read before is used",
        none: "no token is sent",
    };
}

/// See the [module](self) description.
#[derive(Clone)]
pub struct Bearer {
    path: Arc<Path>,
    keeper: Keeper,
    value: Option<HeaderValue>,
    /// Why the file could not be read the last time.
    problem: Option<String>,
    read: Instant,
}

// === impl Bearer ===

impl Bearer {
    /// Reads the file for the first time.
    #[must_use]
    pub fn new(path: &Arc<Path>, keeper: Keeper) -> Bearer {
        let mut bearer = Bearer::unread(path, keeper);
        bearer.read();
        bearer
    }

    /// As if the file could not be read; [`again`](Bearer::again) reads it.
    #[must_use]
    pub fn unread(path: &Arc<Path>, keeper: Keeper) -> Bearer {
        Bearer {
            path: Arc::clone(path),
            keeper,
            value: None,
            problem: None,
            read: Instant::now(),
        }
    }

    /// As it is when the file has been read again. What is wrong with that is for the caller to
    /// [tell](Bearer::complaint).
    #[must_use]
    pub fn again(&self) -> Bearer {
        let mut next = self.clone();
        next.look();
        next
    }

    /// Where it stands.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What [`value`](Bearer::value) was when the file was read last.
    #[must_use]
    pub fn held(&self) -> Option<&HeaderValue> {
        self.value.as_ref()
    }

    /// What was wrong with the file when it was read last, and what follows from it.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let problem = self.problem.as_ref()?;
        let (Keeper { key, kept, none }, path) = (&self.keeper, self.path.display());
        let holds = match self.value {
            Some(_) => kept,
            None => none,
        };
        Some(format!(
            "{key} {path} {problem}; until it can be read {holds}"
        ))
    }

    /// The value of an `Authorization` field, if there is one.
    pub fn value(&mut self, now: Instant) -> Option<HeaderValue> {
        if now.saturating_duration_since(self.read) >= AGAIN {
            self.read();
        }
        self.value.clone()
    }

    /// Reads the file again, as its token was not taken. Whether there is another one now.
    pub fn renew(&mut self) -> bool {
        let before = self.value.clone();
        self.read();
        self.value != before
    }

    /// When the file was read last.
    #[must_use]
    pub fn read_at(&self) -> Instant {
        self.read
    }

    /// What to do when the source does not take what was sent.
    #[must_use]
    pub fn advice(&self) -> String {
        let path = self.path.display();
        match &self.problem {
            Some(problem) => format!("its bearer_file {path} {problem}"),
            None => format!("it does not take the token in its bearer_file {path}"),
        }
    }

    fn read(&mut self) {
        let before = self.problem.clone();
        self.look();
        if self.problem != before
            && let Some(complaint) = self.complaint()
        {
            tracing::warn!("{complaint}");
        }
    }

    fn look(&mut self) {
        self.read = Instant::now();
        match token(&self.path) {
            Ok(value) => {
                self.value = Some(value);
                self.problem = None;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }
}

/// The file's token as a field's value. The error says what is wrong with the file, and nothing of
/// what is in it.
fn token(path: &Path) -> Result<HeaderValue, String> {
    let text = small_file(path, MOST_BYTES)?;
    let token = text.trim_ascii();
    if token.is_empty() {
        return Err("is empty".to_owned());
    }
    if !token.iter().all(u8::is_ascii_graphic) {
        return Err("holds something else than one token".to_owned());
    }
    let value = [b"Bearer ", token].concat();
    let mut value = HeaderValue::from_bytes(&value).map_err(|_| "holds no token".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> Result<HeaderValue, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        token(file.path())
    }

    #[test]
    fn a_file_holds_one_token_and_what_is_said_of_it_does_not() {
        assert_eq!(of(b"s3cret\n").unwrap(), "Bearer s3cret");
        assert!(!format!("{:?}", of(b" s3cret ").unwrap()).contains("s3cret"));
        for (text, why) in [
            (&b""[..], "is empty"),
            (b" \n", "is empty"),
            (b"s3cret\nmore", "holds something else than one token"),
            (b"s3cret\xff", "holds something else than one token"),
            (&[b'x'; 20_000], "has more than 16384 bytes"),
        ] {
            assert_eq!(of(text), Err(why.to_owned()));
        }
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(token(folder.path()), Err("is no file".to_owned()));
    }

    #[test]
    fn a_token_is_renewed_and_kept_while_its_file_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path: Arc<Path> = folder.path().join("token").into();
        std::fs::write(&path, "one").unwrap();
        let mut bearer = Bearer::new(&path, Keeper::ASKING);
        let now = Instant::now();
        assert_eq!(bearer.value(now).unwrap(), "Bearer one");
        assert!(!bearer.renew());
        std::fs::write(&path, "two").unwrap();
        assert_eq!(bearer.value(now).unwrap(), "Bearer one");
        assert_eq!(bearer.value(Instant::now() + AGAIN).unwrap(), "Bearer two");
        std::fs::write(&path, "three").unwrap();
        assert!(bearer.renew());
        std::fs::remove_file(&path).unwrap();
        assert!(!bearer.renew());
        assert_eq!(bearer.value(now).unwrap(), "Bearer three");
        assert!(bearer.advice().contains("can't be read"));
        assert!(!bearer.advice().contains("three"));
    }
}
