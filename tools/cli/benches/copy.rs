//! `nbdcopy` of a whole `file:` disk with four connections, out of it and into it, against
//! qemu-storage-daemon on the same file, both past the page cache.
//!
//! Rounds are interleaved. Each server is started for each copy, as the file is locked, and a copy
//! begins when it listens. What is copied in comes from the page cache, and what is copied out goes
//! nowhere, so that the disk and the CPUs bound a copy.
//!
//! cargo bench -p weir-cli --bench copy [-- --rounds 9 --mib 1024 --folder DIR]
//! cargo bench -p weir-cli --bench copy -- --before PROGRAM    another version of weir beside

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::cpu::CpuTime;
use weir_bench::rounds::{Control, Figure, Needs, machine};
use weir_bio::Prng;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// A server, by the program that is started; weir is started otherwise than QEMU's.
struct Server {
    name: &'static str,
    program: String,
    out: Side,
    into: Side,
}

/// Figures of copies in one direction.
#[derive(Default)]
struct Side {
    mib_s: Figure,
    cpu_ms: Figure,
}

/// The files of a run.
struct Places {
    folder: PathBuf,
    disk: PathBuf,
    source: PathBuf,
    mib: u32,
}

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "nbdcopy out of a file: disk and into it: weir beside qemu-storage-daemon.",
    parameters: &[
        Parameter::number("--rounds", (9, 1), "rounds in which each server is copied from and to"),
        Parameter::number("--mib", (1024, 16), "MiB of the disk"),
        Parameter::word("--before", "PROGRAM", "another version of weir beside"),
        Parameter::word("--folder", "DIR", "where its files lie [the folder of the build]"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let is_there = |name: &str| Program::new(name).arg("--version").output().is_ok();
    if !is_there("nbdcopy") {
        println!("nbdcopy is not installed: nothing is measured");
        return;
    }
    let (rounds, mib) = (arguments.number("--rounds"), arguments.number("--mib"));
    let folder = arguments
        .word("--folder")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from)
        .join(format!("weir-bench-copy-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for files and sockets");
    let (disk, source) = (folder.join("disk.img"), folder.join("source.img"));
    let mut bytes = vec![0; 1 << 20];
    Prng::new(1).fill(&mut bytes);
    let bytes = bytes.repeat(mib as usize);
    for file in [&disk, &source] {
        fs::write(file, &bytes).expect("room for two files");
    }
    drop(bytes);
    let server = |name, program: &str| Server {
        name,
        program: program.into(),
        out: Side::default(),
        into: Side::default(),
    };
    let mut servers = vec![server("weir", WEIR)];
    servers.extend(arguments.word("--before").map(|program| server("weir before", program)));
    if is_there(QEMU) {
        servers.push(server(QEMU, QEMU));
    } else {
        println!("{QEMU} is not installed: left out");
    }
    let places = Places { folder, disk, source, mib };
    bench(&places, &mut servers, rounds);
    fs::remove_dir_all(&places.folder).expect("the folder goes");
}

const QEMU: &str = "qemu-storage-daemon";

fn bench(places: &Places, servers: &mut [Server], rounds: u32) {
    let mut control = Control::new(Needs::Quiet);
    let outcomes = control.rounds(rounds, &[], |round| {
        let count = servers.len();
        let turns = (0..count).map(|turn| (round as usize + turn) % count);
        let both = |which: usize| {
            let copy = |out| copy(places, &servers[which].program, out);
            (which, copy(true), copy(false))
        };
        turns.map(both).collect::<Vec<_>>()
    });
    let counted = outcomes.len();
    for (which, out, into) in outcomes.into_iter().flatten() {
        let Server { out: out_of, into: in_to, .. } = &mut servers[which];
        for (side, (mib_s, cpu_ms)) in [(out_of, out), (in_to, into)] {
            side.mib_s.add(mib_s);
            side.cpu_ms.add(cpu_ms);
        }
    }
    println!("{}", machine());
    println!("nbdcopy --connections=4 of {} MiB, {counted} rounds, {control}", places.mib);
    for Server { name, out, into, .. } in &*servers {
        for (way, Side { mib_s, cpu_ms }) in [("out", out), ("in", into)] {
            println!("{name:20} {way:3} MiB/s {mib_s:.0}, server CPU ms {cpu_ms:.0}");
        }
    }
    let (own, others) = servers.split_first().expect("there is weir");
    for other in others {
        let (out, into) = (&own.out.mib_s, &own.into.mib_s);
        let (out, into) = (out.over(&other.out.mib_s), into.over(&other.into.mib_s));
        println!("weir against {}: out {out:.2}, in {into:.2}", other.name);
    }
}

/// A server that is ended with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // It may have ended by itself; either way it is waited for.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Copies the disk out, or the source in: MiB a second, and the server's CPU time, ms.
fn copy(places: &Places, program: &str, out: bool) -> (f64, f64) {
    let socket = places.folder.join("nbd.sock");
    // A socket of the server before, which has ended, may be left.
    let _ = fs::remove_file(&socket);
    let mut server = match program {
        QEMU => qemu(&places.disk, &socket),
        _ => weir(program, places, &socket),
    };
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Running(server.spawn().unwrap_or_else(|e| panic!("{program}: {e}")));
    let listens = |_| {
        std::thread::sleep(Duration::from_millis(10));
        UnixStream::connect(&socket).is_ok()
    };
    assert!((0..1000).any(listens), "{program} does not listen");
    let disk = format!("nbd+unix:///disk?socket={}", socket.display());
    let mut copy = Program::new("nbdcopy");
    copy.arg("--connections=4");
    match out {
        true => copy.args([&disk, "null:"]),
        false => copy.arg(&places.source).arg(&disk),
    };
    let used = || CpuTime::of(server.0.id()).expect("the server runs");
    let (before, began) = (used(), Instant::now());
    let ended = copy.status().expect("nbdcopy runs");
    let took = began.elapsed();
    assert!(ended.success(), "nbdcopy with {program}: {ended}");
    let cpu = used().since(&before).total();
    (f64::from(places.mib) / took.as_secs_f64(), cpu.as_secs_f64() * 1e3)
}

fn weir(program: &str, places: &Places, socket: &Path) -> Program {
    let mut serve = Program::new(program);
    serve.args(["serve", "--quiet", "--disk"]).arg(format!("disk=file:{}", places.disk.display()));
    serve.arg("--nbd").arg(format!("unix:{}", socket.display()));
    serve.arg("--control").arg(places.folder.join("control"));
    serve
}

fn qemu(disk: &Path, socket: &Path) -> Program {
    let mut qemu = Program::new(QEMU);
    let file = format!("driver=file,node-name=f,filename={},cache.direct=on", disk.display());
    qemu.args(["--blockdev", &format!("{file},aio=io_uring")]);
    qemu.args(["--blockdev", "driver=raw,node-name=n,file=f", "--nbd-server"]);
    qemu.arg(format!("addr.type=unix,addr.path={}", socket.display()));
    qemu.args(["--export", "type=nbd,id=e,node-name=n,name=disk,writable=on"]);
    qemu
}
