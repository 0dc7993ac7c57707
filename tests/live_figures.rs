//! Live figures of a running daemon: `weir iostat` and `weir top`.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use daemon::client::Client;
use daemon::program::run;
use daemon::words::{expect_refused, told};
use daemon::{Daemon, Folder, PATIENCE, wait, weir};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;
use weir_trace::iostat::{
    Change, EXTENDED, PLAIN, SHORT, cpu_lines, heading, in_megabytes, parse, parse_cpu, row,
};

#[test]
fn iostat_shows_the_average_since_the_start_and_then_intervals() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:64MiB", "sdb=ram:1MiB"]);
    let mut client = Client::connect(&folder.socket(), "sda");
    for block in 0..50 {
        client.write(0, block * 4096, &[7; 4096]).expect("an answer");
    }
    let text = told(&folder, &["iostat", "-x", "-d", "sda", "0.1", "2"]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("averages since the start, "), "{text}");
    assert_eq!((lines[1], lines[4]), (heading(&EXTENDED).as_str(), lines[1]), "{text}");
    assert!(lines[2].starts_with("sda ") && !text.contains("sdb"), "{text}");
    let writes = |line: &str| line.split_whitespace().nth(7)?.parse::<f64>().ok();
    assert!(writes(lines[2]) > Some(0.0), "{text}");
    assert_eq!(writes(lines[5]), Some(0.0), "nothing was written in between: {text}");
    let json: Value = serde_json::from_str(&told(&folder, &["iostat", "--json"])).expect("JSON");
    assert_eq!(
        (&json["kind"], &json["reports"][0]["since_start"]),
        (&"iostat".into(), &true.into())
    );
    assert_eq!(json["reports"][0]["disks"][0]["columns"]["wareq-sz"], 4.0);
    let short = told(&folder, &["iostat", "-s", "-d"]);
    assert_eq!(short.lines().nth(1), Some(heading(&SHORT).as_str()));
    let plain = told(&folder, &["iostat"]);
    let lines: Vec<_> = plain.lines().collect();
    assert!(lines[1].starts_with("avg-cpu:  %user ") && lines[3].is_empty(), "{plain}");
    let parts = lines[2].split_whitespace().map(|part| part.parse::<f64>().expect("a number"));
    assert!((parts.sum::<f64>() - 100.0).abs() < 0.1, "{plain}");
    assert_eq!(lines[4], heading(&PLAIN), "{plain}");
    // 50 writes of 4 KiB: kB_read kB_wrtn kB_dscd.
    let totals: Vec<_> = lines[5].split_whitespace().skip(5).collect();
    assert_eq!(totals, ["0", "200", "0"], "{plain}");
    let large = told(&folder, &["iostat", "-k", "-m", "-d", "sda"]);
    let names = ["MB_read/s", "MB_wrtn"];
    assert!(names.iter().all(|name| large.contains(name)) && !large.contains("kB"), "{large}");
    let timed = told(&folder, &["iostat", "-t", "-c", "-y", "0.1", "2"]);
    let lines: Vec<_> = timed.lines().collect();
    assert_eq!(lines.len(), 8, "two reports, and no disk: {timed}");
    for at in [0, 4] {
        let shape: String =
            lines[at].chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00+0000", "{timed}");
        assert!(lines[at + 1].starts_with("avg-cpu:"), "{timed}");
    }
    // The first one is left out: what was written before is in no report.
    let later = told(&folder, &["iostat", "-d", "-y", "sda", "0.1", "1"]);
    let rows: Vec<_> = later.lines().filter(|line| line.starts_with("sda ")).collect();
    assert!(rows.len() == 1 && !rows[0].contains("200"), "{later}");
    expect_refused(&folder, &["iostat", "--json", "-m"], &["cannot be used with"]);
    expect_refused(&folder, &["iostat", "sdz"], &["no disk \"sdz\"; there are sda, sdb"]);
    expect_refused(&folder, &["iostat", "--json", "1"], &["COUNT"]);
    daemon.stop();
    expect_refused(&folder, &["iostat"], &["no daemon at control socket"]);
}

