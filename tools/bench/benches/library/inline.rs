//! A disk of one thread that answers at once: what the calls of the session cost themselves.

use weir::{Bio, Buf, Disk, InlineSession};
use weir_bench::cpu::thread_time;

use crate::{Bed, in_turns};

/// I/Os in a round.
const IOS: u64 = 400_000;

/// ns of CPU time for each read of 4 KiB, 1 and 32 at a time.
pub fn run(bed: &Bed) {
    let open = |target: &str| Disk::builder(target).open_inline().expect("a disk of nothing");
    // As it comes, a disk of one hard queue has mq-deadline.
    let mut plain = open("null:1GiB,scheduler=none");
    let mut scheduled = open("null:1GiB");
    let mut bufs: Vec<Buf> = (0..32).map(|_| Buf::zeroed(4096)).collect();
    let figures: [_; 4] = in_turns(bed, |which, _| {
        let session = if which < 2 { &mut plain } else { &mut scheduled };
        reads(session, &mut bufs, [1, 32][which % 2], bed.work(IOS))
    });
    let goals = [(1, "must 400, aim 250"), (32, "must 60, aim 45")];
    for (which, figure) in figures.iter().enumerate() {
        let (depth, goal) = goals[which % 2];
        let scheduler = if which < 2 { "none" } else { "mq-deadline" };
        println!(
            "inline session on null, scheduler {scheduler}, depth {depth}: {figure:.0} ns per \
             I/O; {goal}"
        );
    }
    plain.close().expect("it answers");
    scheduled.close().expect("it answers");
}

fn reads(session: &mut InlineSession, bufs: &mut Vec<Buf>, depth: u64, ios: u64) -> f64 {
    let began = thread_time();
    let (mut sent, mut ended) = (0, 0);
    while ended < ios {
        let free = (depth - session.in_flight()).min(bufs.len() as u64);
        // Every other block: none is merged.
        let sectors = (sent..sent + free).map(|number| number % 65_536 * 16);
        let places = bufs.len() - free as usize;
        let bios = sectors.zip(bufs.drain(places..)).map(|(sector, buf)| Bio::read(sector, buf));
        session.submit_all(bios);
        sent += free;
        ended += session.wait(|read| bufs.extend(read.data.into_spare())) as u64;
    }
    while session.in_flight() > 0 {
        ended += session.wait(|read| bufs.extend(read.data.into_spare())) as u64;
    }
    (thread_time() - began).as_nanos() as f64 / ended as f64
}
