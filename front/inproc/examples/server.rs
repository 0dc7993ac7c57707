//! An NBD server inside a program, with a disk and a scheduler of the program's own: the disk is
//! four calls, and the scheduler has reads go before writes.
//!
//! ```text
//! cargo run --release --example server                      # serves itself, and checks
//! cargo run --release --example server -- /tmp/numbers.sock
//! nbdinfo 'nbd+unix:///numbers?socket=/tmp/numbers.sock'
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, RwLock};

use weir::nbd::{Export, Scope, Server, Settings};
use weir::{
    Absorbed, Address, Bio, Blocking, BlockingDriver, BlockingOptions, Buf, Disk, Family, Merge,
    Nanos, Rq, Scheduler, Schedulers, Setup, Target,
};

/// Bytes of the disk.
const SIZE: u64 = 1 << 20;

/// Reads that go before a write.
const READS: u32 = 8;

/// The disk: each word of 8 bytes that was never written is its own number.
struct Numbers(RwLock<Vec<u8>>);

impl BlockingDriver for Numbers {
    fn size(&self) -> u64 {
        self.0.read().expect("no call panics").len() as u64
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let all = self.0.read().expect("no call panics");
        bytes.copy_from_slice(&all[offset as usize..][..bytes.len()]);
        Ok(bytes.len())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.write().expect("no call panics");
        all[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(()) // Memory: there is nothing more durable to put it into.
    }
}

/// The scheduler: reads before writes, and a write after eight reads at the latest.
#[derive(Default)]
struct ReadsFirst {
    reads: VecDeque<Rq>,
    writes: VecDeque<Rq>,
    /// Reads that went before the oldest write.
    passed: u32,
}

impl Scheduler for ReadsFirst {
    fn name(&self) -> &'static str {
        "reads-first"
    }

    fn merge(&mut self, _: &Rq, _: Nanos) -> Merge {
        Merge::No
    }

    fn insert(&mut self, rq: Rq, _: Nanos, _: &mut Absorbed) {
        if rq.op.is_write() { self.writes.push_back(rq) } else { self.reads.push_back(rq) }
    }

    fn dispatch(&mut self, _: u16, _: Nanos) -> Option<Rq> {
        if self.writes.is_empty() {
            self.passed = 0;
        }
        if self.passed < READS
            && let Some(read) = self.reads.pop_front()
        {
            self.passed += u32::from(!self.writes.is_empty());
            return Some(read);
        }
        self.passed = 0;
        self.writes.pop_front().or_else(|| self.reads.pop_front())
    }

    fn staged(&self) -> usize {
        self.reads.len() + self.writes.len()
    }
}

/// The schedulers that disks of this program may have beside weir's.
pub fn schedulers() -> Result<Schedulers, Box<dyn Error>> {
    let make = |_: &Setup| Box::new(ReadsFirst::default()) as Box<dyn Scheduler>;
    Ok(Schedulers::new().with("reads-first", Family::Multi, make)?)
}

/// Serves the disk on a UNIX socket until both are dropped, or better stopped and closed.
pub fn serve(socket: &Path) -> Result<(Server, Disk), Box<dyn Error>> {
    let numbers = Numbers(RwLock::new((0..SIZE / 8).flat_map(u64::to_le_bytes).collect()));
    let driver = Blocking::new(numbers, BlockingOptions::new().threads(2))?;
    driver.on_notice(|notice| eprintln!("{notice}"));
    let target = Target::driver(Arc::new(driver)).schedulers(schedulers()?);
    let disk = Disk::builder(target.with("scheduler", "reads-first")?).name("numbers").open()?;
    let exports = vec![Export::new("numbers", disk.device().clone())];
    let server = Server::new(disk.host(), exports, Settings::default())?;
    server.listen(&Address::Unix(socket.into()).into(), Scope::All)?;
    Ok((server, disk))
}

/// Lets clients read their replies for a second, then closes the disk.
pub fn stop(server: &Server, disk: &Disk) -> Result<(), Box<dyn Error>> {
    let cut_off = server.stop(1_000_000_000);
    println!("{cut_off} clients did not read their last replies; {}", disk.stats().line());
    Ok(disk.close()?)
}

/// Serves the disk and is its client: reads numbers, and writes among them.
pub fn check(socket: &Path) -> Result<(), Box<dyn Error>> {
    let (server, disk) = serve(socket)?;
    let client = Disk::open(&format!("nbd+unix:{}?numbers", socket.display()))?;
    let mut session = client.session()?;
    for block in 0..SIZE / 4096 {
        let sector = block * 8;
        session.submit(match block % 4 {
            0 => Bio::write(sector, Buf::filled(4096, |bytes| bytes.fill(7))),
            _ => Bio::read(sector, Buf::zeroed(4096)).cookie(block),
        });
    }
    let mut wrong = None;
    while session.in_flight() > 0 {
        session.wait(|ended| {
            let block = ended.cookie;
            let number = (block * 512).to_le_bytes();
            if block > 0 && !ended.data.to_vec().starts_with(&number) || !ended.status.is_ok() {
                wrong = Some(format!("block {block}: {}, or other numbers", ended.status));
            }
        });
    }
    session.flush()?;
    drop(session);
    client.close()?;
    let mut block = [0; 4096];
    disk.session()?.read_at(4 * 4096, &mut block)?;
    if block != [7; 4096] {
        wrong = Some(String::from("what the client wrote is not on the disk"));
    }
    println!("scheduler {}", disk.device().scheduler());
    stop(&server, &disk)?;
    wrong.map_or(Ok(()), |wrong| Err(wrong.into()))
}

fn run() -> Result<(), Box<dyn Error>> {
    let Some(socket) = std::env::args().nth(1) else {
        let name = format!("weir-numbers-{}.sock", std::process::id());
        return check(&std::env::temp_dir().join(name));
    };
    let (server, disk) = serve(Path::new(&socket))?;
    println!("nbdinfo 'nbd+unix:///numbers?socket={socket}'; a line here ends it");
    io::stdin().read_line(&mut String::new())?;
    stop(&server, &disk)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {error}");
            ExitCode::FAILURE
        }
    }
}
