//! A process group: the shell of a command, and what it has started.
//!
//! What leaves the group (`setsid`, a daemon) is known by a mark in its environment.

use std::io;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};

use crate::cpu::CpuTime;

/// How long processes may take to end when they are asked to.
const ENDING: Duration = Duration::from_secs(5);
/// How long between two looks at processes that are not our children, whose end is not told.
const BETWEEN: Duration = Duration::from_millis(10);

/// The name of the mark that all processes of a run have in their environment.
const MARK: &str = "WEIR_RUN";
/// Runs of this process so far.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// The group that a child leads, and what has its mark. The child must not have been waited for:
/// until then its number is no other's.
#[derive(Debug)]
pub(super) struct Group {
    leader: Pid,
    /// As it stands in an environment.
    mark: String,
}

/// What is known of a process, from proc(5), `/proc/PID/stat`.
#[derive(Debug, PartialEq)]
struct Known {
    state: char,
    group: i32,
}

impl Known {
    fn in_stat(stat: &str) -> Option<Known> {
        // The name of the command, in parentheses, may hold any character.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let group = fields.nth(1)?.parse().ok()?;
        Some(Known { state, group })
    }
}

impl Group {
    /// The processes that go on, but for the leader: their numbers.
    pub(super) fn others(&self) -> Vec<u32> {
        let leader = self.leader.as_raw_nonzero().get();
        let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let goes_on = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let known = Known::in_stat(&stat).filter(|known| known.state != 'Z');
            *pid != leader as u32
                && known.is_some_and(|known| known.group == leader || self.is_marked(*pid))
        };
        numbers.filter(goes_on).collect()
    }

    /// Whether a process was started with the mark, as far as that can be read.
    fn is_marked(&self, pid: u32) -> bool {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == self.mark.as_bytes())
    }

    /// Ends the others that go on; how many they were, and the CPU time that they had taken.
    pub(super) fn end_others(&self) -> (usize, CpuTime) {
        let others = self.others();
        let mut used = CpuTime::default();
        for of in others.iter().filter_map(|pid| CpuTime::of(*pid)) {
            used.user += of.user;
            used.system += of.system;
        }
        if !others.is_empty() {
            self.end();
        }
        (others.len(), used)
    }

    /// Ends all of them: asked first, then not.
    pub(super) fn end(&self) {
        self.signal(Signal::TERM);
        // One that was stopped hears of it when it goes on.
        self.signal(Signal::CONT);
        let began = Instant::now();
        while began.elapsed() < ENDING && !self.is_over() {
            std::thread::sleep(BETWEEN);
        }
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // They may have ended by themselves.
        let _ = kill_process_group(self.leader, signal);
        let left = self.others().into_iter().filter(|pid| self.is_marked(*pid));
        for pid in left.filter_map(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Whether none goes on, the leader neither.
    fn is_over(&self) -> bool {
        let leader = self.leader.as_raw_nonzero();
        let stat = std::fs::read_to_string(format!("/proc/{leader}/stat")).unwrap_or_default();
        let leads = Known::in_stat(&stat).is_some_and(|known| known.state != 'Z');
        !leads && self.others().is_empty()
    }
}

/// A child and its group, which do not outlive the value.
#[derive(Debug)]
pub(super) struct Kept {
    child: Child,
    group: Group,
    waited: bool,
}

impl Kept {
    /// Starts a command, which is made the leader of a group of its own.
    pub(super) fn start(command: &mut Command) -> io::Result<Kept> {
        let number = RUNS.fetch_add(1, Ordering::Relaxed);
        let value = format!("{}-{number}", std::process::id());
        let child = command.env(MARK, &value).spawn()?;
        let group = Group { leader: Pid::from_child(&child), mark: format!("{MARK}={value}") };
        Ok(Kept { child, group, waited: false })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(super) fn group(&self) -> &Group {
        &self.group
    }

    /// Why it is no success that the child has ended, if it is none; it stays a zombie, so that its
    /// number is no other's.
    pub(super) fn failure(&self) -> io::Result<Option<String>> {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let ended = waitid(WaitId::Pid(self.pid()), how)?;
        let status = ended.and_then(|ended| ended.exit_status());
        let signal = ended.and_then(|ended| ended.terminating_signal());
        Ok(match (status, signal) {
            (Some(0), _) => None,
            (Some(status), _) => Some(format!("ended with status {status}")),
            (None, Some(signal)) => Some(format!("was ended by signal {signal}")),
            (None, None) => Some(String::from("has not ended")),
        })
    }

    /// Waits for the child, when its group is no longer needed.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        self.child.wait()?;
        self.waited = true;
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The number of one that was waited for may be another's by now.
        if !self.waited {
            self.group.end();
            let _ = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_what_stands_between_fields() {
        let known = Known::in_stat("42 (a) R 7 (b) S 41 77 42 0 -1");
        assert_eq!(known, Some(Known { state: 'S', group: 77 }));
        assert_eq!(Known::in_stat(""), None);
    }
}