#[test]
fn iostat_ends_with_its_daemon_and_with_its_reader() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:1MiB"]);
    let start = || {
        let mut command = weir(&folder);
        command.args(["iostat", "0.1"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("weir can be started")
    };
    // Its reader goes away after the first line.
    let mut reading = start();
    let mut output = BufReader::new(reading.stdout.take().expect("piped"));
    output.read_line(&mut String::new()).expect("a line");
    drop(output);
    assert_eq!(wait(&mut reading, PATIENCE).expect("it ends").code(), Some(0));
    // The daemon goes away under it.
    let mut left = start();
    let mut output = BufReader::new(left.stdout.take().expect("piped"));
    output.read_line(&mut String::new()).expect("a line");
    daemon.stop();
    std::io::copy(&mut output, &mut std::io::sink()).expect("its output");
    assert_eq!(wait(&mut left, PATIENCE).expect("it ends").code(), Some(2));
    let mut said = String::new();
    left.stderr.take().expect("piped").read_to_string(&mut said).expect("words");
    assert!(said.contains("no daemon at control socket"), "{said}");
}

const BEFORE: &str = "\
 259 0 wsa 1000 20 80000 500 2000 300 640000 9000 3 4000 9600 10 2 5000 40 7 100
 259 1 wsb 5 1 40 3 6 2 48 9 0 4 12 0 0 0 0 1 2
 259 2 wsc 77 1 9999 33 5 0 40 3 0 50 36 0 0 0 0 1 2
";
const AFTER: &str = "\
 259 0 wsa 1503 25 120008 907 2611 457 840000 19003 5 6007 19900 17 4 9000 91 13 403
 259 1 wsb 5 1 40 3 6 2 48 9 0 4 12 0 0 0 0 1 2
 259 2 wsc 1000077 1 8009999 5000033 5 0 40 3 31 10040 5000036 0 0 0 0 1 2
";

const CPU_BEFORE: &str = "cpu  1000 20 300 5000 40 5 6 7 100 3\n";
const CPU_AFTER: &str = "cpu  1333 31 410 5512 77 9 13 19 130 4\n";

/// The real iostat over two readings 10 s apart (it leaves out disks that were never used):
/// `/sys/block`, `/proc/stat` and `/proc/uptime` are files of ours in a mount namespace of its own,
/// and its alarm is rung by hand.
const REAL: &str = r#"
set -eu
folder=$1
place() {
    cp "$folder/uptime.$1" "$folder/uptime"
    cp "$folder/stat.$1" "$folder/stat"
    while read -r _ _ name rest; do
        mkdir -p "/sys/block/$name"
        echo "$rest" > "/sys/block/$name/stat"
    done < "$folder/diskstats.$1"
}
mount -t tmpfs none /sys/block
place before
mount --bind "$folder/uptime" /proc/uptime
mount --bind "$folder/stat" /proc/stat
for form in "-x -d" "-x -s -d" "-d" "-d -m" "-x -m -d" "-k"; do
    place before
    mkfifo "$folder/pipe"
    LC_ALL=C iostat $form 1000 2 > "$folder/pipe" &
    iostat=$!
    exec 3< "$folder/pipe"
    # The first report ends with an empty line behind its rows.
    rows=0
    while [ "$rows" -lt 3 ]; do
        read -r line <&3
        case $line in ws*) rows=$((rows + 1));; esac
    done
    place after
    # An alarm before it has begun to wait for one is lost, so it is rung until it has ended.
    while kill -ALRM "$iostat" 2> /dev/null; do sleep 0.05; done &
    cat <&3
    exec 3<&-
    wait
    rm "$folder/pipe"
done
"#;

