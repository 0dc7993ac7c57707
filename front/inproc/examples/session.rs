//! The blocking calls of a session: write, durable write, flush, zeroes, discard, read, and how an
//! error looks.
//!
//! ```text
//! cargo run --release --example session -- file:/disk.img,size=64M
//! ```

use std::error::Error;
use std::process::ExitCode;

use weir::{Disk, Status};

/// Bytes this writes over.
const NEEDED: u64 = 4 << 20;

fn main() -> ExitCode {
    let target = std::env::args().nth(1).unwrap_or_else(|| String::from("ram:64MiB"));
    match run(&target) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("session: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Goes through the blocking calls.
pub fn run(target: &str) -> Result<(), Box<dyn Error>> {
    let disk = Disk::open(target)?;
    if disk.size() < NEEDED {
        return Err(format!("the disk has {} bytes, this takes {NEEDED}", disk.size()).into());
    }
    println!("{} bytes in blocks of {}", disk.size(), disk.limits().logical_block_size);
    let mut session = disk.session()?;

    let text: Vec<u8> = (0..1 << 20).map(|byte: u32| (byte % 251) as u8).collect();
    session.write_at(0, &text)?;
    session.flush()?;
    println!("wrote 1 MiB and flushed: it is durable");
    session.write_at_durable(1 << 20, &text[..4096])?;
    println!("wrote 4 KiB durably");

    session.write_zeroes(4096, 8192, true)?;
    println!("zeroed 8 KiB in between");
    match session.discard(2 << 20, 1 << 20) {
        Ok(()) => println!("discarded 1 MiB"),
        Err(error) if error.status == Status::NotSupp => println!("{error}"),
        Err(error) => return Err(error.into()),
    }

    let mut read = vec![0; 1 << 20];
    session.read_at(0, &mut read)?;
    let same = read[..4096] == text[..4096] && read[12288..] == text[12288..];
    if !same || read[4096..12288].iter().any(|byte| *byte != 0) {
        return Err("what was read is not what was written".into());
    }
    println!("read it all back");

    let beyond = session.read_at(disk.size(), &mut read);
    println!("as it should be: {}", beyond.expect_err("nothing is there"));

    drop(session);
    println!("stat: {}", disk.stats().line());
    disk.close()?;
    Ok(())
}
