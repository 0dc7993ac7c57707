//! The laws of every driver, seen from the top: one suite over all targets.
//!
//! A driver's own suite turns its queues by hand; here it stands where it will be used, below
//! splitting, merging, the flush machine and real reactors. A kind of target is here by the example
//! it declares; one that needs a server has a line in `subjects`.

mod bed;

use std::any::Any;
use std::path::Path;
use std::time::Duration;

use bed::outside::leave_out;
use bed::server::Server;
use bed::tgtd::Tgtd;
use bed::{Folder, Model, exercise, seed};
use weir::drivers::{kind_of, kinds};
use weir::{Bio, Buf, Cause, Data, Disk, Flags, IoError, Op, Segments, Session, Status};
use weir_bio::Prng;
use weir_queue::{Keeps, Written};

/// Bytes of each disk.
const SIZE: u64 = 8 << 20;

/// A target under test.
struct Subject {
    name: &'static str,
    target: String,
    /// The targets of the disks `a`, `b`, ... that it lies on.
    legs: Vec<String>,
    /// Data written can be read.
    keeps_data: bool,
    /// It outlives the disk that was opened on it.
    keeps_longer: bool,
    /// Gone with the subject.
    _server: Option<Box<dyn Any>>,
    _folder: Option<Folder>,
}

impl Subject {
    fn open_with(&self, options: &str) -> Disk {
        let target = format!("{}{options}", self.target);
        println!("opening {target}");
        let limit = Duration::from_secs(60);
        let mut legs: Vec<Disk> = Vec::new();
        for (index, target) in self.legs.iter().enumerate() {
            let name = char::from(b'a' + index as u8).to_string();
            let builder = Disk::builder(target.as_str()).name(name).reactors(1 + index % 2);
            legs.push(builder.over(&legs).close_limit(limit).open().unwrap());
        }
        let builder = Disk::builder(target).name("sda").reactors(2).over(&legs);
        let disk = builder.close_limit(limit).open().unwrap();
        assert_eq!(disk.size(), SIZE);
        disk.notices().iter().for_each(|notice| println!("{notice}"));
        println!("{} hard queues", disk.device().config().queues);
        disk
    }

    fn open(&self) -> Disk {
        self.open_with("")
    }
}

/// The kinds of target whose examples need a server or other disks.
const NEED_OTHERS: &[&str] =
    &["nbd", "iscsi", "scsi-sim", "linear", "striped", "multipath", "fault", "table"];

/// The example of a kind.
fn example(name: &'static str) -> Subject {
    let kind = kind_of(name).unwrap();
    let folder = Folder::new();
    let dir = folder.path().display().to_string();
    let target = kind.example.replace("DIR", &dir);
    let (head, rest) = target.split_once(':').unwrap();
    let rest = rest.split(',').next().unwrap();
    let keeps = (kind.parse)(&Written { name: head, rest, text: &target }).unwrap().keeps();
    let (keeps_data, keeps_longer) = (keeps != Keeps::Nothing, keeps == Keeps::Flushed);
    Subject {
        name,
        target,
        legs: Vec::new(),
        keeps_data,
        keeps_longer,
        _server: None,
        _folder: Some(folder),
    }
}

fn memory(name: &'static str, target: &str, keeps_data: bool) -> Subject {
    let (target, keeps_longer) = (String::from(target), false);
    Subject {
        name,
        target,
        legs: Vec::new(),
        keeps_data,
        keeps_longer,
        _server: None,
        _folder: None,
    }
}

fn file(name: &'static str, parent: &Path, options: &str) -> Option<Subject> {
    if !parent.is_dir() {
        leave_out(&format!("{name}: there is no {}", parent.display()));
        return None;
    }
    let folder = Folder::within(parent);
    let target = format!("file:{},size={SIZE}{options}", folder.join("disk").display());
    let (keeps_data, keeps_longer, _folder) = (true, true, Some(folder));
    Some(Subject {
        name,
        target,
        legs: Vec::new(),
        keeps_data,
        keeps_longer,
        _server: None,
        _folder,
    })
}

