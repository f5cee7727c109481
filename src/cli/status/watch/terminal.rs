//! The terminal: taken, drawn on, and given back as it was, however the process ends.

use super::output::OUTPUT;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::queue;
use ratatui::crossterm::style::{Attribute, SetAttribute};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::{Position, Rect};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the terminal is in our hands: there is one of a process.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// For how long a terminal that takes nothing is waited for when it is given back.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The terminal while it is drawn on. Gives it back when dropped; a panic gives it back before it is
/// told.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Frame>>,
    /// What was drawn is not there any more.
    forgotten: bool,
}

/// What is drawn goes out at once, whole, and never once the terminal has been given back.
#[derive(Debug, Default)]
struct Frame(Vec<u8>);

// === impl Screen ===

impl Screen {
    /// Takes the terminal that standard output is.
    ///
    /// # Errors
    /// It is none, or does not let itself be drawn on.
    pub fn open() -> io::Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                give_back();
                before(panic);
            }));
        });
        OUTPUT.start()?;
        let terminal = Terminal::new(CrosstermBackend::new(Frame::default()))?;
        take().inspect_err(|_| give_back())?;
        Ok(Screen {
            terminal,
            forgotten: false,
        })
    }

    /// Whether the terminal has taken all that was drawn. Until then nothing more may be.
    pub(super) fn is_ready(&self) -> bool {
        !OUTPUT.is_busy()
    }

    /// Draws what has changed.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        OUTPUT.check()?;
        if std::mem::take(&mut self.forgotten) {
            // `Terminal::clear` would ask the terminal where its cursor is, and wait for the answer that
            // whoever reads the keys takes.
            let size = self.terminal.size()?;
            self.terminal.resize(Rect::from((Position::ORIGIN, size)))?;
        }
        self.terminal.draw(|frame| draw(frame.buffer_mut()))?;
        Ok(())
    }

    /// The next time all is drawn, whatever is there.
    pub(super) fn forget(&mut self) {
        self.forgotten = true;
    }

    /// Takes the terminal again, after somebody else has had it.
    pub(super) fn again(&mut self) -> io::Result<()> {
        give_back();
        take()?;
        self.forget();
        Ok(())
    }

    /// Gives the terminal back and stops this process, as Ctrl-Z does; when it goes on, takes it again.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_process(getpid(), Signal::STOP)?;
        self.again()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

// === impl Frame ===

impl Write for Frame {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if TAKEN.load(Ordering::SeqCst) {
            OUTPUT.send(&self.0);
        }
        self.0.clear();
        Ok(())
    }
}

fn take() -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    let mut begin = Vec::new();
    queue!(begin, EnterAlternateScreen, Hide)?;
    OUTPUT.send(&begin);
    Ok(())
}

/// As it was, as far as it takes anything. Once, and whatever fails.
fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut end = Vec::new();
    let _ = queue!(
        end,
        SetAttribute(Attribute::Reset),
        LeaveAlternateScreen,
        Show
    );
    OUTPUT.send(&end);
    OUTPUT.finish(LAST_WORDS);
    let _ = disable_raw_mode();
}
