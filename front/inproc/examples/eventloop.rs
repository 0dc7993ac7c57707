//! An event loop (epoll) with its own memory, alone with its disk: records come in on a socket, are
//! written from the program's own vectors by an inline session, and answered when they are durable.
//! No reactor, no lock, no copy; the loop sleeps in one place.
//!
//! ```text
//! cargo run --release --example eventloop -- file:/log.img,size=64M
//! ```

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::event::epoll;
use rustix::io::Errno;
use weir::{Bio, Disk, Flags, Status};

/// Records that the client sends, and those that it has under way.
const RECORDS: u64 = 1000;
const WINDOW: u64 = 32;

/// Bytes of a record on the disk, and its vectors: a head and what follows it.
const BYTES: usize = 4096;
const HEAD: usize = 512;

fn main() -> ExitCode {
    let target = std::env::args().nth(1).unwrap_or_else(|| String::from("ram:64MiB"));
    match run(&target) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("eventloop: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes all records that a client sends, then reads them back.
pub fn run(target: &str) -> Result<(), Box<dyn Error>> {
    let mut session = Disk::builder(target).name("log").open_inline()?;
    let size = session.device().limits().capacity * 512;
    if size < RECORDS * BYTES as u64 {
        return Err(format!("the log has {size} bytes, this takes {RECORDS} of {BYTES}").into());
    }
    let (mut socket, theirs) = UnixStream::pair()?;
    socket.set_nonblocking(true)?;
    let client = std::thread::spawn(move || client(theirs));

    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (fd, data) in [(socket.as_fd(), 0), (session.as_fd(), 1)] {
        epoll::add(&set, fd, epoll::EventData::new_u64(data), epoll::EventFlags::IN)?;
    }
    // The loop's own memory: vectors that go out with a write and come back with its end.
    let mut memory: Vec<Vec<Vec<u8>>> =
        (0..WINDOW).map(|_| vec![vec![0; HEAD], vec![0; BYTES - HEAD]]).collect();
    let (mut events, mut failed, mut answered) = (Vec::with_capacity(2), None, 0);
    while answered < RECORDS {
        // Records that have come. The client has no more under way than there is memory for.
        let mut bytes = [0; 8];
        while let Some(number) = next_record(&mut socket, &mut bytes)? {
            let mut vecs = memory.pop().ok_or("more records under way than agreed")?;
            vecs[0][..8].copy_from_slice(&bytes);
            vecs[1].fill(number as u8);
            let place = number * (BYTES / 512) as u64;
            session.submit(Bio::write_from(place, vecs).with(Flags::FUA).cookie(number));
        }
        // Writes that have ended.
        let mut ended = Vec::new();
        session.poll(|written| match written.status {
            Status::Ok => ended.push((written.cookie, written.data)),
            status => failed = Some(status),
        });
        if let Some(status) = failed {
            return Err(format!("a record was not written: {status}").into());
        }
        for (number, data) in ended {
            memory.push(data.into_vecs().map_err(|_| "the vectors that were given")?);
            socket.write_all(&number.to_le_bytes())?;
            answered += 1;
        }
        // False: something has ended meanwhile, so the descriptor does not tell of it.
        if answered < RECORDS && session.arm()? {
            match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None) {
                Err(error) if error != Errno::INTR => return Err(error.into()),
                _ => events.clear(),
            }
        }
    }
    client.join().expect("it does not panic")?;
    for number in 0..RECORDS {
        let mut bytes = [0; BYTES];
        session.read_at(number * BYTES as u64, &mut bytes)?;
        let tail = bytes[HEAD..].iter().all(|byte| *byte == number as u8);
        if bytes[..8] != number.to_le_bytes() || !tail {
            return Err(format!("record {number} is not what was sent").into());
        }
    }
    println!("{RECORDS} records written from {WINDOW} vectors and answered");
    session.close()?;
    Ok(())
}

/// The number of a record, if one has come: 8 bytes, which a socket of one machine sends whole.
fn next_record(socket: &mut UnixStream, bytes: &mut [u8; 8]) -> io::Result<Option<u64>> {
    match socket.read_exact(bytes) {
        Ok(()) => Ok(Some(u64::from_le_bytes(*bytes))),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends records, never more than agreed without an answer.
fn client(mut socket: UnixStream) -> io::Result<()> {
    let (mut sent, mut answered) = (0, 0);
    while answered < RECORDS {
        while sent < RECORDS && sent - answered < WINDOW {
            socket.write_all(&sent.to_le_bytes())?;
            sent += 1;
        }
        socket.read_exact(&mut [0; 8])?;
        answered += 1;
    }
    Ok(())
}
