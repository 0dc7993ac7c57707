//! Writes that the daemon has acknowledged as durable stay: when it is killed, when it is stopped
//! under load, and when something below it or above it stands still.
//!
//! A daemon that is killed leaves the kernel running, so these tests show that nothing is answered
//! that the kernel has not got; that a flush reaches the disk is shown in `flush_order.rs`.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use daemon::client::{Client, FLUSH, FUA, READ, WRITE, greeted, option, request};
use daemon::program::{Noise, Running, program};
use daemon::{Daemon, Folder, weir};
use rustix::process::{Pid, Signal, kill_process};

/// Clients that write at the same time, each its own sectors.
const CLIENTS: u64 = 3;
/// Sectors of one client.
const SLOTS: u64 = 700;
const SECTOR: u64 = 512;
const DISK: &str = "64MiB";

/// Every way a write can take to a file.
const PATHS: [&str; 5] = [
    "",
    ",queue_mode=sq",
    ",io=threads",
    ",spread=round-robin,queues=2",
    ",queue_mode=sq,io=threads",
];

/// A client's record of one sector: the newest content that was sent, acknowledged, flushed.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    sent: u64,
    acknowledged: u64,
    flushed: u64,
}

/// One client's sectors, and what ought to be in them.
struct Ledger {
    client: u64,
    noise: Noise,
    slots: Vec<Slot>,
}

/// One content of one sector; no other sector and no other time has it.
fn content(client: u64, slot: u64, sequence: u64) -> [u8; SECTOR as usize] {
    let mut bytes = [0; SECTOR as usize];
    Noise::new(client << 48 | slot << 32 | sequence).fill(&mut bytes[8..]);
    bytes[..8].copy_from_slice(&sequence.to_le_bytes());
    bytes
}

impl Ledger {
    fn new(client: u64, seed: u64) -> Ledger {
        let noise = Noise::new(seed << 8 | client);
        Ledger { client, noise, slots: vec![Slot::default(); SLOTS as usize] }
    }

    fn offset(&self, slot: u64) -> u64 {
        (self.client * SLOTS + slot) * SECTOR
    }

    /// Writes random sectors, a batch at a time, and flushes now and then, until the connection
    /// ends or requests are refused. With `last_words`, does what it says once so many requests
    /// are on their way.
    fn write_until_the_end(&mut self, client: &mut Client, last_words: Option<(u64, &dyn Fn())>) {
        let (mut sent, mut told) = (0, false);
        loop {
            let count = 1 + self.noise.below(24);
            let mut batch: Vec<(u64, u64, u16)> = Vec::new();
            let mut bytes = Vec::new();
            while (batch.len() as u64) < count {
                let slot = self.noise.below(SLOTS);
                if batch.iter().any(|&(other, ..)| other == slot) {
                    continue;
                }
                let flags = if self.noise.below(10) == 0 { FUA } else { 0 };
                let sequence = self.slots[slot as usize].sent + 1;
                self.slots[slot as usize].sent = sequence;
                batch.push((slot, sequence, flags));
                let offset = self.offset(slot);
                bytes.extend(request(flags, WRITE, slot, offset, SECTOR as u32));
                bytes.extend(content(self.client, slot, sequence));
            }
            sent += count;
            if client.stream.write_all(&bytes).is_err() {
                return;
            }
            if let Some((at, say)) = last_words
                && sent >= at
                && !told
            {
                told = true;
                say();
            }
            if !self.take_answers(client, &batch) || !self.flush_sometimes(client) {
                return;
            }
        }
    }

    /// Notes what is acknowledged; false when that was the end.
    fn take_answers(&mut self, client: &mut Client, batch: &[(u64, u64, u16)]) -> bool {
        for _ in batch {
            let Ok((cookie, error)) = client.reply() else { return false };
            if error != 0 {
                return false;
            }
            let answered = batch.iter().find(|(slot, ..)| *slot == cookie);
            let &(slot, sequence, flags) = answered.expect("the cookie of a request");
            let slot = &mut self.slots[slot as usize];
            slot.acknowledged = sequence;
            if flags == FUA {
                slot.flushed = sequence;
            }
        }
        true
    }

