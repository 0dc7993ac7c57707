//! Messages on standard error: by the daemon through an [`Outlet`], so that a log that is not read,
//! or a full disk under it, stops nothing; by other commands directly.

mod outlet;
mod rate;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use outlet::{Outlet, Raw};
use rate::Rate;

/// How long the end waits for lines that are not written yet.
const END_LIMIT: Duration = Duration::from_millis(150);

/// How long a daemon waits until standard output has taken what it says at its start.
const START_LIMIT: Duration = Duration::from_secs(1);

static LOG: OnceLock<Log> = OnceLock::new();

struct Log {
    outlet: Outlet,
    left_out: Box<dyn Fn() -> Vec<String> + Send + Sync>,
}

/// Starts the daemon's log: from now on nothing that is said waits or fails.
///
/// # Errors
/// The system's, where there is no thread.
pub(crate) fn start(quiet: bool) -> io::Result<()> {
    let default = if quiet { "error" } else { "info" };
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let outlet = Outlet::open(Raw(rustix::stdio::stderr()))?;
    let rate = Rate::new(outlet.clone());
    let left_out = Box::new(rate.teller());
    let (lines, last_words) = (outlet.clone(), outlet.clone());
    let format = tracing_subscriber::fmt::layer()
        .with_writer(move || Line(lines.clone()))
        .with_target(false)
        .without_time()
        .log_internal_errors(false);
    // A second start in one process (tests) keeps the first log.
    let _ = tracing_subscriber::registry().with(filter).with(format).with(rate).try_init();
    // The usual hook would wait for a standard error that is not read, and the end with it.
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let trace = Backtrace::capture();
        let trace = match trace.status() {
            BacktraceStatus::Captured => format!("\n{trace}"),
            _ => String::new(),
        };
        last_words.put(format!("weir: thread {thread} {panic}{trace}\n").as_bytes());
        last_words.settle(END_LIMIT);
    }));
    let _ = LOG.set(Log { outlet, left_out });
    Ok(())
}

/// Says a line on standard error; nothing if that cannot be.
pub(crate) fn say(line: &str) {
    let text = format!("{line}\n");
    match LOG.get() {
        Some(log) => log.outlet.put(text.as_bytes()),
        // A closed standard error means that no message is wanted.
        None => _ = io::stderr().write_all(text.as_bytes()),
    }
}

/// Says text on standard output as the log says lines: it stops nothing.
pub(crate) fn print(text: &str) {
    match Outlet::open(Raw(rustix::stdio::stdout())) {
        Ok(outlet) => {
            outlet.put(text.as_bytes());
            // Messages that are not read yet are left to the thread.
            outlet.settle(START_LIMIT);
            let trouble = outlet.trouble();
            if let Some(why) = trouble.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
                tracing::warn!("standard output: {why}");
            }
        }
        Err(why) => tracing::warn!("standard output: no thread: {why}"),
    }
}

/// Has everything written that was said, as far as that can be.
pub(crate) fn end() {
    let Some(log) = LOG.get() else { return };
    for line in (log.left_out)() {
        log.outlet.put(format!("{line}\n").as_bytes());
    }
    log.outlet.settle(END_LIMIT);
}

/// One line of the log, which comes whole.
struct Line(Outlet);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
