//! Checks of the state of rest, when everything has ended.

use weir_bio::{Bio, Buf, Nanos};
use weir_queue::{Bell, Device, NoWake};

use super::device::Sim;
use super::path::{Order, Path};

/// A read through each lane, which one that was silent has to answer before it is sent more.
fn greet(device: &Device, now: Nanos, turn_all: &mut impl FnMut()) {
    let bell = Bell::new(Box::new(NoWake), 64);
    for lane in 0..usize::from(device.queues()) {
        let mut submitter = device.submitter(&bell, lane, lane).unwrap();
        let block = device.limits().block_sectors();
        let read = Bio::read(0, Buf::zeroed(block as usize * 512));
        submitter.submit(read, now).expect("room for a read");
        submitter.flush_plug(now);
        for _ in 0..100 {
            turn_all();
            submitter.complete(now, drop);
        }
        assert_eq!(submitter.in_flight(), 0, "lane {lane} answers");
    }
}

/// Every tag can be used again. `turn_all` turns every lane, later each time.
pub fn check_tags(path: Path, sim: &Sim, device: &Device, now: Nanos, mut turn_all: impl FnMut()) {
    sim.world().calm_down();
    greet(device, now, &mut turn_all);
    {
        let mut world = sim.world();
        world.stalled = true;
        (world.tally.peak, world.tally.lane_peak) = (0, 0);
    }
    let (depth, lanes) = (usize::from(device.depth()), usize::from(device.queues()));
    let queued = usize::from(device.nr_requests());
    // Without a scheduler what the queue holds is what has a tag of the driver.
    let tags = if path.scheduled { depth } else { depth.min(queued) };
    let all = if path.shared_tags { tags } else { tags * lanes };
    let block = sim.world().limits.block_sectors();
    let bell = Bell::new(Box::new(NoWake), 64);
    let mut submitters = Vec::new();
    for lane in 0..lanes {
        let mut submitter = device.submitter(&bell, lane, lane).unwrap();
        let mut sent = 0;
        for index in 0..depth as u64 {
            let bio =
                Bio::read(index * u64::from(block) * 2 % 256, Buf::zeroed(block as usize * 512));
            sent += u64::from(submitter.submit(bio, now).is_ok());
        }
        submitter.flush_plug(now);
        submitters.push((submitter, sent));
    }
    (0..4).for_each(|_| turn_all());
    let (peak, sent) = (sim.world().tally.peak, submitters.iter().map(|s| s.1).sum::<u64>());
    // Tokens may be fewer than tags; and merging depends on the order.
    let bound = path.order != Order::Noop;
    if !bound && (!path.scheduled || queued >= depth * lanes) {
        let merged = device.stats().in_flight - peak as u64;
        let most = all.min(sent as usize);
        assert!(peak == most || peak + merged as usize == most, "{peak} tags of {most} usable");
    }
    sim.world().stalled = false;
    turn_all();
    for _ in 0..1000 {
        turn_all();
        for (submitter, _) in &mut submitters {
            submitter.complete(now, drop);
            submitter.flush_plug(now);
        }
    }
    assert_eq!(device.stats().in_flight, 0);
}
