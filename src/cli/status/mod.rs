//! `kvgauge status`: what every role says, in lines or as JSON, for a person, a script or a monitor.

mod ask;
mod report;
pub mod watch;

use super::args::{EXIT_UNKNOWN, Status};
use super::urls;
use crate::config::{self, ConfigError, Settings, Source, Target};
use ask::Asked;
use report::{Limits, Report};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::{Builder, LocalOptions};

/// Runs the subcommand.
#[must_use]
pub fn run(args: &Status) -> ExitCode {
    let unknown = |why: &str| {
        eprintln!("{why}");
        ExitCode::from(EXIT_UNKNOWN)
    };
    let limits = Limits {
        warn: args.warn,
        crit: args.crit,
    };
    if limits.warn > limits.crit {
        return unknown("--warn is above --crit, so that nothing would ever warn");
    }
    let (asked, settings) = match asked(args) {
        Ok((asked, settings)) => (asked, Arc::new(settings)),
        Err(error) => return unknown(&urls::problems(&error)),
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default());
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return unknown(&format!("there is no runtime: {error}")),
    };
    if args.watch {
        let watched = watch::Watched {
            asked,
            settings,
            limits,
        };
        return runtime.block_on(watch::run(watched, args.json));
    }
    let said = runtime.block_on(ask::all(asked, &settings));
    let report = Report::of(said, limits);
    let text = if args.json {
        report.json()
    } else {
        report.lines()
    };
    // Whoever closed the pipe does not want to read it.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::from(report.exit_code())
}

/// Whom to ask: what is named, else the kvgauge that would be started here.
fn asked(args: &Status) -> Result<(Vec<Asked>, Settings), ConfigError> {
    let urls = &args.urls;
    let token: Option<Arc<Path>> = args.bearer_file.as_deref().map(Arc::from);
    let here = || config::load(None, config::environment(), &config::Flags::default());
    if urls.is_empty() {
        let (mut settings, _) = here()?;
        let listener = settings.admin.listen;
        let url = Target {
            tls: false,
            server_name: None,
            host: listener.ip().to_string().into(),
            port: listener.port(),
            path: "/metrics".into(),
        };
        settings.sources = vec![Source {
            bearer_file: token.or(settings.admin.bearer_file.take()),
            ..Source::new("kvgauge".into(), url, None)
        }];
        return Ok((
            settings.sources.iter().map(Asked::source).collect(),
            settings,
        ));
    }
    // Nothing is listened on, so a running kvgauge's own address is a good one to name.
    let nowhere = Some("127.0.0.1:0".to_owned());
    let flags = config::Flags {
        listen: nowhere.clone(),
        admin: nowhere,
        sources: urls::named(urls),
        ..config::Flags::default()
    };
    let (mut settings, _) = config::load(None, [], &flags)?;
    for source in &mut settings.sources {
        source.bearer_file = source.bearer_file.take().or_else(|| token.clone());
        // Of who is no kvgauge, the page.
        if &*source.url.path == "/kv" {
            source.url.path = "/metrics".into();
        }
    }
    let asked = settings.sources.iter().zip(urls);
    let asked = asked
        .map(|(source, text)| Asked::named(source, text))
        .collect();
    Ok((asked, settings))
}
