//! The command line: what may be typed, and the help that says so.

use super::demo::DemoArgs;
use super::sim::SimArgs;
use crate::config::{CRIT, Flags, WARN};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// The exit code for wrong usage (`EX_USAGE` of `sysexits.h`).
pub const EXIT_USAGE: u8 = 64;

/// The exit code of `kvgauge status` for what is not known, wrong usage included, as monitoring plugins
/// have it.
pub const EXIT_UNKNOWN: u8 = 3;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "kvgauge",
    version,
    about = "Shows how full the KV cache is: on every answer, in every log line, on one page",
    long_about = "A reverse proxy in front of an LLM router. It passes every request through \
                  untouched, reads the KV gauges of the engines behind the router, and writes them \
                  into the headers of every answer, into one log line per request, and onto one \
                  Prometheus page.",
    after_help = "Ends with 0 (done, drained), 1 (failed while running), 64 (wrong usage), \
                  78 (wrong settings); status with 0 to 3, as its help says.",
    disable_help_subcommand = true,
    max_term_width = 100
)]
struct Typed {
    #[command(subcommand)]
    command: Command,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum Command {
    /// Stand in front of a router
    #[command(
        long_about = "Stands in front of a router. Without any argument it fits SGLang with \
                      prefill/decode disaggregation on one host: router on 30001 (its metrics on \
                      29001), prefill server on 30000, decode server on 30002, each with \
                      --enable-metrics. Clients then use 30080 instead of 30001, and Prometheus \
                      reads http://127.0.0.1:30090/metrics.",
        after_help = "Examples:\n  \
            kvgauge serve\n  \
            kvgauge serve --source router=http://127.0.0.1:29001 \\\n      \
                --source decode=http://10.0.0.7:30002,role=decode\n  \
            kvgauge serve --listen :30001 --upstream http://127.0.0.1:30011\n\n\
            The last one takes over the router's port, after the router has moved to 30011.\n\n\
            Every setting also has a variable KVGAUGE_… and a place in the file; a flag wins over a\n\
            variable, a variable over the file. config/kvgauge.toml explains them all."
    )]
    Serve(Serve),
    /// Try it out: a simulated deployment, kvgauge in front of it, and load
    #[command(
        long_about = "Runs a simulated SGLang deployment (router, prefill and decode server), \
                      kvgauge in front of it, and load, and prints what will be seen and where \
                      to look. It needs no GPU, no model and no file."
    )]
    Demo(DemoArgs),
    /// Say how full the KV cache is
    #[command(
        long_about = "Prints one line for each role, or JSON: what a running kvgauge says, or, with \
                      no kvgauge running, what engines' pages say. What is not known is said in \
                      words, with the reason; it is never 0.",
        after_help = "Examples:\n  \
            kvgauge status\n  \
            kvgauge status http://127.0.0.1:30090 --warn 0.8 --crit 0.9\n  \
            kvgauge status prefill=http://127.0.0.1:30000 decode=http://127.0.0.1:30002 --json\n  \
            kvgauge status --watch\n\n\
            Ends with the worst of 0 (fine), 1 (warning), 2 (critical), 3 (unknown; wrong usage), as\n\
            monitoring plugins do. A role of which only a part is known is at least a warning. With --watch\n\
            it ends with 0, or with 3 where standard output is no terminal and nobody has answered."
    )]
    Status(Status),
    /// Look at every page and say what is wrong and what to do
    #[command(
        long_about = "Reads the page of every source once and says what answered, which engine it \
                      is, which metric gave each value and which others were not taken and why; \
                      and for everything that is missing what to do about it. Looks at the \
                      sources that serve would read, or straight at URLs. Needs no running \
                      kvgauge.",
        after_help = "Examples:\n  \
            kvgauge doctor\n  \
            kvgauge doctor --config /etc/kvgauge.toml --warmup\n  \
            kvgauge doctor http://127.0.0.1:30002 router=http://127.0.0.1:29001\n\n\
            Ends with 0 (nothing is wrong), 1 (something is), 64 (wrong usage), 78 (wrong settings)."
    )]
    Doctor(Doctor),
    /// Validate a settings file and say what it means
    #[command(
        long_about = "Reads a settings file as serve would, without the environment and flags, and \
                      says what it means; or everything that is wrong with it, each with its line, \
                      and ends with 78. What hangs on a value that can't be read is told once it can; of \
                      a file that is no TOML only the first fault is.",
        after_help = "Example:\n  kvgauge check /etc/kvgauge.toml"
    )]
    Check(Check),
    /// Tell a running kvgauge to drain
    #[command(
        long_about = "Tells a running kvgauge serve to drain, and returns at once: /readyz says 503, \
                      after drain.delay the listener closes, what runs is finished, and the process \
                      ends. It is meant for the preStop hook of a container, whose image has no \
                      shell and no kill. The SIGTERM that follows such a hook goes on with the drain \
                      (it would cut what runs if the hook had sent one too), and told twice is as \
                      told once.",
        after_help = "Examples:\n  \
            kvgauge drain\n  \
            kvgauge drain --pid 4711\n\n\
            It sends SIGUSR1, to a process that waits for it under kvgauge's name and to no other.\n\
            Ends with 0 (told), 1 (there is nobody to tell, or it is not allowed), 64 (wrong usage)."
    )]
    Drain(Drain),
    /// Print completions for a shell
    #[command(
        long_about = "Prints what a shell needs to complete kvgauge's commands and flags. Those of \
                      this version are in config/completions, too.",
        after_help = "Examples:\n  \
            kvgauge completions bash > /usr/share/bash-completion/completions/kvgauge\n  \
            kvgauge completions zsh > /usr/share/zsh/vendor-completions/_kvgauge\n  \
            kvgauge completions fish > /usr/share/fish/vendor_completions.d/kvgauge.fish"
    )]
    Completions(Completions),
    /// Print the manual page, or write all of them
    #[command(
        long_about = "Prints kvgauge(1), or writes it and a page for each command into a folder. \
                      Those of this version are in docs/man, too.",
        after_help = "Examples:\n  \
            kvgauge man | man -l -\n  \
            kvgauge man /usr/share/man/man1"
    )]
    Man(Man),
    /// Simulated servers in a process of their own
    #[command(
        hide = true,
        long_about = "Simulated servers in a process of their own, to try kvgauge serve without a GPU. \
                      Without any option: a deployment as serve expects it, that is, SGLang's router \
                      on 127.0.0.1:30001 with its metrics on 29001, a prefill server on 30000 and a \
                      decode server on 30002, which answer requests as real ones do and publish their \
                      gauges with the first. It prints a line for each, and runs until Ctrl-C.",
        after_help = "Examples:\n  \
            kvgauge sim\n  \
            kvgauge sim --scenario full --load 127.0.0.1:30080\n  \
            kvgauge sim --router 127.0.0.1:30011\n  \
            kvgauge sim --prefill 127.0.0.1:30000 --decode 127.0.0.1:30002 --decode 127.0.0.1:30003\n\n\
            The second puts load on a kvgauge serve on 30080. The third leaves the router's port free for\n\
            kvgauge serve --listen :30001 --upstream http://127.0.0.1:30011. The last is engines alone,\n\
            for a router of your own."
    )]
    Sim(SimArgs),
}

