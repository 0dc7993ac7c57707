//! Requests as commands: what arrives at the transport, and what comes back.

mod bed;

use bed::disk::Disk;
use bed::port::{Reply, Script, adapter};
use bed::{Bench, discard, read, write, zeroes};
use weir_bio::{Bio, Buf, Flags, Status};
use weir_proto_scsi::{Lun, ScsiCommand};

#[test]
fn a_read_a_write_and_a_flush_arrive_as_their_commands_and_bring_their_bytes() {
    for scheduler in ["none", "mq-deadline", "kyber", "bfq", "noop", "deadline", "cfq"] {
        let script = Script::new(adapter());
        script.reply(|arrived| match arrived.cdb[0] {
            0x28 => Reply::data(vec![9; 4096]),
            _ => Reply::good(),
        });
        let mut bench = Bench::empty(&script, weir_driver_scsi::HostOptions::default());
        bench.add(Lun::ZERO, scheduler);
        bench.submit(0, read(8).cookie(1));
        bench.settle();
        bench.submit(0, write(0x1234 * 8).cookie(2));
        bench.settle();
        bench.submit(0, Bio::flush().cookie(3));
        bench.settle();
        let ended = std::mem::take(&mut bench.units[0].ended);
        assert_eq!(ended.len(), 3, "{scheduler}");
        assert!(ended.iter().all(|(_, status, _)| *status == Status::Ok), "{scheduler}: {ended:?}");
        let data = &ended.iter().find(|(cookie, ..)| *cookie == 1).expect("the read").2;
        assert_eq!(bed::port::bytes_of(std::slice::from_ref(data)), [9; 4096], "{scheduler}");
        let arrived = script.take_arrived();
        let cdbs: Vec<&[u8]> = arrived.iter().map(|one| one.cdb.as_slice()).collect();
        assert_eq!(cdbs[0], [0x28, 0, 0, 0, 0, 8, 0, 0, 8, 0], "{scheduler}");
        assert_eq!(cdbs[1], [0x2a, 0, 0, 0, 0x91, 0xa0, 0, 0, 8, 0], "{scheduler}");
        assert_eq!(cdbs[2], [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], "{scheduler}");
        assert_eq!(arrived[1].out, [7; 4096], "{scheduler}");
        bench.end();
    }
}

#[test]
fn fua_goes_down_with_its_write_and_a_disk_without_a_cache_is_not_flushed() {
    let script = Script::new(adapter());
    let mut bench = Bench::new(&script);
    bench.submit(0, write(0).with(Flags::FUA));
    bench.settle();
    assert_eq!(script.take_arrived()[0].cdb[1], 0x08);
    bench.end();
    let script = Script::new(adapter());
    script.state().disks.insert(Lun::ZERO, Disk { write_cache: false, ..Disk::default() });
    let mut bench = Bench::new(&script);
    bench.submit(0, write(0).with(Flags::FUA));
    bench.submit(0, Bio::flush().cookie(2));
    bench.settle();
    assert!(bench.ended(0).iter().all(|(_, status)| *status == Status::Ok));
    let arrived = script.take_arrived();
    assert_eq!((arrived.len(), arrived[0].cdb[1]), (1, 0), "{arrived:?}");
    bench.end();
}

#[test]
fn a_discard_and_zeroes_bring_their_parameters_and_no_memory_of_the_request() {
    let script = Script::new(adapter());
    let mut bench = Bench::new(&script);
    bench.submit(0, discard(64));
    bench.settle();
    bench.submit(0, zeroes(128).with(Flags::NOUNMAP));
    bench.settle();
    let ended = bench.ended(0);
    assert_eq!(ended.iter().filter(|(_, status)| *status == Status::Ok).count(), 2, "{ended:?}");
    let arrived = script.take_arrived();
    assert_eq!(arrived[0].cdb, [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]);
    let list = [0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0, 64, 0, 0, 0, 0];
    assert_eq!(arrived[0].out, list);
    let same = ScsiCommand::decode(&arrived[1].cdb).expect("a command");
    assert!(matches!(same, ScsiCommand::WriteSame(same) if same.lba == 128 && same.blocks == 64));
    assert_eq!(arrived[1].out, [0; 512]);
    bench.end();
}

