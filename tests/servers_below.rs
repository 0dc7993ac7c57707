//! Servers that others wrote as the disk below: bytes go from a client through weir's server, its
//! queues and its NBD client into nbdkit or qemu-nbd, and back.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::Path;

use daemon::client::{Client, FLUSH};
use daemon::program::{Ended, Noise, Running, Server, attempt, checksum, nbdkit, qemu_nbd, run};
use daemon::{Daemon, Folder, weir};

const MIB: u64 = 1 << 20;
const IO_ERROR: u32 = 5;

/// The disk `sda` on this server.
fn below(server: &Server, options: &str) -> String {
    format!("sda=nbd+unix:{}{options}", server.socket.display())
}

/// Copies noise in and out through a daemon in front of the server, on both paths, over as many
/// connections above as below.
#[track_caller]
fn copy_through(folder: &Folder, server: &Server, mib: u64, connections: &[u32]) {
    let (source, copy) = (folder.image("source"), folder.image("copy"));
    let (from, to) = (source.display().to_string(), copy.display().to_string());
    for (round, connections) in connections.iter().enumerate() {
        for (path, options) in ["", ",queue_mode=sq"].into_iter().enumerate() {
            let seed = 40 + (round * 2 + path) as u64;
            println!("seed {seed}, {connections} connections, options {options:?}");
            Noise::new(seed).write_file(&source, mib * MIB);
            let disk = below(server, &format!(",connections={connections}{options}"));
            let daemon = Daemon::start(folder, &[&disk]);
            let uri = folder.uri("sda");
            // nbdcopy opens no more connections than it has threads.
            let (many, threads) =
                (format!("--connections={connections}"), format!("--threads={connections}"));
            run("nbdcopy", &[&*many, &threads, "--flush", &from, &uri]);
            run("nbdcopy", &[&many, &threads, &uri, &to]);
            let said = daemon.stop();
            let served = said.lines().filter(|line| line.contains("client connected"));
            assert_eq!(served.count() as u32, 2 * connections, "{said}");
            assert!(!said.contains("WARN"), "{said}");
            assert_eq!(checksum(&copy), checksum(&source), "{disk}");
            // The contents of the server, read without weir in between.
            let direct = format!("nbd+unix:///?socket={}", server.socket.display());
            run("nbdcopy", &[&direct, &to]);
            assert_eq!(checksum(&copy), checksum(&source), "{disk}, read directly");
        }
    }
}

#[test]
#[ignore = "needs nbdkit, nbdcopy"]
fn what_goes_through_to_nbdkit_in_memory_comes_back() {
    let folder = Folder::new();
    let server = nbdkit(&folder, "kit.sock", &["memory", "96M"]);
    copy_through(&folder, &server, 96, &[1, 4]);
    server.stop();
}

#[test]
#[ignore = "needs nbdkit, nbdcopy"]
fn what_goes_through_to_nbdkit_on_a_file_comes_back() {
    let folder = Folder::new();
    let image = folder.image("below");
    fs::File::create(&image).and_then(|file| file.set_len(96 * MIB)).expect("an image");
    let path = image.display().to_string();
    let server = nbdkit(&folder, "kit.sock", &["file", &path]);
    copy_through(&folder, &server, 96, &[1, 4]);
    server.stop();
    assert_eq!(checksum(&image), checksum(&folder.image("source")));
}

#[test]
#[ignore = "needs qemu-nbd, nbdcopy"]
fn what_goes_through_to_qemu_nbd_comes_back() {
    let folder = Folder::new();
    let image = folder.image("below");
    fs::File::create(&image).and_then(|file| file.set_len(96 * MIB)).expect("an image");
    let server = qemu_nbd(&folder, "qemu.sock", &image, &["--shared=8", "--discard=unmap"]);
    copy_through(&folder, &server, 96, &[1, 4]);
    server.stop();
    assert_eq!(checksum(&image), checksum(&folder.image("source")));
}

