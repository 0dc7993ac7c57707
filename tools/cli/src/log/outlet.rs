//! An output that neither blocks nor fails: lines wait in a bounded queue for a thread of their
//! own, which writes them. A line that finds no room, or that cannot be written, is lost and
//! counted, and the count is written in the place of the lines, as soon as anything can be.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Bytes that may wait to be written: as much again as a pipe holds.
const ROOM: usize = 64 << 10;

/// Makes lines when its time has come.
type Chore = Box<dyn FnOnce() -> Vec<String> + Send>;

/// The way to the thread that writes.
#[derive(Clone)]
pub(crate) struct Outlet {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Each with the number of lines that were lost before it.
    lines: VecDeque<(u64, Vec<u8>)>,
    /// Bytes of `lines`.
    bytes: usize,
    /// Lines lost behind the last of `lines`.
    lost: u64,
    /// The thread has taken a line and not written it yet.
    writing: bool,
    later: Option<(Instant, Chore)>,
    /// Why the last line that could not be written was not.
    trouble: Option<io::Error>,
}

impl Outlet {
    /// Starts the thread for an output.
    ///
    /// # Errors
    /// The system's, where there is no thread.
    pub(crate) fn open(output: impl Write + Send + 'static) -> io::Result<Outlet> {
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new() });
        let outlet = Outlet { shared: Arc::clone(&shared) };
        let mut sink = Sink { output, owed: 0, torn: false };
        let write = move || {
            loop {
                shared.write_next(&mut sink);
            }
        };
        std::thread::Builder::new().name(String::from("weir-log")).spawn(write)?;
        Ok(outlet)
    }

    /// Has text written, which ends with a line feed, or loses it.
    pub(crate) fn put(&self, text: &[u8]) {
        let mut queue = self.shared.queue();
        if queue.bytes + text.len() > ROOM {
            queue.lost += 1;
        } else {
            let lost = std::mem::take(&mut queue.lost);
            queue.bytes += text.len();
            queue.lines.push_back((lost, text.to_vec()));
        }
        self.shared.changed.notify_all();
    }

    /// Has `chore` make lines at a time, unless another is waiting for its own.
    pub(crate) fn at(&self, when: Instant, chore: impl FnOnce() -> Vec<String> + Send + 'static) {
        let mut queue = self.shared.queue();
        queue.later.get_or_insert_with(|| (when, Box::new(chore)));
        self.shared.changed.notify_all();
    }

    /// Waits until everything is written or lost, at most for `limit`. Whether it is.
    pub(crate) fn settle(&self, limit: Duration) -> bool {
        // Owed messages are printed before a line that has no text.
        self.put(b"");
        let pending = |queue: &mut Queue| !queue.lines.is_empty() || queue.writing;
        let waited = self.shared.changed.wait_timeout_while(self.shared.queue(), limit, pending);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// Why the last line that could not be written was not.
    pub(crate) fn trouble(&self) -> Option<io::Error> {
        self.shared.queue().trouble.take()
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a line, or for the time of a chore, and writes.
    fn write_next<W: Write>(&self, sink: &mut Sink<W>) {
        let mut queue = self.queue();
        while queue.lines.is_empty() && queue.lost == 0 {
            let due = queue.later.as_ref().map(|(at, _)| *at);
            queue = match due.map(|at| at.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(left) if !left.is_zero() => {
                    let waited = self.changed.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    let chore = queue.later.take();
                    drop(queue);
                    let lines = chore.map(|(_, chore)| chore()).unwrap_or_default();
                    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
                    let mut queue = self.queue();
                    queue.bytes += text.len();
                    queue.lines.push_back((0, text.into_bytes()));
                    queue
                }
            };
        }
        let none = || (0, Vec::new());
        let (lost, text) = queue.lines.pop_front().unwrap_or_else(none);
        let lost = if text.is_empty() { lost + std::mem::take(&mut queue.lost) } else { lost };
        queue.bytes -= text.len();
        queue.writing = true;
        drop(queue);
        let trouble = sink.write(lost, &text).err();
        let mut queue = self.queue();
        queue.writing = false;
        queue.trouble = trouble.or(queue.trouble.take());
        self.changed.notify_all();
    }
}

/// The output, and what could not be said to it yet.
struct Sink<W> {
    output: W,
    /// Lines lost that nothing was said of.
    owed: u64,
    /// The last line ended in its middle.
    torn: bool,
}

impl<W: Write> Sink<W> {
    fn write(&mut self, lost: u64, text: &[u8]) -> io::Result<()> {
        self.owed += lost;
        let more = u64::from(!text.is_empty());
        if self.owed > 0 {
            let owed = self.owed;
            let told = format!("weir: {owed} lines of the log were lost here: no room for them\n");
            if let Err(error) = self.write_whole(told.as_bytes()) {
                self.owed += more;
                return Err(error);
            }
            self.owed = 0;
        }
        let written = self.write_whole(text);
        self.owed += if written.is_err() { more } else { 0 };
        written
    }

    fn write_whole(&mut self, text: &[u8]) -> io::Result<()> {
        let feed: &[u8] = if self.torn { b"\n" } else { b"" };
        for part in [feed, text] {
            let mut rest = part;
            while !rest.is_empty() {
                match self.output.write(rest) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(bytes) => rest = &rest[bytes..],
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.torn |= rest.len() < part.len();
                        return Err(error);
                    }
                }
            }
            self.torn = false;
        }
        Ok(())
    }
}