#[test]
fn our_columns_are_those_of_the_real_iostat() {
    let folder = Folder::new();
    let near = |name: &str| folder.near(name);
    fs::write(near("diskstats.before"), BEFORE).expect("a file");
    fs::write(near("diskstats.after"), AFTER).expect("a file");
    fs::write(near("uptime.before"), "100.00 50.00\n").expect("a file");
    fs::write(near("uptime.after"), "110.00 55.00\n").expect("a file");
    fs::write(near("uptime"), "100.00 50.00\n").expect("a file");
    fs::write(near("stat.before"), CPU_BEFORE).expect("a file");
    fs::write(near("stat.after"), CPU_AFTER).expect("a file");
    fs::write(near("stat"), CPU_BEFORE).expect("a file");
    let path = folder.path().display().to_string();
    let own = ["--mount", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let real = run("unshare", &[&own[..], &["bash", "-c", REAL, "real", &path]].concat());
    let before = parse(BEFORE).expect("diskstats");
    let mut ours = Vec::new();
    let cpu = [CPU_BEFORE, CPU_AFTER].map(|text| parse_cpu(text).expect("a line of CPUs"));
    let mega = [in_megabytes(&PLAIN), in_megabytes(&EXTENDED)];
    let forms = [&EXTENDED[..], &SHORT, &PLAIN, &mega[0], &mega[1], &PLAIN];
    for (place, columns) in forms.into_iter().enumerate() {
        if place == forms.len() - 1 {
            ours.extend(cpu_lines(&cpu[0], &cpu[1]));
        }
        ours.push(heading(columns));
        for ((name, before), (_, after)) in before.iter().zip(parse(AFTER).expect("diskstats")) {
            ours.push(row(columns, name, &Change::between(before, &after, 10.0)));
        }
    }
    let theirs: Vec<_> = real.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(theirs, ours, "{real}");
}

#[test]
fn top_prints_a_frame_of_disks_queues_and_clients() {
    let folder = Folder::new();
    let disks = ["sda=ram:64MiB,scheduler=bfq", "old=ram:1MiB,queue_mode=sq"];
    let daemon = Daemon::start(&folder, &disks);
    let mut client = Client::connect(&folder.socket(), "sda");
    client.write(0, 0, &[7; 4096]).expect("an answer");
    let number = told(&folder, &["ls", "nbd/sda"]);
    let number = number.trim_end_matches("/\n");
    let file = |name: &str| told(&folder, &["get", &format!("nbd/sda/{number}/{name}")]);
    assert_eq!((file("ios"), file("bytes")), ("1\n".into(), "4096\n".into()));
    assert_eq!(file("disk"), "sda\n");
    // Sorted by name, so that the legacy disk stands first and is selected.
    let text = told(&folder, &["top", "--once", "--interval", "100ms"]);
    for words in ["DISK", "SCHEDULER", "one queue for all <- no client", "CLIENT", "uid="] {
        assert!(text.contains(words), "{words:?}: {text}");
    }
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).map(String::from);
    assert!(line("sda ").expect("a disk").contains(" bfq "), "{text}");
    assert!(line("old ").expect("a disk").contains(" sq "), "{text}");
    let queue = file("hard_queue");
    let shown = line(&format!("nbd/sda/{number}")).expect("a client");
    assert!(shown.split_whitespace().any(|word| word == queue.trim()), "{text}");
    expect_refused(&folder, &["top"], &["no terminal", "--once"]);
    daemon.stop();
    expect_refused(&folder, &["top", "--once"], &["no daemon at control socket"]);
}

#[test]
fn a_client_that_a_cap_holds_back_has_that_time_in_its_percentiles() {
    let folder = Folder::new();
    let file = folder.near("weir.toml");
    let configuration = "[[pool]]\nname = \"ssd0\"\nscheduler = \"bfq\"\n\
        [[disk]]\nname = \"vm1\"\npool = \"ssd0\"\ntarget = \"ram:64MiB\"\n\
        [[group]]\npath = \"t/a\"\nweight = 300\nwiops = 200\n\
        [[export]]\nname = \"vm1\"\ndisk = \"vm1\"\ngroup = \"t/a\"\n";
    fs::write(&file, configuration).expect("a file");
    let mut command = weir(&folder);
    command.arg("serve").arg("-c").arg(&file);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    let daemon = Daemon::spawn(command);
    let mut client = Client::connect(&folder.socket(), "vm1");
    // A closed loop of 32 writes under a cap of 200 a second: each waits for 160 ms.
    let mut next = 0;
    let mut send = |client: &mut Client| {
        client.send(0, 1, next, 4096, &[7; 4096]).expect("it is sent");
        next = (next + 4096) % (64 << 20);
    };
    (0..32).for_each(|_| send(&mut client));
    let number = told(&folder, &["ls", "nbd/vm1"]);
    let name = format!("nbd/vm1/{}", number.trim_end_matches("/\n"));
    let top = std::thread::scope(|scope| {
        let top = scope.spawn(|| told(&folder, &["top", "--once", "--interval", "2s"]));
        while !top.is_finished() {
            client.reply().expect("an answer");
            send(&mut client);
        }
        top.join().expect("a frame")
    });
    let line = |name: &str| top.lines().find(|line| line.starts_with(name)).expect("a line");
    let (head, client) = (line("CLIENT "), line(&name));
    let number = |column: &str| -> f64 {
        let end = head.find(column).expect("a column") + column.len();
        client[..end].split_whitespace().last().and_then(|it| it.parse().ok()).expect("a number")
    };
    // Most of it, whatever else the machine does; without the cap it would be microseconds.
    assert!(number("p50 ms") > 20.0 && number("p99 ms") >= number("p50 ms"), "{top}");
    let of_cap = client.split("cap ").nth(1).and_then(|rest| rest.split('%').next()?.parse().ok());
    assert!(of_cap.is_some_and(|percent: f64| percent > 50.0), "{top}");
    assert!(client.contains("100/100%"), "{top}");
    // The partition stands behind its pool.
    let lines: Vec<&str> = top.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("ssd0 ")).expect("the pool");
    assert!(lines[at + 1].starts_with("  vm1 "), "{top}");
    drop(daemon);
}

