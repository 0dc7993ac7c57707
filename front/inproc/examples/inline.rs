//! A write-ahead log of one thread, which turns its disk itself: an event loop that sleeps on one
//! descriptor, groups what its clients bring, and commits each group durably.
//!
//! ```text
//! cargo run --release --example inline -- file:/log.img,size=64M
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use weir::{Bio, Buf, Disk, Flags, InlineSession, Status};

/// Records that clients bring, and their size: a block of the log.
const RECORDS: u64 = 1000;
const BYTES: usize = 4096;

/// Records of one group at most, and groups under way at one time.
const GROUP: u64 = 16;
const GROUPS: u64 = 4;

fn main() -> ExitCode {
    let target = std::env::args().nth(1).unwrap_or_else(|| String::from("ram:64MiB"));
    match run(&target) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("inline: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Commits all records, and says how many groups they were.
pub fn run(target: &str) -> Result<(), Box<dyn Error>> {
    // No reactor, no other thread: the disk goes on in the calls of this session.
    let mut log = Disk::builder(target).name("log").open_inline()?;
    let size = log.device().limits().capacity * 512;
    if size < RECORDS * BYTES as u64 {
        return Err(format!("the log has {size} bytes, this takes {RECORDS} of {BYTES}").into());
    }
    let mut clients: VecDeque<u64> = (0..RECORDS).collect();
    let (mut groups, mut committed) = (0, 0);
    while committed < RECORDS {
        while log.in_flight() < GROUPS && !clients.is_empty() {
            let group = clients.len().min(GROUP as usize);
            let first = clients[0];
            // Written and durable in one I/O (FUA): its end is the answer to all in the group.
            let records: Vec<u64> = clients.drain(..group).collect();
            let buf = Buf::filled(group * BYTES, |bytes| {
                for (bytes, record) in bytes.chunks_exact_mut(BYTES).zip(&records) {
                    bytes.fill(*record as u8);
                }
            });
            let bio = Bio::write(first * BYTES as u64 / 512, buf).with(Flags::FUA);
            log.submit(bio.cookie(group as u64));
            groups += 1;
        }
        let mut failed = None;
        log.poll(|ended| match ended.status {
            Status::Ok => committed += ended.cookie,
            status => failed = Some(status),
        });
        if let Some(status) = failed {
            return Err(format!("a group was not committed: {status}").into());
        }
        // With room for another group, and records for it, there is no reason to sleep.
        if log.in_flight() == GROUPS || (log.in_flight() > 0 && clients.is_empty()) {
            sleep(&mut log)?;
        }
    }
    println!("{RECORDS} records committed in {groups} groups");
    log.close()?;
    Ok(())
}

/// The one place where the thread blocks. A program with sockets has them in the same set.
fn sleep(log: &mut InlineSession) -> Result<(), Box<dyn Error>> {
    // False: something ended meanwhile, so the descriptor will not tell of it.
    if log.arm()? {
        poll(&mut [PollFd::new(log, PollFlags::IN)], None)?;
    }
    Ok(())
}