/// A descriptor of the process for life. The standard library's has a lock, which a thread in the
/// middle of a write would keep.
pub(crate) struct Raw(pub(crate) BorrowedFd<'static>);

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(self.0, bytes) {
                // Another process that shares it has set it to not block.
                Err(Errno::AGAIN) => {
                    poll(&mut [PollFd::new(&self.0, PollFlags::OUT)], None)?;
                }
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Fails until it is told otherwise, after so many bytes of each write.
    struct Fails(Arc<Mutex<(bool, usize, Vec<u8>)>>);

    impl Write for Fails {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.lock().expect("the state");
            let (fails, room, text) = &mut *state;
            if !*fails {
                text.extend(bytes);
                return Ok(bytes.len());
            }
            let taken = bytes.len().min(std::mem::take(room));
            text.extend(&bytes[..taken]);
            if taken == 0 { Err(ErrorKind::StorageFull.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_could_not_be_written_is_counted_where_it_would_have_stood() {
        let state = Arc::new(Mutex::new((false, 0, Vec::new())));
        let outlet = Outlet::open(Fails(Arc::clone(&state))).expect("a thread");
        outlet.put(b"one\n");
        assert!(outlet.settle(PATIENCE));
        (state.lock().expect("the state").0, state.lock().expect("the state").1) = (true, 2);
        for line in ["two\n", "three\n", "four\n"] {
            outlet.put(line.as_bytes());
        }
        assert!(outlet.settle(PATIENCE));
        let trouble = outlet.trouble().map(|error| error.kind());
        assert_eq!(trouble, Some(ErrorKind::StorageFull));
        state.lock().expect("the state").0 = false;
        outlet.put(b"five\n");
        assert!(outlet.settle(PATIENCE));
        let text = String::from_utf8(state.lock().expect("the state").2.clone()).expect("text");
        let lost = "weir: 3 lines of the log were lost here: no room for them";
        assert_eq!(text, format!("one\ntw\n{lost}\nfive\n"));
    }

    #[test]
    fn nothing_waits_for_a_pipe_that_is_not_read_and_the_lost_lines_are_all_counted() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let outlet = Outlet::open(writer).expect("a thread");
        let count = 40_000_u64;
        (0..count).for_each(|line| outlet.put(format!("line {line}\n").as_bytes()));
        assert!(!outlet.settle(Duration::ZERO));
        let (mut seen, mut lost) = (0, 0);
        for line in BufReader::new(reader).lines() {
            let line = line.expect("text");
            match line.strip_prefix("weir: ").and_then(|rest| rest.split_once(' ')) {
                Some((number, _)) => lost += number.parse::<u64>().expect("a number"),
                None => seen += 1,
            }
            if seen + lost == count {
                break;
            }
        }
        assert!(lost > 0);
        assert!(outlet.settle(PATIENCE));
    }

    #[test]
    fn a_chore_has_its_lines_written_when_its_time_has_come() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let outlet = Outlet::open(writer).expect("a thread");
        outlet.at(Instant::now(), || vec![String::from("a"), String::from("b")]);
        let mut bytes = [0; 4];
        reader.read_exact(&mut bytes).expect("two lines");
        assert_eq!(&bytes, b"a\nb\n");
        // One waits at a time, and what is written meanwhile does not wait for it.
        outlet.at(Instant::now() + PATIENCE, || vec![String::from("late")]);
        outlet.at(Instant::now(), || vec![String::from("never")]);
        outlet.put(b"c\n");
        assert!(outlet.settle(PATIENCE));
        let mut bytes = [0; 2];
        reader.read_exact(&mut bytes).expect("a line");
        assert_eq!(&bytes, b"c\n");
    }
}
