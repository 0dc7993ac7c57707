//! `weir status`, and the lines of the log on clients and on a stop.

#![forbid(unsafe_code)]

mod daemon;

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::{Output, Stdio};
use std::time::Instant;

use daemon::client::Client;
use daemon::loop_device::Loop;
use daemon::program::{A_MOMENT, program, run};
use daemon::tgtd::Tgtd;
use daemon::words::told;
use daemon::{Daemon, Folder, PATIENCE, weir};
use rustix::process::Signal;
use serde_json::Value;

fn status(folder: &Folder, flags: &[&str]) -> Output {
    let mut command = weir(folder);
    command.arg("status").args(flags).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[track_caller]
fn document(folder: &Folder, code: i32) -> Value {
    let output = status(folder, &["--json"]);
    assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

#[test]
fn a_healthy_daemon_tells_what_it_serves_and_the_status_is_0() {
    let folder = Folder::new();
    let unsafe_disk = folder.file_disk("fast", "8MiB", ",barriers=off");
    let safe_disk = folder.file_disk("safe", "8MiB", ",scheduler=bfq");
    let daemon = Daemon::start(&folder, &["sda=ram:64MiB", &unsafe_disk, &safe_disk]);
    let mut client = Client::connect(&folder.socket(), "safe");
    client.write(0, 0, &[7; 8192]).expect("an answer");
    let idle: Vec<Client> = (0..9).map(|_| Client::connect(&folder.socket(), "sda")).collect();
    let state = document(&folder, 0);
    assert_eq!(state["pid"], daemon.pid().as_raw_nonzero().get());
    assert_eq!(state["version"], env!("CARGO_PKG_VERSION"));
    assert!(state["uptime_ms"].is_u64(), "{state}");
    let kinds: Vec<&Value> =
        state["listeners"].as_array().expect("a list").iter().map(|it| &it["kind"]).collect();
    assert_eq!(kinds, ["nbd", "control"]);
    let disk = |name: &str| -> Value {
        let mut disks = state["disks"].as_array().expect("a list").iter();
        disks.find(|disk| disk["name"] == name).expect("a disk").clone()
    };
    assert_eq!(disk("sda")["write_cache"], "write through");
    assert_eq!(disk("fast")["write_cache"], "durability disabled");
    assert_eq!(disk("safe")["write_cache"], "write back");
    let got = |path: &str| {
        let mut command = weir(&folder);
        command.args(["get", path]).stdout(Stdio::piped());
        text(&command.output().expect("the command runs").stdout)
    };
    assert_eq!(got("block/fast/weir/durability"), "disabled\n");
    assert_eq!(got("block/safe/weir/durability"), "enabled\n");
    // Linux's words, and what they say is true of the device.
    assert_eq!(got("block/fast/queue/write_cache"), "write back\n");
    let warned = daemon.said();
    let line = warned.lines().find(|line| line.contains("fast: barriers are off"));
    assert!(line.is_some_and(|line| line.contains("WARN")), "{warned}");
    assert_eq!(disk("safe")["scheduler"], "bfq");
    assert_eq!(disk("sda")["target"], "ram:64MiB");
    assert_eq!((&disk("sda")["clients"], &disk("safe")["clients"]), (&9.into(), &1.into()));
    assert_eq!(state["clients"]["count"], 10);
    let busiest = state["clients"]["busiest"].as_array().expect("a list");
    assert_eq!((busiest.len(), &busiest[0]["disk"]), (5, &Value::from("safe")), "{state}");
    assert_eq!(busiest[0]["bytes"], 8192);
    let screen = text(&status(&folder, &[]).stdout);
    for part in ["healthy", "durability disabled", "ram:64MiB", "clients 10", "bfq"] {
        assert!(screen.contains(part), "{part} in {screen}");
    }
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    drop((client, idle));
    daemon.stop();
}

#[test]
fn a_server_that_is_lost_is_degraded_until_it_is_back() {
    let (below, above) = (Folder::new(), Folder::new());
    let image = below.file_disk("sda", "8MiB", "");
    let server = Daemon::start(&below, &[&image]);
    // Also where the target states something of its own, and below another disk.
    let target = format!("far=nbd+unix:{}?sda,reconnect=60,rotational=1", below.socket().display());
    let daemon = Daemon::start(&above, &["near=ram:1MiB", &target, "over=linear:far"]);
    assert_eq!(document(&above, 0)["degraded"], Value::Array(Vec::new()));
    server.kill();
    daemon.wait_for(|line| line.contains("connection 0: lost"));
    let state = document(&above, 1);
    let degraded = state["degraded"].as_array().expect("a list");
    let told = degraded[0].as_str().expect("a sentence");
    assert!(told.starts_with("disk far: ") && told.contains("is lost"), "{state}");
    let over = degraded[1].as_str().expect("a sentence");
    assert!(over.starts_with("disk over: far: ") && over.contains("is lost"), "{state}");
    assert_eq!(degraded.len(), 2, "the other disk is well: {state}");
    let output = status(&above, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("DEGRADED (2)"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("2 things are degraded"), "{}", text(&output.stderr));
    let server = Daemon::start(&below, &[&image]);
    daemon.wait_for(|line| line.contains("connection 0: is back"));
    document(&above, 0);
    daemon.stop();
    server.stop();
}

#[test]
fn a_path_that_is_down_is_degraded_although_the_disk_goes_on() {
    let folder = Folder::new();
    let disks = ["left=ram:1MiB", "right=ram:1MiB", "both=multipath:left+right"];
    let daemon = Daemon::start(&folder, &disks);
    let paths = |state: &Value| {
        let disks = state["disks"].as_array().expect("a list");
        let both = disks.iter().find(|disk| disk["name"] == "both").expect("the disk");
        both["paths"].as_array().expect("a list").clone()
    };
    let state = document(&folder, 0);
    assert!(paths(&state).iter().all(|path| path["is_valid"] == true), "{state}");
    told(&folder, &["map", "message", "both", "fail_path", "left"]);
    let state = document(&folder, 1);
    assert_eq!(sentences(&state), ["disk both: path left is down"]);
    let valid: Vec<_> = paths(&state).iter().map(|path| path["is_valid"].clone()).collect();
    assert_eq!(valid, [false, true]);
    let mut client = Client::connect(&folder.socket(), "both");
    assert_eq!(client.write(0, 0, &[1; 512]).expect("a reply"), 0);
    told(&folder, &["map", "message", "both", "reinstate_path", "left"]);
    document(&folder, 0);
    daemon.stop();
}

#[test]
fn a_disk_of_a_pool_whose_server_is_lost_is_told_by_its_own_name() {
    let (below, above) = (Folder::new(), Folder::new());
    let server = Daemon::start(&below, &["sda=ram:8MiB"]);
    let text = format!(
        "[nbd]\nlisten = [\"unix:{}\"]\n[[pool]]\nname = \"pool\"\n[[disk]]\nname = \"part\"\n\
         pool = \"pool\"\ntarget = \"nbd+unix:{}?sda,reconnect=60\"\n",
        above.socket().display(),
        below.socket().display()
    );
    std::fs::write(above.near("weir.toml"), text).expect("a file");
    let mut command = weir(&above);
    command.args(["serve", "-c", "weir.toml"]);
    let daemon = Daemon::spawn(command);
    document(&above, 0);
    server.kill();
    daemon.wait_for(|line| line.contains("connection 0: lost"));
    let state = document(&above, 1);
    let told = sentences(&state);
    assert!(told.len() == 1 && told[0].starts_with("disk part: "), "{state}");
    assert!(told[0].ends_with("connection 0 is lost and not back"), "{state}");
    daemon.kill();
}

const IQN: &str = "iqn.2024-01.test:status";

/// A target with so many thin units of 8 MiB each.
fn target(tgtd: &Tgtd, units: u32) {
    tgtd.target(1, IQN);
    for unit in 1..=units {
        tgtd.unit(1, unit, &tgtd.image(&format!("lun-{unit}"), 8 << 20), &[]);
    }
}

fn unit(tgtd: &Tgtd, number: u32) -> String {
    format!("iscsi://127.0.0.1:{}/{IQN}/{number}", tgtd.port)
}

fn sentences(state: &Value) -> Vec<&str> {
    let degraded = state["degraded"].as_array().expect("a list");
    degraded.iter().map(|told| told.as_str().expect("a sentence")).collect()
}

#[test]
#[ignore = "needs tgtd"]
fn an_iscsi_session_that_is_lost_is_degraded_until_it_is_back() {
    let folder = Folder::new();
    let Some(mut tgtd) = Tgtd::start(&folder.path().display().to_string(), "status") else {
        return;
    };
    target(&tgtd, 4);
    let of = |name: &str, number| format!("{name}={}", unit(&tgtd, number));
    let two = format!("{},sessions=2", of("two", 4));
    let (far, leg, path) = (of("far", 1), of("leg", 2), of("path", 3));
    let (line, wide, many) =
        ("line=linear:far", "wide=striped:64KiB:leg+near", "many=multipath:path");
    let disks = ["near=ram:8MiB", &far, line, &leg, wide, &path, many, &two];
    let daemon = Daemon::start(&folder, &disks);
    assert_eq!(document(&folder, 0)["degraded"], Value::Array(Vec::new()));
    tgtd.kill();
    // Five sessions, each of which its port has found lost.
    daemon.wait_for_many(5, |line| line.contains("lost with"));
    let state = document(&folder, 1);
    let told = sentences(&state);
    for start in ["far: ", "line: far: ", "leg: ", "wide: leg: ", "path: "] {
        let begins = |told: &&str| {
            told.starts_with(&format!("disk {start}iscsi://"))
                && told.ends_with("session 0 is lost and not back")
        };
        assert_eq!(told.iter().filter(|told| begins(told)).count(), 1, "{start} in {state}");
    }
    assert!(told.iter().any(|told| told.starts_with("disk many: path: iscsi://")), "{state}");
    let of_two = told.iter().filter(|told| told.starts_with("disk two: "));
    assert_eq!(of_two.count(), 2, "{state}");
    assert!(!told.iter().any(|told| told.starts_with("disk near")), "{state}");
    tgtd.run();
    target(&tgtd, 4);
    daemon.wait_for_many(5, |line| line.contains("is back"));
    // A path that failed is tried again by itself.
    let well = || status(&folder, &["--json"]).status.code() == Some(0);
    let began = Instant::now();
    while !well() {
        assert!(began.elapsed() < PATIENCE, "{}", document(&folder, 0));
        std::thread::sleep(A_MOMENT);
    }
    daemon.stop();
}

#[test]
#[ignore = "needs tgtd"]
fn a_unit_that_turns_read_only_is_degraded_until_it_is_asked_anew() {
    let folder = Folder::new();
    let Some(tgtd) = Tgtd::start(&folder.path().display().to_string(), "protected") else {
        return;
    };
    target(&tgtd, 1);
    let disk = format!("sda={}", unit(&tgtd, 1));
    let daemon = Daemon::start(&folder, &[&disk, "over=linear:sda"]);
    let mut client = Client::connect(&folder.socket(), "over");
    assert_eq!(client.write(0, 0, &[7; 4096]).expect("an answer"), 0);
    document(&folder, 0);
    tgtd.unit_parameters(1, 1, "readonly=1");
    assert_ne!(client.write(0, 0, &[8; 4096]).expect("an answer"), 0);
    let state = document(&folder, 1);
    let told = sentences(&state);
    assert_eq!(told.len(), 2, "{state}");
    for (told, start) in told.iter().zip(["disk sda: ", "disk over: sda: "]) {
        assert!(told.starts_with(start) && told.contains("write-protected now"), "{state}");
    }
    let rescan = || {
        let mut command = weir(&folder);
        let words = ["set", "block/sda/device/rescan", "1"];
        assert!(command.args(words).status().expect("it runs").success());
    };
    rescan();
    assert_eq!(sentences(&document(&folder, 1)), told, "it still is");
    tgtd.unit_parameters(1, 1, "readonly=0");
    rescan();
    document(&folder, 0);
    assert_eq!(client.write(0, 0, &[9; 4096]).expect("an answer"), 0);
    drop(client);
    daemon.stop();
}

#[test]
#[ignore = "needs root, losetup, blockdev"]
fn a_block_device_that_the_kernel_turns_read_only_is_degraded() {
    let folder = Folder::new();
    let Some(device) = Loop::new(&folder) else { return };
    let daemon = Daemon::start(&folder, &[&format!("sda={}", device.target())]);
    document(&folder, 0);
    let path = device.device.display().to_string();
    run("blockdev", &["--setro", &path]);
    let state = document(&folder, 1);
    assert_eq!(sentences(&state), [format!("disk sda: {path}: the kernel has it read-only now")]);
    run("blockdev", &["--setrw", &path]);
    document(&folder, 0);
    daemon.stop();
}

/// A file system of 1 MiB, gone when it is dropped.
struct Small(std::path::PathBuf);

impl Small {
    fn new(folder: &Folder) -> Small {
        let below = folder.near("small");
        std::fs::create_dir(&below).expect("a folder");
        let path = below.display().to_string();
        run("mount", &["-t", "tmpfs", "-o", "size=1M", "tmpfs", &path]);
        Small(below)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        _ = program("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
#[ignore = "needs mount"]
fn a_full_file_system_and_an_image_that_was_deleted_are_told_in_the_log_and_degraded() {
    const NO_SPACE: u32 = 28;
    let folder = Folder::new();
    let small = Small::new(&folder);
    let image = small.0.join("image");
    let target = format!("sda=file:{},size=8MiB", image.display());
    let daemon = Daemon::start(&folder, &[&target, "sdb=ram:1MiB"]);
    daemon.wait_for(|line| line.contains("was not there: a new file without data was made"));
    assert!(sentences(&document(&folder, 0)).is_empty());
    let mut client = Client::connect(&folder.socket(), "sda");
    let mut write = |mib: u64| client.write(0, mib << 20, &[7; 1 << 20]).expect("an answer");
    let failed = (0..8).filter(|mib| write(*mib) == NO_SPACE).count();
    assert!(failed >= 7, "{failed} of 8");
    daemon.wait_for(|line| line.contains("an I/O failed: write of"));
    let state = document(&folder, 1);
    let [told] = sentences(&state)[..] else { panic!("{state}") };
    assert!(told.starts_with("disk sda: I/O failed ") && told.contains("no space left"), "{told}");
    let disk = &state["disks"][0];
    assert_eq!(disk["failures"][0]["status"], "no space left on device", "{state}");
    assert_eq!(disk["failures"][0]["last"]["op"], "write", "{state}");
    std::fs::remove_file(&image).expect("the image");
    let state = document(&folder, 1);
    let told = sentences(&state).into_iter().find(|one| one.contains("the file was deleted"));
    assert!(told.is_some_and(|one| one.starts_with("disk sda: ")), "{state}");
    // Not cut, however long a sentence is.
    let screen = text(&status(&folder, &[]).stdout);
    assert!(screen.contains("closed\n") && !screen.contains('…'), "{screen}");
    let said = daemon.said();
    assert_eq!(said.matches("an I/O failed").count(), 1, "{said}");
    daemon.stop();
}

#[test]
fn without_a_daemon_and_with_one_that_does_not_answer_the_status_is_2() {
    let folder = Folder::new();
    let output = status(&folder, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no daemon at control socket"));
    let silent = folder.near("silent.sock");
    let listener = UnixListener::bind(&silent).expect("a socket");
    let output = status(&folder, &["--control", silent.to_str().expect("UTF-8")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("it does not answer"), "{}", text(&output.stderr));
    drop(listener);
}

#[test]
fn the_log_tells_why_clients_go_what_they_moved_and_how_the_stop_went() {
    let folder = Folder::new();
    let disk = folder.file_disk("sda", "8MiB", "");
    let mut daemon =
        Daemon::start(&folder, &[&disk, "memory=ram:1MiB", "null=null:1MiB,barriers=off"]);
    let gone = |number: u32| {
        let name = format!("client={number} ");
        daemon.wait_for(|line| line.contains("client gone") && line.contains(&name))
    };
    let mut first = Client::connect(&folder.socket(), "sda");
    let came = daemon.wait_for(|line| line.contains("client connected"));
    for part in ["pid=", "export=sda", "client=0", "negotiated=", "replies"] {
        assert!(came.contains(part), "{part} in {came}");
    }
    first.write(0, 0, &[7; 8192]).expect("an answer");
    first.read(0, 4096).expect("an answer").expect("a success");
    first.disconnect().expect("an orderly end");
    let line = gone(0);
    for part in ["read=4.0 KiB", "wrote=8.0 KiB", "lasted=", "why=it disconnected", "export=sda"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    drop(Client::connect(&folder.socket(), "memory"));
    assert!(gone(1).contains("why=connection lost"));
    let mut bad = Client::connect(&folder.socket(), "memory");
    bad.stream.write_all(&[0xff; 64]).expect("a listener");
    assert!(gone(2).contains("why=protocol error: "));
    let _ended = Client::connect(&folder.socket(), "memory");
    daemon.wait_for(|line| line.contains("client connected") && line.contains("client=3 "));
    let mut command = weir(&folder);
    assert!(command.args(["set", "nbd/memory/3/delete", "1"]).status().expect("it runs").success());
    assert!(gone(3).contains("why=closed by us, as it was asked for"));
    let _last = Client::connect(&folder.socket(), "memory");
    daemon.wait_for(|line| line.contains("client connected") && line.contains("client=4 "));
    daemon.signal(Signal::INT);
    assert!(daemon.wait().success());
    let said = daemon.said();
    for part in [
        "stopping: SIGINT",
        "why=closed by us: the server is shutting down",
        "1 client was waited for",
        "disks flushed and closed: sda\n",
        "disks closed, which have no write cache to flush: memory\n",
        "disks closed, durability disabled: null\n",
        "stopped in ",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
}

/// NBD_FLAG_SEND_FLUSH and NBD_FLAG_SEND_FUA.
const DURABLE: u16 = 0b1100;

#[test]
fn a_disk_above_one_without_durability_promises_none_either() {
    let folder = Folder::new();
    let disks = [
        folder.file_disk("fast", "8MiB", ",barriers=off"),
        folder.file_disk("safe", "8MiB", ""),
        String::from("above=linear:fast"),
        String::from("beside=linear:safe"),
    ];
    let daemon = Daemon::start(&folder, &disks.each_ref().map(String::as_str));
    for (name, offered) in [("above", 0), ("beside", DURABLE)] {
        let client = Client::connect(&folder.socket(), name);
        assert_eq!(client.flags & DURABLE, offered, "{name}");
    }
    let log = daemon.stop();
    let told = "not durable: FLUSH and FUA are not offered export=";
    assert!(log.contains(&format!("{told}above")), "{log}");
    assert!(!log.contains(&format!("{told}beside")), "{log}");
    assert!(log.contains("disks closed, durability disabled: fast, above"), "{log}");
    assert!(log.contains("disks flushed and closed: safe, beside"), "{log}");
}
