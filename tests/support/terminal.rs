//! A real terminal: a shell in a window of tmux, with a tmux server of its own. Debian's `tmux`;
//! `tests/run` installs it.

use super::wait::{PATIENCE, within};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// What the shell says when it waits.
const PROMPT: &str = "ready$ ";

pub(crate) struct Terminal {
    folder: TempDir,
}

impl Terminal {
    /// With this size, and these variables for what runs in it; UTF-8 unless they say something else.
    pub(crate) fn open(columns: u16, rows: u16, environment: &[(&str, &str)]) -> Self {
        let terminal = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let mut command = terminal.command();
        // What the person who runs the tests has set is not ours to use.
        for name in ["NO_COLOR", "ENV", "TMUX", "LC_CTYPE", "LANG"] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C.UTF-8");
        let (columns, rows) = (columns.to_string(), rows.to_string());
        command.args(["-u", "new-session", "-d", "-x", &columns, "-y", &rows]);
        let variables = environment
            .iter()
            .map(|(name, value)| format!(" {name}='{value}'"));
        command.arg(format!("exec env{} sh -i", variables.collect::<String>()));
        let output = command
            .output()
            .unwrap_or_else(|error| panic!("starting tmux: {error}; tests/run installs it"));
        assert!(output.status.success(), "{output:?}");
        terminal.type_line(&format!("PS1='{PROMPT}'; clear"));
        terminal.until("the shell's prompt", |screen| {
            screen.trim_end().ends_with(PROMPT.trim_end())
        });
        terminal
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.path().join("socket"));
        command.args(["-f", "/dev/null"]);
        command
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().unwrap();
        assert!(output.status.success(), "tmux {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types a line and Enter.
    pub(crate) fn type_line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.key("Enter");
    }

    /// Presses a key, as tmux names it.
    pub(crate) fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tmux(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// What stands there.
    pub(crate) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// The same with the escape sequences of colours and the like.
    pub(crate) fn painted(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// Whether a whole-screen program has the window, and whether the cursor is seen.
    pub(crate) fn modes(&self) -> (bool, bool) {
        let modes = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        let mut modes = modes.split_whitespace().map(|flag| flag == "1");
        (modes.next().unwrap(), modes.next().unwrap())
    }

    /// Waits until the screen is as `look` wants it.
    pub(crate) fn until(&self, what: &str, look: impl Fn(&str) -> bool) -> String {
        self.within(PATIENCE, what, look)
    }

    /// The same for a longer time.
    pub(crate) fn within(
        &self,
        limit: Duration,
        what: &str,
        look: impl Fn(&str) -> bool,
    ) -> String {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            within(limit, what, || {
                last = self.screen();
                look(&last).then(|| last.clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("not within {limit:?}: {what}; on the screen:\n{last}"))
    }

    /// The process id of what the shell runs.
    pub(crate) fn child_of_the_shell(&self) -> String {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let children = format!("/proc/{0}/task/{0}/children", shell.trim());
        std::fs::read_to_string(children).unwrap().trim().to_owned()
    }

    /// Panics unless the shell has its terminal back: the screen from before, the cursor, echo and lines.
    pub(crate) fn assert_given_back(&self) {
        assert_eq!(self.modes(), (false, true), "alternate screen, cursor");
        self.type_line("clear; stty -a; echo the-$((40 + 2))-th line");
        let screen = self.until("what the shell says", |screen| {
            screen.contains("the-42-th line")
        });
        for mode in ["echo", "icanon", "isig", "icrnl", "opost"] {
            let is_set = screen.split([' ', ';', '\n']).any(|word| word == mode);
            assert!(is_set, "{mode} is off:\n{screen}");
        }
    }

    /// Keeps what stands there as `target/terminal-shots/NAME.txt`, for people to look at.
    pub(crate) fn keep(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/terminal-shots");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.txt")), self.screen()).unwrap();
        std::fs::write(folder.join(format!("{name}.ansi")), self.painted()).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}
