//! `--scenario NAME`: the names are those of the simulation's scenarios, told with a line each in the
//! help, and to whom types another one.

use crate::sim::Scenario;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;
use std::fmt::Write as _;

/// Reads a scenario's name.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioParser;

/// One line for each scenario: the name and what it is.
fn lines() -> String {
    Scenario::ALL.iter().fold(String::new(), |mut lines, one| {
        let _ = write!(lines, "\n  {:14}  {}", one.name(), one.summary());
        lines
    })
}

// === impl ScenarioParser ===

impl TypedValueParser for ScenarioParser {
    type Value = Scenario;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Scenario, Error> {
        if let Some(scenario) = value.to_str().and_then(Scenario::named) {
            return Ok(scenario);
        }
        let typed = value.to_string_lossy();
        let arg = arg.map_or_else(|| "--scenario".to_owned(), ToString::to_string);
        let said = format!(
            "there is no scenario '{typed}' for '{arg}'; there are:{}\n",
            lines()
        );
        let mut error = Error::raw(ErrorKind::InvalidValue, said).with_cmd(command);
        error.insert(ContextKind::InvalidArg, ContextValue::String(arg));
        Err(error)
    }

    /// For the help, with a line each, and for completions.
    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |one: Scenario| PossibleValue::new(one.name()).help(one.summary());
        Some(Box::new(Scenario::ALL.into_iter().map(value)))
    }
}