fn nbd(name: &'static str, server: Option<Server>, options: &str) -> Option<Subject> {
    let target = format!("{}{options}", server.as_ref()?.target());
    let (keeps_data, keeps_longer) = (true, true);
    Some(Subject {
        name,
        target,
        legs: Vec::new(),
        keeps_data,
        keeps_longer,
        _server: Some(Box::new(server)),
        _folder: None,
    })
}

/// A thin logical unit of a target of its own.
fn tgtd(name: &'static str, digests: &str, options: &str) -> Option<Subject> {
    const TARGET: &str = "iqn.2024-01.test:laws";
    let folder = Folder::new();
    let tgtd = Tgtd::start(&folder.path().display().to_string(), "laws")?;
    tgtd.target(1, TARGET);
    tgtd.unit(1, 1, &tgtd.image("disk", SIZE), &[]);
    tgtd.unit_parameters(1, 1, "thin_provisioning=1");
    for key in ["HeaderDigest", "DataDigest"] {
        tgtd.parameter("1", key, digests);
    }
    let target = format!("iscsi://127.0.0.1:{}/{TARGET}/1{options}", tgtd.port);
    Some(Subject {
        name,
        target,
        legs: Vec::new(),
        keeps_data: true,
        keeps_longer: true,
        _server: Some(Box::new(tgtd)),
        _folder: Some(folder),
    })
}

/// A disk over others of these targets, `DIR` in which is a folder of its own.
fn mapped(name: &'static str, target: &str, legs: &[&str]) -> Subject {
    let folder = Folder::new();
    let dir = folder.path().display().to_string();
    let legs: Vec<String> = legs.iter().map(|leg| leg.replace("DIR", &dir)).collect();
    let forgets = target.contains("zero") || target.contains("drop_writes");
    let keeps_data = !forgets && !legs.iter().any(|leg| leg.starts_with("null:"));
    let keeps_longer = keeps_data && legs.iter().all(|leg| leg.starts_with("file:"));
    let (target, _folder) = (String::from(target), Some(folder));
    Subject { name, target, legs, keeps_data, keeps_longer, _server: None, _folder }
}

