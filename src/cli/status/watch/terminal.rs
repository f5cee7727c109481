//! The terminal: taken, drawn on, and given back as it was, however the process ends.

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
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
use std::thread;
use tokio::sync::mpsc::{Receiver, channel};

/// Whether the terminal is in our hands: there is one of a process.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// What was typed, as far as it means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Quit,
    Pause,
    Help,
    Suspend,
    /// Ctrl-L, or another size.
    Redraw,
}

/// The terminal while it is drawn on. Gives it back when dropped; a panic gives it back before it is
/// told.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Frame>>,
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
        let terminal = Terminal::new(CrosstermBackend::new(Frame::default()))?;
        take().inspect_err(|_| give_back())?;
        Ok(Screen { terminal })
    }

    /// Draws what has changed.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.buffer_mut()))?;
        Ok(())
    }

    /// The next time all is drawn, whatever is there.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        // `Terminal::clear` would ask the terminal where its cursor is, and wait for the answer that
        // whoever reads the keys takes.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from((Position::ORIGIN, size)))
    }

    /// Takes the terminal again, after somebody else has had it.
    pub(super) fn again(&mut self) -> io::Result<()> {
        give_back();
        take()?;
        self.forget()
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
        if !TAKEN.load(Ordering::SeqCst) {
            self.0.clear();
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(&self.0);
        self.0.clear();
        written?;
        stdout.flush()
    }
}

fn take() -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    let mut stdout = io::stdout().lock();
    queue!(stdout, EnterAlternateScreen, Hide)?;
    stdout.flush()
}

/// As it was. Once, and whatever fails.
fn give_back() {
    if !TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut stdout = io::stdout().lock();
    let _ = queue!(
        stdout,
        SetAttribute(Attribute::Reset),
        LeaveAlternateScreen,
        Show
    );
    let _ = stdout.flush();
    let _ = disable_raw_mode();
}

/// What is typed, and changes of the window, from now on. Where nothing can be read there is nothing.
pub(super) fn inputs() -> Receiver<Input> {
    let (to, from) = channel(16);
    let read = move || {
        while let Ok(event) = event::read() {
            if let Some(input) = meaning(&event)
                && to.blocking_send(input).is_err()
            {
                return;
            }
        }
    };
    // Signals end it as well, where there are no keys.
    let _ = thread::Builder::new().name("keys".to_owned()).spawn(read);
    from
}

fn meaning(event: &Event) -> Option<Input> {
    match event {
        Event::Resize(..) => Some(Input::Redraw),
        Event::Key(key) if key.kind != KeyEventKind::Release => of_key(key),
        _ => None,
    }
}

fn of_key(key: &KeyEvent) -> Option<Input> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd' | '\\' | '4') => Some(Input::Quit),
            KeyCode::Char('z') => Some(Input::Suspend),
            KeyCode::Char('l') => Some(Input::Redraw),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Input::Quit),
        KeyCode::Char('p' | 'P') => Some(Input::Pause),
        KeyCode::Char('?' | 'h') => Some(Input::Help),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_the_last_line_says() {
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        let plain = |code| KeyEvent::new(code, KeyModifiers::NONE);
        for (key, input) in [
            (plain(KeyCode::Char('q')), Some(Input::Quit)),
            (plain(KeyCode::Esc), Some(Input::Quit)),
            (control('c'), Some(Input::Quit)),
            (control('z'), Some(Input::Suspend)),
            (plain(KeyCode::Char('p')), Some(Input::Pause)),
            (plain(KeyCode::Char('?')), Some(Input::Help)),
            (plain(KeyCode::Char('x')), None),
            (control('p'), None),
        ] {
            assert_eq!(meaning(&Event::Key(key)), input, "{key:?}");
        }
        assert_eq!(meaning(&Event::Resize(1, 1)), Some(Input::Redraw));
    }
}
