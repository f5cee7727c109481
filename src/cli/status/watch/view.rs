//! The view in a terminal: takes what is heard and typed, and draws, until it is ended.

use super::draw::{Look, Mode, draw};
use super::feed::Heard;
use super::keys::{Input, inputs};
use super::model::Model;
use super::output::OUTPUT;
use super::terminal::Screen;
use rustix::process::Signal;
use std::io;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until};

/// Ages are to go on where nothing is heard: a little more than the second between two moments, so that
/// each is drawn once.
const REDRAW: Duration = Duration::from_millis(1100);

/// Signals that end the view.
const END: [SignalKind; 4] = [
    SignalKind::interrupt(),
    SignalKind::terminate(),
    SignalKind::hangup(),
    SignalKind::quit(),
];

/// What happened.
enum Event {
    Heard(Option<Heard>),
    Typed(Input),
    End,
    Stop,
    /// The process goes on after a stop.
    Continued,
    /// The window has another size.
    Resized,
    /// The terminal has taken what was drawn, or is gone.
    Taken(io::Result<()>),
    Time,
}

/// All that can happen.
struct Events {
    feed: Receiver<Heard>,
    inputs: Receiver<Input>,
    keys: bool,
    end: [Signals; 4],
    stop: Signals,
    continued: Signals,
    resized: Signals,
}

/// Runs until it is ended: the exit code.
pub(super) async fn run(
    mut screen: Screen,
    mut model: Model,
    look: Look,
    feed: Receiver<Heard>,
) -> ExitCode {
    let Ok(mut events) = Events::new(feed) else {
        drop(screen);
        eprintln!("kvgauge can't be told of signals here, and would not give the terminal back");
        return ExitCode::FAILURE;
    };
    let mut mode = Mode::default();
    // What is shown while it stands still, and since when.
    let mut paused: Option<(Model, std::time::Instant)> = None;
    loop {
        let ready = screen.is_ready();
        let now = std::time::Instant::now();
        let (shown, at) = paused
            .as_ref()
            .map_or((&model, now), |(model, at)| (model, *at));
        mode.paused = paused
            .as_ref()
            .map(|(_, at)| now.saturating_duration_since(*at));
        // A terminal that is slow is shown what is so when it comes to it.
        if ready
            && screen
                .draw(|buffer| draw(shown, mode, look, at, buffer))
                .is_err()
        {
            // The terminal is gone: there is nobody to tell.
            return ExitCode::SUCCESS;
        }
        let went_well = match events.next(Instant::now() + REDRAW, ready).await {
            Event::Heard(Some(heard)) => {
                model.take(heard, std::time::Instant::now());
                Ok(())
            }
            // It ends with nothing but a panic, which has been told.
            Event::Heard(None) => return ExitCode::FAILURE,
            Event::End | Event::Typed(Input::Quit) => return ExitCode::SUCCESS,
            Event::Typed(Input::Pause) => {
                paused = match paused {
                    Some(_) => None,
                    None => Some((model.clone(), std::time::Instant::now())),
                };
                Ok(())
            }
            Event::Typed(Input::Help) => {
                mode.help = !mode.help;
                Ok(())
            }
            Event::Typed(Input::Suspend) | Event::Stop => screen.suspend(),
            Event::Typed(Input::Redraw) | Event::Resized => {
                screen.forget();
                Ok(())
            }
            Event::Continued => screen.again(),
            Event::Taken(taken) => taken,
            Event::Time => Ok(()),
        };
        if went_well.is_err() {
            return ExitCode::SUCCESS;
        }
    }
}

// === impl Events ===

impl Events {
    fn new(feed: Receiver<Heard>) -> io::Result<Events> {
        let [interrupt, terminate, hangup, quit] = END;
        Ok(Events {
            feed,
            inputs: inputs(),
            keys: true,
            end: [
                signal(interrupt)?,
                signal(terminate)?,
                signal(hangup)?,
                signal(quit)?,
            ],
            stop: signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?,
            continued: signal(SignalKind::from_raw(Signal::CONT.as_raw()))?,
            resized: signal(SignalKind::window_change())?,
        })
    }

    /// `drawn`: what is known now has been, so that nobody waits for the terminal.
    async fn next(&mut self, until: Instant, drawn: bool) -> Event {
        let [interrupt, terminate, hangup, quit] = &mut self.end;
        loop {
            tokio::select! {
                _ = interrupt.recv() => return Event::End,
                _ = terminate.recv() => return Event::End,
                _ = hangup.recv() => return Event::End,
                _ = quit.recv() => return Event::End,
                input = self.inputs.recv(), if self.keys => match input {
                    Some(input) => return Event::Typed(input),
                    None => self.keys = false,
                },
                taken = OUTPUT.taken(), if !drawn => return Event::Taken(taken),
                _ = self.stop.recv() => return Event::Stop,
                _ = self.continued.recv() => return Event::Continued,
                _ = self.resized.recv() => return Event::Resized,
                heard = self.feed.recv() => return Event::Heard(heard),
                () = sleep_until(until) => return Event::Time,
            }
        }
    }
}
