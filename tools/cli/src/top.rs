//! `weir top`: a screen of what a running daemon does.

mod columns;
mod sample;
mod view;

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use crossterm::event::{self, KeyCode, KeyEvent, KeyModifiers};
use ratatui::backend::TestBackend;
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;
use crate::control::Control;
use crate::values::time;
use sample::{Sample, Scene};
use view::View;

/// Shows disks, queues, schedulers and clients of a running daemon on a screen.
///
/// The busiest disk stands first, partitions stand behind their pool. p50 and p99 of a client have
/// the time in them that a cap held its I/O back; HELD BY is what its I/Os' time went to, and
/// SHARE/WEIGHT its group's part of the bytes beside its part of the weights among its siblings.
/// Without NO_COLOR colours repeat what the words say.
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

/// The least time that is given to look for a key.
const INSTANT: Duration = Duration::from_millis(1);

/// Columns of a frame that is printed.
const PRINTED: u16 = 160;

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
        on_screen(|screen| self.watch(screen, first, &stop))
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
        let Ok(mut frame) = Terminal::new(TestBackend::new(PRINTED, view.height()));
        let Ok(_) = frame.draw(|frame| view.draw(frame));
        let mut text = String::new();
        for line in frame.backend().buffer().content().chunks(usize::from(PRINTED)) {
            let line: String = line.iter().map(|cell| cell.symbol()).collect();
            // A screen is filled with empty lines, and paper needs one at a time.
            if !(line.trim().is_empty() && text.ends_with("\n\n")) {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        let text = format!("{}\n", text.trim_end());
        match io::stdout().lock().write_all(text.as_bytes()) {
            // The reader has seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::Bad(format!("standard output: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Reads and draws until a key or a signal ends it.
    fn watch(
        &self,
        screen: &mut DefaultTerminal,
        first: Sample,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let mut view = self.view();
        // The convention of no-color.org.
        view.coloured = std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
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
            // Also when looking takes longer than the interval: keys do not wait for that. With no
            // time at all nothing is looked at.
            match event::poll(left.clamp(INSTANT, GLANCE)) {
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

/// Does this with the screen taken, and puts it back whatever becomes of it: in a panic too, before
/// anything is said about that.
fn on_screen(
    work: impl FnOnce(&mut DefaultTerminal) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut screen = ratatui::try_init().map_err(terminal)?;
    let outcome = work(&mut screen);
    ratatui::try_restore().map_err(terminal)?;
    outcome
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};

    use super::*;

    /// Set for the process of the test below that has a terminal.
    const ON_A_TERMINAL: &str = "WEIR_TEST_PANICS_ON_A_TERMINAL";
    /// Written when that process has ended.
    const END: &str = "(nothing comes behind this)";

    #[test]
    fn a_panic_puts_the_screen_back_before_it_is_told() {
        if std::env::var_os(ON_A_TERMINAL).is_some() {
            let outcome = on_screen(|screen| {
                screen.draw(|_| ()).map_err(terminal)?;
                panic!("these words");
            });
            assert!(outcome.is_err(), "there is a terminal: {outcome:?}");
            return;
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("a terminal");
        unlockpt(&master).expect("a terminal");
        let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("a name");
        let open = || File::options().read(true).write(true).open(&name).expect("a terminal");
        // Held, for with the last who has it open a terminal's modes go.
        let mut held = open();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&held, size).expect("a size");
        let before = tcgetattr(&held).expect("its modes");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "top::tests::a_panic_puts_the_screen_back_before_it_is_told"]);
        command
            .args(["--nocapture", "--test-threads=1"])
            .env(ON_A_TERMINAL, "1")
            .env("TERM", "xterm");
        command.stdin(open()).stdout(open()).stderr(Stdio::from(open()));
        let mut child = command.spawn().expect("this program can be started");
        let mut reader = File::from(master.try_clone().expect("a descriptor"));
        let reading = std::thread::spawn(move || {
            let (mut seen, mut bytes) = (String::new(), [0; 4096]);
            while !seen.ends_with(END) {
                let length = reader.read(&mut bytes).expect("a terminal");
                seen.push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
            seen
        });
        let panicked = !child.wait().expect("it ends").success();
        held.write_all(END.as_bytes()).expect("a terminal");
        let seen = reading.join().expect("what was shown");
        assert!(panicked, "{seen:?}");
        let at = |words: &str| seen.find(words).unwrap_or_else(|| panic!("{words:?} in {seen:?}"));
        let (taken, left, told) = (at("\u{1b}[?1049h"), at("\u{1b}[?1049l"), at("these words"));
        assert!(taken < left && left < told, "{seen:?}");
        assert!(seen.rfind("\u{1b}[?25h") > seen.rfind("\u{1b}[?25l"), "no cursor: {seen:?}");
        let after = tcgetattr(&held).expect("its modes");
        assert_eq!(after.local_modes, before.local_modes);
        assert_eq!(after.input_modes, before.input_modes);
    }
}
