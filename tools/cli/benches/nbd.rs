//! NBD over one UNIX connection, 4 KiB reads: weir's null disk against an echo server and, where
//! it is installed, qemu-storage-daemon's null-co, with weir's own batching client.
//!
//! Rounds are interleaved; server and client are pinned apart. The figures that count are the
//! server's CPU time per I/O, because it survives a noisy machine, and ratios within the run. Where
//! the machine gives no more than echo reaches, the rest is the kernel's: two copies through a
//! socket.
//!
//! cargo bench -p weir-cli --bench nbd [-- --rounds 7 --seconds 2 --depth 128]
//! cargo bench -p weir-cli --bench nbd -- --before PROGRAM    another version of weir beside
//! cargo bench -p weir-cli --bench nbd -- --tcp    over loopback
//! cargo bench -p weir-cli --bench nbd -- --modes [--jobs 2]    queue_mode mq against sq
//! cargo bench -p weir-cli --bench nbd -- --polls [--depth 1]   each rule by which reactors poll
//! cargo bench -p weir-cli --bench nbd -- --tls    over TLS, beside nbdkit and qemu over TLS, and
//!                                                 weir without

#![forbid(unsafe_code)]

#[path = "../../../proto/tls/tests/authority/mod.rs"]
mod authority;
#[path = "../../../tests/daemon/outside.rs"]
mod outside;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::cpu::{CpuTime, pin};
use weir_bench::rounds::{Control, Figure, Needs, machine};
use weir_proto_nbd::server::{Export, Handshake, Requests, Settings, Step};
use weir_proto_nbd::wire::{BlockSizes, Command, ReplyTo, TransmissionFlags};