    fn flush_sometimes(&mut self, client: &mut Client) -> bool {
        if self.noise.below(3) > 0 {
            return true;
        }
        let Ok(0) = client.one(0, FLUSH, 0, 0) else { return false };
        self.slots.iter_mut().for_each(|slot| slot.flushed = slot.acknowledged);
        true
    }

    /// Holds the file against what was promised, and takes over what it holds.
    #[track_caller]
    fn check(&mut self, read: impl Fn(u64) -> Vec<u8>) {
        for slot in 0..SLOTS {
            let bytes = read(self.offset(slot));
            let sequence = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
            let expected = if sequence == 0 {
                [0; SECTOR as usize]
            } else {
                content(self.client, slot, sequence)
            };
            let client = self.client;
            assert!(bytes == expected, "sector {slot} of client {client} was never written so");
            let known = &mut self.slots[slot as usize];
            assert!(sequence >= known.flushed, "{known:?}, but the disk holds {sequence}: lost");
            assert!(sequence >= known.acknowledged, "{known:?}, the disk holds {sequence}: lost");
            assert!(sequence <= known.sent, "{known:?}, but the disk holds {sequence}");
            *known = Slot { sent: sequence, acknowledged: sequence, flushed: sequence };
        }
    }

    /// How many sectors have something that must not be lost.
    fn flushed(&self) -> usize {
        self.slots.iter().filter(|slot| slot.flushed > 0).count()
    }
}

fn ledgers(seed: u64) -> Vec<Ledger> {
    (0..CLIENTS).map(|client| Ledger::new(client, seed)).collect()
}

/// Lets every ledger's client write until the daemon is gone; the first one sends `signal` to it
/// after so many requests.
fn write_under(
    ledgers: Vec<Ledger>,
    socket: PathBuf,
    pid: Pid,
    signal: Signal,
    at: u64,
) -> Vec<Ledger> {
    let run = move |mut ledger: Ledger| {
        let mut client = Client::connect(&socket, "sda");
        std::thread::spawn(move || {
            let say = move || kill_process(pid, signal).expect("a running daemon");
            let last_words = (ledger.client == 0).then_some((at, &say as &dyn Fn()));
            ledger.write_until_the_end(&mut client, last_words);
            ledger
        })
    };
    // Every client is connected before the first can end the daemon: they are started in turn,
    // the one that ends it last.
    let threads: Vec<_> = ledgers.into_iter().rev().map(run).collect();
    threads.into_iter().rev().map(|thread| thread.join().expect("a writer")).collect()
}

fn through_the_daemon(socket: &Path) -> impl Fn(u64) -> Vec<u8> + use<> {
    let client = std::cell::RefCell::new(Client::connect(socket, "sda"));
    move |offset| {
        let read = client.borrow_mut().read(offset, SECTOR as u32);
        read.expect("an answer").expect("no error")
    }
}

fn from_the_file(image: &Path) -> impl Fn(u64) -> Vec<u8> + use<> {
    let file = fs::File::open(image).expect("the image");
    // The kernel ends the I/O of a killed daemon after the daemon, and its lock after that.
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockShared).expect("a lock");
    move |offset| {
        let mut bytes = vec![0; SECTOR as usize];
        file.read_exact_at(&mut bytes, offset).expect("a sector");
        bytes
    }
}

#[test]
fn a_daemon_that_is_killed_loses_no_flushed_write() {
    let folder = Folder::new();
    let seed = 11;
    let mut dice = Noise::new(seed);
    let mut ledgers = ledgers(seed);
    let mut protected = 0;
    for round in 0..20 {
        let path = PATHS[round % PATHS.len()];
        let disk = folder.file_disk("sda", DISK, path);
        let mut daemon = Daemon::start(&folder, &[&disk]);
        let at = 1 + dice.below(1500);
        println!("seed {seed}, round {round}, killed after {at} requests, path {path:?}");
        ledgers = write_under(ledgers, folder.socket(), daemon.pid(), Signal::KILL, at);
        let status = daemon.wait();
        assert_eq!(status.code(), None, "{status}");
        protected += ledgers.iter().map(Ledger::flushed).sum::<usize>();
        // Half of the time the daemon reads it, else the file is looked at as it was left.
        if round % 2 == 0 {
            let daemon = Daemon::start(&folder, &[&disk]);
            let read = through_the_daemon(&folder.socket());
            ledgers.iter_mut().for_each(|ledger| ledger.check(&read));
            daemon.stop();
        } else {
            let read = from_the_file(&folder.image("sda"));
            ledgers.iter_mut().for_each(|ledger| ledger.check(&read));
        }
    }
    assert!(protected > 1000, "only {protected} sectors were flushed in all rounds");
}

