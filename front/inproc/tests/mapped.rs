//! Disks over disks of the same process: how they find, hold and leave one another.

mod bed;

use std::sync::Arc;

use weir::{Bio, Buf, Disk, Flags, Host, Limited, Nanos, Status};

fn ram(name: &str) -> Disk {
    Disk::builder("ram:4MiB").name(name).reactors(1).open().unwrap()
}

#[test]
fn a_disk_is_not_closed_before_the_disk_that_lies_on_it() {
    let legs = [ram("sda"), ram("sdb"), ram("sdc")];
    let builder = Disk::builder("striped:64KiB:sda+sdb").name("md0").reactors(1);
    let above = builder.over(&legs).open().unwrap();
    let error = legs[0].close().unwrap_err().to_string();
    assert_eq!(error, "disk sda is not closed: disk md0 lies on it and is open");
    legs[2].close().expect("nothing lies on it");
    above.session().unwrap().write_at(0, &[7; 128 << 10]).unwrap();
    above.close().unwrap();
    let mut found = vec![0; 64 << 10];
    legs[1].session().unwrap().read_at(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 7), "the second chunk");
    legs[0].close().expect("nothing lies on it any more");
    let builder = Disk::builder("linear:sda+sdb").name("md1").reactors(1);
    let error = builder.over(&legs).open().expect_err("a leg is closed").to_string();
    assert!(error.contains("sda"), "{error}");
    legs[1].close().expect("a disk that was not opened holds nothing");
}

#[test]
fn legs_stay_open_without_a_handle_of_their_own() {
    let above = {
        let legs = [ram("sda"), ram("sdb")];
        Disk::builder("linear:sdb+sda").name("md0").reactors(1).over(&legs).open().unwrap()
    };
    let mut session = above.session().unwrap();
    session.write_at((4 << 20) - 4096, &[9; 8192]).unwrap();
    let mut found = [0; 8192];
    session.read_at((4 << 20) - 4096, &mut found).unwrap();
    assert_eq!(found, [9; 8192]);
}

#[test]
fn a_disk_that_is_not_there_is_named() {
    let legs = [ram("sda")];
    for (target, part) in [
        ("linear:sda+sdz", "md0: its disk \"sdz\" is not open"),
        ("striped:8M:sda", "md0: its smallest disk has 8192 sectors, less than a chunk of 16384"),
        ("table:0 8193 linear sda 0", "md0: sector 8192 of sda is beyond its 8192"),
        ("linear:sda+sda", "names disk sda twice"),
        ("linear:", "names no disk"),
        ("striped:sda", "has no chunk"),
        ("striped:100:sda", "is not a multiple of 512 bytes"),
    ] {
        let error = Disk::builder(target).name("md0").reactors(1).over(&legs).open();
        let error = error.expect_err(target).to_string();
        assert!(error.contains(part), "{target}: {error}");
    }
    legs[0].close().expect("nothing lies on it");
}

#[test]
fn a_mapped_disk_leaves_order_and_time_outs_to_its_legs_unless_it_states_them() {
    let legs = [ram("sda")];
    let open = |target: &str| {
        let disk = Disk::builder(target).name("md0").reactors(1).over(&legs).open().unwrap();
        let device = disk.device();
        (device.scheduler(), device.config().timeout_ns)
    };
    assert_eq!(open("linear:sda"), ("none", 0));
    assert_eq!(open("linear:sda,queue_mode=sq"), ("noop", 0));
    let stated = "linear:sda,scheduler=kyber,io_timeout=60000";
    assert_eq!(open(stated), ("kyber", 60_000_000_000));
}

#[test]
fn a_table_and_a_status_are_shown_and_a_message_is_refused_in_words() {
    let legs = [ram("sda"), ram("sdb")];
    let builder = Disk::builder("striped:64KiB:sda+sdb").name("md0").reactors(1);
    let disk = builder.over(&legs).open().unwrap();
    let map = disk.map().expect("it is mapped");
    assert_eq!(map.table(), "0 16384 striped 2 128 sda 0 sdb 0\n");
    assert_eq!(map.status(), "0 16384 striped 2 sda sdb 1 AA\n");
    let why = map.message("fail_path sda", Nanos(0)).unwrap_err();
    assert_eq!(
        why,
        "message \"fail_path sda\": linear, striped, zero and error lines take no messages"
    );
    assert!(legs[0].map().is_none());
}

