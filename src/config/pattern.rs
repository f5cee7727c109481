//! Patterns over the names of metric families.

use super::error::quote;
use super::value::{Format, OffOr, Val};
use regex_lite::{Regex, RegexBuilder};
use std::sync::Arc;

/// A regular expression that a family's name fits as a whole, as in Prometheus relabelling: `sglang:.*`
/// fits `sglang:token_usage`, `sglang` does not. ASCII classes, and no look-around and no
/// back-references, so that a name is matched in linear time.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: Arc<str>,
    regex: Regex,
}

/// The patterns of one key.
#[derive(Clone, Debug)]
pub(super) struct Patterns(pub(super) Vec<Pattern>);

/// The most patterns of one key.
const MOST_PATTERNS: usize = 64;

/// The most bytes of one pattern.
const MAX_PATTERN: usize = 1024;

/// The most bytes of what a pattern is compiled to: every byte of a name is held against all of it.
const MAX_COMPILED: usize = 64 << 10;

/// How deep groups may be nested.
const MAX_NESTING: u32 = 32;

// === impl Pattern ===

impl Pattern {
    /// Reads a pattern. The error says what is wrong with it.
    pub(super) fn read(text: &str) -> Result<Pattern, String> {
        if text.is_empty() {
            return Err("is a pattern that no name fits".to_owned());
        }
        if text.len() > MAX_PATTERN {
            return Err(format!("has more than {MAX_PATTERN} bytes"));
        }
        let compile = |text: &str| {
            let mut builder = RegexBuilder::new(text);
            builder.size_limit(MAX_COMPILED).nest_limit(MAX_NESTING);
            let bad = |error| format!("is no regular expression ({error})");
            builder.build().map_err(bad)
        };
        // Alone first: `a)(b` becomes valid once it stands in a group.
        compile(text)?;
        Ok(Pattern {
            regex: compile(&format!("^(?:{text})$"))?,
            text: Arc::from(text),
        })
    }

    /// Whether a name fits as a whole.
    #[must_use]
    pub fn fits(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }

    /// The pattern as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

// === impl Patterns ===

impl OffOr for Patterns {
    const OFF_OR: &'static str = "\"off\", or a list of at most 64 regular expressions that whole family names fit, such as [\"sglang:.*\", \"router_.*\"]";
}

impl Format for Patterns {
    const ALLOWED: &'static str = "a list of at most 64 regular expressions that whole family names fit, such as [\"sglang:.*\", \"router_.*\"]";
    const LIST: bool = true;

    /// One pattern: a comma means something in it, so it can't stand between two.
    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Patterns(Vec::new()));
        }
        Ok(Patterns(vec![Pattern::read(text)?]))
    }

    fn read_list(texts: &[&str]) -> Result<Val<Self>, String> {
        let allowed = Self::ALLOWED;
        if texts.len() > MOST_PATTERNS {
            let many = texts.len();
            return Err(format!("{many} patterns are too many; write {allowed}"));
        }
        let (mut patterns, mut wrong) = (Vec::new(), Vec::new());
        for text in texts.iter().map(|text| text.trim()) {
            match Pattern::read(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(why) => wrong.push(format!("{} {why}", quote(text))),
            }
        }
        if wrong.is_empty() {
            Ok(Val(Patterns(patterns)))
        } else {
            Err(format!("{}; write {allowed}", wrong.join("; ")))
        }
    }

    /// One expression that fits the same names.
    fn write(&self) -> String {
        match self.0.as_slice() {
            [] => String::new(),
            [only] => only.text.to_string(),
            several => {
                let all: Vec<String> = several.iter().map(|p| format!("(?:{})", p.text)).collect();
                all.join("|")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_as_a_whole() {
        for (pattern, name, fits) in [
            ("sglang:.*", "sglang:token_usage", true),
            ("sglang", "sglang:token_usage", false),
            ("token_usage", "sglang:token_usage", false),
            ("a|ab", "ab", true),
            ("a|b", "xb", false),
            ("a|b", "ax", false),
            ("^a$", "a", true),
            ("x{1,2}", "xx", true),
            ("(?i)SGLANG_.*", "sglang_a", true),
            (r"python_gc\w+_total", "python_gc_collections_total", true),
        ] {
            let seen = Pattern::read(pattern).unwrap();
            assert_eq!(seen.fits(name), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        for (pattern, why) in [
            ("", "is a pattern that no name fits"),
            ("(", "is no regular expression ("),
            ("a)(b", "is no regular expression ("),
            ("[z-a]", "is no regular expression ("),
            ("*", "is no regular expression ("),
            ("(?=a)", "is no regular expression ("),
            ("(?x)a #", "is no regular expression ("),
            ("(a{1000}){1000}", "is no regular expression ("),
            (&"(".repeat(500), "is no regular expression ("),
            (&"a".repeat(1025), "has more than 1024 bytes"),
        ] {
            let error = Pattern::read(pattern).unwrap_err();
            assert!(error.starts_with(why), "{pattern}: {error}");
        }
    }

    #[test]
    fn patterns_are_written_as_one_that_fits_the_same() {
        let two = Patterns::read_list(&["a|b", " c.* "]).unwrap().0;
        let texts: Vec<&str> = two.0.iter().map(Pattern::as_str).collect();
        assert_eq!(texts, ["a|b", "c.*"]);
        let one = Patterns::read(&two.write()).unwrap();
        for name in ["a", "b", "c", "cd", "ab", "d"] {
            let fits = |p: &Patterns| p.0.iter().any(|p| p.fits(name));
            assert_eq!(fits(&one), fits(&two), "{name}");
        }
        assert!(Patterns::read("").unwrap().0.is_empty());
        assert!(Patterns::read_list(&["a"; 65]).is_err());
    }
}
