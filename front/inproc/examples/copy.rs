//! Copies one target to another with several reads and writes in flight, and verifies the copy.
//!
//! ```text
//! cargo run --release --example copy -- file:/from.img file:/to.img,size=1G
//! cargo run --release --example copy
//! ```
//!
//! Without arguments it fills and copies a disk in memory.

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;

use weir::{Bio, Buf, Completion, Data, Disk, Session};

/// Bytes of one read or write.
const BLOCK: u64 = 256 << 10;

/// Reads, and writes, in flight at one time.
const DEPTH: u64 = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("copy: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Copies from the first target to the second, and verifies.
pub fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let (from, to) = match arguments {
        [] => {
            let from = Disk::builder("ram:32MiB").name("from").open()?;
            fill(&from)?;
            (from, Disk::builder("ram:32MiB").name("to").open()?)
        }
        [from, to] => (
            Disk::builder(from.as_str()).name("from").open()?,
            Disk::builder(to.as_str()).name("to").open()?,
        ),
        _ => return Err("it takes two targets, or none".into()),
    };
    for notice in from.notices().iter().chain(to.notices()) {
        println!("{notice}");
    }
    if to.size() < from.size() {
        let (has, needs) = (to.size(), from.size());
        return Err(format!("the destination has {has} bytes, the source {needs}").into());
    }
    let blocks = copy(&from, &to)?;
    verify(&from, &to)?;
    println!("copied and verified {} bytes in {blocks} blocks", from.size());
    from.close()?;
    to.close()?;
    Ok(())
}

/// Gives a disk contents, so that there is something to copy.
fn fill(disk: &Disk) -> Result<(), Box<dyn Error>> {
    let mut session = disk.session()?;
    let mut block = vec![0; BLOCK as usize];
    for at in (0..disk.size()).step_by(BLOCK as usize) {
        for (word, number) in block.chunks_exact_mut(8).zip(at..) {
            word.copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        }
        session.write_at(at, &block[..BLOCK.min(disk.size() - at) as usize])?;
    }
    Ok(())
}

/// A block of a disk; its number is the cookie of its I/O.
fn read(block: u64, size: u64) -> Bio {
    let len = BLOCK.min(size - block * BLOCK);
    Bio::read(block * BLOCK / 512, Buf::zeroed(len as usize)).cookie(block)
}

/// The memory of a read that ended well, to be written.
fn written(read: Completion) -> Result<Bio, String> {
    let (block, status) = (read.cookie, read.status);
    if !status.is_ok() {
        return Err(format!("reading block {block}: {status}"));
    }
    let sector = block * BLOCK / 512;
    Ok(Bio::new(weir::Op::Write, sector, read.sectors, read.data).cookie(block))
}

fn copy(from: &Disk, to: &Disk) -> Result<u64, Box<dyn Error>> {
    let (mut reads, mut writes) = (from.session()?, to.session()?);
    let blocks = from.size().div_ceil(BLOCK);
    let mut next = 0;
    let mut ready = Vec::new();
    let mut failed = None;
    while next < blocks || reads.in_flight() > 0 || writes.in_flight() > 0 {
        while next < blocks && reads.in_flight() < DEPTH {
            reads.submit(read(next, from.size()));
            next += 1;
        }
        reads.wait(|ended| ready.push(written(ended)));
        for write in ready.drain(..) {
            writes.submit(write?);
        }
        let mut check = |ended: Completion| {
            if !ended.status.is_ok() {
                failed = Some(format!("writing block {}: {}", ended.cookie, ended.status));
            }
        };
        // While reads are left the writes may catch up later, up to a point.
        if next < blocks && writes.in_flight() < DEPTH {
            writes.poll(&mut check);
        } else {
            writes.wait(&mut check);
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
    }
    writes.flush()?;
    Ok(blocks)
}

fn verify(from: &Disk, to: &Disk) -> Result<(), Box<dyn Error>> {
    let mut sessions = [from.session()?, to.session()?];
    let blocks = from.size().div_ceil(BLOCK);
    for first in (0..blocks).step_by(DEPTH as usize) {
        let some = first..(first + DEPTH).min(blocks);
        for session in &mut sessions {
            some.clone().for_each(|block| session.submit(read(block, from.size())));
        }
        let [from, to] = &mut sessions;
        let (mut from, mut to) = (collect(from)?, collect(to)?);
        for block in some {
            if bytes(from.remove(&block)) != bytes(to.remove(&block)) {
                return Err(format!("block {block} of the copy differs").into());
            }
        }
    }
    Ok(())
}

/// Everything in flight, by block.
fn collect(session: &mut Session) -> Result<HashMap<u64, Data>, String> {
    let mut blocks = HashMap::new();
    let mut failed = None;
    while session.in_flight() > 0 {
        session.wait(|ended| {
            if !ended.status.is_ok() {
                failed = Some(format!("verifying block {}: {}", ended.cookie, ended.status));
            }
            blocks.insert(ended.cookie, ended.data);
        });
    }
    failed.map_or(Ok(blocks), Err)
}

/// Zeros may come without memory, and a split read in pieces.
fn bytes(data: Option<Data>) -> Vec<u8> {
    let data = data.unwrap_or_default();
    let mut bytes = vec![0; data.len()];
    data.copy_to(&mut bytes);
    bytes
}