/// `kvgauge serve`
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Serve {
    /// Settings file (TOML) [default: none]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where clients connect [default: 127.0.0.1:30080]; `:30080` is every IPv4 address
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// The router [default: http://127.0.0.1:30001]
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// Where operators and Prometheus connect [default: 127.0.0.1:30090]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// A page to read, once for each; replaces all default ones
    ///
    /// NAME tells its series apart; a URL without a path means /metrics. ROLE is decode, prefill or
    /// unified; a router has none, and a source named decode, prefill or unified (decode-1, …) needs
    /// none. Families whose whole name fits no keep PATTERN (where there is one), or a drop PATTERN, are
    /// left out of /metrics. [default: router=http://127.0.0.1:29001 prefill=http://127.0.0.1:30000
    /// decode=http://127.0.0.1:30002]
    #[arg(
        long = "source",
        value_name = "NAME=URL[,role=ROLE][,interval=TIME][,engine=NAME][,kind=KIND][,bearer_file=FILE][,ca_file=FILE][,keep=PATTERN]…[,drop=PATTERN]…"
    )]
    pub sources: Vec<String>,
    /// Threads that carry traffic [default: one a core]
    #[arg(long, value_name = "N")]
    pub workers: Option<String>,
}

/// `kvgauge check`
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Settings file (TOML)
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// `kvgauge status`
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Status {
    /// A running kvgauge's operators' listener [default: http://127.0.0.1:30090], or the pages of
    /// engines; NAME=URL,role=ROLE as with `serve --source`
    #[arg(value_name = "URL")]
    pub urls: Vec<String>,
    /// A file with the token that they ask for, kvgauge's admin.bearer_file; a page's own bearer_file
    /// counts before it
    #[arg(long, value_name = "FILE")]
    pub bearer_file: Option<PathBuf>,
    /// JSON in place of lines (docs/status.schema.json); with --watch one object a line
    #[arg(long)]
    pub json: bool,
    /// A view that renews itself each second until it is ended (q, Esc or Ctrl-C); lines where standard
    /// output is no terminal
    #[arg(long)]
    pub watch: bool,
    /// A usage from here on is a warning: a fraction from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = WARN, value_parser = share)]
    pub warn: f64,
    /// A usage from here on is critical: a fraction from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = CRIT, value_parser = share)]
    pub crit: f64,
}

