//! Reads of 16 KiB into four pages of the caller's, past the page cache, beside the same on an
//! io_uring by hand: CPU time for each.

use std::sync::Arc;
use std::time::Instant;

use weir::{Bio, Buf, Data, Disk, InlineSession, Owner, Segment, Segments};
use weir_bench::cpu::process_time;
use weir_bench::rounds::Figure;

use crate::ring::{Iovec, Ring};
use crate::{Bed, FILE, in_turns, target};

/// Reads in a round, and those under way at a time.
const IOS: u64 = 20_000;
const DEPTH: usize = 16;

const PAGE: usize = 4096;
const PAGES: usize = 4;
const BYTES: u64 = (PAGE * PAGES) as u64;

/// Both, on one file.
pub fn run(bed: &Bed) {
    let path = bed.file("pages");
    let mut session = Disk::builder(target(&path)).open_inline().expect("the file");
    session.wait_in_driver();
    let mut ring = Ring::open(&path, DEPTH);
    let memory: Vec<Pages> = (0..DEPTH).map(|_| Pages::new()).collect();
    let ios = bed.work(IOS);
    let mut rates = [Figure::default(), Figure::default()];
    let [by_hand, weir] = in_turns(bed, |which, counts| {
        let (began, used) = (Instant::now(), process_time());
        match which {
            0 => read_by_hand(&mut ring, &memory, ios),
            _ => read(&mut session, &memory, ios),
        }
        if counts {
            rates[which].add(ios as f64 / began.elapsed().as_secs_f64());
        }
        (process_time() - used).as_nanos() as f64 / ios as f64
    });
    let [by_hand_rate, rate] = rates;
    session.close().expect("it answers");
    println!(
        "reads of 16 KiB into 4 pages of the caller's, depth {DEPTH}: {weir:.0} ns of CPU time per \
         I/O, io_uring by hand {by_hand:.0} ns, ratio {:.2}; must 1.15, aim 1.05; I/Os a second \
         {:.2} of those by hand",
        weir.over(&by_hand),
        rate.over(&by_hand_rate)
    );
}

/// Where the next read is: every other place, so that none is merged.
fn offset(number: u64) -> u64 {
    number * 7919 % (FILE / BYTES / 2) * 2 * BYTES
}

/// The caller's memory: pages that do not lie one behind the other.
struct Pages {
    owner: Owner,
    segments: [Segment; PAGES],
}

impl Pages {
    fn new() -> Pages {
        let buf = Buf::zeroed(2 * PAGES * PAGE);
        let start = buf.start();
        let segments = std::array::from_fn(|page| {
            // SAFETY: inside the buffer.
            Segment { start: unsafe { start.add(2 * page * PAGE) }, len: PAGE as u32 }
        });
        Pages { owner: Arc::new(buf), segments }
    }

    fn data(&self) -> Data {
        // SAFETY: the owner has the buffer, which is never referred to.
        Data::Segments(unsafe { Segments::new(Arc::clone(&self.owner), &self.segments) })
    }
}

fn read(session: &mut InlineSession, memory: &[Pages], ios: u64) {
    let mut free: Vec<usize> = (0..memory.len()).collect();
    let (mut sent, mut ended) = (0, 0);
    while ended < ios {
        while sent < ios
            && let Some(place) = free.pop()
        {
            let bio = Bio::read_into(offset(sent) / 512, memory[place].data());
            session.submit(bio.cookie(place as u64));
            sent += 1;
        }
        ended += session.wait(|read| {
            assert!(read.status.is_ok(), "{}", read.status);
            free.push(read.cookie as usize);
        }) as u64;
    }
}

fn read_by_hand(ring: &mut Ring, memory: &[Pages], ios: u64) {
    let iovecs: Vec<[Iovec; PAGES]> =
        memory.iter().map(|pages| pages.segments.map(Iovec::of)).collect();
    let mut free: Vec<usize> = (0..memory.len()).collect();
    let (mut sent, mut ended) = (0, 0);
    while ended < ios {
        while sent < ios
            && let Some(place) = free.pop()
        {
            // SAFETY: memory and table outlast the loop, which waits for every completion.
            unsafe { ring.read(offset(sent), &iovecs[place], place as u64) };
            sent += 1;
        }
        ring.wait(|place, result| {
            assert_eq!(result, BYTES as i32);
            free.push(place as usize);
            ended += 1;
        });
    }
}
