//! `kvgauge status --watch`: a view that renews itself, in a terminal; else lines, or JSON.
//!
//! `feed.rs` hears, `model.rs` knows, `draw/` draws, `terminal.rs` takes the terminal and gives it back,
//! `output.rs` writes to it, `keys.rs` reads what is typed.

mod draw;
mod feed;
mod keys;
mod model;
mod moment;
mod output;
mod plain;
pub mod terminal;
mod view;

use super::ask::Asked;
use super::report::Limits;
use crate::config::Settings;
use draw::Look;
use model::Model;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use terminal::Screen;

/// Whom to watch, and from when on it is worth a warning.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) asked: Vec<Asked>,
    pub(super) settings: Arc<Settings>,
    pub(super) limits: Limits,
}

/// Runs until it is ended: the exit code. Call it within a tokio `LocalRuntime`.
pub(super) async fn run(watched: Watched, json: bool) -> ExitCode {
    let address = match &watched.asked[..] {
        [one] => one.address(),
        all => format!("{} pages", all.len()),
    };
    let model = Model::new(address, watched.limits);
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let drawable = !matches!(&*variable("TERM"), "" | "dumb");
    // Without keys and cursor there is nothing that could be drawn.
    let screen = (!json && drawable && std::io::stdout().is_terminal())
        .then(Screen::open)
        .and_then(Result::ok);
    let feed = feed::start(watched.asked, watched.settings);
    match screen {
        Some(screen) => view::run(screen, model, look(variable), feed).await,
        None => plain::run(model, feed, json).await,
    }
}

/// What the terminal can show, by the environment (no-color.org; POSIX locales).
fn look(variable: impl Fn(&str) -> String) -> Look {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].map(variable_of(&variable));
    let locale = locale.into_iter().find(|locale| !locale.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    Look {
        unicode: locale.contains("utf-8") || locale.contains("utf8"),
        colour: variable("NO_COLOR").is_empty(),
    }
}

fn variable_of(variable: &impl Fn(&str) -> String) -> impl Fn(&str) -> String {
    move |name| variable(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_what_can_be_shown() {
        let of = |set: &[(&str, &str)]| {
            let set: Vec<(String, String)> = set
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect();
            let look = look(|name| {
                let found = set.iter().find(|(n, _)| n == name);
                found.map(|(_, v)| v.clone()).unwrap_or_default()
            });
            (look.unicode, look.colour)
        };
        assert_eq!(of(&[]), (false, true));
        assert_eq!(of(&[("LANG", "de_DE.UTF-8")]), (true, true));
        assert_eq!(of(&[("LANG", "C.utf8"), ("NO_COLOR", "1")]), (true, false));
        assert_eq!(
            of(&[("LANG", "en_US.UTF-8"), ("LC_ALL", "C")]),
            (false, true)
        );
        assert_eq!(of(&[("NO_COLOR", "")]), (false, true));
    }
}