#[test]
fn an_io_that_no_cap_held_is_not_taken_for_one_of_those_that_waited_before_it() {
    let folder = Folder::new();
    let file = folder.near("weir.toml");
    let configuration = "[[disk]]\nname = \"sda\"\ntarget = \"ram:64MiB\"\nriops = 20\n";
    fs::write(&file, configuration).expect("a file");
    let mut command = weir(&folder);
    command.arg("serve").arg("-c").arg(&file);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    let daemon = Daemon::spawn(command);
    let mut client = Client::connect(&folder.socket(), "sda");
    // The second read is held back, and by their bytes hundreds of reads are behind it: a write.
    (0..2).for_each(|_| _ = client.send(0, 0, 0, 512, &[]).expect("it is sent"));
    client.send(0, 1, 0, 1 << 16, &[7; 1 << 16]).expect("it is sent");
    (0..3).for_each(|_| _ = client.reply_with(512).expect("an answer"));
    for _ in 0..200 {
        assert_eq!(client.write(0, 0, &[7; 512]).expect("an answer"), 0);
    }
    let number = told(&folder, &["ls", "nbd/sda"]);
    let path = format!("nbd/sda/{}/cap_wait", number.trim_end_matches("/\n"));
    let waits = told(&folder, &["get", &path]);
    let counts = waits.split_whitespace().filter_map(|word| word.split_once(':'));
    let held: u64 = counts.map(|(_, count)| count.parse::<u64>().expect("a count")).sum();
    assert!((1..=3).contains(&held), "{waits}");
    drop(daemon);
}

#[test]
fn the_io_of_a_client_that_has_not_ended_is_in_the_tree_and_in_top() {
    let folder = Folder::new();
    // No answer comes while the test runs.
    let daemon = Daemon::start(&folder, &["sda=null:1MiB,latency_us=3600000000"]);
    let mut client = Client::connect(&folder.socket(), "sda");
    let number = told(&folder, &["ls", "nbd/sda"]);
    let number = number.trim_end_matches("/\n");
    let in_flight = || told(&folder, &["get", &format!("nbd/sda/{number}/inflight")]);
    assert_eq!(in_flight(), "0\n");
    for n in 0..3 {
        client.send(0, 0, n * 65536, 4096, &[]).expect("it is sent");
    }
    let began = Instant::now();
    while in_flight() != "3\n" {
        assert!(began.elapsed() < PATIENCE, "{} in flight", in_flight());
    }
    let text = told(&folder, &["top", "--once", "--interval", "100ms"]);
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).expect("a line");
    let (head, line) = (line("CLIENT "), line(&format!("nbd/sda/{number} ")));
    let end = head.find("IN FLIGHT").expect("a column") + "IN FLIGHT".len();
    assert_eq!(line[..end].split_whitespace().last(), Some("3"), "{text}");
    drop(daemon);
}

/// A program on a terminal of its own.
struct Screen {
    child: Child,
    keyboard: fs::File,
    terminal: OwnedFd,
    /// How the terminal was before.
    before: Termios,
    output: Receiver<Vec<u8>>,
    seen: String,
}

const SIZE: Winsize = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };

