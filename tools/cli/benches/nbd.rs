//! NBD over one UNIX connection, 4 KiB reads: weir's null disk against an echo server and, where
//! it is installed, qemu-storage-daemon's null-co, with weir's own batching client.
//!
//! Rounds are interleaved; server and client are pinned apart. What counts is the server's CPU time
//! per I/O, because it survives a noisy machine, and ratios within the run.
//!
//! cargo bench -p weir-cli --bench nbd [-- --rounds 7 --seconds 2 --depth 128]

#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};

use weir_bench::cpu::{CpuTime, pin};
use weir_proto_nbd::server::{Export, Handshake, Requests, Settings, Step};
use weir_proto_nbd::wire::{BlockSizes, Command, ReplyTo, TransmissionFlags};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [verb, path] = arguments.as_slice()
        && verb == "echo"
    {
        echo(Path::new(path));
        return;
    }
    let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
    let number = |name: &str, default: u32| {
        let at = arguments.iter().position(|argument| argument == name);
        at.and_then(|at| arguments.get(at + 1)).map_or(default, |text| {
            text.parse().unwrap_or_else(|_| panic!("{name} {text} is not a number"))
        })
    };
    let rounds = number("--rounds", if small { 1 } else { 7 });
    let seconds = number("--seconds", if small { 1 } else { 2 });
    let depth = number("--depth", 128);
    bench(rounds, seconds, depth);
}