/// Mapped disks over legs of one kind and of several, with queues that differ above and below.
fn mapped_subjects() -> Vec<Subject> {
    let file = |name: &str, size: &str| format!("file:DIR/{name},size={size}");
    let (one, other) = (file("one", "3MiB"), file("other", "5MiB,io=threads,cache=writeback"));
    let four = [file("a", "2MiB"), file("b", "2MiB"), file("c", "2100KiB"), file("d", "2MiB")];
    let [a, b, c, d] = four.each_ref().map(String::as_str);
    vec![
        mapped("linear", "linear:a+b,queues=2", &["ram:4MiB,queues=2", "ram:4MiB"]),
        mapped("linear over files, single queue", "linear:a+b,queue_mode=sq", &[&one, &other]),
        mapped("striped over null", "striped:4KiB:a+b", &["null:4MiB", "null:4MiB"]),
        mapped("striped over files", "striped:64KiB:a+b+c+d,queues=2", &[a, b, c, d]),
        mapped(
            "striped over single queues, scheduled",
            "striped:512:a+b,scheduler=bfq",
            &["ram:4MiB,queue_mode=sq", "ram:4MiB,queue_mode=sq,scheduler=cfq"],
        ),
        mapped("delayed", "table:0 16384 delay a 0 0 a 0 1", &["ram:8MiB"]),
        mapped("zeros", "table:0 16384 zero", &[]),
        mapped("zeros, single queue", "table:0 16384 zero,queue_mode=sq", &[]),
        mapped(
            "zeros between files",
            "table:0 4097 linear a 3;4097 2047 zero;6144 10240 linear b 0",
            &[&one, &other],
        ),
        mapped("flakey, up", "table:0 16384 flakey a 0 60 0,queues=2", &["ram:8MiB"]),
        mapped(
            "flakey, down, and drops writes",
            "table:0 16384 flakey a 8 0 1 1 drop_writes",
            &[&file("one", "9MiB")],
        ),
        mapped(
            "flakey, down, and of its reads few are falsified where they are metadata",
            "table:0 16384 flakey a 0 0 9 5 corrupt_bio_byte 7 r 1 32,queue_mode=sq",
            &["ram:8MiB"],
        ),
        mapped(
            "faults within the contract",
            "fault:a,refused=20,delayed=40,reaps_max=3,reordered=on,queues=2",
            &["ram:8MiB,queues=2"],
        ),
        mapped(
            "faults in front of a stripe, single queue",
            "table:0 16384 fault c 0 6 refused 10 delayed 30 seed 4,queue_mode=sq",
            &["ram:4MiB", "ram:4MiB", "striped:64KiB:a+b"],
        ),
        mapped(
            "a table",
            "table:0 8160 striped 2 24 a 0 b 8;8160 8224 linear b 6000",
            &["ram:3MiB", "ram:8MiB,spread=round-robin,queues=2"],
        ),
        // Two ways to one disk: itself, and a disk that lies on it.
        mapped(
            "multipath",
            "multipath:a+b,path_grouping_policy=multibus,queues=2",
            &["ram:8MiB,queues=2", "linear:a"],
        ),
        mapped(
            "multipath over a file, single queue",
            "multipath:a+b,queue_mode=sq,scheduler=cfq,path_checker=directio,polling_interval=1",
            &[&file("one", "8MiB,io=threads"), "linear:a,scheduler=kyber"],
        ),
        mapped(
            "a multipath table",
            "table:0 16384 multipath 3 queue_if_no_path queue_mode mq 0 2 1 \
             queue-length 0 2 0 a b historical-service-time 0 1 0 c,slow_path=on",
            &["ram:8MiB", "linear:a", "linear:b"],
        ),
    ]
}

/// A simulated target that is busy, delays commands and fails some in ways that pass.
fn simulated(name: &'static str, options: &str) -> Option<Subject> {
    let spec = r#"
        queue_depth = 24
        [[lun]]
        size = "8MiB"
        thin = "8MiB"
        queue_depth = 6
        speed = { latency = "20us", spread = "50us" }
        [[fault]]
        chance = 2
        effect = { delayed = { by = "2ms" } }
        [[fault]]
        chance = 2
        effect = { status = 8 }
        [[fault]]
        class = "write"
        chance = 1
        effect = { sense = { key = 11, code = 0 } }
        [[fault]]
        chance = 1
        effect = { sense = { key = 6, code = 0x2900 } }
    "#;
    let folder = Folder::new();
    std::fs::write(folder.join("target.toml"), spec).unwrap();
    let target = format!("scsi-sim:{}{options}", folder.join("target.toml").display());
    let (keeps_data, keeps_longer, _folder) = (true, false, Some(folder));
    let legs = Vec::new();
    Some(Subject { name, target, keeps_data, keeps_longer, legs, _server: None, _folder })
}