impl Screen {
    #[track_caller]
    fn start(folder: &Folder, words: &[&str]) -> Screen {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("a terminal");
        unlockpt(&master).expect("a terminal");
        let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("a name");
        let terminal = fs::File::options().read(true).write(true).open(name).expect("a terminal");
        tcsetwinsize(&terminal, SIZE).expect("a size");
        let before = tcgetattr(&terminal).expect("its modes");
        let mut command = weir(folder);
        let clone = || Stdio::from(terminal.try_clone().expect("a descriptor"));
        command.args(words).env("TERM", "xterm").stdin(clone()).stdout(clone()).stderr(clone());
        let child = command.spawn().expect("weir can be started");
        let mut reader = fs::File::from(master.try_clone().expect("a descriptor"));
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        let keyboard = fs::File::from(master);
        Screen { child, keyboard, terminal: terminal.into(), before, output, seen: String::new() }
    }

    /// Waits until it shows this, behind what was waited for before.
    #[track_caller]
    fn wait_for(&mut self, words: &str) {
        // A screen that goes on changing never keeps its reader waiting for the next bytes.
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(words) {
                self.seen.drain(..at + words.len());
                return;
            }
            let bytes = self.output.recv_timeout(until.saturating_duration_since(Instant::now()));
            let bytes = bytes.unwrap_or_else(|_| panic!("no {words:?} in {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a terminal");
    }

    fn modes(&self) -> Termios {
        tcgetattr(&self.terminal).expect("its modes")
    }

    /// Waits for its end; the terminal is as it was before.
    #[track_caller]
    fn end(&mut self) -> Option<i32> {
        let status = wait(&mut self.child, PATIENCE).expect("it ends");
        // Back from the screen of its own, and with a cursor.
        self.wait_for("\u{1b}[?1049l");
        self.wait_for("\u{1b}[?25h");
        assert_eq!(self.modes().local_modes, self.before.local_modes);
        assert_eq!(self.modes().input_modes, self.before.input_modes);
        status.code()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file of a process in /proc.
fn proc(pid: Pid, name: &str) -> String {
    let path = format!("/proc/{}/{name}", pid.as_raw_nonzero());
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[track_caller]
fn look_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn top_answers_keys_and_sizes_and_leaves_the_terminal_as_it_was() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:64MiB", "sdb=ram:1MiB"]);
    let top = ["top", "--interval", "100ms"];
    let mut screen = Screen::start(&folder, &top);
    screen.wait_for("weir top");
    screen.wait_for("sda: submitters and clients by hard queue");
    screen.wait_for("q quit");
    assert!(!screen.modes().local_modes.contains(LocalModes::ICANON), "keys come one by one");
    screen.press("\u{1b}[B");
    // Only what changes is drawn: of `sda: ...` the letter.
    screen.wait_for("b");
    screen.press("s");
    screen.wait_for("IOPS");
    screen.press("+");
    screen.wait_for("2");
    let pid = Pid::from_child(&screen.child);
    tcsetwinsize(&screen.terminal, Winsize { ws_row: 20, ws_col: 90, ..SIZE }).expect("a size");
    kill_process(pid, Signal::WINCH).expect("a running program");
    screen.wait_for("weir top");
    // While its daemon is held it waits for that, and finds a new size and the key behind it at
    // once: neither hides the other.
    daemon.signal(Signal::STOP);
    let waits = || proc(pid, "wchan").starts_with("unix_stream");
    look_until("it waits for its daemon", waits);
    tcsetwinsize(&screen.terminal, SIZE).expect("a size");
    kill_process(pid, Signal::WINCH).expect("a running program");
    let taken = || proc(pid, "status").contains("ShdPnd:\t0000000000000000") && waits();
    look_until("the signal is taken", taken);
    screen.press("q");
    daemon.signal(Signal::CONT);
    assert_eq!(screen.end(), Some(0));
    // Ended from outside, and left by its daemon.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut screen = Screen::start(&folder, &top);
        screen.wait_for("q quit");
        kill_process(Pid::from_child(&screen.child), signal).expect("a running program");
        assert_eq!(screen.end(), Some(0), "{signal:?}");
    }
    let mut screen = Screen::start(&folder, &top);
    screen.wait_for("q quit");
    daemon.stop();
    assert_eq!(screen.end(), Some(2));
    screen.wait_for("no daemon at control socket");
}