/// A fraction from 0 to 1.
fn share(text: &str) -> Result<f64, &'static str> {
    let share: Option<f64> = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or("write a fraction from 0 to 1, such as 0.85")
}

/// `kvgauge doctor`
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Doctor {
    /// Pages to look at, in place of the sources that serve would read; without a path it is
    /// /metrics
    ///
    /// NAME=URL,role=ROLE says what the page should be, as with `serve --source`.
    #[arg(value_name = "URL", conflicts_with = "config")]
    pub urls: Vec<String>,
    /// Settings file (TOML) [default: none]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The router [default: http://127.0.0.1:30001]; looked at where no URL is given, too
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// Where an engine has no gauges yet: send one small completion through the router (64 tokens,
    /// at most 60 s for each model) and look again for up to 35 s
    #[arg(long)]
    pub warmup: bool,
}

/// `kvgauge drain`
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The process of kvgauge serve: 1 in a container of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..))]
    pub pid: i32,
}

/// `kvgauge completions`
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `kvgauge man`
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Man {
    /// The folder that all pages are written into [default: kvgauge(1) is printed]
    #[arg(value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
}

/// The command line as it is shown, for completions and manual pages: without the hidden commands, which
/// completions would name.
#[must_use]
pub fn command() -> clap::Command {
    let whole = Typed::command();
    let mut shown = clap::Command::new("kvgauge")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .subcommands(
            whole
                .get_subcommands()
                .filter(|c| !c.is_hide_set())
                .cloned(),
        );
    if let Some(about) = whole.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(about) = whole.get_long_about() {
        shown = shown.long_about(about.clone());
    }
    if let Some(help) = whole.get_after_help() {
        shown = shown.after_help(help.clone());
    }
    shown
}

/// A command line that there is nothing to do for: help, version, or wrong usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// What is to be printed.
    pub text: String,
    /// 0 for help and version, which go to standard output, else [`EXIT_USAGE`] ([`EXIT_UNKNOWN`] of
    /// `status`), whose text goes to standard error.
    pub code: u8,
}

/// Reads the process's arguments. Help, version and errors are printed.
///
/// # Errors
/// The exit code of a process that has nothing more to do: 0 after help or version, 64 (wrong usage).
pub fn parse() -> Result<Command, ExitCode> {
    parse_from(std::env::args_os()).map_err(|stop| {
        // Whoever closed the pipe does not want to read it.
        let _ = if stop.code == 0 {
            std::io::stdout().write_all(stop.text.as_bytes())
        } else {
            std::io::stderr().write_all(stop.text.as_bytes())
        };
        ExitCode::from(stop.code)
    })
}

/// Reads arguments, the program's name first.
///
/// # Errors
/// What is to be printed instead of doing something, with the exit code.
pub fn parse_from(args: impl IntoIterator<Item = OsString>) -> Result<Command, Stop> {
    let args: Vec<OsString> = args.into_iter().collect();
    let status = args.get(1).is_some_and(|command| command == "status");
    match Typed::try_parse_from(args) {
        Ok(typed) => Ok(typed.command),
        Err(error) => Err(Stop {
            text: error.render().to_string(),
            code: match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
                // 64 says nothing to a monitor.
                _ if status => EXIT_UNKNOWN,
                _ => EXIT_USAGE,
            },
        }),
    }
}

