//! What is typed. Of the sequences that a terminal sends only their ends are looked for, so that nothing
//! of them is kept; one that has no end is over when nothing more comes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read, retry_on_intr};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// A terminal sends a sequence in one go. Esc alone is a key.
const GAP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// What was typed, as far as it means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Quit,
    Pause,
    Help,
    Suspend,
    /// Ctrl-L.
    Redraw,
}

/// Where in a sequence the next byte is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Parser {
    /// In none.
    #[default]
    Keys,
    /// After Esc, which may be a key or the begin of a sequence.
    Escape,
    /// After `Esc [`, up to a letter or the like.
    Control,
    /// After `Esc O`, which one byte follows.
    Function,
    /// After `Esc ]` or the like, up to a BEL or an Esc.
    Text,
}

/// What is typed from now on. Where nothing can be read there is nothing.
pub(super) fn inputs() -> Receiver<Input> {
    let (to, from) = channel(16);
    // Signals end it as well, where there are no keys.
    let _ = thread::Builder::new()
        .name("keys".to_owned())
        .spawn(move || follow(&to));
    from
}

fn follow(to: &Sender<Input>) {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        read_keys(stdin.as_fd(), to);
    } else if let Ok(terminal) = File::open("/dev/tty") {
        read_keys(terminal.as_fd(), to);
    }
}

/// Until the terminal is gone, or nobody listens.
fn read_keys(terminal: BorrowedFd<'_>, to: &Sender<Input>) {
    let mut parser = Parser::default();
    let mut bytes = [0; 1024];
    loop {
        let limit = (parser != Parser::Keys).then_some(&GAP);
        let mut polled = [PollFd::new(&terminal, PollFlags::IN)];
        let inputs: Vec<Input> = match retry_on_intr(|| poll(&mut polled, limit)) {
            Ok(0) => parser.nothing_more().into_iter().collect(),
            Ok(_) => match retry_on_intr(|| read(terminal, &mut bytes)) {
                Ok(0) => return,
                Ok(n) => bytes[..n].iter().flat_map(|b| parser.next(*b)).collect(),
                Err(Errno::AGAIN) => continue,
                Err(_) => return,
            },
            Err(_) => return,
        };
        for input in inputs {
            if to.blocking_send(input).is_err() {
                return;
            }
        }
    }
}

// === impl Parser ===

impl Parser {
    fn next(&mut self, byte: u8) -> Option<Input> {
        const ESC: u8 = 0x1b;
        let before = std::mem::take(self);
        match (before, byte) {
            (Parser::Escape, ESC) => {
                *self = Parser::Escape;
                return Some(Input::Quit);
            }
            (_, ESC) => *self = Parser::Escape,
            (Parser::Escape, b'[') => *self = Parser::Control,
            (Parser::Escape, b'O') => *self = Parser::Function,
            (Parser::Escape, b']' | b'P' | b'X' | b'^' | b'_') => *self = Parser::Text,
            // The end of a text.
            (Parser::Escape, b'\\') | (Parser::Text, 0x07) => {}
            // Ctrl-C is never a part of anything.
            (Parser::Keys | Parser::Escape, _) | (_, 0x03) => return meaning(byte),
            (Parser::Control, 0x20..0x40) => *self = Parser::Control,
            (Parser::Text, _) => *self = Parser::Text,
            (Parser::Control, 0..0x20) => return meaning(byte),
            (Parser::Control | Parser::Function, _) => {}
        }
        None
    }

    /// What it was, as nothing more has come.
    fn nothing_more(&mut self) -> Option<Input> {
        (std::mem::take(self) == Parser::Escape).then_some(Input::Quit)
    }
}

/// Of a byte that is a key.
fn meaning(byte: u8) -> Option<Input> {
    const fn control(letter: u8) -> u8 {
        letter & 0x1f
    }
    const C: u8 = control(b'C');
    const D: u8 = control(b'D');
    const BACKSLASH: u8 = control(b'\\');
    const Z: u8 = control(b'Z');
    const L: u8 = control(b'L');
    match byte {
        b'q' | b'Q' | C | D | BACKSLASH => Some(Input::Quit),
        b'p' | b'P' => Some(Input::Pause),
        b'?' | b'h' => Some(Input::Help),
        Z => Some(Input::Suspend),
        L => Some(Input::Redraw),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What these bytes mean, and then nothing more.
    fn typed(bytes: &[u8]) -> Vec<Input> {
        let mut parser = Parser::default();
        let mut all: Vec<Input> = bytes.iter().flat_map(|b| parser.next(*b)).collect();
        all.extend(parser.nothing_more());
        all
    }

    #[test]
    fn keys_mean_what_the_last_line_says() {
        let quit: &[Input] = &[Input::Quit];
        for (bytes, inputs) in [
            (&b"q"[..], quit),
            (b"\x1b", quit),
            (b"\x1b\x1b", &[Input::Quit, Input::Quit]),
            (b"\x03", quit),
            (b"\x1a", &[Input::Suspend]),
            (b"\x0c", &[Input::Redraw]),
            (b"p?", &[Input::Pause, Input::Help]),
            (b"x\x10\0\xff\xfe", &[]),
        ] {
            assert_eq!(typed(bytes), inputs, "{bytes:?}");
        }
    }

    /// Keys that mean nothing, answers of the terminal, the mouse.
    #[test]
    fn sequences_are_no_keys() {
        for bytes in [
            &b"\x1b[A"[..],
            b"\x1bOP",
            b"\x1b[15;5~",
            b"\x1b[999;999R",
            b"\x1b[<0;1;1M",
            b"\x1b]11;rgb:q/q/q\x07",
            b"\x1bPqqq\x1b\\",
            b"\x1b[200~",
        ] {
            assert_eq!(typed(bytes), [], "{bytes:?}");
            let and_q = [bytes, b"q"].concat();
            assert_eq!(typed(&and_q), [Input::Quit], "{bytes:?}");
        }
    }

    /// However a sequence is left, the next key is heard, and Ctrl-C at once.
    #[test]
    fn no_sequence_makes_it_deaf() {
        for begin in [
            &b"\x1b["[..],
            b"\x1b[200~",
            b"\x1b[1;",
            b"\x1bO",
            b"\x1b]11;rgb:0/0/0",
            b"\x1bP",
        ] {
            let with_c = [begin, b"\x03"].concat();
            assert_eq!(typed(&with_c), [Input::Quit], "{begin:?}");
            let mut parser = Parser::default();
            assert!(begin.iter().all(|byte| parser.next(*byte).is_none()));
            assert_eq!(parser.nothing_more(), None, "{begin:?}");
            assert_eq!(parser.next(b'q'), Some(Input::Quit), "{begin:?}");
        }
    }
}
