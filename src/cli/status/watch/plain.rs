//! Where standard output is no terminal: lines, or an object a line, for as long as somebody reads them.

use super::feed::Heard;
use super::model::Model;
use super::moment::{Moment, Traffic};
use super::output::OUTPUT;
use crate::cli::args::EXIT_UNKNOWN;
use crate::cli::role_line::shown_up_to;
use crate::cli::status::report::{PoolSays, Report, Said, SourceSays, left_out};
use crate::kv::Unknown;
use serde::Serialize;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::Receiver;

/// Characters of a message that are shown.
const MOST_OF_MESSAGE: usize = 1000;

/// For how long whoever reads may take for the last line.
const LAST_LINE: Duration = Duration::from_millis(500);

/// One line of JSON: a report as `status --json` writes it, and what else is known.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// Of these nothing is in `roles`.
    roles_left_out: u64,
    traffic: Option<&'a Traffic>,
    pools: &'a [PoolSays],
}

/// What has been written.
#[derive(Default)]
struct Lines {
    /// The problems that were told last.
    problems: String,
}

/// Runs until it is ended or nobody reads any more: the exit code.
pub(super) async fn run(mut model: Model, mut feed: Receiver<Heard>, json: bool) -> ExitCode {
    // A hang-up is left to nohup.
    let signals = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    );
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
        eprintln!("kvgauge can't be told of signals here");
        return ExitCode::FAILURE;
    };
    if let Err(error) = OUTPUT.start() {
        eprintln!("kvgauge can't start a thread that writes: {error}");
        return ExitCode::FAILURE;
    }
    let mut lines = Lines::default();
    loop {
        let heard = tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            heard = next(&mut feed) => heard,
        };
        // Whoever closed the pipe does not want to read it.
        let Ok(heard) = heard else {
            break;
        };
        let Some(heard) = heard else {
            return ExitCode::FAILURE;
        };
        if matches!(heard, Heard::History(_)) {
            continue;
        }
        model.take(heard, Instant::now());
        let text = if json {
            object(&model)
        } else {
            lines.of(&model)
        };
        OUTPUT.send(text.as_bytes());
    }
    OUTPUT.finish(LAST_LINE);
    if model.answered {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_UNKNOWN)
    }
}

/// What is heard next, once what was said before has been read: an error where it can't be any more.
async fn next(feed: &mut Receiver<Heard>) -> io::Result<Option<Heard>> {
    OUTPUT.taken().await?;
    Ok(feed.recv().await)
}

/// What `status` would say now.
fn report(model: &Model) -> Report {
    let said = match (&model.lost, &model.moment) {
        (None, Some(moment)) => moment.said(),
        (lost, _) => Said {
            sources: vec![SourceSays {
                name: "kvgauge".to_owned(),
                url: model.address.clone(),
                state: "down".to_owned(),
                unknown: Some(Unknown::Unreachable.as_str().to_owned()),
                message: lost.as_ref().map(|lost| lost.message.clone()),
                ..SourceSays::default()
            }],
            unanswered: true,
            ..Said::default()
        },
    };
    Report::of(said, model.limits)
}

fn object(model: &Model) -> String {
    let moment: Option<&Moment> = model.moment.as_deref().filter(|_| model.lost.is_none());
    let line = Line {
        report: &report(model),
        roles_left_out: moment.map_or(0, |moment| moment.roles_left_out),
        traffic: moment.and_then(|moment| moment.traffic.as_ref()),
        pools: moment.map_or(&[], |moment| &moment.pools),
    };
    let mut text = serde_json::to_string(&line).unwrap_or_default();
    text.push('\n');
    text
}

fn left_out_line(n: u64) -> String {
    left_out(n).map_or_else(String::new, |text| text + "\n")
}

// === impl Lines ===

impl Lines {
    /// A line a role; of the problems one each, when they have changed.
    fn of(&mut self, model: &Model) -> String {
        let report = report(model);
        let (roles, problems) = match &model.lost {
            Some(lost) => {
                let message = shown_up_to(&lost.message, MOST_OF_MESSAGE);
                let again = lost.next_try.saturating_duration_since(Instant::now());
                let again = again.as_secs_f64().round();
                self.problems.clear();
                (
                    format!("no connection: {message}; next try in {again} s\n"),
                    String::new(),
                )
            }
            None => {
                let left_out = model.moment.as_ref().map_or(0, |m| m.roles_left_out);
                let left_out = left_out_line(left_out);
                (report.role_lines() + &left_out, report.problem_lines())
            }
        };
        let mut text = roles;
        if problems != self.problems {
            text.push_str(if problems.is_empty() {
                "all sources are well again\n"
            } else {
                &problems
            });
            self.problems = problems;
        }
        let now = jiff::Timestamp::now();
        text.lines()
            .map(|line| format!("{now:.0}  {line}\n"))
            .collect()
    }
}
