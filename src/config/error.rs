//! What is wrong with settings, and where each value came from.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// A settings file; the line counts from 1, 0 is the file as a whole.
    File(Arc<Path>, usize),
    /// An environment variable.
    Environment(String),
    /// A command line flag, with its dashes.
    Flag(&'static str),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the value came from.
    pub origin: Origin,
    /// The setting, as it is written in the file (`scrape.interval`); empty for the file as a whole.
    pub key: String,
    /// What was seen and what is allowed.
    pub message: String,
    /// Whether the text itself is malformed. The other problems are settings that can't go together.
    pub malformed: bool,
}

/// Everything that is wrong with the settings: at least one [`Problem`], a line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    problems: Vec<Problem>,
}

/// Something in the settings that is allowed but probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Where the value came from.
    pub origin: Origin,
    /// The setting; empty where there is none.
    pub key: String,
    /// What was seen, what follows from it and what to do.
    pub message: String,
}

/// The most characters of a foreign text that a message repeats.
const SHOWN: usize = 80;

/// A URL, or what was meant as one, without the user and password that it may hold.
#[must_use]
pub fn without_credentials(text: &str) -> Cow<'_, str> {
    let Some((front, host)) = text.rsplit_once('@') else {
        return Cow::Borrowed(text);
    };
    let start = match (front.find("://"), front.find('=')) {
        (Some(at), _) => at + 3,
        (None, Some(at)) => at + 1,
        (None, None) => 0,
    };
    Cow::Owned(format!("{}…@{host}", &front[..start]))
}

/// A value as it is written in settings, without the queries of the URLs in it.
#[must_use]
pub fn without_queries(value: &str) -> String {
    let one = |entry: &str| match entry.split_once('?') {
        Some((url, _)) if url.contains("://") => format!("{url}?…"),
        _ => entry.to_owned(),
    };
    value.split(", ").map(one).collect::<Vec<_>>().join(", ")
}

/// A foreign text for a message: in backquotes, cut, control characters escaped, and without the
/// user and password that a URL may hold.
pub(super) fn quote(text: &str) -> String {
    let mut shown = without_credentials(text).into_owned();
    // Nor is a query, which may hold a token.
    if let Some(query) = shown.find('?')
        && shown[..query].contains(['/', ':'])
    {
        shown.truncate(query);
        shown.push_str("?…");
    }
    let cut = shown.chars().nth(SHOWN).is_some();
    let mut quoted = String::from("`");
    for c in shown.chars().take(SHOWN) {
        if c.is_control() {
            quoted.extend(c.escape_default());
        } else {
            quoted.push(c);
        }
    }
    quoted.push_str(if cut { "…`" } else { "`" });
    quoted
}

// === impl Origin ===

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path, 0) => write!(f, "{}", path.display()),
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Environment(name) => write!(f, "environment {name}"),
            Origin::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

// === impl Problem ===

impl Problem {
    /// A text that is not what its key takes.
    pub(super) fn malformed(origin: Origin, key: &str, message: String) -> Self {
        Problem {
            origin,
            key: key.to_owned(),
            message,
            malformed: true,
        }
    }

    /// A file that can't be read or is not TOML.
    pub(super) fn file(path: &Path, line: usize, message: String) -> Self {
        let origin = Origin::File(Arc::from(PathBuf::from(path)), line);
        Problem::malformed(origin, "", message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, &self.origin, &self.key, &self.message)
    }
}

// === impl ConfigError ===

impl ConfigError {
    /// `Err` with all problems, `Ok` where there are none.
    pub(super) fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ConfigError::of(problems))
        }
    }

    /// With these problems, put in the order of their places; there must be one.
    pub(super) fn of(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| match problem.origin {
            Origin::File(_, line) => (0, line),
            Origin::Environment(_) => (1, 0),
            Origin::Flag(_) => (2, 0),
            Origin::Default => (3, 0),
        });
        ConfigError { problems }
    }

    /// The problems: those of the file in its order, then environment, then flags.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The exit code that says it: 64 (wrong usage) where what is malformed is nothing but flags, else 78
    /// (settings), as in `sysexits.h`.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let mut malformed = self.problems.iter().filter(|p| p.malformed).peekable();
        if malformed.peek().is_some() && malformed.all(|p| matches!(p.origin, Origin::Flag(_))) {
            64
        } else {
            78
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

// === impl Warning ===

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, &self.origin, &self.key, &self.message)
    }
}

fn line(f: &mut fmt::Formatter<'_>, origin: &Origin, key: &str, message: &str) -> fmt::Result {
    if key.is_empty() {
        write!(f, "{origin}: {message}")
    } else {
        write!(f, "{origin}: {key}: {message}")
    }
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn a_quoted_text_holds_no_credential_and_no_control_character() {
        assert_eq!(quote("http://u:p@h:1/x"), "`http://…@h:1/x`");
        assert_eq!(quote("u:p@h"), "`…@h`");
        assert_eq!(quote("a=http://u:p@h;b=http://v:q@i"), "`a=http://…@i`");
        assert_eq!(quote("a=u:p@h"), "`a=…@h`");
        assert_eq!(quote("a\n\u{1b}[31m"), "`a\\n\\u{1b}[31m`");
        assert_eq!(quote(&"é".repeat(81)), format!("`{}…`", "é".repeat(80)));
    }
}