/// The CPUs of the two sides.
const SERVER: usize = 0;
const CLIENT: usize = 1;

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "NBD over one connection, 4 KiB random reads: weir beside other servers.",
    parameters: &[
        Parameter::number("--rounds", (7, 1), "rounds in which each server is measured"),
        Parameter::number("--seconds", (2, 1), "of a measurement"),
        Parameter::number("--depth", (128, 128), "I/Os under way at once"),
        Parameter::switch("--tcp", "over loopback, in place of a UNIX socket"),
        Parameter::word("--before", "PROGRAM", "another version of weir beside"),
        Parameter::switch("--modes", "queue_mode mq of weir beside sq"),
        Parameter::number("--jobs", (1, 1), "connections, with --modes"),
        Parameter::switch("--polls", "each rule by which reactors of weir poll"),
        Parameter::switch("--tls", "over TLS, beside nbdkit and qemu over TLS, and weir without"),
        Parameter::word("--echo", "ADDRESS", "be the echo server that the bench starts beside"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    if let Some(place) = arguments.word("--echo") {
        echo(place);
        return;
    }
    let (modes, polls) = (arguments.has("--modes"), arguments.has("--polls"));
    // These start servers of their own, at UNIX sockets.
    let own = modes || polls || arguments.has("--tls");
    let others = arguments.has("--tcp") || arguments.word("--before").is_some();
    if own && others {
        arguments.refuse("--tcp and --before go with none of --modes, --polls and --tls");
    }
    // The echo server knows one connection at a time.
    if arguments.has("--jobs") && !modes {
        arguments.refuse("--jobs goes with --modes");
    }
    let setup = Setup {
        rounds: arguments.number("--rounds"),
        seconds: arguments.number("--seconds"),
        depth: arguments.number("--depth"),
        jobs: arguments.number("--jobs"),
        modes,
        polls,
        tls: arguments.has("--tls"),
        tcp: arguments.has("--tcp"),
        before: arguments.word("--before").map(str::to_owned),
    };
    bench(&setup);
}

struct Setup {
    rounds: u32,
    seconds: u32,
    depth: u32,
    jobs: u32,
    /// Both queue modes of weir, and no other server.
    modes: bool,
    /// weir by each rule of polling, and echo.
    polls: bool,
    /// Over TLS.
    tls: bool,
    /// Over loopback, in place of a UNIX socket.
    tcp: bool,
    /// Another version of weir.
    before: Option<String>,
}

/// Where a server listens.
#[derive(Clone)]
enum Place {
    Unix(PathBuf),
    /// A port of 127.0.0.1.
    Tcp(u16),
}

impl Place {
    /// As the option `--nbd` of weir has it.
    fn address(&self) -> String {
        match self {
            Place::Unix(path) => format!("unix:{}", path.display()),
            Place::Tcp(port) => format!("127.0.0.1:{port}"),
        }
    }

    /// As a target has it behind `nbd`, with the export.
    fn target(&self) -> String {
        match self {
            Place::Unix(path) => format!("+unix:{}?null", path.display()),
            Place::Tcp(port) => format!(":127.0.0.1:{port}/null"),
        }
    }

    fn listens(&self) -> bool {
        match self {
            Place::Unix(path) => UnixStream::connect(path).is_ok(),
            Place::Tcp(port) => TcpStream::connect(("127.0.0.1", *port)).is_ok(),
        }
    }
}

struct Server {
    name: &'static str,
    child: Child,
    place: Place,
    /// The client looks for answers without sleeping.
    client_polls: bool,
    /// It is stopped while it is another's turn.
    halts: bool,
    /// The certificates by which it is spoken to, if over TLS.
    certificates: Option<PathBuf>,
    iops: Figure,
    server_ns: Figure,
    client_ns: Figure,
}

impl Server {
    /// From now on it runs in its turn only: one that polls takes the CPU that the others share.
    fn halted(mut self) -> Server {
        self.signal(Signal::STOP);
        self.halts = true;
        self
    }

    /// Lets it run for as long as `measure` takes, if it does not all the time.
    fn in_turn(&self, measure: impl FnOnce(&Server) -> Outcome) -> Outcome {
        if !self.halts {
            return measure(self);
        }
        self.signal(Signal::CONT);
        let outcome = measure(self);
        self.signal(Signal::STOP);
        outcome
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a server runs until it is killed");
    }
}

/// One measurement: I/Os a second, and CPU ns per I/O of both sides.
struct Outcome {
    iops: f64,
    server_ns: f64,
    client_ns: f64,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bench(setup: &Setup) {
    let folder = std::env::temp_dir().join(format!("weir-bench-nbd-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for sockets");
    let certificates = authority::Authority::new().folder();
    let mut servers = match setup {
        Setup { tls: true, .. } => start_over_tls(&folder, certificates.path()),
        Setup { modes: true, .. } => start_modes(&folder),
        Setup { polls: true, .. } => start_polls(&folder),
        _ => start_all(&folder, setup),
    };
    let mut control = Control::new(Needs::Core(SERVER));
    let _ = pin(CLIENT);
    let pids: Vec<u32> = servers.iter().map(|server| server.child.id()).collect();
    let outcomes = control.rounds(setup.rounds, &pids, |round| {
        let count = servers.len();
        let mut outcomes: Vec<_> = (0..count)
            .map(|turn| (round as usize + turn) % count)
            .map(|which| (which, servers[which].in_turn(|server| measure(server, setup))))
            .collect();
        outcomes.sort_by_key(|(which, _)| *which);
        outcomes
    });
    let counted = outcomes.len();
    for (which, Outcome { iops, server_ns, client_ns }) in outcomes.into_iter().flatten() {
        servers[which].iops.add(iops);
        servers[which].server_ns.add(server_ns);
        servers[which].client_ns.add(client_ns);
    }
    let Setup { seconds, depth, jobs, .. } = setup;
    println!("{}", machine());
    println!(
        "4 KiB random reads over {}, {jobs} x depth {depth}, {counted} rounds of {seconds} s, \
         {control}; medians (spread)",
        if setup.tcp { "loopback" } else { "a UNIX socket" }
    );
    for Server { name, iops, server_ns, client_ns, .. } in &servers {
        println!("{name:20} IOPS {iops:.0}");
        println!("{:20} CPU ns per I/O: server {server_ns:.0}, client {client_ns:.0}", "");
    }
    let (own, others) = servers.split_first().expect("there is weir");
    for other in others {
        let (iops, cpu) = (own.iops.over(&other.iops), other.server_ns.over(&own.server_ns));
        println!("{} against {}: {iops:.2} x the IOPS", own.name, other.name);
        println!("    and {cpu:.2} x the I/Os for the same CPU time of the server");
    }
    drop(servers);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

/// weir's null disk with the multi-queue path, and with the single-queue one.
fn start_modes(folder: &Path) -> Vec<Server> {
    let modes = [("weir", "mq"), ("weir, sq", "sq")];
    modes.into_iter().map(|(name, mode)| start_weir(folder, name, mode, "")).collect()
}

/// weir by each rule of polling, with the share of a reactor's time that it may poll, with a client
/// that sleeps and with one that polls; and echo.
fn start_polls(folder: &Path) -> Vec<Server> {
    let rules = [
        ("weir", "off", "80", false),
        ("weir, adaptive 80", "adaptive", "80", false),
        ("weir, adaptive 100", "adaptive", "100", false),
        ("weir, always", "always", "80", false),
        ("weir, client polls", "off", "80", true),
        ("weir, both adaptive", "adaptive", "100", true),
        ("weir, both poll", "always", "80", true),
    ];
    let start = |(name, poll, share, client_polls): (&'static str, &str, &str, bool)| {
        let place = unix(folder, name);
        let flags = ["--poll", poll, "--poll-share", share];
        let mut server = start_weir_with((folder, WEIR), name, "mq", ("", &flags), place);
        server.client_polls = client_polls;
        server.halted()
    };
    // Each is stopped before the next is started.
    let servers = rules.into_iter().map(start);
    servers.chain(std::iter::once_with(|| start_echo(unix(folder, "echo")).halted())).collect()
}

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// A socket in the folder, of the server with this name.
fn unix(folder: &Path, name: &str) -> Place {
    Place::Unix(folder.join(format!("{}.sock", name.replace([',', ' '], ""))))
}

fn start_weir(folder: &Path, name: &'static str, mode: &str, options: &str) -> Server {
    start_weir_with((folder, WEIR), name, mode, (options, &[]), unix(folder, name))
}

/// A version of weir; `flags` are the program's, and `options` those of the address.
fn start_weir_with(
    (folder, program): (&Path, &str),
    name: &'static str,
    mode: &str,
    (options, flags): (&str, &[&str]),
    place: Place,
) -> Server {
    let mut serve = Program::new(program);
    serve.args(["serve", "--quiet", "--reactors", "1"]).args(flags).arg("--nbd");
    serve.arg(format!("{}{options}", place.address()));
    serve.args(["--disk", &format!("null=null:64GiB,queue_mode={mode}")]);
    // Several of them run side by side.
    serve.arg("--control").arg(folder.join(format!("{}.control", name.replace([',', ' '], ""))));
    start(name, serve, place)
}

/// All servers over TLS, each client known by its certificate; and weir without, for the cost of
/// TLS.
fn start_over_tls(folder: &Path, certificates: &Path) -> Vec<Server> {
    let directory = certificates.display();
    let over = |mut server: Server| {
        server.certificates = Some(certificates.to_owned());
        server
    };
    let options = format!(",tls=require,tls_certificates={directory}");
    let mut servers = vec![over(start_weir(folder, "weir, TLS", "mq", &options))];
    servers.push(start_weir(folder, "weir", "mq", ""));
    let is_there = |name: &str| {
        let there = Program::new(name).arg("--version").output().is_ok();
        if !there {
            println!("{name} is not installed: left out");
        }
        there
    };
    if is_there("nbdkit") {
        let place = unix(folder, "nbdkit");
        let mut nbdkit = Program::new("nbdkit");
        nbdkit.args(["--foreground", "--tls=require", "--tls-verify-peer", "--exportname=null"]);
        nbdkit.arg(format!("--tls-certificates={directory}"));
        let Place::Unix(socket) = &place else { unreachable!("a UNIX socket") };
        nbdkit.arg("--unix").arg(socket).args(["null", "64G"]);
        servers.push(over(start("nbdkit, TLS", nbdkit, place)));
    }
    if is_there("qemu-storage-daemon") {
        let place = unix(folder, "qemu");
        let qemu = qemu_null(&place, Some(certificates));
        servers.push(over(start("qemu-storage-d., TLS", qemu, place)));
    }
    servers
}

/// qemu-storage-daemon's null disk; over TLS with these certificates.
fn qemu_null(place: &Place, certificates: Option<&Path>) -> Program {
    let mut qemu = Program::new("qemu-storage-daemon");
    let mut listen = match place {
        Place::Unix(path) => format!("addr.type=unix,addr.path={}", path.display()),
        Place::Tcp(port) => format!("addr.type=inet,addr.host=127.0.0.1,addr.port={port}"),
    };
    // It takes its arguments in turn.
    if let Some(certificates) = certificates {
        let directory = certificates.display();
        qemu.args(["--object", &format!("tls-creds-x509,id=t,endpoint=server,dir={directory}")]);
        listen.push_str(",tls-creds=t");
    }
    // As it comes, it sends the data. With read-zeroes=on it would answer a client with
    // structured replies in 32 bytes, "a hole", and that is no 4 KiB read.
    qemu.args(["--blockdev", "driver=null-co,node-name=n,size=68719476736"]);
    qemu.args(["--nbd-server", &listen, "--export", "type=nbd,id=e,node-name=n,name=null"]);
    qemu
}

fn start_echo(place: Place) -> Server {
    let mut repeat = Program::new(std::env::current_exe().expect("this bench's own path"));
    repeat.arg("--echo").arg(place.address());
    start("echo", repeat, place)
}

fn start_all(folder: &Path, setup: &Setup) -> Vec<Server> {
    let place = |name: &str| match setup.tcp {
        true => Place::Tcp(outside::free_port()),
        false => unix(folder, name),
    };
    let mut servers = vec![start_weir_with((folder, WEIR), "weir", "mq", ("", &[]), place("weir"))];
    if let Some(before) = &setup.before {
        let name = "weir before";
        servers.push(start_weir_with((folder, before), name, "mq", ("", &[]), place(name)));
    }
    servers.push(start_echo(place("echo")));
    let has_qemu = Program::new("qemu-storage-daemon").arg("--version").output().is_ok();
    if has_qemu {
        let place = place("qemu");
        let qemu = qemu_null(&place, None);
        servers.push(start("qemu-storage-daemon", qemu, place));
    } else {
        println!("qemu-storage-daemon is not installed: left out");
    }
    servers
}

fn start(name: &'static str, mut command: Program, place: Place) -> Server {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap_or_else(|e| panic!("{name}: {e}"));
    pin_process(child.id(), SERVER);
    let (iops, server_ns, client_ns) = Default::default();
    let (client_polls, halts, certificates) = (false, false, None);
    let server = Server {
        name,
        child,
        place,
        client_polls,
        halts,
        certificates,
        iops,
        server_ns,
        client_ns,
    };
    let listens = |_: &i32| {
        std::thread::sleep(Duration::from_millis(25));
        server.place.listens()
    };
    assert!((0..200).any(|n| listens(&n)), "{name} does not listen: {}", server.place.address());
    server
}

fn pin_process(pid: u32, cpu: usize) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a child has a number");
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // A bench that cannot be pinned still measures, only less steadily.
    let _ = rustix::thread::sched_setaffinity(Some(pid), &set);
}

fn measure(server: &Server, setup: &Setup) -> Outcome {
    let connections = setup.jobs;
    let place = format!("{},connections={connections}", server.place.target());
    let target = match &server.certificates {
        Some(folder) => format!("nbds{place},tls-certificates={}", folder.display()),
        None => format!("nbd{place}"),
    };
    let target = weir::Target::parse(&target).expect("a target");
    let opened = weir::open("client", &target, setup.jobs as usize).expect("the server takes us");
    let job = weir_load::Job {
        access: weir_load::Access::Random,
        size: Some(weir_load::Amount::Bytes(64 << 30)),
        depth: setup.depth as u16,
        clones: setup.jobs as u16,
        poll: server.client_polls,
        time_based: true,
        ..weir_load::Job::default()
    };
    let runtime = Duration::from_secs(u64::from(setup.seconds));
    let before = CpuTime::of(server.child.id()).expect("the server runs");
    let ramp = Duration::from_millis(300);
    let measured = weir_bench::engine::run::one(&job, &opened.device, ramp, runtime);
    let measured = measured.expect("the job runs");
    let after = CpuTime::of(server.child.id()).expect("the server runs");
    assert_eq!(measured.failure, None, "{}", server.name);
    let reads = |stats: &weir::Stats| stats.directions[0].total.count();
    let ios = measured.tally.all().ios;
    // The server's CPU time covers the ramp and the end too, so it is set against all I/Os.
    let all = reads(&opened.device.stats());
    Outcome {
        iops: ios as f64 / measured.wall.as_secs_f64(),
        server_ns: after.since(&before).total().as_nanos() as f64 / all as f64,
        client_ns: measured.cpu.total().as_nanos() as f64 / ios as f64,
    }
}

/// The bound: a server that parses NBD and answers zeros, with no block layer behind it.
fn echo(address: &str) {
    // A client that goes away ends its own connection and nothing else.
    match address.strip_prefix("unix:") {
        Some(path) => {
            let listener = UnixListener::bind(path).expect("a socket");
            listener.incoming().flatten().for_each(|client| drop(echo_one(client)));
        }
        None => {
            let listener = TcpListener::bind(address).expect("a port");
            listener.incoming().flatten().for_each(|client| {
                // Without it figures are those of Nagle's algorithm.
                let _ = client.set_nodelay(true);
                drop(echo_one(client));
            });
        }
    }
}

fn echo_one(mut client: impl Read + Write) -> std::io::Result<()> {
    let export = Export {
        name: String::from("null"),
        description: String::new(),
        size: 64 << 30,
        flags: TransmissionFlags::SEND_FLUSH | TransmissionFlags::SEND_FUA,
        block: BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 },
        device_block: 512,
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
            Step::Close(_) | Step::StartTls => return client.write_all(&out),
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