#[test]
fn a_leg_that_is_read_only_makes_the_disk_read_only_and_says_so() {
    let legs = [ram("sda"), Disk::builder("ram:4MiB,readonly").name("sdb").open().unwrap()];
    let disk = Disk::builder("linear:sda+sdb").name("md0").reactors(1).over(&legs).open().unwrap();
    assert!(disk.session().unwrap().write_at(0, &[1; 512]).is_err());
    assert_eq!(disk.notices(), ["read-only, as its disk sdb is"]);
}

#[test]
fn a_host_stops_mapped_disks_before_their_legs_and_every_io_under_way_ends_well() {
    let host = Arc::new(Host::new(2).unwrap());
    let open = |target: &str, name: &str, over: &[Disk]| {
        let builder = Disk::builder(target).name(name).host(Arc::clone(&host));
        builder.over(over).open().unwrap()
    };
    // 24 legs, two levels, and more writes than the legs take at once.
    let null = "null:4MiB,latency_us=20000,nr_requests=4";
    let legs: Vec<Disk> = (0..24).map(|leg| open(null, &format!("sd{leg}"), &[])).collect();
    let names = |range: std::ops::Range<usize>| {
        range.map(|leg| format!("sd{leg}")).collect::<Vec<_>>().join("+")
    };
    let stripes = [
        open(&format!("striped:64KiB:{}", names(0..12)), "md0", &legs),
        open(&format!("striped:64KiB:{}", names(12..24)), "md1", &legs),
    ];
    let top = open("linear:md0+md1,queues=1", "top", &stripes);
    let size = top.size();
    let under_way: Vec<_> = (0..128)
        .map(|at| top.start(Bio::write(at * (size / 128 / 512), Buf::zeroed(256 << 10))))
        .collect();
    // What was started before has come in when this ends.
    assert_eq!(top.start(Bio::read(0, Buf::zeroed(512)).with(Flags::NOWAIT)).wait().sectors, 1);
    host.stop(20_000_000_000).expect("nothing hangs");
    for pending in under_way {
        assert_eq!(pending.wait().status, Status::Ok);
    }
}

#[test]
fn disks_eight_deep_keep_what_is_written_and_close_from_above() {
    let mut disks = vec![ram("d0")];
    let middle = [
        "linear:d0",
        "table:0 8192 delay d1 0 0",
        "striped:64KiB:d2",
        "table:0 8192 flakey d3 0 9 0",
        "fault:d4,refused=20,delayed=30",
        "multipath:d5",
        "table:0 4096 linear d6 4096;4096 4096 linear d6 0",
        "table:0 8192 linear d7 0;8192 8192 zero",
    ];
    for (depth, target) in middle.into_iter().enumerate() {
        let name = format!("d{}", depth + 1);
        disks.push(Disk::builder(target).name(name).reactors(1).over(&disks).open().unwrap());
    }
    let top = disks.last().unwrap();
    assert_eq!(top.size(), 8 << 20);
    let mut session = top.session().unwrap();
    session.write_at((2 << 20) - 4096, &[9; 8192]).unwrap();
    session.write_at((4 << 20) - 4096, &[7; 8192]).unwrap();
    session.flush().unwrap();
    let mut found = [1; 8192];
    session.read_at((2 << 20) - 4096, &mut found).unwrap();
    assert_eq!(found, [9; 8192]);
    session.read_at((4 << 20) - 4096, &mut found).unwrap();
    assert_eq!(found[..4096], [7; 4096]);
    assert_eq!(found[4096..], [0; 4096]);
    // Swapped halves: what stood before the middle is at the end of the disk below.
    let mut below = disks[0].session().unwrap();
    below.read_at((4 << 20) - 4096, &mut found[..4096]).unwrap();
    assert_eq!(found[..4096], [9; 4096]);
    drop((session, below));
    assert!(disks[3].close().is_err(), "d4 lies on it");
    disks.iter().rev().for_each(|disk| disk.close().unwrap());
}

#[test]
fn a_leg_that_grows_leaves_the_disk_above_as_it_was() {
    let folder = bed::Folder::new();
    let path = folder.join("disk").display().to_string();
    let leg = Disk::builder(format!("file:{path},size=4MiB").as_str()).name("sda").open().unwrap();
    let legs = [leg];
    let open =
        |name: &str| Disk::builder("linear:sda").name(name).reactors(1).over(&legs).open().unwrap();
    let before = open("md0");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(8 << 20).unwrap();
    let now = legs[0].device().enlarge(0).unwrap();
    Limited::of(legs[0].device()).reconfigure(|parts| parts.limits.grow_to(now)).unwrap();
    assert_eq!((legs[0].limits().size().bytes(), before.size()), (8 << 20, 4 << 20));
    before.session().unwrap().write_at((4 << 20) - 512, &[5; 512]).unwrap();
    assert!(before.session().unwrap().write_at(4 << 20, &[5; 512]).is_err());
    let after = open("md1");
    assert_eq!(after.size(), 8 << 20);
    let mut found = [0; 512];
    after.session().unwrap().read_at((4 << 20) - 512, &mut found).unwrap();
    assert_eq!(found, [5; 512]);
}

