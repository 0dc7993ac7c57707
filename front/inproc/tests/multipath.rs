//! Multipath disks of the library: what targets say, and a disk on real reactors whose paths are
//! failed and brought back by messages.

mod bed;

use std::time::Duration;

use weir::{Clock, Disk, QueueMode, Target};

const SIZE: u64 = 8 << 20;

/// The disk `m` over two ways to one memory.
fn open(target: &str) -> (Disk, Vec<Disk>) {
    let builder = |target: &str, name: &str| Disk::builder(target).name(name).reactors(1);
    let a = builder("ram:8MiB", "a").open().unwrap();
    let b = builder("linear:a", "b").over([&a]).open().unwrap();
    let builder = builder(target, "m").over([&a, &b]).close_limit(Duration::from_secs(60));
    (builder.open().unwrap(), vec![a, b])
}

fn say(disk: &Disk, message: &str) -> Result<(), String> {
    disk.map().expect("a mapped disk").message(message, Clock.now())
}

#[test]
fn io_goes_on_over_the_path_that_is_left() {
    let (disk, _legs) = open("multipath:a+b,path_grouping_policy=multibus,path_checker=none");
    let map = disk.map().unwrap();
    assert_eq!(
        map.table(),
        "0 16384 multipath 2 queue_mode mq 0 1 1 service-time 0 2 2 a 1 1 b 1 1"
    );
    let mut session = disk.session().unwrap();
    for (round, message) in
        ["fail_path a", "reinstate_path a", "fail_path b", "switch_group 1"].iter().enumerate()
    {
        let bytes = vec![round as u8 + 1; 64 << 10];
        session.write_at(round as u64 * 4096, &bytes).unwrap();
        say(&disk, message).unwrap();
        let mut read = vec![0; bytes.len()];
        session.read_at(round as u64 * 4096, &mut read).unwrap();
        assert!(read == bytes, "after {message}");
    }
    session.flush().unwrap();
    let status = map.status();
    assert_eq!(status, "0 16384 multipath 2 0 0 0 1 1 A 0 2 2 a A 1 0 1 b F 1 0 1");
    assert!(map.listing()[2].contains("a active prio=1 in_flight=0"), "{:?}", map.listing());
    assert!(say(&disk, "fail_path c").unwrap_err().contains("path c is none of a, b"));
    disk.close().unwrap();
}

#[test]
fn a_disk_without_a_path_waits_or_fails_as_it_was_told_and_can_be_closed() {
    let (disk, _legs) = open("multipath:a+b,path_checker=none,no_path_retry=queue");
    let mut session = disk.session().unwrap();
    session.write_at(0, &[1; 4096]).unwrap();
    say(&disk, "fail_path a").unwrap();
    say(&disk, "fail_path b").unwrap();
    let writer = std::thread::spawn(move || {
        let end = session.write_at(0, &[2; 4096]);
        (session, end)
    });
    // It waits, or is still to come: either way it ends with the path.
    say(&disk, "reinstate_path b").unwrap();
    let (mut session, end) = writer.join().unwrap();
    end.unwrap();
    say(&disk, "fail_if_no_path").unwrap();
    say(&disk, "fail_path b").unwrap();
    let error = session.write_at(0, &[3; 4096]).unwrap_err();
    assert!(format!("{error:?}").contains("IoErr"), "{error:?}");
    say(&disk, "queue_if_no_path").unwrap();
    let writer = std::thread::spawn(move || session.write_at(0, &[4; 4096]));
    // Nothing but the close ends it, if it came before that.
    let closed = disk.close();
    assert!(writer.join().unwrap().is_err());
    drop(closed);
}

