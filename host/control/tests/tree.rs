//! The files of the tree, their contents, and the effect of each write.

mod bed;

use std::sync::Arc;

use bed::{BYTES, CacheLater, Model, device, live, tree};
use weir_bio::{Limits, WriteCache};
use weir_control::{About, Disk, Errno, Node, Parameters, Polled, Tree};
use weir_queue::{Config, Device, QueueMode};

fn sda() -> Config {
    Config { name: String::from("sda"), ..Config::default() }
}

fn names(tree: &Tree, path: &str) -> Vec<String> {
    tree.list(path).unwrap().into_iter().map(|(name, _)| name).collect()
}

#[track_caller]
fn errno(tree: &Tree, path: &str, text: &str) -> Errno {
    tree.write(path, text.as_bytes()).unwrap_err().errno
}

#[track_caller]
fn read(tree: &Tree, path: &str) -> String {
    let text = tree.read(path).unwrap();
    text.strip_suffix('\n').expect("a newline at the end").into()
}

/// A write that is taken, and what the file says then.
#[track_caller]
fn written(tree: &Tree, path: &str, text: &str) -> String {
    tree.write(path, text.as_bytes()).unwrap();
    read(tree, path)
}

#[test]
fn a_disk_has_the_files_of_a_disk() {
    let tree = tree(live(device(Config { queues: 2, ..sda() })));
    assert_eq!(names(&tree, "/"), ["block", "class", "module", "proc"]);
    assert_eq!(names(&tree, "class"), ["block"]);
    assert_eq!(names(&tree, "class/block/sda"), names(&tree, "block/sda"));
    assert_eq!(names(&tree, "block"), ["sda"]);
    assert_eq!(
        names(&tree, "block/sda"),
        [
            "alignment_offset",
            "capability",
            "dev",
            "discard_alignment",
            "diskseq",
            "ext_range",
            "hidden",
            "holders",
            "inflight",
            "mq",
            "queue",
            "range",
            "removable",
            "ro",
            "size",
            "slaves",
            "stat",
            "weir"
        ]
    );
    assert_eq!(read(&tree, "block/sda/size"), (BYTES / 512).to_string());
    assert_eq!(read(&tree, "block/sda/inflight"), "       0        0");
    assert_eq!(read(&tree, "block/sda/stat").split_whitespace().count(), 17);
    assert_eq!(names(&tree, "block/sda/holders"), [""; 0]);
    let diskstats = tree.read("proc/diskstats").unwrap();
    assert_eq!(diskstats, format!(" 259       0 sda{}\n", " 0".repeat(17)));
    for module in ["scsi_mod", "dm_mod"] {
        let path = format!("module/{module}/parameters/use_blk_mq");
        assert_eq!(read(&tree, &path), "Y");
        assert_eq!(errno(&tree, &path, "N"), Errno::Access);
    }
    let off = Parameters { scsi_mod_use_blk_mq: false, dm_mod_use_blk_mq: true };
    assert_eq!(read(&Tree::new(off), "module/scsi_mod/parameters/use_blk_mq"), "N");
}

#[test]
fn a_disk_grows_by_whole_blocks_if_what_is_below_it_does() {
    let limits = Limits { capacity: 16, logical_block_size: 4096, ..Limits::default() };
    let tree = tree(Model::new("sda", limits));
    for (sectors, why) in [
        ("8", "a disk only grows"),
        ("17", "is no multiple of its blocks of 8 sectors"),
        ("24", "the disk has 16 sectors, and what is below it does not grow"),
    ] {
        let refused = tree.write("block/sda/size", sectors.as_bytes()).unwrap_err();
        assert!(refused.errno == Errno::Invalid && refused.to_string().contains(why), "{refused}");
    }
    assert_eq!(written(&tree, "block/sda/size", "16"), "16");
}

