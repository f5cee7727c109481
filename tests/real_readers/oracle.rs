//! The prometheus client, running as long as the tests do.

use super::kit::forms::Form;
use super::kit::said::Said;
use super::kit::strict::Labels;
use super::support::program::python;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// How long it may take for one batch: starting on a busy machine, and all real pages at once.
const LIMIT: Duration = Duration::from_secs(120);

/// Which of its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    Classic,
    Open,
}

impl Reader {
    /// The one for a form.
    pub(crate) fn of(form: Form) -> Reader {
        if form.is_open() {
            Reader::Open
        } else {
            Reader::Classic
        }
    }
}

/// What it says of a page.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    error: Option<String>,
    #[serde(default)]
    families: Vec<(String, String, String, String)>,
    #[serde(default)]
    samples: Vec<(String, Labels, String, Option<Exemplar>)>,
}

/// Labels, value, time.
pub(crate) type Exemplar = (Labels, String, Option<String>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) unit: String,
    /// Escapes undone.
    pub(crate) help: String,
}

impl Answer {
    /// Its samples in order of the page, or why it refuses the page.
    pub(crate) fn samples(&self) -> Result<Vec<Said>, &str> {
        self.error.as_deref().map_or(Ok(()), Err)?;
        let samples = self.samples.iter();
        Ok(samples
            .map(|(name, labels, value, _)| Said::new(name, labels.clone(), number(value)))
            .collect())
    }

    pub(crate) fn exemplars(&self) -> impl Iterator<Item = (&str, &Labels, &Exemplar)> {
        let with = self.samples.iter();
        with.filter_map(|(name, labels, _, exemplar)| Some((&**name, labels, exemplar.as_ref()?)))
    }

    pub(crate) fn families(&self) -> Vec<Family> {
        let families = self.families.iter().cloned();
        families
            .map(|(name, kind, unit, help)| Family {
                name,
                kind,
                unit,
                help,
            })
            .collect()
    }
}

fn number(text: &str) -> f64 {
    text.parse()
        .unwrap_or_else(|_| panic!("a number of Python's: {text}"))
}

struct Oracle {
    child: Child,
    input: ChildStdin,
    answers: Receiver<String>,
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

static ORACLE: LazyLock<Mutex<Option<Oracle>>> = LazyLock::new(|| Mutex::new(None));

impl Oracle {
    fn start() -> Oracle {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/py/exposition_oracle.py");
        let python = python();
        let mut child = Command::new(&python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}; tests/run installs it", python.display()));
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (send, answers) = sync_channel(1);
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { break };
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Oracle {
            child,
            input,
            answers,
        }
    }

    fn ask(&mut self, request: &str) -> Result<String, String> {
        let written = self.input.write_all(request.as_bytes());
        let written = written.and_then(|()| self.input.flush());
        let answer = self.answers.recv_timeout(LIMIT);
        answer.map_err(|why| {
            let state = match self.child.try_wait() {
                Ok(Some(status)) => format!("it has ended with {status}"),
                _ => format!("no answer within {LIMIT:?}"),
            };
            format!("tests/py/exposition_oracle.py: {state} ({why}; writing: {written:?}); its message is above")
        })
    }
}

/// Has pages read, in one round trip.
pub(crate) fn ask<'t>(pages: impl IntoIterator<Item = (Reader, &'t [u8])>) -> Vec<Answer> {
    let pages: Vec<(&str, &str)> = pages
        .into_iter()
        .map(|(reader, text)| {
            let reader = match reader {
                Reader::Classic => "classic",
                Reader::Open => "open",
            };
            (reader, std::str::from_utf8(text).expect("text"))
        })
        .collect();
    let request = serde_json::to_string(&pages).unwrap() + "\n";
    let mut oracle = ORACLE.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = oracle.get_or_insert_with(Oracle::start).ask(&request);
    let answer = answer.unwrap_or_else(|error| {
        *oracle = None;
        panic!("{error}")
    });
    let answers: Vec<Answer> = serde_json::from_str(&answer).unwrap();
    assert_eq!(answers.len(), pages.len());
    answers
}

/// Has one page read.
pub(crate) fn ask_one(reader: Reader, text: &[u8]) -> Answer {
    ask([(reader, text)]).remove(0)
}
