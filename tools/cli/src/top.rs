//! `weir top`: a screen of what a running daemon does.

mod sample;
mod view;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, KeyCode, KeyEvent, KeyModifiers};
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;
use crate::tree::Control;
use crate::values::time;
use sample::{Sample, Scene};
use view::View;

/// Shows disks, queues, schedulers and clients of a running daemon on a screen.
///
/// Keys: q quits, up and down select a disk, s sorts, + and - change the interval.
///
/// Example: weir top --interval 500ms
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Top {
    /// Time between two looks.
    #[arg(long, default_value = "1s", value_parser = time(INTERVAL))]
    interval: Duration,
    /// Print one frame as plain text and end, on a terminal or not.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    control: Control,
}

const INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(60);

/// How long a signal may wait to be seen.
const GLANCE: Duration = Duration::from_millis(100);

/// Columns and lines of a frame that is printed.
const FRAME: (u16, u16) = (110, 40);

impl Top {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if self.once {
            return self.print_once();
        }
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            let why = "standard input and output are no terminal; --once prints one frame";
            return Err(Failure::Bad(String::from(why)));
        }
        // Before the screen is taken: a daemon that is not there is said on an ordinary one.
        let first = self.sample()?;
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(terminal)?;
        }
        // It puts the screen back in a panic, too.
        let mut screen = ratatui::try_init().map_err(terminal)?;
        let outcome = self.watch(&mut screen, first, &stop);
        ratatui::try_restore().map_err(terminal)?;
        outcome
    }

    fn sample(&self) -> Result<Sample, Failure> {
        Sample::take(&mut self.control.connect()?)
    }

    fn view(&self) -> View {
        View::new(self.interval.as_millis() as u64)
    }

    fn print_once(&self) -> Result<(), Failure> {
        let before = self.sample()?;
        std::thread::sleep(self.interval);
        let mut view = self.view();
        view.update(Scene::between(&before, &self.sample()?));
        let Ok(mut frame) = Terminal::new(TestBackend::new(FRAME.0, FRAME.1));
        let Ok(_) = frame.draw(|frame| view.draw(frame));
        let mut text = String::new();
        for line in frame.backend().buffer().content().chunks(usize::from(FRAME.0)) {
            let line: String = line.iter().map(|cell| cell.symbol()).collect();
            // A screen is filled with empty lines, and paper needs one at a time.
            if !(line.trim().is_empty() && text.ends_with("\n\n")) {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        let text = format!("{}\n", text.trim_end());
        match io::stdout().lock().write_all(text.as_bytes()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::Bad(format!("standard output: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Looks and draws until somebody ends it.
    fn watch(
        &self,
        screen: &mut DefaultTerminal,
        first: Sample,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let mut view = self.view();
        view.update(Scene::between(&first, &first));
        let mut before = first;
        while !stop.load(Ordering::Relaxed) {
            screen.draw(|frame| view.draw(frame)).map_err(terminal)?;
            let next = before.at() + Duration::from_millis(view.interval_ms);
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let after = self.sample()?;
                view.update(Scene::between(&before, &after));
                before = after;
            }
            // Also when looking takes longer than the interval: keys do not wait for that.
            match event::poll(left.min(GLANCE)) {
                Ok(false) => {}
                Ok(true) => {
                    let event = event::read().map_err(terminal)?;
                    let key = event.as_key_press_event();
                    let goes_on = key.is_none_or(|key| press(&mut view, key));
                    if !goes_on {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(terminal(error)),
            }
        }
        Ok(())
    }
}

/// Does what a key asks for; whether to go on.
fn press(view: &mut View, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return false,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
        KeyCode::Up => view.select(-1),
        KeyCode::Down => view.select(1),
        KeyCode::Char('s') => {
            view.sort = view.sort.next();
            view.arrange();
        }
        KeyCode::Char('+') => view.interval_ms = within(view.interval_ms * 2),
        KeyCode::Char('-') => view.interval_ms = within(view.interval_ms / 2),
        _ => {}
    }
    true
}

fn within(interval_ms: u64) -> u64 {
    let bounds = (INTERVAL.start().as_millis() as u64, INTERVAL.end().as_millis() as u64);
    interval_ms.clamp(bounds.0, bounds.1)
}

fn terminal(error: io::Error) -> Failure {
    Failure::Bad(format!("the terminal: {error}"))
}
