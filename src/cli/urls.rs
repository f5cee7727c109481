//! Pages that are named on the command line of `doctor` and `status`.

use super::args::EXIT_USAGE;
use crate::config::{ConfigError, Origin, Problem};

/// Each as `NAME=URL…`, as `--source` takes it: a URL without a name is called by its host and port.
pub(super) fn named(urls: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    urls.iter()
        .map(|url| {
            let scheme = url.find("://").unwrap_or(url.len());
            if url[..scheme].contains('=') {
                return url.clone();
            }
            let authority = url[scheme..].trim_start_matches("://");
            let end = authority.find(['/', '?', ',', '#']);
            let authority = &authority[..end.unwrap_or(authority.len())];
            // A password is no name, nor is what settings would not take as one.
            let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '_');
            let base = if !authority.is_empty() && authority.chars().all(fine) {
                authority.to_owned()
            } else {
                "page".to_owned()
            };
            let mut name = base.clone();
            let mut n = 1;
            while names.contains(&name) {
                n += 1;
                name = format!("{base}-{n}");
            }
            names.push(name.clone());
            format!("{name}={url}")
        })
        .collect()
}

/// What settings call a page of the command line, and what it is to whoever typed it.
const FLAG: &str = "--source";
const FLAG_IN_WORDS: &str = "flag --source";
const ARGUMENT: &str = "argument";

/// What is wrong, a line each; URLs of the command line are no `--source` to whoever typed them.
pub(super) fn problems(error: &ConfigError) -> String {
    let lines = error.problems().iter().map(|problem| {
        let text = if problem.origin == Origin::Flag(FLAG) {
            problem.message.clone()
        } else {
            problem.to_string()
        };
        text.replace(FLAG_IN_WORDS, ARGUMENT)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The exit code that says it: wrong usage where nothing but the command line is at fault.
pub(super) fn exit_code(error: &ConfigError) -> u8 {
    let typed = |problem: &Problem| matches!(problem.origin, Origin::Flag(_));
    if error.problems().iter().all(typed) {
        EXIT_USAGE
    } else {
        error.exit_code()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_a_name_is_called_by_its_address() {
        let urls = [
            "http://127.0.0.1:30002",
            "http://127.0.0.1:30002/m?a=b",
            "decode=http://h,role=decode",
            "http://u:p@h:1",
            "nonsense",
        ];
        let named = named(&urls.map(str::to_owned));
        assert_eq!(
            named,
            [
                "127.0.0.1:30002=http://127.0.0.1:30002",
                "127.0.0.1:30002-2=http://127.0.0.1:30002/m?a=b",
                "decode=http://h,role=decode",
                "page=http://u:p@h:1",
                "page-2=nonsense",
            ]
        );
    }
}
