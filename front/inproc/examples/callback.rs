//! Chains of reads, each started by the callback of the one before.
//!
//! ```text
//! cargo run --release --example callback -- file:/disk.img,size=64M
//! ```
//!
//! A callback runs on a reactor, which serves no other I/O meanwhile: it starts the next read and
//! sends on a channel, and does nothing that blocks.

use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};

use weir::{Bio, Buf, Disk, Status};

/// Chains under way at one time.
const CHAINS: u64 = 32;

/// Reads in a chain.
const LENGTH: u64 = 200;

/// Bytes of a read.
const BLOCK: u64 = 4096;

fn main() -> ExitCode {
    let target = std::env::args().nth(1).unwrap_or_else(|| String::from("ram:64MiB"));
    match run(&target) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("callback: {error}");
            ExitCode::FAILURE
        }
    }
}

/// One chain: where it reads next, and whom it tells how it ended.
struct Chain {
    disk: Disk,
    place: u64,
    left: u64,
    ended: Sender<(Status, u64)>,
}

impl Chain {
    /// Reads the next block, and lets its callback go on from there.
    fn go_on(mut self, buf: Buf) {
        let blocks = self.disk.size() / BLOCK;
        let disk = self.disk.clone();
        disk.submit(Bio::read(self.place % blocks * BLOCK / 512, buf), move |read| {
            self.left -= 1;
            if self.left == 0 || !read.status.is_ok() {
                // The receiver is gone once another chain has failed.
                let _ = self.ended.send((read.status, LENGTH - self.left));
                return;
            }
            self.place = self.place.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1) >> 8;
            self.go_on(read.data.into_spare().unwrap_or_else(|| Buf::zeroed(BLOCK as usize)));
        });
    }
}

/// Runs all chains on one disk.
pub fn run(target: &str) -> Result<(), Box<dyn Error>> {
    let disk = Disk::open(target)?;
    if disk.size() < BLOCK {
        return Err(format!("the disk has {} bytes, this takes {BLOCK}", disk.size()).into());
    }
    let (sender, receiver) = channel();
    for place in 0..CHAINS {
        let (disk, ended) = (disk.clone(), sender.clone());
        let chain = Chain { disk, place, left: LENGTH, ended };
        chain.go_on(Buf::zeroed(BLOCK as usize));
    }
    // The channel ends with the last chain.
    drop(sender);
    let mut reads = 0;
    for (status, length) in receiver {
        if !status.is_ok() {
            return Err(format!("a chain ended after {length} reads: {status}").into());
        }
        reads += length;
    }
    println!("{CHAINS} chains made {reads} reads");
    disk.close()?;
    Ok(())
}
