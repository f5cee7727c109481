//! The real binary, started on free ports.

use super::client::get;
use super::lines::Lines;
use super::page::Page;
use super::samples::Samples;
use super::wait::{PATIENCE, within};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How to start it.
pub(crate) struct Setup {
    upstream: String,
    sources: Vec<String>,
    settings: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    workers: usize,
    open_files: Option<u64>,
    deaf_to_hang_up: bool,
    log_to: Option<File>,
    /// Stands in where a test names no source, so that no default one is read.
    nobody: Option<Page>,
}

impl Setup {
    /// In front of this upstream; sources are read every 100 ms; two workers.
    pub(crate) fn new(upstream: SocketAddr) -> Self {
        Self {
            upstream: format!("http://{upstream}"),
            sources: Vec::new(),
            settings: "scrape.interval = \"100ms\"\n".to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            workers: 2,
            open_files: None,
            deaf_to_hang_up: false,
            log_to: None,
            nobody: None,
        }
    }

    /// In front of whoever is there instead.
    pub(crate) fn upstream_at(mut self, url: &str) -> Self {
        url.clone_into(&mut self.upstream);
        self
    }

    /// A page to read; the role is empty for a router.
    pub(crate) fn source(self, name: &str, role: &str, page: &Page) -> Self {
        self.source_at(name, role, &page.url())
    }

    pub(crate) fn source_at(mut self, name: &str, role: &str, url: &str) -> Self {
        let role = if role.is_empty() {
            String::new()
        } else {
            format!(",role={role}")
        };
        self.sources.push(format!("{name}={url}{role}"));
        self
    }

    /// Lines of the settings file, in place of the faster scrape interval. A `[[source]]` among them is
    /// read where no other source is named.
    pub(crate) fn settings(mut self, toml: &str) -> Self {
        toml.clone_into(&mut self.settings);
        self
    }

    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// With a limit of open files.
    pub(crate) fn open_files(mut self, limit: u64) -> Self {
        self.open_files = Some(limit);
        self
    }

    /// As `nohup` starts it.
    pub(crate) fn deaf_to_hang_up(mut self) -> Self {
        self.deaf_to_hang_up = true;
        self
    }

    /// Standard output goes there, and to no test.
    pub(crate) fn log_to(mut self, file: File) -> Self {
        self.log_to = Some(file);
        self
    }

    pub(crate) fn start(mut self) -> Kvgauge {
        let own = self.settings.contains("[[source]]");
        if self.sources.is_empty() && !own {
            let nobody = Page::refusing();
            self.sources.push(format!("nobody={}", nobody.url()));
            self.nobody = Some(nobody);
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kvgauge.toml");
        std::fs::write(&file, &self.settings).unwrap();

        let program = program();
        let mut before = String::new();
        if let Some(limit) = self.open_files {
            before.push_str(&format!("ulimit -n {limit} && "));
        }
        if self.deaf_to_hang_up {
            before.push_str("trap '' HUP && ");
        }
        let mut command = if before.is_empty() {
            Command::new(program)
        } else {
            let mut command = Command::new("sh");
            command.arg("-c").arg(before + "exec \"$0\" \"$@\"");
            command.arg(program);
            command
        };
        command.arg("serve").arg("--config").arg(&file);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.arg("--upstream").arg(&self.upstream);
        command.arg("--workers").arg(self.workers.to_string());
        for source in &self.sources {
            command.arg("--source").arg(source);
        }
        command.args(&self.arguments);
        without_settings(&mut command);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let stdout = self.log_to.map_or_else(Stdio::piped, Stdio::from);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = child.stdout.take().map_or_else(Lines::default, Lines::of);
        let diagnostics = Lines::of(child.stderr.take().unwrap());
        // From here on a panic ends the child.
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut kvgauge = Kvgauge {
            child,
            listen: nowhere,
            admin: nowhere,
            log,
            diagnostics,
            folder,
            _nobody: self.nobody,
        };
        kvgauge.listen = kvgauge.announced("listening on ");
        kvgauge.admin = kvgauge.announced("admin on ");
        kvgauge
    }
}

/// The binary under test: that of this build, or the one that `KVGAUGE_BINARY` names, as a release is.
pub(crate) fn program() -> String {
    std::env::var("KVGAUGE_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_kvgauge").to_owned())
}

/// Runs the binary to its end, which must come soon.
pub(crate) fn run(arguments: &[&str]) -> Output {
    run_with(arguments, &[])
}

/// The same with these variables.
pub(crate) fn run_with(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program());
    without_settings(&mut command);
    command.envs(environment.iter().copied());
    let mut child = command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (stdout, stderr) = (Lines::of(stdout), Lines::of(stderr));
    let start = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("kvgauge {arguments:?} did not end: {}", stderr.text());
        }
        super::wait::pause(Duration::from_millis(10));
    };
    let whole = |lines: &Lines| lines.to_the_end().join(&b'\n');
    Output {
        status,
        stdout: whole(&stdout),
        stderr: whole(&stderr),
    }
}

/// What the person who runs the tests has set is not ours to use.
fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("KVGAUGE_") {
            command.env_remove(name);
        }
    }
}

/// A running `kvgauge serve`; killed when dropped.
pub(crate) struct Kvgauge {
    child: Child,
    /// Where clients connect.
    pub(crate) listen: SocketAddr,
    /// The operators' listener.
    pub(crate) admin: SocketAddr,
    /// Standard output.
    pub(crate) log: Lines,
    /// Standard error.
    pub(crate) diagnostics: Lines,
    folder: TempDir,
    _nobody: Option<Page>,
}