#[test]
#[ignore = "needs fio"]
fn a_daemon_that_is_killed_under_fio_loses_no_flushed_write() {
    let folder = Folder::new();
    let seed = 12;
    let mut ledgers = ledgers(seed);
    let mut dice = Noise::new(seed);
    for round in 0..4 {
        let image = folder.image("sda");
        let path = PATHS[round % PATHS.len()];
        let config = format!(
            "[[disk]]\nname = \"sda\"\ntarget = \"file:{},size={DISK}{path}\"\n\
             [[export]]\nname = \"sda\"\ndisk = \"sda\"\n\
             [[export]]\nname = \"fio\"\ndisk = \"sda\"\n",
            image.display()
        );
        fs::write(folder.near("weir.toml"), config).expect("a file");
        let mut command = weir(&folder);
        command.args(["serve", "-c", "weir.toml", "--nbd", "unix:nbd.sock"]);
        let mut daemon = Daemon::spawn(command);
        let mut fio = program("fio");
        fio.args(["--name=load", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--iodepth=16"]);
        fio.args(["--offset=32m", "--size=32m", "--verify=crc32c", "--fsync=16"]);
        fio.args(["--time_based", "--runtime=120"]).arg(format!("--uri={}", folder.uri("fio")));
        let fio = Running::start(fio);
        daemon.wait_for(|line| line.contains("export=fio"));
        let at = 200 + dice.below(3000);
        println!("seed {seed}, round {round}, killed after {at} requests, path {path:?}");
        ledgers = write_under(ledgers, folder.socket(), daemon.pid(), Signal::KILL, at);
        daemon.wait();
        assert_ne!(fio.end().code, Some(0), "fio did not notice");
        let read = from_the_file(&image);
        ledgers.iter_mut().for_each(|ledger| ledger.check(&read));
    }
}

#[test]
fn a_daemon_that_is_stopped_under_load_has_written_what_it_acknowledged() {
    for (round, path) in PATHS.into_iter().enumerate() {
        let folder = Folder::new();
        let mut daemon = Daemon::start(&folder, &[&folder.file_disk("sda", DISK, path)]);
        let seed = 20 + round as u64;
        let at = 500 + Noise::new(seed).below(500);
        println!("seed {seed}, stopped after {at} requests, path {path:?}");
        let ledgers = write_under(ledgers(seed), folder.socket(), daemon.pid(), Signal::TERM, at);
        let status = daemon.wait();
        assert_eq!(status.code(), Some(0), "{status}");
        assert!(!folder.socket().exists(), "the socket is left behind");
        let read = from_the_file(&folder.image("sda"));
        for mut ledger in ledgers {
            assert!(ledger.flushed() > 0, "nothing was written");
            ledger.check(&read);
        }
    }
}

/// Sends requests for data and reads none of it until the socket takes no more.
fn client_that_never_reads(socket: &Path) -> Client {
    let mut client = Client::connect(socket, "sda");
    client.stream.set_nonblocking(true).expect("a socket");
    for _ in 0..100_000 {
        if client.send(0, READ, 0, 1 << 20, &[]).is_err() {
            break;
        }
    }
    client
}

#[test]
fn a_daemon_stops_in_time_whatever_clients_do() {
    for path in ["", ",queue_mode=sq"] {
        let folder = Folder::new();
        let daemon = Daemon::start(&folder, &[&folder.file_disk("sda", DISK, path)]);
        let socket = folder.socket();
        let silent = UnixStream::connect(&socket).expect("a connection");
        let mut half = greeted(&socket).expect("a greeting");
        half.write_all(&option(7, &[0; 100])[..17]).expect("half an option");
        let mut partial = Client::connect(&socket, "sda");
        let whole = request(0, WRITE, 1, 0, 4096);
        partial.stream.write_all(&whole).expect("a header without its payload");
        let mut written = Client::connect(&socket, "sda");
        assert_eq!(written.write(0, 8192, &[7; 4096]).expect("an answer"), 0);
        let stuck = client_that_never_reads(&socket);
        daemon.stop();
        let mut bytes = [0; 4096];
        let file = fs::File::open(folder.image("sda")).expect("the image");
        file.read_exact_at(&mut bytes, 8192).expect("a block");
        assert_eq!(bytes, [7; 4096], "an acknowledged write is missing");
        file.read_exact_at(&mut bytes, 0).expect("a block");
        assert_eq!(bytes, [0; 4096], "a write that never came whole was done");
        drop((silent, half, partial, written, stuck));
    }
}

#[test]
fn a_second_signal_does_not_cut_the_end_short() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(&folder, &[&folder.file_disk("sda", DISK, "")]);
    let stuck = client_that_never_reads(&folder.socket());
    daemon.signal(Signal::INT);
    daemon.signal(Signal::TERM);
    let status = daemon.wait();
    assert_eq!(status.code(), Some(0), "{status}");
    drop(stuck);
}

/// An NBD server of 64 MiB that agrees to everything and answers no request. It tells of each
/// request it gets.
fn server_that_never_answers(socket: &Path, requests: Sender<()>) {
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let requests = requests.clone();
            std::thread::spawn(move || _ = agree_and_stall(stream, &requests));
        }
    });
}

