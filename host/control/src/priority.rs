//! The I/O priority of a client's process.

use std::str::SplitAsciiWhitespace;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use weir_access::{Peer, io_priority};
use weir_bio::{Class, IoPrio, Nanos};

/// How often the priority of a connected process is asked for, ns.
const ASK_NS: u64 = 1_000_000_000;

/// The level of a process that is not nice.
const LEVEL_DEFAULT: u8 = 4;

/// The idle class.
const IDLE: IoPrio = IoPrio::new(Class::Idle, 0);

/// The I/O priority of a process or thread of this machine, as it counts for direct I/O: what
/// `ionice` gave it, or else what follows from how it is scheduled (ioprio(5) in the kernel's
/// documentation, `block/ioprio`). Not set for one that is not known or gone, whose number is 0,
/// and for one that has the default.
#[must_use]
pub fn priority_of(process: u32) -> IoPrio {
    match io_priority(process).map(IoPrio) {
        // The idle class has no levels; `ionice` gives it one.
        Some(given) if given.class() == Class::Idle => IDLE,
        Some(given) if given.class() != Class::None => IoPrio::new(given.class(), given.level()),
        Some(_) => scheduled(process).unwrap_or(IoPrio::NONE),
        None => IoPrio::NONE,
    }
}

/// What follows from its scheduling policy and its niceness, proc_pid_stat(5).
fn scheduled(process: u32) -> Option<IoPrio> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    of_stat(&stat)
}

/// When a process began, in ticks since the machine did: another that has its number later began
/// later. `None` if that is not to be seen.
fn began(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    fields_of(&stat)?.nth(22 - 3)?.parse().ok()
}

/// The third field of the line that the kernel tells, and those behind it. The second one is a name
/// in brackets, which may hold anything.
fn fields_of(stat: &str) -> Option<SplitAsciiWhitespace<'_>> {
    Some(stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace())
}

/// What follows from such a line.
fn of_stat(stat: &str) -> Option<IoPrio> {
    let mut fields = fields_of(stat)?;
    let nice: i32 = fields.nth(19 - 3)?.parse().ok()?;
    let policy: u32 = fields.nth(41 - 19 - 1)?.parse().ok()?;
    let level = u8::try_from((nice + 20) / 5).ok()?;
    Some(match policy {
        // SCHED_FIFO, SCHED_RR and SCHED_DEADLINE.
        1 | 2 | 6 => IoPrio::new(Class::RealTime, level),
        // SCHED_IDLE.
        5 => IDLE,
        _ if level == LEVEL_DEFAULT => IoPrio::NONE,
        _ => IoPrio::new(Class::BestEffort, level),
    })
}

/// The priority of a connected process, asked for when it connects and then at most once a second.
#[derive(Clone, Debug, Default)]
pub struct PeerPriority {
    process: u32,
    /// When that process began.
    began: Option<u64>,
    seen: Seen,
    ask_at: Nanos,
}

impl PeerPriority {
    /// Of the process at the other end of a connection; never set where that is not known.
    #[must_use]
    pub fn of(peer: &Peer, now: Nanos) -> PeerPriority {
        let process = match peer {
            Peer::Process { pid, .. } => u32::try_from(*pid).unwrap_or(0),
            Peer::Host(_) | Peer::Unknown => 0,
        };
        let began = if process == 0 { None } else { began(process) };
        let mut known = PeerPriority { process, began, seen: Seen::default(), ask_at: now };
        known.ask_again(now);
        known
    }

    /// What it was when it was last asked for.
    #[inline]
    #[must_use]
    pub fn get(&self) -> IoPrio {
        self.seen.get()
    }

    /// Asks again if it is time to.
    #[inline]
    pub fn ask_again(&mut self, now: Nanos) {
        if self.process != 0 && self.ask_at <= now {
            self.ask(now);
        }
    }

    #[cold]
    fn ask(&mut self, now: Nanos) {
        let is_another = |begun| self.began.is_some_and(|began| began != begun);
        if began(self.process).is_some_and(is_another) {
            // It has ended, and its number is another's. What cannot be seen now says nothing.
            self.process = 0;
        }
        self.seen.set(priority_of(self.process));
        self.ask_at = now + ASK_NS;
    }

    /// What it is, for other threads to look at.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.seen.clone()
    }
}

/// A priority that other threads may look at.
#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<AtomicU16>);

impl Seen {
    /// As it was last seen.
    #[inline]
    #[must_use]
    pub fn get(&self) -> IoPrio {
        IoPrio(self.0.load(Ordering::Relaxed))
    }