impl Kvgauge {
    fn announced(&self, words: &str) -> SocketAddr {
        let found = self.diagnostics.wait(PATIENCE, |lines, _| {
            lines
                .iter()
                .find_map(|line| address_after(&String::from_utf8_lossy(line), words))
        });
        found.unwrap_or_else(|| panic!("kvgauge did not say '{words}…'"))
    }

    /// The first diagnostic with these words.
    pub(crate) fn says(&self, words: &str) -> String {
        let found = self.diagnostics.wait(PATIENCE, |lines, _| {
            let mut texts = lines
                .iter()
                .map(|l| String::from_utf8_lossy(l).into_owned());
            texts.find(|text| text.contains(words))
        });
        found.unwrap_or_else(|| panic!("kvgauge did not say '{words}'"))
    }

    /// Has it read this file in place of the one that it was started with; the signal is on its way when
    /// this returns.
    pub(crate) fn reload(&self, settings: &str) {
        std::fs::write(self.settings_file(), settings).unwrap();
        self.signal(Signal::HUP);
    }

    /// As [`reload`](Self::reload), and waits until it has said these words after that.
    pub(crate) fn reload_and_say(&self, settings: &str, words: &str) -> String {
        let before = self.diagnostics.all().len();
        self.reload(settings);
        let found = self.diagnostics.wait(PATIENCE, |lines, _| {
            let texts = lines.iter().skip(before);
            let mut texts = texts.map(|l| String::from_utf8_lossy(l).into_owned());
            texts.find(|text| text.contains(words))
        });
        found.unwrap_or_else(|| panic!("kvgauge did not say '{words}'"))
    }

    /// The file that it was started with.
    pub(crate) fn settings_file(&self) -> PathBuf {
        self.folder.path().join("kvgauge.toml")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// SIGTERM, and the exit code when it has ended.
    pub(crate) fn stop(&mut self) -> i32 {
        self.signal(Signal::TERM);
        self.exit_code(PATIENCE)
    }

    /// Waits for its end.
    pub(crate) fn exit_code(&mut self, limit: Duration) -> i32 {
        let status = within(limit, "kvgauge ends", || self.child.try_wait().unwrap());
        status
            .code()
            .unwrap_or_else(|| panic!("ended by a signal: {status}"))
    }

    /// The log's lines so far; each must be a JSON object.
    pub(crate) fn lines(&self) -> Vec<Value> {
        parse(&self.log.all())
    }

    /// Waits for the n-th line, counted from 1.
    pub(crate) fn line(&self, n: usize) -> Value {
        let found = self
            .log
            .wait(PATIENCE, |lines, _| lines.get(n - 1).cloned());
        let line = found.unwrap_or_else(|| panic!("no log line {n} but {:#?}", self.lines()));
        parse(&[line]).remove(0)
    }

    /// Waits for the line of a request id.
    pub(crate) fn line_of(&self, id: &str) -> Value {
        let found = self.log.wait(PATIENCE, |lines, _| {
            parse(lines)
                .into_iter()
                .find(|line| line["request.id"] == id)
        });
        found.unwrap_or_else(|| panic!("no log line of {id} but {:#?}", self.lines()))
    }

    /// Stops it; all lines it has written.
    pub(crate) fn lines_to_the_end(&mut self) -> Vec<Value> {
        assert_eq!(self.stop(), 0, "exit code");
        parse(&self.log.to_the_end())
    }

    /// The unified page.
    pub(crate) fn metrics_text(&self) -> String {
        let page = get(self.admin, "/metrics");
        assert_eq!(page.status(), 200, "{}", page.head.text());
        String::from_utf8(page.body).unwrap()
    }

    pub(crate) fn metrics(&self) -> Samples {
        Samples::parse(&self.metrics_text())
    }

    /// Waits for a value on the unified page.
    pub(crate) fn until_metric(&self, name: &str, labels: &[(&str, &str)], wanted: Option<f64>) {
        let mut seen = None;
        let found = || {
            seen = self.metrics().value(name, labels);
            (seen == wanted).then_some(())
        };
        let what = format!("{name} {labels:?} is {wanted:?}");
        within(PATIENCE, &what, found);
    }

    /// Waits until a source has been read.
    pub(crate) fn until_up(&self, source: &str) {
        self.until_metric("kvgauge_source_up", &[("source", source)], Some(1.0));
    }
}

impl Drop for Kvgauge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let text = self.diagnostics.text();
            let from = text.char_indices().rev().nth(4000).map_or(0, |(at, _)| at);
            eprintln!(
                "--- kvgauge's standard error ends with\n{}\n---",
                &text[from..]
            );
        }
    }
}

fn parse(lines: &[Vec<u8>]) -> Vec<Value> {
    let one = |line: &Vec<u8>| {
        let value: Value = serde_json::from_slice(line).unwrap_or_else(|error| {
            panic!(
                "a log line that is no JSON ({error}): {}",
                String::from_utf8_lossy(line)
            )
        });
        assert!(value.is_object(), "a log line that is no object: {value}");
        value
    };
    lines.iter().map(one).collect()
}

/// The address behind the words, whatever stands around both.
fn address_after(line: &str, words: &str) -> Option<SocketAddr> {
    let at = line.to_ascii_lowercase().find(words)? + words.len();
    let rest = line[at..].trim_start_matches("http://");
    let end = rest
        .find(|c: char| !(c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '[' | ']')))
        .unwrap_or(rest.len());
    rest[..end].trim_end_matches('.').parse().ok()
}