#[test]
#[ignore = "needs nbdkit, qemu-io, nbdinfo"]
fn zeroes_discards_and_the_map_go_through() {
    let folder = Folder::new();
    let server = nbdkit(&folder, "kit.sock", &["memory", "64M"]);
    let daemon = Daemon::start(&folder, &[&below(&server, "")]);
    let uri = folder.uri("sda");
    let commands = [
        "write -P 1 0 1M",
        "write -f -P 2 1M 1M",
        "write -z 64k 64k",
        "write -z -u 128k 64k",
        "discard 1M 512k",
        "flush",
        "read -P 1 0 64k",
        "read -P 0 64k 128k",
        "read -P 1 192k 832k",
        "read -P 2 1536k 512k",
    ];
    let mut arguments = vec!["-f", "raw", &uri];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    let said = run("qemu-io", &arguments);
    assert!(!said.contains("failed"), "{said}");
    let direct = format!("nbd+unix:///?socket={}", server.socket.display());
    let map = |uri: &str| run("nbdinfo", &["--map", "--totals", uri]);
    assert_eq!(map(&uri), map(&direct));
    daemon.stop();
    server.stop();
}

#[test]
#[ignore = "needs nbdkit, nbdcopy"]
fn a_chain_of_weir_nbdkit_and_weir_gives_back_what_was_put_in() {
    let (outer, inner) = (Folder::new(), Folder::new());
    let source = outer.image("source");
    Noise::new(50).write_file(&source, 32 * MIB);
    let (from, to) = (source.display().to_string(), outer.image("copy").display().to_string());
    let bottom = Daemon::start(&inner, &[&inner.file_disk("x", "32MiB", "")]);
    let uri = format!("uri={}", inner.uri("x"));
    let between = nbdkit(&outer, "kit.sock", &["--filter=checkwrite", "nbd", &uri]);
    // This filter holds every write against what the disk below has, and so reads it through.
    run("nbdcopy", &[&from, &inner.uri("x")]);
    let top = Daemon::start(&outer, &[&below(&between, ",connections=2")]);
    run("nbdcopy", &["--allocated", &from, &outer.uri("sda")]);
    run("nbdcopy", &[&outer.uri("sda"), &to]);
    assert_eq!(checksum(Path::new(&to)), checksum(&source));
    top.stop();
    between.stop();
    bottom.stop();
}

#[test]
#[ignore = "needs nbdkit"]
fn an_error_below_is_an_error_above_and_the_next_request_is_served() {
    let folder = Folder::new();
    let fails = folder.near("fails");
    let trigger = format!("error-file={}", fails.display());
    let words = ["--filter=error", "memory", "1M", "error=EIO", "error-rate=100%", &trigger];
    let server = nbdkit(&folder, "kit.sock", &words);
    let daemon = Daemon::start(&folder, &[&below(&server, "")]);
    let mut client = Client::connect(&folder.socket(), "sda");
    assert_eq!(client.write(0, 0, &[5; 4096]).expect("an answer"), 0);
    fs::write(&fails, "").expect("a file");
    assert_eq!(client.read(0, 4096).expect("an answer"), Err(5));
    assert_eq!(client.write(0, 0, &[6; 4096]).expect("an answer"), 5);
    fs::remove_file(&fails).expect("the file");
    assert_eq!(client.read(0, 4096).expect("an answer"), Ok(vec![5; 4096]));
    daemon.stop();
    server.stop();
}

#[test]
#[ignore = "needs nbdkit"]
fn a_server_for_one_connection_gets_one_and_the_log_says_so() {
    let folder = Folder::new();
    let words = ["--filter=multi-conn", "memory", "1M", "multi-conn-mode=disable"];
    let server = nbdkit(&folder, "kit.sock", &words);
    let daemon = Daemon::start(&folder, &[&below(&server, ",connections=4")]);
    assert_eq!(Client::connect(&folder.socket(), "sda").size, MIB);
    let said = daemon.stop();
    let line = said.lines().find(|line| line.contains("CAN_MULTI_CONN"));
    assert!(line.is_some_and(|line| line.contains("kit.sock")), "{said}");
    server.stop();
}