fn subjects() -> Vec<Subject> {
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let shm = Path::new("/dev/shm");
    let nbdkit = || Server::nbdkit(&["memory", "8M"]);
    let qemu = || Server::qemu_nbd(SIZE, &["-e", "8", "--discard=unmap"]);
    let mut subjects = vec![
        memory("ram, two queues", "ram:8MiB,queues=2", true),
        memory("ram, single queue", "ram:8MiB,queue_mode=sq", true),
        memory("ram, round robin", "ram:8MiB,queues=2,spread=round-robin", true),
        memory("a modelled SSD, two queues", "model:sas-ssd,size=8MiB,queues=2", true),
        memory(
            "a modelled array, single queue",
            "model:powermax-8000,size=8MiB,queue_mode=sq",
            true,
        ),
    ];
    let others = [
        file("file, direct", disk, ",queues=2"),
        file("file, direct, single queue", disk, ",queue_mode=sq"),
        file("file in memory", shm, ",queues=2"),
        file("file in memory, buffered", shm, ",queues=2,cache=writeback"),
        file("file, buffered", disk, ",queues=2,cache=writeback"),
        file("file, direct, threads", disk, ",queues=2,io=threads"),
        file("file, threads, single queue", disk, ",queue_mode=sq,io=threads,cache=writeback"),
        nbd("nbdkit", nbdkit(), ""),
        nbd("nbdkit, 4 connections", nbdkit(), ",connections=4"),
        nbd("nbdkit, 4096-byte blocks", nbdkit_in_pages(), ""),
        nbd("qemu-nbd", qemu(), ""),
        nbd("qemu-nbd, 4 connections", qemu(), ",connections=4"),
        nbd("qemu-nbd, single queue", qemu(), ",queue_mode=sq"),
        tgtd("tgtd", "None", ""),
        tgtd("tgtd, 2 sessions", "None", ",sessions=2"),
        tgtd("tgtd, digests", "CRC32C", ",header_digest=crc32c,data_digest=crc32c"),
        tgtd("tgtd, single queue", "None", ",queue_mode=sq"),
        simulated("simulated SCSI target", ""),
        simulated("simulated SCSI target, 2 sessions", ",sessions=2"),
        simulated("simulated SCSI target, single queue", ",queue_mode=sq"),
    ];
    subjects.extend(others.into_iter().flatten());
    subjects.extend(mapped_subjects());
    let own = kinds().into_iter().map(|kind| kind.names[0]);
    subjects.extend(own.filter(|name| !NEED_OTHERS.contains(name)).map(example));
    subjects
}

/// A server that takes whole pages only.
fn nbdkit_in_pages() -> Option<Server> {
    let policy = ["blocksize-minimum=4096", "blocksize-error-policy=error"];
    let filter = ["--filter=blocksize-policy", "memory", "8M"];
    Server::nbdkit(&[&filter[..], &policy[..]].concat())
}

/// Runs a law over all subjects, naming the one it fails on.
fn each(law: impl Fn(&Subject)) {
    for subject in subjects() {
        println!("-- {}", subject.name);
        law(&subject);
    }
}

fn patterned(len: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    Prng::new(seed).fill(&mut bytes);
    bytes
}

