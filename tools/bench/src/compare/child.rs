//! One run: `weir bench` as a process of its own.
//!
//! So its memory lies elsewhere each time, as a user's would, and its CPU time is its own.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use weir_trace::document::BenchDocument;

use super::rounds::Stop;
use super::variant::Variant;

/// How a run is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The command.
    pub path: PathBuf,
    /// The words behind `bench`: the job and its flags.
    pub job: Vec<String>,
    /// How long to measure at most; `None`: until the job has done all it has to do.
    pub runtime: Option<Duration>,
    /// How long to run before that.
    pub ramp: Duration,
    /// A folder of its own for what it writes.
    pub folder: PathBuf,
}

/// The assumed length of a run of unknown length.
const UNKNOWN: Duration = Duration::from_secs(2);
/// How long a run may take beyond its own times, for preparing its target and ending. The clock of
/// a virtual machine may have stood still for a minute in between.
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a run may take to end when it is asked to.
const ENDING: Duration = Duration::from_secs(5);
/// How much of what a failed run said is passed on, bytes.
const SAID_MOST: usize = 2000;

impl Program {
    /// The length of a run, as far as it is known before.
    #[must_use]
    pub fn takes(&self) -> Duration {
        self.runtime.unwrap_or(UNKNOWN) + self.ramp
    }

    /// The arguments of one run of a variant.
    #[must_use]
    pub fn arguments(&self, Variant { targets, redo, .. }: &Variant, seed: u64) -> Vec<String> {
        let time = |time: Duration| format!("{}us", time.as_micros());
        let mut words = vec![String::from("bench")];
        words.extend(self.job.iter().cloned());
        let seed = seed.to_string();
        let ramp = time(self.ramp);
        let runtime = self.runtime.map(time);
        let runtime = runtime.as_deref().map(|runtime| ("--runtime", runtime));
        let given = [("--ramp-time", ramp.as_str()), ("--randseed", &seed)];
        let targets = targets.iter().map(|target| ("--target", target.as_str()));
        let redo = redo.iter().map(|target| ("--redo", target.as_str()));
        for (flag, value) in targets.chain(redo).chain(runtime).chain(given) {
            words.extend([flag, value].map(String::from));
        }
        // It is not told to be quiet: into a file it says no more than what should be known.
        words.push(String::from("--json"));
        words
    }

    /// Runs it to its end, or until `stop` can be read from.
    ///
    /// # Errors
    /// That it was stopped, could not be started, failed (with its own words) or did not end.
    pub fn run(&self, variant: &Variant, seed: u64, stop: &OwnedFd) -> Result<BenchDocument, Stop> {
        let [output, errors, saved] =
            ["output", "errors", "saved.json"].map(|name| self.folder.join(name));
        // The file that an earlier run saved is not this one's.
        let _ = std::fs::remove_file(&saved);
        let failed = |why: String| Stop::Failed { why, measured: None };
        let create = |path: &Path| {
            File::create(path).map_err(|error| failed(format!("{}: {error}", path.display())))
        };
        let mut command = Command::new(&self.path);
        command.args(self.arguments(variant, seed)).arg("--save").arg(&saved);
        command.stdin(Stdio::null()).stdout(create(&output)?).stderr(create(&errors)?);
        // A signal from the terminal is for us; we end it in our own time.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| {
            failed(format!("{} cannot be started: {error}", self.path.display()))
        })?;
        let ended = wait(&mut child, stop, self.runtime.map(|time| time + self.ramp + PATIENCE));
        let status = match ended {
            Ok(Some(status)) => status,
            Ok(None) => {
                end(&mut child);
                return Err(Stop::Interrupted);
            }
            Err(error) => {
                end(&mut child);
                return Err(failed(error.to_string()));
            }
        };
        let measured = read(&saved);
        let said = std::fs::read(&errors).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        if status.success() {
            return measured.map_err(failed);
        }
        let said = failure(last_of(said.trim()));
        let why = if said.is_empty() { format!("it ended with {status}") } else { said.to_owned() };
        Err(Stop::Failed { why, measured: measured.ok().map(Box::new) })
    }
}

/// Why a run failed: the last that it said, behind what should be known of any run.
fn failure(said: &str) -> &str {
    let last = said.rsplit_once("\nweir: ").map_or(said, |(_, last)| last);
    last.trim_start_matches("weir: ")
}

/// The end of what was said.
fn last_of(said: &str) -> &str {
    let from = said.len().saturating_sub(SAID_MOST);
    let from = (from..said.len()).find(|at| said.is_char_boundary(*at)).unwrap_or_default();
    &said[from..]
}