#[test]
fn a_path_that_is_none_says_what_is_wrong_with_it() {
    let tree = tree(live(device(sda())));
    for (path, errno) in [
        ("frob", Errno::NotFound),
        ("block/sdb", Errno::NotFound),
        ("block/sda/queue/frob", Errno::NotFound),
        ("block/../block", Errno::NotFound),
        ("block/sda/size/x", Errno::NotDirectory),
        (&"a/".repeat(3000), Errno::NameTooLong),
    ] {
        assert_eq!(tree.look_up(path).unwrap_err().errno, errno, "{path}");
        assert_eq!(tree.read(path).unwrap_err().errno, errno, "{path}");
        assert_eq!(tree.write(path, b"1").unwrap_err().errno, errno, "{path}");
    }
    assert_eq!(tree.read("block/sda").unwrap_err().errno, Errno::IsDirectory);
    assert_eq!(errno(&tree, "block/sda/queue", "1"), Errno::IsDirectory);
    assert_eq!(tree.list("block/sda/size").unwrap_err().errno, Errno::NotDirectory);
    assert_eq!(tree.look_up("//block//sda/").unwrap(), Node::Directory);
    assert_eq!(tree.look_up("block/sda/ro").unwrap().mode(), 0o444);
    // Of a disk of the kernel it is read-only; these grow.
    assert_eq!(tree.look_up("block/sda/size").unwrap().mode(), 0o644);
    assert_eq!(tree.look_up("block/sda/queue/scheduler").unwrap().mode(), 0o644);
}

#[test]
fn every_read_only_file_refuses_writes_and_every_file_can_be_read() {
    for mode in [QueueMode::Mq, QueueMode::Sq] {
        let tree = tree(live(device(Config { mode, ..sda() })));
        let mut folders = vec![String::new()];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for (name, node) in tree.list(&folder).unwrap() {
                let path = format!("{folder}/{name}");
                match node {
                    Node::Directory => folders.push(path),
                    Node::File { writable } => {
                        files += 1;
                        assert!(tree.read(&path).unwrap().ends_with('\n'), "{path}");
                        if !writable {
                            assert_eq!(errno(&tree, &path, "1"), Errno::Access, "{path}");
                        }
                    }
                }
            }
        }
        assert!(files > 60, "{files} files");
    }
}

#[test]
fn hard_queues_are_there_on_the_multi_queue_path_alone() {
    let multi = tree(live(device(Config { queues: 2, ..sda() })));
    assert_eq!(names(&multi, "block/sda/mq"), ["0", "1"]);
    assert_eq!(
        names(&multi, "block/sda/mq/1"),
        ["completed", "cpu1", "cpu_list", "dispatched", "nr_reserved_tags", "nr_tags"]
    );
    assert_eq!(read(&multi, "block/sda/mq/1/dispatched"), "0 0");
    assert_eq!(errno(&multi, "block/sda/mq/1/completed", "0"), Errno::Access);
    assert_eq!(read(&multi, "block/sda/mq/1/cpu_list"), "1");
    assert_eq!(read(&multi, "block/sda/mq/0/nr_tags"), "128");
    assert_eq!(read(&multi, "block/sda/weir/queues"), "2");
    let shared = tree(live(device(sda())));
    assert_eq!(read(&shared, "block/sda/mq/0/cpu_list"), "0, 1");
    assert_eq!(errno(&shared, "block/sda/mq/0/nr_tags", "64"), Errno::Access);
    let single = tree(live(device(Config { mode: QueueMode::Sq, ..sda() })));
    assert_eq!(single.list("block/sda/mq").unwrap_err().errno, Errno::NotFound);
    assert_eq!(read(&single, "block/sda/weir/queue_mode"), "sq");
    assert_eq!(errno(&single, "block/sda/weir/queues", "2"), Errno::Invalid);
    written(&single, "block/sda/weir/queues", "1\n");
}

#[test]
fn a_disk_goes_back_to_as_many_queues_as_it_began_with_though_it_has_fewer_threads() {
    let path = "block/sda/weir/queues";
    let limits = Limits { capacity: 1024, ..Limits::default() };
    let tree = tree(Model::new("sda", limits).begun_with(8));
    written(&tree, path, "8");
    written(&tree, path, "2");
    assert_eq!(read(&tree, path), "2");
    written(&tree, path, "8");
    assert_eq!(read(&tree, path), "8");
    let refused = tree.write(path, b"9").unwrap_err();
    assert_eq!(refused.errno, Errno::Invalid);
    assert!(refused.what.contains("outside 1..=8"), "{}", refused.what);
    for bad in ["0", "65537", "eight", ""] {
        assert_eq!(errno(&tree, path, bad), Errno::Invalid, "{bad:?}");
    }
}

