//! What a unit shows of itself, and lets be written.

mod bed;

use bed::disk::{Disk, sense};
use bed::port::{Reply, Script, adapter};
use bed::{Bench, SECOND};
use weir_proto_scsi::inquiry::Tpgs;
use weir_proto_scsi::{AdditionalSense, Lun, SenseKey};
use weir_queue::{DeviceAttributes, Driver};

fn show(bench: &Bench, name: &str) -> String {
    bench.units[0].unit.show(name).unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn every_attribute_that_is_listed_has_a_text_and_they_are_sorted() {
    let script = Script::new(adapter());
    let bench = Bench::new(&script);
    let unit = &bench.units[0].unit;
    let listed = Driver::attributes(unit.as_ref()).expect("it has some").list();
    let names: Vec<&str> = listed.iter().map(|about| about.name).collect();
    assert!(names.is_sorted(), "{names:?}");
    assert_eq!(names.len(), 25, "all but the two of port groups: {names:?}");
    for about in listed {
        assert!(unit.show(about.name).is_some() && !about.meaning.is_empty());
        let why = unit.store(about.name, "nonsense").expect_err("nonsense");
        assert_eq!(why.ends_with("is read-only"), about.accepted.is_empty(), "{why}");
    }
    assert_eq!(unit.show("nothing"), None);
}

#[test]
fn texts_are_those_of_linux() {
    let script = Script::new(adapter());
    script.state().disks.insert(Lun::ZERO, Disk { tpgs: Tpgs::Explicit, ..Disk::default() });
    let mut bench = Bench::new(&script);
    let wanted = [
        ("vendor", "WEIR    "),
        ("model", "SCRIPTED DISK   "),
        ("rev", "0001"),
        ("type", "0"),
        ("scsi_level", "7"),
        ("state", "running"),
        ("queue_depth", "32"),
        ("queue_type", "simple"),
        ("queue_ramp_up_period", "120000"),
        ("eh_timeout", "10"),
        ("cache_type", "write back"),
        ("wwid", "naa.6001020304050607"),
        ("access_state", "active/optimized"),
        ("preferred_path", "0"),
        ("vpd_pg80", "00 80 00 0a 20 73 65 72 69 61 6c 2d 31 20"),
        ("iorequest_cnt", "0x0"),
        ("sense_keys", ""),
    ];
    for (name, text) in wanted {
        assert_eq!(show(&bench, name), text, "{name}");
    }
    let device = &bench.units[0].device;
    let node = device.with_attributes(|page| page.show("node_name")).flatten();
    assert_eq!(node, None, "the transport has no names of nodes");
    assert!(
        show(&bench, "inquiry").starts_with("00 00 06 02 45 20 00 02 57 45 49 52 20 20 20 20\n")
    );
    for _ in 0..20 {
        bench.read_once();
    }
    let medium = sense(SenseKey::MediumError, AdditionalSense::new(0x11, 0));
    script.reply(move |_| Reply::sense(medium.clone()));
    bench.read_once();
    script.reply(|_| Reply::Never);
    bench.read_once();
    bench.pass(32 * SECOND);
    assert_eq!(show(&bench, "iorequest_cnt"), "0x17", "22 reads, and one that was sent again");
    assert_eq!(show(&bench, "iodone_cnt"), "0x16", "all but the last that was sent");
    assert_eq!(show(&bench, "ioerr_cnt"), "0x1");
    assert_eq!(show(&bench, "iotmo_cnt"), "0x1");
    assert_eq!(show(&bench, "sense_keys"), "1 MEDIUM ERROR");
    bench.script.reply(|_| Reply::good());
    bench.script.state().release(&Reply::good());
    bench.settle();
    assert_eq!(show(&bench, "iodone_cnt"), show(&bench, "iorequest_cnt"));
    // A request that ends without a command is none that has ended.
    bench.units[0].unit.store("state", "offline").expect("a state");
    bench.ended(0);
    assert_eq!(bench.read_once(), [(1, weir_bio::Status::Offline)]);
    assert_eq!(show(&bench, "iodone_cnt"), show(&bench, "iorequest_cnt"));
    bench.end();
}

#[test]
fn what_is_written_holds_and_what_is_wrong_is_refused_in_words() {
    let script = Script::new(adapter());
    let bench = Bench::new(&script);
    let unit = &bench.units[0].unit;
    unit.store("queue_depth", "8\n").expect("a depth");
    unit.store("queue_ramp_up_period", "5000").expect("a time");
    unit.store("eh_timeout", "4").expect("a time");
    unit.store("rescan", "1\n").expect("a one");
    unit.store("state", "offline").expect("a state");
    assert_eq!((show(&bench, "eh_timeout"), show(&bench, "rescan")), ("4".into(), String::new()));
    assert_eq!(show(&bench, "queue_depth"), "8");
    assert_eq!(show(&bench, "queue_ramp_up_period"), "5000");
    assert_eq!(show(&bench, "state"), "offline");
    for (name, text, why) in [
        ("queue_depth", "0", "queue_depth=0 is outside 1..=32"),
        ("queue_depth", "x", "queue_depth=x is no number of 16 bits"),
        ("eh_timeout", "0", "eh_timeout=0 is outside 1..=4294967295"),
        ("eh_timeout", "-1", "eh_timeout=-1 is no number of 32 bits"),
        ("rescan", "2", "rescan=2 is not 1"),
        ("state", "gone", "state=gone is neither running nor offline"),
        ("vendor", "ME", "vendor is read-only"),
    ] {
        assert_eq!(unit.store(name, text).expect_err("it is wrong"), why);
    }
    assert_eq!(show(&bench, "queue_depth"), "8");
}