fn read(saved: &Path) -> Result<BenchDocument, String> {
    let text = std::fs::read_to_string(saved).map_err(|e| format!("{}: {e}", saved.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", saved.display()))
}

/// Waits for the child's end, however long that takes if there is no `most`; `None` if this process
/// was asked to end.
fn wait(
    child: &mut Child,
    stop: &OwnedFd,
    most: Option<Duration>,
) -> io::Result<Option<std::process::ExitStatus>> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = most.map(|most| most.saturating_sub(began.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::Error::other(format!(
                "did not end within {:?}",
                most.unwrap_or_default()
            )));
        }
        let timeout = left.map(|left| Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        let mut fds = [PollFd::new(&process, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[1].revents().contains(PollFlags::IN) {
            return Ok(None);
        }
    }
}

/// Ends a child: asked first, then not.
fn end(child: &mut Child) {
    let pid = Pid::from_child(child);
    // It may have ended by itself; either way it is waited for.
    let _ = kill_process(pid, Signal::TERM);
    if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
        let timeout = Timespec { tv_sec: ENDING.as_secs() as i64, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&timeout));
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// A shell script in place of the command.
    fn script(name: &str, text: &str) -> Program {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("weir-child-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let program = in_folder(folder);
        let path = &program.path;
        std::fs::write(path, format!("#!/bin/sh\n{text}\n")).expect("a script");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).expect("a mode");
        program
    }

    fn in_folder(folder: PathBuf) -> Program {
        let path = folder.join("program");
        let (runtime, ramp) = (Some(Duration::from_millis(1500)), Duration::from_millis(250));
        Program { path, job: vec![String::from("oltp")], runtime, ramp, folder }
    }

    fn run(program: &Program, stop: UnixStream) -> Result<BenchDocument, Stop> {
        let variant = Variant::new("a", &[String::from("ram:1M")], "").expect("a variant");
        let outcome = program.run(&variant, 7, &stop.into());
        std::fs::remove_dir_all(&program.folder).expect("the folder goes");
        outcome
    }

    #[test]
    fn a_run_is_told_its_job_its_target_its_window_and_its_seed() {
        let targets = ["ram:1M", "ram:2M"].map(String::from);
        let variant = Variant::new("a", &targets, "").expect("a variant");
        let redo = [String::from("ram:3M")];
        let group = variant.with_redo(&targets, &redo).expect("redo of its own");
        let program = in_folder(PathBuf::from("/nonexistent"));
        let words = program.arguments(&group, 7).join(" ");
        let expected = "bench oltp --target ram:1M --target ram:2M --redo ram:3M \
                        --runtime 1500000us --ramp-time 250000us \
                        --randseed 7 --json";
        assert_eq!(words, expected);
        let finite = Program { runtime: None, ramp: Duration::ZERO, ..program };
        let one = Variant::new("a", &targets[..1], "").expect("a variant");
        let expected = "bench oltp --target ram:1M --ramp-time 0us --randseed 7 --json";
        assert_eq!(finite.arguments(&one, 7).join(" "), expected);
    }

    #[test]
    fn what_a_run_saved_is_read_and_what_a_failed_one_said_is_passed_on() {
        let (_held, stop) = UnixStream::pair().expect("sockets");
        let save = r#"while [ "$1" != --save ]; do shift; done
            echo '{"kind":"bench","bench":{"ios":5}}' > "$2"
            echo 'weir: bench: barriers are off' >&2"#;
        let ran = run(&script("saved", save), stop.try_clone().expect("a socket"));
        assert_eq!(ran.expect("a document").bench.figures.ios, 5);
        let fails = format!("{save}\necho 'weir: size=9 is beyond the target' >&2; exit 2");
        let failed = run(&script("failed", &fails), stop.try_clone().expect("a socket"));
        let Err(Stop::Failed { why, measured }) = failed else { panic!("it failed") };
        assert_eq!(why, "size=9 is beyond the target");
        assert_eq!(measured.expect("what it saved").bench.figures.ios, 5);
        let silent = run(&script("silent", "exit 3"), stop);
        let Err(Stop::Failed { why, measured: None }) = silent else { panic!("it failed") };
        assert!(why.contains('3'), "{why}");
    }

    #[test]
    fn a_run_is_ended_when_somebody_asks_for_it() {
        let (mut asking, stop) = UnixStream::pair().expect("sockets");
        io::Write::write_all(&mut asking, b"x").expect("a byte");
        assert_eq!(run(&script("ended", "exec sleep 1000"), stop).err(), Some(Stop::Interrupted));
    }
}
