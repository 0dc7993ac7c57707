//! A scheduler of the program's own in front of a disk: reads before writes, and a write after
//! eight reads at the latest.
//!
//! ```text
//! cargo run --release --example scheduler -- file:/disk.img,size=64M
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;

use weir::{
    Absorbed, Bio, Buf, Disk, Family, Merge, Nanos, Rq, Scheduler, Schedulers, Status, Target,
};

/// Reads that go before a write.
const READS: u32 = 8;

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
pub fn own() -> Result<Schedulers, Box<dyn Error>> {
    let make = |_: &weir::Setup| Box::new(ReadsFirst::default()) as Box<dyn Scheduler>;
    Ok(Schedulers::new().with("reads-first", Family::Multi, make)?)
}

/// Reads and writes through it, and through others of the same disk.
pub fn run(target: &str) -> Result<(), Box<dyn Error>> {
    let target = Target::parse(target)?.schedulers(own()?).with("scheduler", "reads-first")?;
    let disk = Disk::builder(target).open()?;
    for name in ["reads-first", "mq-deadline", "none", "reads-first"] {
        disk.device().set_scheduler(name, &|| weir::Clock.now())?;
        let mut session = disk.session()?;
        for block in 0..256 {
            session.submit(Bio::write(block * 8, Buf::filled(4096, |bytes| bytes.fill(7))));
            session.submit(Bio::read((256 + block) * 8, Buf::zeroed(4096)));
        }
        let mut failed = None;
        while session.in_flight() > 0 {
            session.wait(|ended| {
                if ended.status != Status::Ok {
                    failed = Some(ended.status);
                }
            });
        }
        if let Some(status) = failed {
            return Err(status.into());
        }
        println!("{}, of {}", disk.device().scheduler(), disk.device().schedulers().join(" "));
    }
    disk.close()?;
    Ok(())
}

fn main() -> ExitCode {
    let target = std::env::args().nth(1).unwrap_or_else(|| String::from("ram:64MiB"));
    match run(&target) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("scheduler: {error}");
            ExitCode::FAILURE
        }
    }
}