fn read_at(session: &mut Session, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0xEE; len as usize];
    session.read_at(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_read_is_what_was_written_zeroed_or_never_touched_and_it_survives_closing() {
    const SHARE: u64 = SIZE / 4;
    let seed = seed();
    each(|subject| {
        if !subject.keeps_data {
            return;
        }
        let disk = subject.open();
        let block = u64::from(disk.limits().logical_block_size);
        let models: Vec<Model> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|share| {
                    let disk = &disk;
                    scope.spawn(move || {
                        let mut prng = Prng::new(seed ^ share);
                        let mut model = Model::zeros(share * SHARE, SHARE);
                        let mut session = disk.session().unwrap();
                        exercise(&mut session, &mut model, block, &mut prng, 40);
                        model
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
        });
        let stats = disk.stats();
        assert_eq!((stats.in_flight, stats.errors), (0, 0));
        disk.close().unwrap();
        if subject.keeps_longer {
            let mut session = subject.open().session().unwrap();
            for mut model in models {
                let found = read_at(&mut session, model.offset, model.len());
                model.check(model.offset, &found);
            }
        }
    });
}

#[test]
fn io_of_any_size_and_shape_is_split_and_put_together_again() {
    each(|subject| {
        for options in ["", ",max_sectors_kb=64"] {
            let disk = subject.open_with(options);
            let block = disk.limits().logical_block_size as usize;
            // In one bio: from the second block to the last but one.
            let bytes = patterned(SIZE - 2 * block as u64, 1);
            let first = block as u64 / 512;
            let mut rest = Buf::filled(bytes.len(), |buf| buf.copy_from_slice(&bytes));
            let mut pieces = Vec::new();
            for blocks in [1, 3, 1, 40, 700] {
                let tail = rest.split_off(blocks * block);
                pieces.push(std::mem::replace(&mut rest, tail));
            }
            pieces.push(rest);
            let sectors = (bytes.len() / 512) as u32;
            let write = Bio::new(Op::Write, first, sectors, Data::Many(pieces.into()));
            let ended = disk.start(write).wait();
            assert_eq!((ended.status, ended.sectors), (Status::Ok, sectors));
            let mut back = vec![0; bytes.len()];
            ended.data.copy_to(&mut back);
            assert!(back == bytes, "the memory of the write came back changed");
            let ended = disk.start(Bio::read(first, Buf::zeroed(bytes.len()))).wait();
            assert_eq!((ended.status, ended.sectors), (Status::Ok, sectors));
            ended.data.copy_to(&mut back);
            assert!(back == bytes || !subject.keeps_data, "a read of {sectors} sectors");
            let mut session = disk.session().unwrap();
            let found = read_at(&mut session, block as u64, bytes.len() as u64);
            assert!(found == bytes || !subject.keeps_data, "the same in pieces");
            let most = disk.limits().max_sectors();
            assert!(options.is_empty() || most <= 128, "{most}");
            disk.close().unwrap();
        }
    });
}

#[test]
fn segments_are_written_and_read_wherever_they_lie_and_come_back_as_they_were() {
    each(|subject| {
        let disk = subject.open();
        let block = disk.limits().logical_block_size as usize;
        let (first, all) = (block as u64 / 512, 40 * block);
        let bytes = patterned(all as u64, 3);
        for lengths in [vec![block; 40], vec![100, 2 * block - 100, 37 * block + 7, block - 7]] {
            let lengths_of = |data: &Data| data.segments().map(|each| each.len as usize).collect();
            let mut data = Data::Segments(Segments::of_buf(Buf::zeroed(all), lengths.clone()));
            data.copy_from_at(0, &bytes);
            let write = Bio::new(Op::Write, first, (all / 512) as u32, data);
            let ended = disk.start(write).wait();
            let there: Vec<usize> = lengths_of(&ended.data);
            assert_eq!((ended.status, there), (Status::Ok, lengths.clone()));
            let mut data = ended.data;
            data.fill_zeros();
            let read = Bio::new(Op::Read, first, (all / 512) as u32, data);
            let ended = disk.start(read).wait();
            let there: Vec<usize> = lengths_of(&ended.data);
            assert_eq!((ended.status, there), (Status::Ok, lengths.clone()));
            let mut back = vec![0xee; all];
            ended.data.copy_to(&mut back);
            assert!(back == bytes || !subject.keeps_data, "{} segments", lengths.len());
        }
        disk.close().unwrap();
    });
}

#[test]
fn flushes_and_durable_writes_succeed_and_reach_a_device_that_has_a_cache() {
    each(|subject| {
        let disk = subject.open();
        let mut session = disk.session().unwrap();
        let bytes = patterned(1 << 20, 2);
        session.flush().unwrap();
        session.write_at(0, &bytes).unwrap();
        session.flush().unwrap();
        session.write_at_durable(1 << 20, &bytes).unwrap();
        let preflushed = Bio::write(4096, Buf::filled(8192, |buf| buf.fill(1)));
        let ended = disk.start(preflushed.with(Flags::PREFLUSH | Flags::FUA)).wait();
        assert_eq!(ended.status, Status::Ok);
        let (flushes, limits) = (disk.stats().flushes, disk.limits());
        match limits.volatile_cache {
            true => assert!(flushes >= 3, "{flushes} flushes"),
            false => assert_eq!(flushes, 0, "there is nothing to flush"),
        }
        let found = read_at(&mut session, 1 << 20, 1 << 20);
        assert!(found == bytes || !subject.keeps_data);
        let fast = disk.start(Bio::flush().cookie(9)).wait();
        assert_eq!((fast.cookie, fast.status, fast.sectors), (9, Status::Ok, 0));
        disk.close().unwrap();
    });
}

#[test]
fn discarding_a_range_leaves_its_neighbours_alone_and_can_be_written_again() {
    each(|subject| {
        let disk = subject.open();
        let mut session = disk.session().unwrap();
        let bytes = patterned(4 << 20, 3);
        session.write_at(0, &bytes).unwrap();
        let supported = disk.limits().max_discard_sectors() > 0;
        for (offset, len) in [(1 << 20, 2 << 20), (4096, 4096), (3 << 20, 512 << 10)] {
            match session.discard(offset, len) {
                Ok(()) => assert!(supported),
                Err(error) => {
                    assert_eq!((error.status, supported), (Status::NotSupp, false), "{error}");
                }
            }
        }
        let found = read_at(&mut session, 0, 4 << 20);
        for kept in [0..4096, 8192..1 << 20, (3 << 20) + (512 << 10)..4 << 20] {
            let same = found[kept.clone()] == bytes[kept.clone()];
            assert!(same || !subject.keeps_data, "{kept:?}");
        }
        session.write_at(1 << 20, &bytes[..2 << 20]).unwrap();
        let found = read_at(&mut session, 1 << 20, 2 << 20);
        assert!(found == bytes[..2 << 20] || !subject.keeps_data);
        disk.close().unwrap();
    });
}

#[test]
fn zeroes_are_zeros_exactly_where_they_were_asked_for() {
    each(|subject| {
        let disk = subject.open();
        let mut session = disk.session().unwrap();
        for may_unmap in [true, false] {
            session.write_at(0, &[7; 1 << 20]).unwrap();
            let (start, end) = (12 << 10, (1 << 20) - (8 << 10));
            session.write_zeroes(start, end - start, may_unmap).unwrap();
            let found = read_at(&mut session, 0, 1 << 20);
            let right = |(at, byte): (usize, &u8)| {
                *byte == if (start..end).contains(&(at as u64)) { 0 } else { 7 }
            };
            assert!(found.iter().enumerate().all(right) || !subject.keeps_data, "{may_unmap}");
        }
        // Fast or not at all.
        session.write_at(0, &[7; 64 << 10]).unwrap();
        let fast = Bio::new(Op::WriteZeroes, 0, 128, Data::None).with(Flags::NOFALLBACK);
        let inside = match disk.start(fast).wait().status {
            Status::Ok => 0,
            Status::NotSupp => 7,
            other => panic!("{other:?}"),
        };
        let found = read_at(&mut session, 0, 64 << 10);
        assert!(found.iter().all(|byte| *byte == inside) || !subject.keeps_data);
        disk.close().unwrap();
    });
}

#[test]
fn what_is_misaligned_or_beyond_the_end_is_refused_and_the_disk_goes_on() {
    each(|subject| {
        let disk = subject.open();
        let block = disk.limits().logical_block_size;
        let mut session = disk.session().unwrap();
        session.write_at(0, &[7; 8192]).unwrap();
        let before = disk.stats();
        let misaligned = Cause::Misaligned { block };
        let beyond = Cause::BeyondEnd { size: SIZE };
        let refused = |result: Result<(), IoError>, status, cause| {
            let error = result.unwrap_err();
            assert_eq!((error.status, error.cause), (status, cause), "{error}");
        };
        let mut page = [1; 4096];
        refused(session.read_at(1, &mut page), Status::Inval, misaligned);
        refused(session.read_at(0, &mut page[..100]), Status::Inval, misaligned);
        refused(session.write_at(257, &page), Status::Inval, misaligned);
        refused(session.discard(u64::from(block / 2), 4096), Status::Inval, misaligned);
        refused(session.read_at(SIZE, &mut page), Status::Inval, beyond);
        refused(session.write_at(SIZE - u64::from(block), &[1; 8192]), Status::NoSpc, beyond);
        refused(session.write_at_durable(SIZE, &page), Status::NoSpc, beyond);
        refused(session.write_zeroes(SIZE, 4096, true), Status::NoSpc, beyond);
        assert_eq!(disk.stats().fields()[4], before.fields()[4], "nothing was written");
        // The same without the session's own checks.
        let mut bios = vec![
            Bio::write(SIZE / 512, Buf::zeroed(4096)),
            Bio::write(SIZE / 512 - 1, Buf::zeroed(8192)),
            Bio::read(u64::MAX - 8, Buf::zeroed(8192)),
            Bio::new(Op::Discard, SIZE / 512 - 8, 16, Data::None),
        ];
        if block > 512 {
            bios.push(Bio::write(1, Buf::zeroed(4096)));
            bios.push(Bio::write(0, Buf::zeroed(512)));
        }
        for bio in bios {
            let (what, status) = (format!("{bio:?}"), disk.start(bio).wait().status);
            assert!(!status.is_ok(), "{what}");
        }
        let found = read_at(&mut session, 0, 8192);
        assert!(found == [7; 8192] || !subject.keeps_data);
        disk.close().unwrap();
    });
}

#[test]
fn a_disk_opened_for_reading_refuses_writes_and_is_read() {
    each(|subject| {
        let bytes = patterned(1 << 20, 4);
        if subject.keeps_longer {
            let disk = subject.open();
            disk.session().unwrap().write_at(0, &bytes).unwrap();
            disk.close().unwrap();
        }
        let disk = subject.open_with(",readonly");
        let mut session = disk.session().unwrap();
        let error = session.write_at(0, &[1; 4096]).unwrap_err();
        assert_eq!(error.cause, Cause::ReadOnly, "{error}");
        assert!(session.write_zeroes(0, 4096, true).is_err());
        assert!(session.discard(0, 4096).is_err());
        session.flush().unwrap();
        let found = read_at(&mut session, 0, 1 << 20);
        assert!(found == bytes || !subject.keeps_longer);
        disk.close().unwrap();
    });
}

#[test]
fn a_disk_closed_with_io_under_way_finishes_it_first() {
    each(|subject| {
        let disk = subject.open();
        let bytes = patterned(64 << 10, 5);
        let under_way: Vec<_> = (0..100)
            .map(|i| {
                let buf = Buf::filled(bytes.len(), |buf| buf.copy_from_slice(&bytes));
                disk.start(Bio::write(i * 128, buf).cookie(i))
            })
            .collect();
        disk.close().unwrap();
        for (i, pending) in under_way.into_iter().enumerate() {
            let ended = pending.wait();
            assert_eq!((ended.cookie, ended.status), (i as u64, Status::Ok));
        }
        if subject.keeps_longer {
            let mut session = subject.open().session().unwrap();
            let found = read_at(&mut session, 0, 100 * bytes.len() as u64);
            assert!(found.chunks(bytes.len()).all(|chunk| chunk == bytes));
        }
    });
}

#[test]
fn an_allocation_covers_what_was_asked_for_and_calls_no_data_zeros() {
    each(|subject| {
        let disk = subject.open();
        disk.session().unwrap().write_at(1 << 20, &[7; 64 << 10]).unwrap();
        for (sector, sectors) in [(0, SIZE / 512), (2040, 200), (2048, 8)] {
            let extents = disk.device().allocation(sector, sectors).unwrap();
            assert_eq!(extents.iter().map(|extent| extent.sectors).sum::<u64>(), sectors);
            let mut at = sector;
            for extent in extents {
                let wrong = extent.zero && at < 2048 + 128 && at + extent.sectors > 2048;
                assert!(!wrong || !subject.keeps_data, "data called zeros at {at}: {extent:?}");
                at += extent.sectors;
            }
        }
    });
}