#[test]
fn a_table_without_a_disk_is_a_mapped_disk() {
    let disk = Disk::builder("table:0 8 error;8 8 zero").name("md0").reactors(1).open().unwrap();
    assert_eq!(disk.map().unwrap().table(), "0 8 error\n8 8 zero\n");
    let device = disk.device();
    assert_eq!((device.scheduler(), device.config().timeout_ns), ("none", 0));
    let mut session = disk.session().unwrap();
    let mut found = [7; 4096];
    session.read_at(4096, &mut found).unwrap();
    assert_eq!(found, [0; 4096]);
    assert!(session.read_at(0, &mut found).is_err());
    assert!(session.write_at(0, &found).is_err());
    session.flush().unwrap();
    drop(session);
    disk.close().unwrap();
}

#[test]
fn a_target_that_stands_in_another_is_opened_read_and_closed_with_it() {
    let folder = std::env::temp_dir().join(format!("weir-nested-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| format!(r"file:{}\\\,size=1MiB", folder.join(name).display());
    // Each target takes one backslash away.
    let inner = format!(r"striped:64KiB:{}\+{}", file("a"), file("b"));
    let target = format!("linear:{inner}+ram:1MiB+ram:1MiB,nr_requests=16");
    let disk = Disk::builder(target.as_str()).name("md0").reactors(1).open().unwrap();
    assert_eq!((disk.size(), disk.device().nr_requests()), (4 << 20, 16));
    let mut session = disk.session().unwrap();
    session.write_at(0, &[1; 64 << 10]).unwrap();
    session.write_at(64 << 10, &[2; 64 << 10]).unwrap();
    session.write_at((3 << 20) - 512, &[3; 1024]).unwrap();
    let mut found = [0; 1024];
    session.read_at((3 << 20) - 512, &mut found).unwrap();
    assert_eq!(found, [3; 1024], "the two disks in memory are two");
    let table = disk.map().unwrap().table();
    assert!(table.contains("2048 linear ram:1MiB#2 0\n"), "{table}");
    drop(session);
    disk.close().unwrap();
    for (name, byte) in [("a", 1), ("b", 2)] {
        let bytes = std::fs::read(folder.join(name)).unwrap();
        assert_eq!((bytes.len(), bytes[0], bytes[65_535]), (1 << 20, byte, byte), "{name}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_is_wrong_with_a_target_in_another_is_named() {
    let deep = format!("{}ram:1M", "linear:".repeat(9));
    for (target, part) in [
        ("linear:ram:1M+rom:1M", "target \"rom:1M\" does not start with"),
        (r"linear:ram:1M\,frob=1", "unknown option \"frob\" of a ram target"),
        ("linear:file:Cargo.toml+file:./Cargo.toml", "are one device"),
        ("striped:64KiB:file:Cargo.toml+file:Cargo.toml", "are one device"),
        ("linear:iscsi://u%s3cret@h/iqn.2024-01.test:t/1", "secret_file=FILE"),
        (deep.as_str(), "stands in more than 8 others"),
        ("linear:ram:1M+sda", "its disk \"sda\" is not open"),
        ("linear:file:/nonexistent/disk", "/nonexistent/disk"),
    ] {
        let error = Disk::builder(target).name("md0").reactors(1).open().expect_err(target);
        let error = error.to_string();
        assert!(error.contains(part) && !error.contains("s3cret"), "{target}: {error}");
    }
    // Paths are ways to one device.
    let file = std::env::temp_dir().join(format!("weir-paths-{}.toml", std::process::id()));
    let unit = "[[port]]\nid = 1\n[[port]]\nid = 2\n[[lun]]\nnumber = 0\nsize = \"1MiB\"\n";
    std::fs::write(&file, unit).unwrap();
    let path = |port: u32| format!(r"scsi-sim:{}\,port={port}", file.display());
    let paths = format!("multipath:{}+{}", path(1), path(2));
    let disk = Disk::builder(paths).name("md0").reactors(1).open().unwrap();
    disk.session().unwrap().write_at(4096, &[7; 512]).unwrap();
    let ways = format!("linear:{}+{}", path(1), path(2));
    let error = Disk::builder(ways).open().unwrap_err().to_string();
    assert!(error.contains("are one device"), "{error}");
    drop(disk);
    std::fs::remove_file(&file).unwrap();
}