    /// It was seen to be this.
    pub fn set(&self, priority: IoPrio) {
        self.0.store(priority.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    /// A process that does nothing until it is ended, begun by way of these words.
    struct Sleeper(Child);

    impl Sleeper {
        fn begun_by(words: &[&str]) -> Sleeper {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).args(["cat"]).stdin(std::process::Stdio::piped());
            command.stdout(std::process::Stdio::piped());
            let mut child = command.spawn().expect("util-linux and coreutils");
            // It answers when it is what it is to be.
            use std::io::{Read, Write};
            child.stdin.as_mut().expect("a pipe").write_all(b"x").expect("it reads");
            child.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("it answers");
            Sleeper(child)
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            self.0.kill().and_then(|()| self.0.wait()).expect("it was there");
        }
    }

    #[test]
    fn the_priority_is_what_ionice_gave_or_what_follows_from_the_niceness() {
        let be = |level| IoPrio::new(Class::BestEffort, level);
        for (words, expected) in [
            (&["ionice", "-c3"][..], IDLE),
            (&["ionice", "-c2", "-n0"], be(0)),
            (&["ionice", "-c2", "-n7"], be(7)),
            (&["nice", "-n", "19"], be(7)),
            (&["nice", "-n", "10", "ionice", "-c2", "-n1"], be(1)),
            (&["chrt", "-i", "0"], IDLE),
        ] {
            let sleeper = Sleeper::begun_by(words);
            assert_eq!(priority_of(sleeper.0.id()), expected, "{words:?}");
        }
    }

    #[test]
    fn nothing_is_known_of_a_process_that_is_not_there() {
        assert_eq!(priority_of(0), IoPrio::NONE);
        assert_eq!(priority_of(u32::MAX), IoPrio::NONE);
        let gone = Sleeper::begun_by(&["ionice", "-c3"]);
        let process = gone.0.id();
        drop(gone);
        assert_eq!(priority_of(process), IoPrio::NONE);
    }

    #[test]
    fn a_name_with_brackets_and_blanks_hides_nothing() {
        let rest = ["S"; 41 - 3].map(String::from);
        let line = |nice: &str, policy: &str| {
            let mut fields = rest.to_vec();
            fields.push(String::from("0"));
            fields[19 - 3] = nice.into();
            fields[41 - 3] = policy.into();
            format!("7 (a) b) ({}", fields.join(" ")).replacen('(', "(", 1).replace(") (", ") ")
        };
        let of = |nice, policy| of_stat(&line(nice, policy));
        assert_eq!(of("0", "0"), Some(IoPrio::NONE));
        assert_eq!(of("-20", "0"), Some(IoPrio::new(Class::BestEffort, 0)));
        assert_eq!(of("19", "3"), Some(IoPrio::new(Class::BestEffort, 7)));
        assert_eq!(of("0", "1"), Some(IoPrio::new(Class::RealTime, 4)));
        assert_eq!(of("0", "5"), Some(IDLE));
        assert_eq!(of_stat("7 (a"), None);
        assert_eq!(of_stat("7 (a) S 1"), None);
    }

    #[test]
    fn a_connected_process_is_asked_for_once_a_second_at_most() {
        let sleeper = Sleeper::begun_by(&["ionice", "-c2", "-n6"]);
        let process = sleeper.0.id();
        let peer = Peer::Process { uid: 0, gid: 0, pid: process as i32 };
        let mut known = PeerPriority::of(&peer, Nanos(5));
        let seen = known.seen();
        assert_eq!(seen.get(), IoPrio::new(Class::BestEffort, 6));
        let number = process.to_string();
        let given = Command::new("ionice").args(["-c3", "-p", &number]).status();
        assert!(given.expect("ionice").success());
        known.ask_again(Nanos(5 + ASK_NS - 1));
        assert_eq!(known.get(), IoPrio::new(Class::BestEffort, 6));
        known.ask_again(Nanos(5 + ASK_NS));
        assert_eq!(seen.get().class(), Class::Idle);
        drop(sleeper);
        known.ask_again(Nanos(5 + 2 * ASK_NS));
        assert_eq!(known.get(), IoPrio::NONE);
    }

    #[test]
    fn the_number_of_a_process_that_has_ended_is_anothers() {
        let sleeper = Sleeper::begun_by(&["ionice", "-c3"]);
        let peer = Peer::Process { uid: 0, gid: 0, pid: sleeper.0.id() as i32 };
        let mut known = PeerPriority::of(&peer, Nanos(0));
        assert_eq!(known.get(), IDLE);
        known.began = known.began.map(|ticks| ticks - 1);
        known.ask_again(Nanos(ASK_NS));
        assert_eq!(known.get(), IoPrio::NONE);
        known.ask_again(Nanos(9 * ASK_NS));
        assert_eq!(known.get(), IoPrio::NONE);
    }
}