#[test]
fn a_scheduler_is_switched_by_its_name_and_shown_in_brackets() {
    let tree = tree(Model::new("sda", Limits { capacity: 1024, ..Limits::default() }));
    let path = "block/sda/queue/scheduler";
    assert_eq!(read(&tree, path), "[none] mq-deadline kyber bfq ");
    assert_eq!(tree.list("block/sda/queue/iosched").unwrap_err().errno, Errno::NotFound);
    for (text, shown) in [
        ("bfq\n", "none mq-deadline kyber [bfq] "),
        ("deadline", "none [mq-deadline] kyber bfq "),
        (" kyber \n", "none mq-deadline [kyber] bfq "),
        ("mq-deadline\n", "none [mq-deadline] kyber bfq "),
    ] {
        assert_eq!(written(&tree, path, text), shown, "{text:?}");
    }
    for text in ["", "\n", " ", "frob", "bf", "bfqx", "mq-deadline,bfq", &"x".repeat(1 << 20)] {
        assert_eq!(errno(&tree, path, text), Errno::Invalid, "{text:?}");
        assert_eq!(read(&tree, path), "none [mq-deadline] kyber bfq ");
    }
    assert_eq!(written(&tree, path, "nonesuch"), "[none] mq-deadline kyber bfq ");
    assert_eq!(read(&tree, "block/sda/weir/last_switch_us"), "5");
    assert_eq!(read(&tree, "block/sda/weir/uptime_ms"), "90000");
}

#[test]
fn a_tunable_is_clamped_or_refused_as_its_row_says() {
    let tree = tree(Model::new("sda", Limits { capacity: 1024, ..Limits::default() }));
    written(&tree, "block/sda/queue/scheduler", "mq-deadline");
    let folder = "block/sda/queue/iosched";
    assert_eq!(names(&tree, folder), ["fifo_batch", "prio_aging_expire", "read_lat_nsec"]);
    let fifo_batch = "block/sda/queue/iosched/fifo_batch";
    for (text, shown) in [("8\n", "8"), ("-1", "0"), ("0x10", "16"), ("010", "8")] {
        assert_eq!(written(&tree, fifo_batch, text), shown, "{text:?}");
    }
    let long = "9".repeat(1 << 20);
    for (text, error) in [
        ("", Errno::Invalid),
        ("a\n", Errno::Invalid),
        ("8 ", Errno::Invalid),
        ("2147483648", Errno::Range),
        (&long, Errno::Range),
    ] {
        assert_eq!(errno(&tree, fifo_batch, text), error, "{:?}", &text[..text.len().min(20)]);
        assert_eq!(read(&tree, fifo_batch), "8");
    }
    let aging = "block/sda/queue/iosched/prio_aging_expire";
    for below in ["0", "-1", "-2147483648"] {
        tree.write(aging, "7".as_bytes()).unwrap();
        tree.write(aging, below.as_bytes()).unwrap();
        assert_eq!(read(&tree, aging), "0", "{below}: as Linux shows it");
    }
    assert_eq!(tree.read("block/sda/queue/iosched/frob").unwrap_err().errno, Errno::NotFound);
}