#[test]
#[ignore = "needs nbdkit"]
fn a_writable_server_without_flush_is_refused_unless_nobody_counts_on_it() {
    let folder = Folder::new();
    let words = [
        "eval",
        "get_size=echo 1M",
        "pread=head -c \"$3\" /dev/zero",
        "can_write=exit 0",
        "pwrite=cat >/dev/null",
        "can_flush=exit 3",
    ];
    let server = nbdkit(&folder, "kit.sock", &words);
    let mut command = weir(&folder);
    command.args(["serve", "--nbd", "unix:nbd.sock", "--disk", &below(&server, "")]);
    let Ended { code, stderr, .. } = Running::start(command).end();
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("barriers=off") && stderr.contains("kit.sock"), "{stderr}");
    let daemon = Daemon::start(&folder, &[&below(&server, ",barriers=off")]);
    let uri = folder.uri("sda");
    assert_eq!(attempt("nbdinfo", &["--can", "flush", &uri]).code, Some(2));
    assert_eq!(attempt("nbdinfo", &["--can", "fua", &uri]).code, Some(2));
    assert!(daemon.stop().contains("durab"), "nothing in the log says so");
    server.stop();
}

#[test]
#[ignore = "needs nbdkit"]
fn the_log_says_when_the_server_below_is_lost_and_when_it_is_back() {
    let folder = Folder::new();
    let server = nbdkit(&folder, "kit.sock", &["memory", "1M"]);
    let daemon = Daemon::start(&folder, &[&below(&server, "")]);
    let mut client = Client::connect(&folder.socket(), "sda");
    assert_eq!(client.read(0, 4096).expect("an answer"), Ok(vec![0; 4096]));
    server.kill();
    let line = daemon.wait_for(|line| line.contains("lost with"));
    assert!(line.contains("WARN disk sda: nbd+unix:") && line.contains("kit.sock"), "{line}");
    let server = nbdkit(&folder, "kit.sock", &["memory", "1M"]);
    // No I/O comes in the meantime: the driver finds the server by itself.
    daemon.wait_for(|line| line.contains("WARN disk sda") && line.ends_with("is back"));
    assert_eq!(client.read(0, 4096).expect("an answer"), Ok(vec![0; 4096]));
    daemon.stop();
    server.stop();
}

#[test]
#[ignore = "needs nbdkit"]
fn what_a_server_has_lost_is_not_flushed_by_a_second_path_to_it() {
    let folder = Folder::new();
    let start = || nbdkit(&folder, "kit.sock", &["memory", "1M"]);
    let server = start();
    let path = |name: &str| format!("{name}=nbd+unix:{}", server.socket.display());
    let disks = [&path("a"), &path("b"), "sda=multipath:a+b"];
    let mut daemon = Daemon::start(&folder, &disks);
    let are_back = |daemon: &Daemon, lines| {
        let of = |line: &str| line.contains("WARN disk a:") || line.contains("WARN disk b:");
        daemon.wait_for_many(lines, |line| of(line) && line.ends_with("is back"));
    };
    let mut client = Client::connect(&folder.socket(), "sda");
    server.kill();
    let server = start();
    are_back(&daemon, 2);
    assert_eq!(client.one(0, FLUSH, 0, 0).expect("an answer"), 0, "there was nothing to lose");
    assert_eq!(client.write(0, 0, &[1; 4096]).expect("an answer"), 0);
    server.kill();
    let server = start();
    are_back(&daemon, 4);
    for _ in 0..3 {
        assert_eq!(client.one(0, FLUSH, 0, 0).expect("an answer"), IO_ERROR);
    }
    assert_eq!(client.read(0, 4096).expect("an answer"), Ok(vec![0; 4096]), "it is gone");
    let (status, _) = daemon.terminate();
    assert_eq!(status.code(), Some(1), "not all of it is durable");
    server.stop();
}
