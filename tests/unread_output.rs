//! Standard error and standard output that are closed, full or read by no one stop neither the
//! daemon nor a command.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::{BufRead, BufReader, PipeReader, Read};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use daemon::client::Client;
use daemon::outside::{Mortal, mortal};
use daemon::{Daemon, Folder, PATIENCE, STOP_LIMIT, WEIR, wait, weir};
use rustix::process::{Pid, Signal, kill_process};

/// Clients that come and go: more than the log lines of which a pipe has room for.
const CLIENTS: usize = 1000;

/// The arguments of a daemon with one small disk.
fn serve(folder: &Folder, command: &mut Command) {
    command.args(["serve", "--disk", "sda=ram:1MiB", "--nbd"]);
    command.arg(format!("unix:{}", folder.socket().display()));
}

/// Starts a daemon and waits for its word to its supervisor: its outputs say nothing here.
#[track_caller]
fn started(folder: &Folder, mut command: Command) -> Mortal {
    let path = folder.near("notify");
    let supervisor = UnixDatagram::bind(&path).expect("a socket");
    supervisor.set_read_timeout(Some(PATIENCE)).expect("a limit");
    command.env("NOTIFY_SOCKET", &path);
    let daemon = Mortal(command.spawn().expect("weir can be started"));
    let mut word = [0; 64];
    let bytes = supervisor.recv(&mut word).expect("the daemon is ready");
    assert_eq!(&word[..bytes], b"READY=1\n");
    // The next word would be refused, and that is a line of the log.
    daemon
}

/// A client that reads a block and goes.
#[track_caller]
fn visit(folder: &Folder) {
    let mut client = Client::connect(&folder.socket(), "sda");
    assert_eq!(client.read(0, 512).expect("an answer"), Ok(vec![0; 512]));
    client.disconnect().expect("a parting");
}

#[track_caller]
fn stop_in_time(daemon: &mut Child) {
    let asked = Instant::now();
    kill_process(Pid::from_child(daemon), Signal::TERM).expect("a running daemon");
    let status = wait(daemon, PATIENCE).expect("the daemon ends");
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(asked.elapsed() <= STOP_LIMIT, "it took {:?} to stop", asked.elapsed());
}

#[test]
fn a_closed_or_full_standard_error_stops_nothing() {
    for outputs in ["2>&-", "2>/dev/full", "1>/dev/full 2>/dev/full", "1>&- 2>&-"] {
        let folder = Folder::new();
        let mut command = mortal("/bin/sh");
        command.args(["-c", &format!("exec \"$0\" \"$@\" {outputs}"), WEIR]);
        command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        serve(&folder, &mut command);
        let mut daemon = started(&folder, command);
        (0..50).for_each(|_| visit(&folder));
        stop_in_time(&mut daemon);
    }
}

#[test]
fn a_standard_error_whose_reader_has_left_stops_nothing() {
    let folder = Folder::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = weir(&folder);
    serve(&folder, &mut command);
    command.stdout(writer.try_clone().expect("a pipe")).stderr(writer);
    let mut daemon = started(&folder, command);
    (0..50).for_each(|_| visit(&folder));
    stop_in_time(&mut daemon);
}

/// A daemon with a standard error that the test has not read yet.
fn unread(folder: &Folder, level: &str) -> (Mortal, PipeReader) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut command = weir(folder);
    serve(folder, &mut command);
    command.env("WEIR_LOG", level).stdout(writer.try_clone().expect("a pipe")).stderr(writer);
    (started(folder, command), reader)
}

#[test]
fn a_standard_error_that_is_not_read_stops_no_client_and_no_end() {
    for level in ["info", "debug"] {
        let folder = Folder::new();
        let (mut daemon, reader) = unread(&folder, level);
        (0..CLIENTS).for_each(|_| visit(&folder));
        stop_in_time(&mut daemon);
        drop(reader);
    }
}

