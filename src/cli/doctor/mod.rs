//! `kvgauge doctor`: what every page answered, what is read from it, and what to do about the rest.

mod beside;
mod finding;
mod warmup;

use super::args::Doctor;
use super::urls;
use crate::config::{self, Settings, Source};
use crate::engine;
use crate::kv::FailureReason;
use crate::scrape::{Access, Look, Missed, Stands, get, look_at_source, search};
use finding::{Finding, Paste};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::{Instant, sleep};

/// For usage to appear after the warm-up: an idle SGLang renews its gauges every 30 s.
const APPEARS: Duration = Duration::from_secs(35);

/// Between two looks while it is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Runs the subcommand.
#[must_use]
pub fn run(args: &Doctor) -> ExitCode {
    let flags = config::Flags {
        upstream: args.upstream.clone(),
        sources: urls::named(&args.urls),
        ..config::Flags::default()
    };
    let settings = match config::load(args.config.as_deref(), config::environment(), &flags) {
        Ok((mut settings, warnings)) => {
            if !args.urls.is_empty() {
                // Those pages are meant, and no others.
                settings.discovery.clear();
            }
            for warning in warnings {
                eprintln!("{warning}");
            }
            settings
        }
        Err(error) => {
            eprintln!("{}", urls::problems(&error));
            return ExitCode::from(urls::exit_code(&error));
        }
    };
    // Single pages need no router, and the default one may be nobody's.
    let plan = Plan {
        pages: !args.urls.is_empty(),
        router: args.urls.is_empty() || args.upstream.is_some() || args.warmup,
        warm_up: args.warmup,
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default());
    match runtime {
        Ok(runtime) => {
            let fine = runtime.block_on(examine(&settings, &plan));
            if fine {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("there is no runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What is to be done.
struct Plan {
    /// Pages were named one by one, in place of settings.
    pages: bool,
    /// The router is looked at.
    router: bool,
    warm_up: bool,
}

/// Whether all is fine. Says what it finds on standard output.
async fn examine(settings: &Settings, plan: &Plan) -> bool {
    let (sources, ways) = search(settings).await;
    let set = &settings.sources;
    let settings = &Settings {
        sources,
        ..settings.clone()
    };
    let mut looks = looks(settings).await;
    let mut findings: Vec<Finding> = ways
        .iter()
        .map(|way| finding::of_way(way, settings.discovery.max_sources))
        .collect();
    let mut warmed = false;
    let mut nobody = !plan.pages && looks.iter().all(nobody_is_there);
    if plan.router {
        let answer = ask_router(settings).await;
        if plan.warm_up {
            let names = warmup::models(answer.as_deref().ok(), &looks);
            if !looks.iter().any(fresh) {
                say(
                    "warm-up: nothing is sent, since there is no engine whose first gauges would come with it\n\n",
                );
            } else if let Some(why) = unreachable(&answer) {
                say(&format!("warm-up: nothing is sent: {}\n\n", why.message));
            } else {
                say(&warmup::announcement(settings, &names));
                say(&format!("  {}\n\n", warmup::send(settings, &names).await));
                looks = once_warm(settings).await;
                warmed = true;
            }
        }
        nobody &= unreachable(&answer).is_some();
        findings.insert(0, finding::of_router(&settings.upstream, &answer));
    }
    let engines = looks.iter().flatten().any(|l| l.reading.engine.is_some());
    let mut names = settings.free_mapping_names();
    let mut name = names.next().unwrap_or_default();
    for (source, look) in settings.sources.iter().zip(&looks) {
        let paste = Paste {
            mapping: &name,
            stands: if plan.pages {
                Stands::Nowhere
            } else if set.contains(source) {
                Stands::Set
            } else {
                Stands::Found
            },
        };
        findings.push(finding::of_source(source, look, engines, warmed, &paste));
        if look.as_ref().is_ok_and(|look| !look.suspects.is_empty()) {
            name = names.next().unwrap_or_default();
        }
    }
    say(&report(&findings));
    if nobody && let Some(text) = beside::what_else(settings).await {
        say(&text);
    }
    findings.iter().all(|finding| finding.fine)
}

/// Whoever closed the pipe does not want to read it.
fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// A look at every source, all at once.
async fn looks(settings: &Settings) -> Vec<Result<Look, Missed>> {
    let shared = Arc::new(settings.clone());
    let one = |source: &Source| {
        let (source, settings) = (source.clone(), Arc::clone(&shared));
        tokio::task::spawn_local(async move { look_at_source(&source, &settings).await })
    };
    let tasks: Vec<_> = settings.sources.iter().map(one).collect();
    let mut looks = Vec::with_capacity(tasks.len());
    for (task, source) in tasks.into_iter().zip(&settings.sources) {
        looks.push(task.await.unwrap_or_else(|error| {
            Err(Missed {
                reason: FailureReason::Content,
                message: format!("{}: its page can't be read ({error})", source.name),
                status: None,
            })
        }));
    }
    looks
}

/// The same, until every engine has its usage or [`APPEARS`] is over.
async fn once_warm(settings: &Settings) -> Vec<Result<Look, Missed>> {
    let end = Instant::now() + APPEARS;
    loop {
        let looks = looks(settings).await;
        if !looks.iter().any(fresh) || Instant::now() >= end {
            return looks;
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Whether it is an engine of which a part has no usage yet, that may come with a request.
fn fresh(look: &Result<Look, Missed>) -> bool {
    look.as_ref().is_ok_and(|look| {
        let lacking = engine::lacking(&look.reading);
        let usage = lacking.iter().find(|lacking| lacking.value == "usage");
        usage.is_some_and(|usage| usage.comes)
    })
}

fn nobody_is_there(look: &Result<Look, Missed>) -> bool {
    look.as_ref()
        .is_err_and(|missed| missed.status.is_none() && missed.reason.ends_reading())
}

/// What the router says of its models.
async fn ask_router(settings: &Settings) -> Result<Vec<u8>, Missed> {
    let url = config::Target {
        path: "/v1/models".into(),
        ..settings.upstream.clone()
    };
    get("upstream", &url, &settings.scrape, &Access::default()).await
}

/// A status is an answer too.
fn unreachable(answer: &Result<Vec<u8>, Missed>) -> Option<&Missed> {
    answer.as_ref().err().filter(|m| m.status.is_none())
}

fn report(findings: &[Finding]) -> String {
    let mut text = String::new();
    let width = findings.iter().map(|f| f.name.len()).max().unwrap_or(0);
    for finding in findings {
        let verdict = if finding.fine { "ok" } else { "WRONG" };
        let (name, at) = (&finding.name, &finding.at);
        // Writing to a String does not fail.
        let _ = writeln!(text, "{verdict:<5}  {name:<width$}  {at}");
        for line in &finding.lines {
            let _ = writeln!(text, "       {line}");
        }
        text.push('\n');
    }
    let wrong = findings.iter().filter(|finding| !finding.fine).count();
    let all = findings.len();
    let _ = match (wrong, all) {
        (0, _) => writeln!(text, "Nothing is wrong."),
        (wrong, all) => writeln!(text, "{wrong} of {all} WRONG: see the arrows (->)."),
    };
    text
}