// === impl Serve ===

impl Serve {
    /// The flags that are settings, for [`crate::config::load`].
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags {
            listen: self.listen.clone(),
            upstream: self.upstream.clone(),
            admin: self.admin.clone(),
            sources: self.sources.clone(),
            workers: self.workers.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Result<Command, Stop> {
        parse_from(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn serve_takes_all_its_flags() {
        assert_eq!(typed("kvgauge serve"), Ok(Command::Serve(Serve::default())));
        let line = "kvgauge serve --config f.toml --listen :1 --upstream http://r --admin :2 \
                    --source a=http://x,role=decode --source b=http://y --workers auto";
        let Ok(Command::Serve(serve)) = typed(line) else {
            panic!("{:?}", typed(line));
        };
        assert_eq!(serve.config, Some(PathBuf::from("f.toml")));
        let want = Flags {
            listen: Some(":1".to_owned()),
            upstream: Some("http://r".to_owned()),
            admin: Some(":2".to_owned()),
            sources: vec!["a=http://x,role=decode".to_owned(), "b=http://y".to_owned()],
            workers: Some("auto".to_owned()),
        };
        assert_eq!(serve.flags(), want);
    }

    #[test]
    fn help_and_version_are_no_errors() {
        for line in [
            "kvgauge --help",
            "kvgauge -h",
            "kvgauge serve --help",
            "kvgauge --version",
        ] {
            let stop = typed(line).unwrap_err();
            assert_eq!(stop.code, 0, "{line}: {}", stop.text);
        }
        let version = typed("kvgauge --version").unwrap_err().text;
        assert_eq!(
            version,
            concat!("kvgauge ", env!("CARGO_PKG_VERSION"), "\n")
        );
        let help = typed("kvgauge serve --help").unwrap_err().text;
        for default in [
            "127.0.0.1:30080",
            "http://127.0.0.1:30001",
            "127.0.0.1:30090",
        ] {
            assert!(help.contains(&format!("[default: {default}]")), "{help}");
        }
        assert!(
            help.contains("Without any argument it fits SGLang"),
            "{help}"
        );
    }

    #[test]
    fn the_help_of_the_demo_has_a_line_for_each_scenario() {
        let help = typed("kvgauge demo --help").unwrap_err().text;
        for scenario in crate::sim::Scenario::ALL {
            let told = help.lines().any(|line| {
                line.contains(scenario.name()) && line.contains(&scenario.summary()[..40])
            });
            assert!(told, "{} in\n{help}", scenario.name());
        }
        assert!(help.contains("[default: calm]"), "{help}");
        let Ok(Command::Demo(demo)) = typed("kvgauge demo --scenario hot-rank --seed 7") else {
            panic!("demo takes a scenario");
        };
        assert_eq!(demo.scenario.name(), "hot-rank");
    }

    #[test]
    fn wrong_usage_ends_with_64_and_says_what_was_meant() {
        for (line, said) in [
            ("kvgauge", "Usage: kvgauge <COMMAND>"),
            ("kvgauge sevre", "a similar subcommand exists: 'serve'"),
            (
                "kvgauge serve --lisen :1",
                "a similar argument exists: '--listen'",
            ),
            (
                "kvgauge serve --listen",
                "a value is required for '--listen <ADDR>'",
            ),
            (
                "kvgauge serve --listen :1 --listen :2",
                "cannot be used multiple times",
            ),
            ("kvgauge serve extra", "unexpected argument 'extra'"),
            ("kvgauge check", "<FILE>"),
            (
                "kvgauge demo --scenario bogus",
                "\n  decode-restart  decode gone for 10 s each minute",
            ),
            (
                "kvgauge demo --scenario bogus",
                "there is no scenario 'bogus' for '--scenario <NAME>'; there are:\n  calm ",
            ),
        ] {
            let stop = typed(line).unwrap_err();
            assert_eq!(stop.code, 64, "{line}");
            assert!(stop.text.contains(said), "{line}: {}", stop.text);
        }
    }
}
