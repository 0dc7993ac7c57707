//! One run: `weir bench` as a process of its own.
//!
//! So its memory lies elsewhere each time, as a user's would, and its CPU time is its own.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use weir_trace::document::BenchDocument;

use super::rounds::Stop;
use super::variant::Variant;
use crate::workload::spec::RunSpec;

/// How a run is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The command.
    pub path: PathBuf,
    /// The run; where it runs and its seed are said anew for each.
    pub spec: RunSpec,
    /// A folder of its own for its output.
    pub folder: PathBuf,
}

/// The words of the command with which it reads a run from its standard input, and writes the
/// saved document of it to its standard output.
pub const WORDS: [&str; 2] = ["bench", "--spec-on-stdin"];
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
        self.spec.runtime.unwrap_or(UNKNOWN) + self.spec.longest_ramp()
    }

    /// Runs it to its end, or until `stop` can be read from.
    ///
    /// # Errors
    /// That it was stopped, could not be started, failed (with its own words) or did not end.
    pub fn run(&self, variant: &Variant, seed: u64, stop: &OwnedFd) -> Result<BenchDocument, Stop> {
        let [errors, saved] = ["errors", "saved.json"].map(|name| self.folder.join(name));
        let failed = |why: String| Stop::Failed { why, measured: None };
        let create = |path: &Path| {
            File::create(path).map_err(|error| failed(format!("{}: {error}", path.display())))
        };
        let spec = variant.spec(&self.spec).on(&variant.targets, &variant.redo, seed);
        let mut command = Command::new(&self.path);
        command.args(WORDS).stdin(given(&spec).map_err(failed)?);
        command.stdout(create(&saved)?).stderr(create(&errors)?);
        // A signal from the terminal is for us; we end it in our own time.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| {
            failed(format!("{} cannot be started: {error}", self.path.display()))
        })?;
        let most = self.spec.runtime.map(|_| self.takes() + PATIENCE);
        let ended = wait(&mut child, stop, most);
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

/// The document of a run in memory: whole before the run starts, so that no run waits for the rest
/// of one, and in no file and no list of processes, because targets may name secrets.
fn given(spec: &RunSpec) -> Result<Stdio, String> {
    let written = || {
        let mut file = File::from(memfd_create("weir-run", MemfdFlags::CLOEXEC)?);
        file.write_all(spec.document().map_err(io::Error::other)?.as_bytes())?;
        file.rewind()?;
        Ok(Stdio::from(file))
    };
    written().map_err(|error: io::Error| format!("the run's document: {error}"))
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
    use crate::workload::spec::Workload;
    use std::os::unix::net::UnixStream;
    use weir_load::Job;
    use weir_load::presets::Stage;

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
        let stage = Stage { name: None, jobs: vec![Job::default()] };
        let runtime = Some(Duration::from_nanos(1_500_000_001));
        let spec = RunSpec::of(Workload::Stages(vec![stage]));
        Program { path, spec: RunSpec { runtime, ..spec }, folder }
    }

    fn run(program: &Program, stop: UnixStream) -> Result<BenchDocument, Stop> {
        let variant = Variant::new("a", &[String::from("ram:1M")], "").expect("a variant");
        let outcome = program.run(&variant, 7, &stop.into());
        std::fs::remove_dir_all(&program.folder).expect("the folder goes");
        outcome
    }

    #[test]
    fn a_run_is_given_its_document_whole_on_its_standard_input_and_no_word_of_it_besides() {
        let (_held, stop) = UnixStream::pair().expect("sockets");
        let told = r#"printf '{"kind":"bench","command":["%s","%s"],"notices":[' "$*" "$#"
            sed 's/["\\]/\\&/g; s/.*/"&"/'
            echo ']}'"#;
        let program = script("told", told);
        let expected = program.spec.on(&[String::from("ram:1M")], &[], 7);
        let ran = run(&program, stop).expect("a document");
        assert_eq!(ran.command, ["bench --spec-on-stdin", "2"]);
        let read = RunSpec::read(ran.notices[0].as_bytes()).expect("it is whole");
        assert_eq!(read, expected);
        assert_eq!((read.target.as_deref(), read.seed), (Some("ram:1M"), 7));
        assert_eq!(read.runtime, Some(Duration::from_nanos(1_500_000_001)));
    }

    #[test]
    fn what_a_run_saved_is_read_and_what_a_failed_one_said_is_passed_on() {
        let (_held, stop) = UnixStream::pair().expect("sockets");
        let save = r#"echo '{"kind":"bench","bench":{"ios":5}}'
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
