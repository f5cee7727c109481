//! `kvgauge check FILE`: what a settings file means, or what is wrong with it.

use super::args::Check;
use crate::config::{
    self, ConfigError, Flags, Headline, Pattern, Settings, Source, SourceKind, Warning, written,
};
use crate::kv::Role;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Runs the subcommand: the report on standard output, or the problems on standard error.
#[must_use]
pub fn run(args: &Check) -> ExitCode {
    // Whoever closed the pipe does not want to read it.
    match report(&args.file) {
        Ok(report) => {
            let _ = std::io::stdout().write_all(report.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// What the file means, in plain words, for a process without variables and flags.
///
/// # Errors
/// All that is wrong with it.
pub fn report(file: &Path) -> Result<String, ConfigError> {
    let (settings, warnings) = config::load(Some(file), [], &Flags::default())?;
    let mut text = format!("{} is fine.\n\n", file.display());
    // Writing to a String does not fail.
    let _ = describe(&mut text, &settings);
    let _ = differences(&mut text, &settings);
    let _ = warn(&mut text, &warnings);
    Ok(text)
}

fn describe(text: &mut String, settings: &Settings) -> std::fmt::Result {
    writeln!(text, "clients    connect to {}", settings.listen)?;
    writeln!(text, "requests   go to the router, {}", settings.upstream)?;
    let admin = settings.admin.listen;
    writeln!(text, "operators  and Prometheus connect to {admin}")?;
    writeln!(text, "headers    {}", headers(settings))?;
    let every = written(settings.scrape.interval);
    writeln!(text, "\nPages that are read, each every {every}:")?;
    let pages: Vec<String> = settings.sources.iter().map(|s| s.url.to_string()).collect();
    let names = settings.sources.iter().map(|s| s.name.len());
    let (name_width, page_width) = (names.max(), pages.iter().map(|p| p.chars().count()).max());
    for (source, page) in settings.sources.iter().zip(&pages) {
        let name = &source.name;
        let (name_width, page_width) = (name_width.unwrap_or(0), page_width.unwrap_or(0));
        let role = role(source);
        writeln!(text, "  {name:name_width$}  {page:page_width$}  {role}")?;
    }
    if settings.discovery.is_on() {
        let every = written(settings.discovery.interval);
        writeln!(text, "  and those that are found, looked for every {every}")?;
    }
    Ok(())
}

fn role(source: &Source) -> String {
    let role = match source.role {
        Some(role) => format!("role {role}"),
        None => "no role, unless its page says one".to_owned(),
    };
    let every = source.interval.map(|t| format!(", every {}", written(t)));
    let engine = source.engine.as_ref().map(|e| format!(", read as {e}"));
    let kind = match source.kind {
        SourceKind::Metrics => None,
        SourceKind::SglangLoads => {
            Some(", values from SGLang's loads, or its page where they can't be used".to_owned())
        }
        SourceKind::Auto => Some(", values from SGLang's loads where it has them".to_owned()),
    };
    let token = source.bearer_file.as_ref();
    let token = token.map(|path| format!(", with the token in {}", path.display()));
    let cas = source.ca_file.as_ref();
    let cas = cas.map(|path| format!(", trusted by the CAs in {}", path.display()));
    let kept = families("shown again only", &source.keep);
    let dropped = families("not shown again", &source.drop);
    let parts = [every, engine, kind, token, cas, kept, dropped]
        .into_iter()
        .flatten();
    parts.fold(role, |text, part| text + &part)
}

/// What patterns do to the families of a source, if there are any.
fn families(what: &str, patterns: &[Pattern]) -> Option<String> {
    let texts: Vec<String> = patterns
        .iter()
        .map(|p| format!("`{}`", p.as_str().escape_debug()))
        .collect();
    (!texts.is_empty()).then(|| format!(", {what} {}", texts.join(" ")))
}

fn headers(settings: &Settings) -> String {
    let names: Vec<&str> = [&settings.headers.usage, &settings.headers.pools]
        .into_iter()
        .flatten()
        .map(http::HeaderName::as_str)
        .collect();
    if names.is_empty() {
        return "none is written".to_owned();
    }
    let names = names.join(" and ");
    if settings.headers.usage.is_none() {
        return names;
    }
    format!("{names}; usage is that of {}", headline(settings))
}

/// The role that the usage header speaks of.
fn headline(settings: &Settings) -> &'static str {
    let has = |role: &Role| settings.sources.iter().any(|s| s.role == Some(*role));
    match settings.headers.headline {
        Headline::Role(role) => role.as_str(),
        Headline::Fullest => "the fullest role",
        Headline::Auto => [Role::Decode, Role::Unified, Role::Prefill]
            .iter()
            .find(|role| has(role))
            .map_or("the role that a page names", |role| role.as_str()),
    }
}

/// The keys that [`describe`] leaves out.
fn differences(text: &mut String, settings: &Settings) -> std::fmt::Result {
    let mut differences = settings.differences();
    differences.retain(|d| !matches!(d.key.as_str(), "listen" | "upstream" | "admin.listen"));
    if differences.is_empty() {
        return writeln!(text, "\nEverything else is as by default.");
    }
    writeln!(text, "\nDifferent from the default too:")?;
    for d in differences {
        let value = config::without_queries(&d.value);
        let (value, default) = (said(&value), said(&d.default));
        writeln!(text, "  {} = {value} (default {default})", d.key)?;
    }
    Ok(())
}

fn said(value: &str) -> &str {
    if value.is_empty() { "\"\"" } else { value }
}

fn warn(text: &mut String, warnings: &[Warning]) -> std::fmt::Result {
    if warnings.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nAllowed, but is it meant?")?;
    for warning in warnings {
        writeln!(text, "  {warning}")?;
    }
    Ok(())
}