#[test]
fn lines_that_found_no_room_are_counted_and_told_when_there_is_room_again() {
    let folder = Folder::new();
    let (mut daemon, reader) = unread(&folder, "debug");
    rustix::pipe::fcntl_setpipe_size(&reader, 4096).expect("a small pipe");
    (0..2 * CLIENTS).for_each(|_| visit(&folder));
    let mut lines = BufReader::new(reader).lines().map(|line| line.expect("a line"));
    let told = lines.find(|line| line.contains("were lost"));
    let told = told.expect("a count of what was lost");
    let count = told.split(' ').find_map(|word| word.parse::<u64>().ok());
    assert!(count.is_some_and(|count| count > 0), "{told}");
    // Lines that come afterwards are printed.
    visit(&folder);
    assert!(lines.any(|line| line.contains("connection closed")));
    kill_process(Pid::from_child(&daemon), Signal::TERM).expect("a running daemon");
    assert!(wait(&mut daemon, PATIENCE).expect("the daemon ends").success());
}

#[test]
fn lines_that_clients_cause_are_few_and_what_was_left_out_is_counted() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:1MiB"]);
    (0..CLIENTS).for_each(|_| visit(&folder));
    let said = daemon.stop();
    let (mut lines, mut left_out) = (0, 0);
    for line in said.lines().filter(|line| line.contains("client connected")) {
        match line.split_once(" more in the last") {
            Some((before, _)) => {
                let count = before.rsplit(' ').next().and_then(|word| word.parse::<usize>().ok());
                left_out += count.unwrap_or_else(|| panic!("{line}"));
            }
            None => lines += 1,
        }
    }
    assert!((1..CLIENTS / 2).contains(&lines), "{lines} lines:\n{said}");
    assert_eq!(lines + left_out, CLIENTS, "{said}");
}

/// Commands of every kind, each as it is typed without a daemon.
const COMMANDS: [&str; 19] = [
    "schedulers",
    "schedulers bfq",
    "schedulers nosuch",
    "man",
    "man nosuch",
    "--help",
    "serve --help",
    "--version",
    "nosuch",
    "serve --disk nothing",
    "serve --disk a=nosuch:1",
    "ls",
    "get block/sda/size",
    "set block/sda/queue/nr_requests 1",
    "iostat",
    "top",
    "udev test --rules . sda",
    "replay nosuch",
    "report nosuch -o nosuch.html",
];

const RUNS: [&str; 2] = [
    // Of a scheduler with deadlines it is said that the run is shorter.
    "bench --target null:1MiB,scheduler=none --runtime 20ms",
    "bench core --scheduler none --threads 1 --runtime 20ms",
];

fn command(folder: &Folder, line: &str) -> Command {
    let mut command = weir(folder);
    command.args(line.split(' '));
    command
}

#[track_caller]
fn code(mut command: Command, line: &str) -> i32 {
    let mut child = Mortal(command.spawn().expect("weir can be started"));
    let status = wait(&mut child, PATIENCE).unwrap_or_else(|| panic!("{line} does not end"));
    status.code().unwrap_or_else(|| panic!("{line}: {status}"))
}

#[test]
fn a_command_with_full_outputs_ends_with_a_status_of_its_own() {
    let folder = Folder::new();
    fs::write(folder.near("bad.rules"), "nonsense\n").expect("a file");
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    for line in COMMANDS.iter().chain(&RUNS) {
        let mut command = command(&folder, line);
        command.stdout(full()).stderr(full());
        let code = code(command, line);
        assert!((0..=2).contains(&code), "{line}: exit status {code}");
    }
}

#[test]
fn a_reader_who_leaves_changes_no_status_and_is_told_nothing() {
    let folder = Folder::new();
    for line in COMMANDS.iter().chain(&RUNS) {
        let usual = {
            let mut command = command(&folder, line);
            command.stdout(Stdio::null()).stderr(Stdio::null());
            code(command, line)
        };
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let (mut errors, stderr) = std::io::pipe().expect("a pipe");
        let mut command = command(&folder, line);
        command.stdout(writer).stderr(stderr);
        assert_eq!(code(command, line), usual, "{line}");
        let mut said = String::new();
        errors.read_to_string(&mut said).expect("text");
        assert!(!said.contains("panicked") && !said.contains("Broken pipe"), "{line}: {said}");
        assert!(usual != 0 || said.is_empty(), "{line}: {said}");
    }
}
