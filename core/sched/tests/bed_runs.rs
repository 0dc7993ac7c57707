//! The bed itself: what it reports is what its devices and clients must give.

#![forbid(unsafe_code)]

mod bed;

use bed::engine::What;
use bed::{Bed, Client, Device, MILLISECOND, SECOND, Setting};
use weir_bio::Nanos;

#[test]
fn a_reader_alone_gets_the_rate_of_the_media_and_seeks_only_once() {
    let mut bed = Bed::of("noop", Device::hdd());
    let reader = bed.client(Client::reader(800, 256).depth(2));
    bed.run_for(10 * SECOND);
    let bytes = bed.record(reader).bytes_between(Nanos::ZERO, bed.now());
    let media = 104_000_000 * 10 - 104_000_000 * 87 / 10_000;
    assert!(bytes <= media && media - bytes < 2 * 131_072, "{bytes} of {media}");
}

#[test]
fn a_random_reader_pays_a_seek_and_its_bytes_for_each_request() {
    let mut bed = Bed::of("noop", Device::hdd());
    let reader = bed.client(Client::random_reader(8, 1 << 24, 8, 1).ios(100));
    bed.run_out();
    let record = bed.record(reader);
    let each = 8_700_000 + 4096 * 1_000_000_000 / 104_000_000;
    assert_eq!(record.finished_at, Some(Nanos(100 * each)));
    assert_eq!((record.latencies().mean(), record.latencies().max()), (each, each));
}

#[test]
fn slots_serve_at_once_what_a_serial_device_serves_in_turn() {
    for (device, took) in [
        (Device::slots(4, MILLISECOND), 25 * MILLISECOND),
        (Device::serial(MILLISECOND).with_depth(4), 100 * MILLISECOND),
    ] {
        let mut bed = Bed::of("noop", device).traced();
        let client = bed.client(Client::random_reader(0, 1 << 24, 8, 7).depth(8).ios(100));
        bed.run_out();
        assert_eq!(bed.record(client).finished_at, Some(Nanos(took)));
        let most = bed.trace().iter().map(|line| line.in_flight).max();
        assert_eq!(most, Some(4), "the device takes four");
    }
}

#[test]
fn adjacent_bios_of_a_client_travel_as_one_request_and_are_answered_together() {
    let mut bed = Bed::of("noop", Device::serial(MILLISECOND)).traced();
    let client = bed.client(Client::writer(0, 8).depth(4).ios(9));
    bed.run_out();
    // The first leaves alone, the next three gather behind it, and so on.
    let dispatched = bed.trace().iter().filter(|line| line.what == What::Dispatched);
    let sectors: Vec<_> = dispatched.map(|line| line.rq.sectors).collect();
    assert_eq!(sectors.iter().sum::<u32>(), 9 * 8, "{sectors:?}");
    assert_eq!(sectors[..2], [8, 24]);
    assert_eq!(bed.record(client).done.len(), 9);
}

#[test]
fn without_merges_and_with_few_tags_the_rest_waits_and_is_served_in_its_turn() {
    let setting = Setting { nr_requests: 4, nomerges: 2, ..Setting::default() };
    let mut bed = Bed::with("noop", Device::serial(MILLISECOND), setting).traced();
    let client = bed.client(Client::writer(0, 8).depth(16).ios(64));
    bed.run_out();
    assert!(bed.trace().iter().any(|line| line.what == What::Waited));
    assert!(bed.trace().iter().all(|line| line.staged + line.in_flight <= 4));
    assert_eq!(bed.record(client).finished_at, Some(Nanos(64 * MILLISECOND)));
}

#[test]
fn a_client_with_a_rhythm_submits_in_it_and_one_that_thinks_after_each_answer() {
    let mut bed = Bed::of("noop", Device::serial(MILLISECOND));
    let steady = bed.client(Client::reader(0, 8).every(10 * MILLISECOND).start(5 * MILLISECOND));
    let slow = bed.client(Client::reader(80_000, 8).think(9 * MILLISECOND).start(MILLISECOND));
    bed.run_for(100 * MILLISECOND);
    let starts = |client| bed.record(client).done.iter().map(|d| d.submitted.0).collect::<Vec<_>>();
    let expected = |first: u64| (0..10).map(|i| (first + 10 * i) * MILLISECOND).collect::<Vec<_>>();
    assert_eq!((starts(steady), starts(slow)), (expected(5), expected(1)));
}

#[test]
fn the_same_scene_gives_the_same_trace() {
    let run = || {
        let mut bed = Bed::of("noop", Device::ssd()).traced();
        for seed in 0..4 {
            bed.client(Client::random_writer(0, 4096, 8, seed).depth(16).think(seed * 1000));
        }
        bed.run_for(20 * MILLISECOND);
        bed.trace().to_vec()
    };
    assert_eq!(run(), run());
}