/// A queue attribute, what is written to it, and what becomes of that.
type Case = (&'static str, &'static str, Result<&'static str, Errno>);

const CASES: &[Case] = &[
    ("nr_requests", "64\n", Ok("64")),
    ("nr_requests", "1", Ok("4")),
    ("nr_requests", "128", Ok("128")),
    ("nr_requests", "129", Err(Errno::Invalid)),
    ("nr_requests", "65536", Err(Errno::Invalid)),
    ("nr_requests", "-1", Err(Errno::Invalid)),
    ("nomerges", "1", Ok("1")),
    ("nomerges", "7", Ok("1")),
    ("nomerges", "2", Ok("2")),
    ("nomerges", "x", Err(Errno::Invalid)),
    ("max_sectors_kb", "64", Ok("64")),
    ("max_sectors_kb", "3", Err(Errno::Invalid)),
    ("max_sectors_kb", "0", Ok("1024")),
    ("max_sectors_kb", "99999999", Ok("1024")),
    ("iostats", "0", Ok("0")),
    ("iostats", "5", Ok("1")),
    ("iostats", "", Err(Errno::Invalid)),
    ("rotational", "1", Ok("1")),
    ("rotational", "0", Ok("0")),
    ("io_timeout", "500", Ok("500")),
    ("io_timeout", "0", Err(Errno::Invalid)),
    ("io_timeout", "4294967296", Err(Errno::Invalid)),
    ("discard_max_bytes", "8192", Ok("8192")),
    ("discard_max_bytes", "1048576", Ok("65536")),
    ("discard_max_bytes", "5000", Err(Errno::Invalid)),
    ("discard_max_bytes", "0", Ok("0")),
    // A kernel does not get them back either.
    ("discard_max_bytes", "8192", Err(Errno::Invalid)),
    ("wbt_lat_usec", "0", Ok("0")),
    ("wbt_lat_usec", "5000\n", Ok("5000")),
    ("wbt_lat_usec", "-1", Ok("2000")),
    ("wbt_lat_usec", "+7", Ok("7")),
    ("wbt_lat_usec", "-0", Ok("0")),
    ("wbt_lat_usec", "-2", Err(Errno::Invalid)),
    ("wbt_lat_usec", "junk", Err(Errno::Invalid)),
    ("wbt_lat_usec", " 5", Err(Errno::Invalid)),
    ("wbt_lat_usec", "18446744073709551", Ok("18446744073709551")),
    // A kernel takes it, and its nanoseconds wrap around.
    ("wbt_lat_usec", "18446744073709552", Err(Errno::Invalid)),
    ("wbt_lat_usec", "9223372036854775808", Err(Errno::Range)),
    ("write_cache", "write through\n", Ok("write through")),
    ("write_cache", "write back", Ok("write back")),
    ("write_cache", "none", Ok("write through")),
    ("write_cache", "writeback", Err(Errno::Invalid)),
    ("write_cache", "write background", Ok("write back")),
    ("read_ahead_kb", "3", Ok("0")),
    ("read_ahead_kb", "4097", Ok("4096")),
    ("rq_affinity", "2", Ok("2")),
    ("rq_affinity", "3", Ok("2")),
    ("add_random", "9", Ok("1")),
    ("stable_writes", "1", Ok("1")),
    ("iostats_passthrough", "1", Ok("1")),
    ("io_poll", "0", Err(Errno::Invalid)),
    ("io_poll_delay", "junk", Ok("-1")),
    ("write_zeroes_unmap_max_bytes", "0", Ok("0")),
    ("write_zeroes_unmap_max_bytes", "512", Err(Errno::Invalid)),
    ("scheduler", "frob", Err(Errno::Invalid)),
];

#[test]
fn each_queue_attribute_takes_and_refuses_what_linux_does() {
    let limits = Limits {
        capacity: 1 << 20,
        volatile_cache: true,
        fua: true,
        max_hw_sectors: 2048,
        max_hw_discard_sectors: 128,
        discard_granularity: 4096,
        ..Limits::default()
    };
    let tree = tree(Model::new("sda", limits));
    for (name, text, outcome) in CASES {
        let path = format!("block/sda/queue/{name}");
        let before = read(&tree, &path);
        match outcome {
            Ok(shown) => assert_eq!(written(&tree, &path, text), *shown, "{name} {text:?}"),
            Err(error) => {
                let failure = tree.write(&path, text.as_bytes()).unwrap_err();
                assert_eq!(failure.errno, *error, "{name} {text:?}");
                assert!(failure.what.contains(&path), "{failure}");
                assert_eq!(read(&tree, &path), before, "{name} {text:?}");
            }
        }
    }
}

#[test]
fn a_cache_that_was_declared_safe_has_its_fua_back_when_that_is_taken_back() {
    let limits = Limits { capacity: 1024, volatile_cache: true, fua: true, ..Limits::default() };
    let tree = tree(Model::new("sda", limits));
    let (cache, fua) = ("block/sda/queue/write_cache", "block/sda/queue/fua");
    assert_eq!((read(&tree, cache), read(&tree, fua)), ("write back".into(), "1".into()));
    written(&tree, cache, "write through");
    assert_eq!(read(&tree, fua), "0");
    written(&tree, cache, "write back");
    assert_eq!(read(&tree, fua), "1");
}

#[test]
fn a_device_without_a_cache_does_not_get_one_by_being_told() {
    let tree = tree(live(device(sda())));
    assert_eq!(written(&tree, "block/sda/queue/write_cache", "write back"), "write through");
}

#[test]
fn a_cache_that_was_turned_on_below_is_flushed_once_the_disk_looks_or_its_user_says_so() {
    let on = WriteCache { volatile: true, fua: true };
    let (cache, fua) = ("block/sda/queue/write_cache", "block/sda/queue/fua");
    let both = |tree: &Tree| (read(tree, cache), read(tree, fua));
    let flushed = (String::from("write back"), String::from("1"));
    for (asks, silent) in [(true, false), (true, true), (false, false)] {
        let driver = CacheLater { silent, ..CacheLater::default() };
        let disk = Arc::new(live(Device::new(sda(), Arc::new(driver.clone())).unwrap()));
        let tree = Tree::new(Parameters::default());
        tree.add(Arc::clone(&disk) as Arc<_>, 1);
        assert_eq!(written(&tree, cache, "write back"), "write through");
        *driver.cache.lock().unwrap() = on;
        match asks {
            // It is flushed also if it could not say how large it is.
            true => assert_eq!(disk.enlarge(0).ok(), (!silent).then_some(1024)),
            false => assert_eq!(written(&tree, cache, "write back"), "write back"),
        }
        assert_eq!(both(&tree), flushed);
        // What the user says then stands, whenever the disk looks.
        written(&tree, cache, "write through");
        let _ = disk.enlarge(0);
        assert_eq!(read(&tree, cache), "write through");
    }
}

#[test]
fn a_write_reaches_the_device() {
    let device = device(sda());
    let tree = tree(live(device.clone()));
    for (name, text) in [
        ("nr_requests", "32"),
        ("nomerges", "2"),
        ("max_sectors_kb", "16"),
        ("iostats", "0"),
        ("rotational", "1"),
        ("io_timeout", "1234"),
        ("wbt_lat_usec", "3000"),
    ] {
        assert_eq!(written(&tree, &format!("block/sda/queue/{name}"), text), text, "{name}");
    }
    let parts = device.settings();
    assert_eq!((parts.nr_requests, parts.nomerges, parts.iostats), (32, 2, false));
    assert_eq!(parts.timeout_ns, 1_234_000_000);
    assert_eq!((parts.limits.max_sectors(), parts.limits.rotational), (32, true));
}

#[test]
fn a_disk_that_is_going_away_says_so() {
    let device = device(sda());
    let tree = tree(live(device.clone()));
    device.take_offline();
    // A file whose value is still known still gives it.
    assert_eq!(read(&tree, "block/sda/size"), (BYTES / 512).to_string());
}

#[test]
fn several_disks_stand_side_by_side() {
    let tree = tree(live(device(sda())));
    tree.add(std::sync::Arc::new(live(device(Config { name: String::from("vdb"), ..sda() }))), 1);
    assert_eq!(names(&tree, "block"), ["sda", "vdb"]);
    assert_eq!(read(&tree, "block/vdb/diskseq"), "2");
    assert_eq!(tree.read("proc/diskstats").unwrap().lines().count(), 2);
    written(&tree, "block/vdb/queue/nomerges", "2");
    assert_eq!(read(&tree, "block/sda/queue/nomerges"), "0");
}

#[test]
fn the_uptime_is_that_of_the_daemon_with_two_decimals_as_linux_has_it() {
    let tree = Tree::new(Parameters::default());
    assert_eq!(tree.read("proc/uptime").unwrap(), "0.00 0.00\n");
    tree.show_daemon(About {
        version: "1",
        uptime_ms: Box::new(|| 61_079),
        idle_ms: Box::new(|| 120_500),
        listeners: Box::new(Vec::new),
        polling: Box::new(Polled::default),
    });
    assert_eq!(tree.read("proc/uptime").unwrap(), "61.07 120.50\n");
    assert_eq!(errno(&tree, "proc/uptime", "1"), Errno::Access);
}