#[test]
fn a_table_says_the_queue_mode_and_the_selector_itself() {
    let table =
        |features: &str| format!("table:0 8 multipath {features} 0 1 1 round-robin 0 1 0 a");
    let mode = |text: &str| Target::parse(text).map(|target| target.config.mode);
    assert_eq!(mode(&table("0")), Ok(QueueMode::Mq));
    assert_eq!(mode(&table("2 queue_mode rq")), Ok(QueueMode::Sq));
    assert_eq!(mode(&table("2 queue_mode bio")), Ok(QueueMode::Mq));
    assert_eq!(mode(&format!("{},queue_mode=sq", table("0"))), Ok(QueueMode::Sq));
    let errors = [
        (format!("{},queue_mode=mq", table("2 queue_mode rq")), "its table says another"),
        (format!("{},scheduler=bfq", table("2 queue_mode bio")), "queue_mode bio has none"),
        (format!("{},path_selector=round-robin", table("0")), "the table says that"),
        (format!("{},polling_interval=30", table("0")), "max_polling_interval=20 is below"),
        (table("2 queue_mode xx"), "is none of bio, rq, mq"),
        (String::from("table:0 8 multipath 0 0 0 0"), "has at least one path"),
        (String::from("table:0 8 linear a 0,no_path_retry=5"), "it is for a multipath table"),
        (String::from("multipath:a+a"), "names disk a twice"),
        (String::from("multipath:a+b,path_selector=io-affinity"), "is none of service-time, "),
        (String::from("multipath:a+b,colour=blue"), "unknown option \"colour\""),
    ];
    for (text, expected) in errors {
        let error = Target::parse(&text).expect_err(&text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn paths_that_are_not_one_device_are_refused() {
    let builder = |target: &str, name: &str| Disk::builder(target).name(name).reactors(1);
    let a = builder("ram:8MiB", "a").open().unwrap();
    let b = builder("ram:4MiB", "b").open().unwrap();
    let error = builder("multipath:a+b", "m").over([&a, &b]).open().unwrap_err().to_string();
    assert!(error.contains("paths a and b are not one device: 8388608 bytes"), "{error}");
    let table = "table:0 8 multipath 0 0 1 1 round-robin 0 1 0 a";
    let error = builder(table, "m").over([&a]).open().unwrap_err().to_string();
    assert!(error.contains("a table of 8 sectors, and its paths have 16384"), "{error}");
    assert_eq!(a.size(), SIZE);
}

/// A target with four ports, whose groups are not alike.
const PORT_GROUPS: &str = r#"
    [[group]]
    id = 1
    state = "active/non-optimized"
    [[group]]
    id = 2
    state = "active/optimized"
    [[group]]
    id = 3
    state = "standby"
    [[port]]
    id = 1
    group = 1
    [[port]]
    id = 2
    group = 2
    [[port]]
    id = 3
    group = 3
    [[port]]
    id = 4
    group = 2
    [[lun]]
    size = "1MiB"
"#;

#[test]
fn the_groups_of_a_target_follow_its_policy_and_the_states_of_the_ports() {
    let folder = bed::Folder::new();
    let file = folder.join("t.toml");
    std::fs::write(&file, PORT_GROUPS).unwrap();
    let builder = |target: &str, name: &str| Disk::builder(target).name(name).reactors(1);
    let path = |port: u16| {
        let target = format!("scsi-sim:{},port={port}", file.display());
        builder(&target, &format!("p{port}")).open().unwrap()
    };
    let paths = [1, 2, 3, 4].map(path);
    assert_eq!(paths[2].size(), 0, "a port in standby tells no size");
    let selector = "service-time";
    let line = |disks: &[u16]| {
        let disks: Vec<String> = disks.iter().map(|port| format!("p{port} 1 1")).collect();
        format!("{selector} 0 {} 2 {}", disks.len(), disks.join(" "))
    };
    for (options, handler, groups) in [
        ("", "1 alua", vec![line(&[2]), line(&[4]), line(&[1]), line(&[3])]),
        (
            ",path_grouping_policy=group_by_prio",
            "1 alua",
            vec![line(&[2, 4]), line(&[1]), line(&[3])],
        ),
        (",path_grouping_policy=group_by_serial", "1 alua", vec![line(&[2, 4, 1, 3])]),
        // All of them were activated, so they are alike now.
        (",path_grouping_policy=group_by_node_name", "1 alua", vec![line(&[1, 2, 3, 4])]),
        (
            ",path_grouping_policy=multibus,hardware_handler=none,prio=const",
            "0",
            vec![line(&[1, 2, 3, 4])],
        ),
        (
            ",path_grouping_policy=failover,prio=const",
            "1 alua",
            [1, 2, 3, 4].map(|port| line(&[port])).to_vec(),
        ),
    ] {
        let target = format!("multipath:p1+p2+p3+p4,path_checker=none{options}");
        let disk = builder(&target, "m").over(&paths).open().unwrap();
        let table = disk.map().unwrap().table();
        let count = groups.len();
        let expected = format!("2 queue_mode mq {handler} {count} 1 {}", groups.join(" "));
        assert_eq!(table, format!("0 2048 multipath {expected}"), "{options}");
        // The path in standby has the size of the others, and carries what it is activated for.
        assert_eq!(disk.size(), 1 << 20);
        let mut session = disk.session().unwrap();
        session.write_at(0, &[5; 4096]).unwrap();
        disk.close().unwrap();
    }
}

#[test]
fn the_paths_to_one_node_of_a_target_are_a_group_by_its_name() {
    let folder = bed::Folder::new();
    let builder = |target: &str, name: &str| Disk::builder(target).name(name).reactors(1);
    let nodes = ["x", "y"].map(|name| {
        let file = folder.join(&format!("{name}.toml"));
        std::fs::write(&file, "[[port]]\nid = 1\n[[port]]\nid = 2\n[[lun]]\nsize = \"1MiB\"\n")
            .unwrap();
        file
    });
    let path = |name: &str, node: usize, port: u16| {
        builder(&format!("scsi-sim:{},port={port}", nodes[node].display()), name).open().unwrap()
    };
    let plain = builder("ram:1MiB", "e").open().unwrap();
    let paths = [path("a", 0, 1), path("b", 1, 1), path("c", 0, 2), path("d", 1, 2), plain];
    let target = "multipath:a+b+e+c+d,path_checker=none,path_grouping_policy=group_by_node_name";
    let disk = builder(target, "m").over(&paths).open().unwrap();
    let table = disk.map().unwrap().table();
    let groups: Vec<Vec<&str>> = table
        .split("service-time 0 ")
        .skip(1)
        .map(|group| group.split(' ').filter(|word| word.len() == 1 && *word > "9").collect())
        .collect();
    assert_eq!(groups, [vec!["a", "c"], vec!["b", "d"], vec!["e"]], "{table}");
}