fn agree_and_stall(mut stream: UnixStream, requests: &Sender<()>) -> std::io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
    stream.read_exact(&mut [0; 4])?;
    loop {
        let mut header = [0; 16];
        stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes(header[12..].try_into().expect("four bytes"));
        stream.read_exact(&mut vec![0; length as usize])?;
        let mut reply = |kind: u32, data: &[u8]| {
            let mut bytes = 0x0003_e889_0455_65a9_u64.to_be_bytes().to_vec();
            bytes.extend(&header[8..12]);
            bytes.extend(kind.to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            bytes.extend(data);
            stream.write_all(&bytes)
        };
        let number = header[11];
        if number != 6 && number != 7 {
            reply(0x8000_0001, &[])?;
            continue;
        }
        // Information on an export: 64 MiB, with FLUSH and FUA.
        let mut export = vec![0, 0];
        export.extend((64_u64 << 20).to_be_bytes());
        export.extend([0, 0b1101]);
        reply(3, &export)?;
        reply(1, &[])?;
        if number == 7 {
            break;
        }
    }
    loop {
        let mut header = [0; 28];
        stream.read_exact(&mut header)?;
        if header[7] == WRITE as u8 {
            let length = u32::from_be_bytes(header[24..].try_into().expect("four bytes"));
            stream.read_exact(&mut vec![0; length as usize])?;
        }
        let _ = requests.send(());
    }
}

#[test]
fn a_back_end_that_never_answers_is_named_with_its_requests_and_their_age() {
    let folder = Folder::new();
    let (sender, received) = channel();
    server_that_never_answers(&folder.near("below.sock"), sender);
    let below = format!("slow=nbd+unix:{}", folder.near("below.sock").display());
    let mut daemon = Daemon::start(&folder, &["quick=ram:1MiB", &below]);
    let mut quick = Client::connect(&folder.socket(), "quick");
    let mut slow = Client::connect(&folder.socket(), "slow");
    for index in 0..3 {
        slow.send(0, WRITE, index << 20, 4096, &[1; 4096]).expect("a request");
    }
    for _ in 0..3 {
        received.recv_timeout(Duration::from_secs(60)).expect("a request comes through");
    }
    // Others are served all the while.
    assert_eq!(quick.write(0, 0, &[1; 512]).expect("an answer"), 0);
    let (status, took) = daemon.terminate();
    let said = daemon.said();
    assert_eq!(status.code(), Some(1), "{status}: {said}");
    assert!((3.5..5.0).contains(&took.as_secs_f64()), "it took {took:?} to give up");
    let named = "weir: disk slow: 3 requests unfinished, the oldest after ";
    let line = said.lines().find_map(|line| line.strip_prefix(named));
    let age = line.unwrap_or_else(|| panic!("no line says {named:?}: {said}"));
    let age: f64 = age.trim_end_matches(" s").parse().expect("an age in seconds");
    assert!((3.0..60.0).contains(&age), "{age} s");
    assert!(!said.contains("disk quick"), "{said}");
}