struct Server {
    name: &'static str,
    child: Child,
    socket: PathBuf,
    iops: Vec<f64>,
    cpu_ns: Vec<f64>,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bench(rounds: u32, seconds: u32, depth: u32) {
    let folder = std::env::temp_dir().join(format!("weir-bench-nbd-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for sockets");
    let mut servers = start_all(&folder);
    for _ in 0..rounds {
        for server in &mut servers {
            measure(server, seconds, depth);
        }
    }
    println!(
        "4 KiB random reads, depth {depth}, {rounds} rounds of {seconds} s, medians (spread):"
    );
    let echo = median(&servers[1].iops);
    for server in &servers {
        let (iops, cpu) = (median(&server.iops), median(&server.cpu_ns));
        println!(
            "{:22} {:>9.0} IOPS ({:.0}..{:.0})  \
             server CPU {:>6.0} ns/IO ({:.0}..{:.0})  {:.2} x echo",
            server.name,
            iops,
            least(&server.iops),
            most(&server.iops),
            cpu,
            least(&server.cpu_ns),
            most(&server.cpu_ns),
            iops / echo,
        );
    }
    if let Some(qemu) = servers.get(2) {
        let ratio = median(&servers[0].iops) / median(&qemu.iops);
        println!("weir against {}: {ratio:.1} x", qemu.name);
    }
    drop(servers);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

fn start_all(folder: &Path) -> Vec<Server> {
    let weir = folder.join("weir.sock");
    let mut serve = Program::new(env!("CARGO_BIN_EXE_weir"));
    serve.args(["serve", "--quiet", "--reactors", "1", "--disk", "null=null:64GiB", "--nbd"]);
    serve.arg(format!("unix:{}", weir.display()));
    let echo = folder.join("echo.sock");
    let mut repeat = Program::new(std::env::current_exe().expect("this bench's own path"));
    repeat.arg("echo").arg(&echo);
    let mut servers = vec![start("weir null", serve, weir), start("echo", repeat, echo)];
    let has_qemu = Program::new("qemu-storage-daemon").arg("--version").output().is_ok();
    if has_qemu {
        let socket = folder.join("qemu.sock");
        let mut qemu = Program::new("qemu-storage-daemon");
        qemu.args(["--blockdev", "driver=null-co,node-name=n,size=68719476736,read-zeroes=on"]);
        let listen = format!("addr.type=unix,addr.path={}", socket.display());
        qemu.args(["--nbd-server", &listen, "--export", "type=nbd,id=e,node-name=n,name=null"]);
        servers.push(start("qemu-storage-daemon", qemu, socket));
    } else {
        println!("qemu-storage-daemon is not installed: left out");
    }
    servers
}

fn start(name: &'static str, mut command: Program, socket: PathBuf) -> Server {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap_or_else(|e| panic!("{name}: {e}"));
    pin_process(child.id(), 0);
    let server = Server { name, child, socket, iops: Vec::new(), cpu_ns: Vec::new() };
    let listens = |_: &i32| {
        std::thread::sleep(std::time::Duration::from_millis(25));
        UnixStream::connect(&server.socket).is_ok()
    };
    assert!((0..200).any(|n| listens(&n)), "{name} does not listen: {}", server.socket.display());
    server
}

fn pin_process(pid: u32, cpu: usize) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a child has a number");
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // A bench that cannot be pinned still measures, only less steadily.
    let _ = rustix::thread::sched_setaffinity(Some(pid), &set);
}

fn measure(server: &mut Server, seconds: u32, depth: u32) {
    let _ = pin(1);
    let target = format!("nbd+unix:{}?null", server.socket.display());
    let target = weir::Target::parse(&target).expect("a target");
    let opened = weir::open("client", &target, 1).expect("the server takes us");
    let options = weir_bench::job::Options {
        job: weir_load::Job {
            access: weir_load::Access::Random,
            direction: weir_load::Direction::Read,
            block_bytes: 4096,
            offset_bytes: 0,
            range_bytes: 64 << 30,
            flush_every: 0,
            seed: 1,
        },
        depth: depth as u16,
        jobs: 1,
        runtime: std::time::Duration::from_secs(u64::from(seconds)),
        ramp: std::time::Duration::from_millis(300),
    };
    let before = CpuTime::of(server.child.id()).expect("the server runs");
    let measured = weir_bench::job::run(&options, &opened.device).expect("the job runs");
    let after = CpuTime::of(server.child.id()).expect("the server runs");
    assert!(measured.first_error.is_none(), "{}: {:?}", server.name, measured.first_error);
    let reads = |stats: &weir::Stats| stats.directions[0].total.count();
    let ios = reads(&measured.after) - reads(&measured.before);
    server.iops.push(ios as f64 / measured.wall.as_secs_f64());
    // The server's CPU time covers the ramp and the end too, so it is set against all I/Os.
    let all = reads(&opened.device.stats());
    server.cpu_ns.push(after.since(&before).total().as_nanos() as f64 / all as f64);
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The bound: a server that parses NBD and answers zeros, with no block layer behind it.
fn echo(path: &Path) {
    let listener = UnixListener::bind(path).expect("a socket");
    for client in listener.incoming().flatten() {
        // A client that goes away ends its own connection and nothing else.
        let _ = echo_one(client);
    }
}

fn echo_one(mut client: UnixStream) -> std::io::Result<()> {
    let export = Export {
        name: String::from("null"),
        description: String::new(),
        size: 64 << 30,
        flags: TransmissionFlags::SEND_FLUSH | TransmissionFlags::SEND_FUA,
        block: BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 },
        allocation: false,
    };
    let mut out = Vec::new();
    let mut handshake = Handshake::new([export], Settings::default(), &mut out);
    let mut input = vec![0; 256 << 10];
    let mut held = 0;
    let negotiated = loop {
        client.write_all(&out)?;
        out.clear();
        let done = handshake.input(&input[..held], &mut out);
        input.copy_within(done.consumed..held, 0);
        held -= done.consumed;
        match done.step {
            Step::Transmission(negotiated) => break negotiated,
            Step::Close(_) => return client.write_all(&out),
            Step::Answered => {}
            Step::NeedMore => {
                client.write_all(&out)?;
                out.clear();
                match client.read(&mut input[held..])? {
                    0 => return Ok(()),
                    n => held += n,
                }
            }
        }
    };
    client.write_all(&out)?;
    let (replies, mode) = (negotiated.replies(), negotiated.mode);
    loop {
        out.clear();
        let mut requests = Requests::new(mode, &input[..held]);
        for incoming in requests.by_ref() {
            let Ok(incoming) = incoming else { return Ok(()) };
            let request = incoming.request;
            let to = ReplyTo { cookie: request.cookie, offset: request.offset };
            if request.command == Command::DISC {
                return client.write_all(&out);
            }
            if request.command == Command::READ {
                replies.read_header(to, request.length as u32, &mut out);
                out.resize(out.len() + request.length as usize, 0);
            } else {
                replies.done(to, &mut out);
            }
        }
        let consumed = requests.consumed();
        client.write_all(&out)?;
        input.copy_within(consumed..held, 0);
        held -= consumed;
        match client.read(&mut input[held..])? {
            0 => return Ok(()),
            n => held += n,
        }
    }
}