#[test]
fn a_disk_of_4096_byte_blocks_is_addressed_in_its_blocks() {
    let script = Script::new(adapter());
    script.state().disks.insert(Lun::ZERO, Disk { block_len: 4096, ..Disk::default() });
    let mut bench = Bench::new(&script);
    bench.submit(0, read(80));
    bench.settle();
    assert_eq!(script.take_arrived()[0].cdb, [0x28, 0, 0, 0, 0, 10, 0, 0, 1, 0]);
    bench.end();
}

#[test]
fn merged_requests_bring_back_the_memory_of_each_bio() {
    let script = Script::new(adapter());
    script.reply(|arrived| Reply::data(vec![3; arrived.bytes as usize]));
    let mut bench = Bench::empty(&script, weir_driver_scsi::HostOptions::default());
    bench.add(Lun::ZERO, "mq-deadline");
    for (cookie, sector) in [(1, 8), (2, 16), (3, 24)] {
        let bio = read(sector).cookie(cookie);
        bench.units[0].clients[0].submit(bio, bench.now).expect("room");
    }
    let now = bench.now;
    bench.units[0].clients[0].flush_plug(now);
    bench.settle();
    let arrived = script.take_arrived();
    assert_eq!((arrived.len(), arrived[0].bytes), (1, 3 * 4096));
    let ended = std::mem::take(&mut bench.units[0].ended);
    let lengths: Vec<usize> = ended.iter().map(|(_, _, data)| data.len()).collect();
    assert_eq!(lengths, [4096; 3]);
    bench.end();
}

#[test]
fn a_disk_larger_than_32_bits_of_blocks_is_read_with_16_bytes() {
    let script = Script::new(adapter());
    script.state().disks.insert(Lun::ZERO, Disk { blocks: 1 << 33, ..Disk::default() });
    let mut bench = Bench::new(&script);
    bench.submit(0, read(1 << 32));
    bench.settle();
    let cdb = &script.take_arrived()[0].cdb;
    assert_eq!(cdb[..14], [0x88, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8]);
    bench.end();
}

#[test]
fn slots_are_unique_in_the_host_and_no_lane_ends_anothers_request() {
    // Two units on one port; each lane reaps the ends of both.
    let script = Script::new(adapter());
    let mut bench = Bench::empty(&script, weir_driver_scsi::HostOptions::default());
    bench.add(Lun::ZERO, "none");
    bench.add(Lun::new(5).expect("a LUN"), "none");
    for round in 0..50 {
        for unit in 0..2 {
            for n in 0..8 {
                let buf = Buf::zeroed(512 * (1 + unit + 2 * n));
                bench.submit(unit, Bio::read(8 * n as u64, buf).cookie(n as u64));
            }
        }
        script.state().ends_at_once = 1 + round % 5;
        bench.turn(60);
        for unit in 0..2 {
            let ended = std::mem::take(&mut bench.units[unit].ended);
            assert_eq!(ended.len(), 8, "round {round}, unit {unit}");
            for (cookie, status, data) in ended {
                assert_eq!(status, Status::Ok);
                assert_eq!(data.len(), 512 * (1 + unit + 2 * cookie as usize));
            }
        }
    }
    bench.end();
}

#[test]
fn the_port_is_closed_with_the_last_lane() {
    let script = Script::new(adapter());
    let mut bench = Bench::empty(&script, weir_driver_scsi::HostOptions::default());
    bench.add(Lun::ZERO, "none");
    bench.add(Lun::new(1).expect("a LUN"), "none");
    assert_eq!(script.state().open, 1);
    bench.units.remove(0);
    let served = &bench.units[0].device;
    let mut gone = Vec::new();
    bench.homes[0].extract(|lane| !served.owns(lane), |_, lane| gone.push(lane));
    drop(gone);
    assert_eq!(script.state().open, 1, "the other unit uses it");
    bench.submit(0, read(0).cookie(9));
    bench.settle();
    assert_eq!(bench.ended(0), [(9, Status::Ok)]);
    drop(bench);
    assert_eq!(script.state().open, 0);
}

#[test]
fn a_lane_whose_port_announces_nothing_looks_in_every_round_and_one_that_is_turned_does_not() {
    for turned in [false, true] {
        let script = Script::new(adapter());
        script.state().turned = turned;
        script.reply(|_| Reply::Never);
        let mut bench = Bench::new(&script);
        bench.submit(0, read(0));
        bench.settle();
        assert_eq!(script.state().held(), 1);
        assert_eq!(bench.homes[0].wants_turn(bench.now), !turned);
        bench.end();
    }
}
