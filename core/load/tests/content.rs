//! What the options of a job file about content, checks, shares and logs make of the I/O: a file
//! for each in `jobs`.

#![forbid(unsafe_code)]

use weir_bio::{Class, Flags, IoPrio, Nanos, Op, SECTOR};
use weir_load::jobfile::{self, JobFile};
use weir_load::{Amount, Ask, Flows, Ground, Io, Job, JobError, Stream, Told, Workload};

const GROUND: Ground = Ground { bytes: 64 << 20, block: 512, read_only: false };

macro_rules! file {
    ($name:literal) => {
        read($name, include_str!(concat!("jobs/", $name, ".fio")))
    };
}

#[track_caller]
fn read(name: &str, text: &str) -> JobFile {
    jobfile::read(name, text).unwrap_or_else(|why| panic!("{why}"))
}

#[track_caller]
fn refused(text: &str, why: &str) {
    let told = jobfile::read("x.fio", text).expect_err(text).0;
    assert!(told.contains("x.fio:") && told.contains(why), "{told}");
}

#[track_caller]
fn stream(job: &Job) -> Stream {
    Stream::new(job, GROUND, 0).unwrap_or_else(|why| panic!("{why}"))
}

/// A job on a disk in memory, whose I/Os end one by one when nothing more can be begun.
struct Bench {
    stream: Stream,
    disk: Vec<u8>,
    open: std::collections::VecDeque<Io>,
    checked: u64,
}

impl Bench {
    fn of(job: &Job) -> Bench {
        let disk = vec![0; 4 << 20];
        Bench { stream: stream(job), disk, open: Default::default(), checked: 0 }
    }

    /// All I/Os until it has done, each as what it is and its first byte and length in KiB.
    #[track_caller]
    fn run(&mut self) -> Vec<(Op, u64, u64)> {
        let mut begun = Vec::new();
        loop {
            match self.stream.ask(Nanos::ZERO) {
                Ask::Io(io) => {
                    let overlaps = |other: &Io| {
                        other.sector < io.sector + u64::from(io.sectors)
                            && io.sector < other.sector + u64::from(other.sectors)
                    };
                    assert!(!self.open.iter().any(overlaps), "{io:?} and {:?}", self.open);
                    let sectors = u64::from(io.sectors);
                    begun.push((io.op, io.sector * SECTOR / 1024, sectors * SECTOR / 1024));
                    self.open.push_back(io);
                }
                Ask::Done if self.open.is_empty() => return begun,
                Ask::Done | Ask::Blocked => {
                    let io = self.open.pop_front().expect("one is under way");
                    self.end(io);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[track_caller]
    fn end(&mut self, io: Io) {
        let from = (io.sector * SECTOR) as usize;
        let bytes = &mut self.disk[from..from + io.sectors as usize * SECTOR as usize];
        match io.op {
            Op::Write => self.stream.fill(&io, bytes),
            _ => {
                let checked = self.stream.check(io.token, bytes);
                self.checked += checked.unwrap_or_else(|fault| panic!("{fault:?}"));
            }
        }
        self.stream.ended(io.token, true, Nanos::ZERO);
    }
}

fn ops(begun: &[(Op, u64, u64)]) -> String {
    begun.iter().map(|(op, _, _)| if *op == Op::Write { 'w' } else { 'r' }).collect()
}

#[test]
fn blocks_of_an_interval_say_what_they_are_and_are_read_back_as_they_were_written() {
    let jobs = file!("verify_interval").jobs;
    let mut bench = Bench::of(&jobs[0]);
    bench.run();
    assert!(bench.stream.read_back());
    assert_eq!(bench.run(), [(Op::Read, 0, 8), (Op::Read, 8, 8)]);
    assert_eq!(bench.checked, 32);
    // Its place stands in each.
    let place = |at: usize| u64::from_le_bytes(bench.disk[at + 8..at + 16].try_into().unwrap());
    assert_eq!([0, 512, 9 * 512].map(place), [0, 512, 9 * 512]);
    // One longer than an I/O is one for each.
    let mut bench = Bench::of(&jobs[1]);
    bench.run();
    assert!(bench.stream.read_back());
    bench.run();
    assert_eq!(bench.checked, 2);
    for interval in ["100", "3k", "6k"] {
        let text = format!("[a]\nrw=write\nbs=8k\nverify=md5\nverify_interval={interval}\n");
        let JobError(why) = Stream::new(&read("x", &text).jobs[0], GROUND, 0).expect_err(interval);
        assert!(why.contains("verify_interval=") && why.contains("bs=8192"), "{why}");
    }
}

#[test]
fn so_many_writes_are_checked_before_there_are_more() {
    let jobs = file!("verify_backlog").jobs;
    let mut bench = Bench::of(&jobs[0]);
    let begun = bench.run();
    assert_eq!(ops(&begun), "wwwwrrrrwwwwrrrrww");
    assert_eq!(begun[4..8].iter().map(|io| io.1).collect::<Vec<_>>(), [0, 4, 8, 12]);
    // Only what is left is read back at the end.
    assert!(bench.stream.read_back());
    assert_eq!((ops(&bench.run()).as_str(), bench.checked), ("rr", 10));
    let mut bench = Bench::of(&jobs[1]);
    assert_eq!(ops(&bench.run()), "wwwwrwwwwrww");
    let mut bench = Bench::of(&jobs[2]);
    let begun = bench.run();
    assert_eq!(ops(&begun), "wwwwrrrrrr");
    assert_eq!(begun[8..].iter().map(|io| io.1).collect::<Vec<_>>(), [0, 4]);
    assert!(!bench.stream.read_back(), "all is checked");
}

#[test]
fn a_backlog_finds_what_was_lost_while_the_job_runs() {
    let job = &file!("verify_backlog").jobs[0];
    let mut stream = stream(job);
    let mut faults = 0;
    for _ in 0..5 {
        let Ask::Io(io) = stream.ask(Nanos::ZERO) else { panic!("an I/O") };
        if io.op == Op::Read {
            faults += u32::from(stream.check(io.token, &[0; 4096]).is_err());
        }
        stream.ended(io.token, true, Nanos::ZERO);
    }
    assert_eq!(faults, 1);
}

#[test]
fn a_pattern_is_in_the_blocks_that_are_verified_or_written() {
    let jobs = file!("verify_pattern").jobs;
    let disk = |job: &Job| {
        let mut bench = Bench::of(job);
        bench.run();
        assert_eq!(bench.stream.read_back(), job.verify.is_some());
        bench.run();
        bench.disk
    };
    let [header, bare, none] = [0, 1, 2].map(|job: usize| disk(&jobs[job]));
    assert!(header.starts_with(b"werblock") && header[24..512] == [0xaa, 0x55].repeat(244));
    assert!(bare[..8192] == [0xaa, 0x55].repeat(4096) && none == bare);
    let job = &file!("buffer_pattern").jobs[0];
    let mut stream = stream(job);
    assert!(stream.fills());
    while let Ask::Io(io) = stream.ask(Nanos::ZERO) {
        if io.op == Op::Write {
            // Memory that was read into before.
            let mut memory = [7; 4096];
            stream.fill(&io, &mut memory);
            assert!(memory.chunks(4).all(|four| four == b"abc\0"));
        }
        stream.ended(io.token, true, Nanos::ZERO);
    }
    refused("[a]\nbuffer_pattern=abc\n", "x.fio:2: buffer_pattern=abc");
    refused("[a]\nrw=write\nverify=md5\nbuffer_pattern=1\n", "buffer_pattern with verify");
}

#[test]
fn no_two_ios_are_under_way_on_one_byte() {
    let job = &file!("serialize_overlap").jobs[0];
    let begun = Bench::of(job).run();
    assert_eq!(begun.len(), 64);
    let alone = Job { serialize_overlap: false, ..job.clone() };
    let mut stream = stream(&alone);
    let mut sectors = Vec::new();
    while let Ask::Io(io) = stream.ask(Nanos::ZERO) {
        sectors.push(io.sector);
    }
    sectors.sort_unstable();
    sectors.dedup();
    assert!(sectors.len() < 8, "eight of four places");
    let text = "[a]\nrw=trimwrite\nserialize_overlap=1\n";
    let JobError(why) = Stream::new(&read("x", text).jobs[0], GROUND, 0).expect_err("pairs");
    assert!(why.contains("serialize_overlap with rw=trimwrite"), "{why}");
}

#[test]
fn flows_keep_to_their_shares() {
    let jobs = file!("flow").jobs;
    let mut flows = Flows::of(jobs.iter());
    let mut streams: Vec<Stream> = jobs.iter().map(stream).collect();
    streams.iter_mut().zip(&jobs).for_each(|(stream, job)| stream.join(job, &mut flows));
    let (mut counts, mut ends) = ([0_u32; 2], Vec::new());
    while ends.len() < 2 {
        for (number, stream) in streams.iter_mut().enumerate() {
            match stream.ask(Nanos(5)) {
                Ask::Io(io) => {
                    counts[number] += 1;
                    stream.ended(io.token, true, Nanos(5));
                }
                Ask::Wait(until) => assert_eq!(until, Nanos(50_005)),
                Ask::Done if !ends.iter().any(|(done, _)| *done == number) => {
                    ends.push((number, counts));
                }
                other => assert_eq!(other, Ask::Done),
            }
        }
    }
    // The other does the rest alone.
    let [(1, first), (0, last)] = ends[..] else { panic!("{ends:?}") };
    assert!(first[0].abs_diff(256) <= 3, "{first:?}");
    assert_eq!((first[1], last), (1024, [1024, 1024]));
    refused("[a]\nflow=1001\n", "x.fio:2: flow=1001: not a whole number in 0..=1000");
}

#[test]
fn a_device_is_filled_whatever_its_size_is_said_to_be() {
    let begun = Bench::of(&file!("fill_device").jobs[0]).stream;
    let mut begun = begun;
    let mut count = 0;
    while let Ask::Io(io) = begun.ask(Nanos::ZERO) {
        begun.ended(io.token, true, Nanos::ZERO);
        count += 1;
    }
    assert_eq!(count, 64);
}

#[test]
fn several_files_of_a_job_take_turns() {
    let mut file = file!("nrfiles");
    file.use_own();
    let targets: Vec<_> = file.jobs.iter().map(|job| job.target.as_deref()).collect();
    let four = "four.0.0:four.0.1:four.0.2:four.0.3";
    assert_eq!(targets, [Some(four), Some("a:b"), None]);
    let told = |note: &String| note.contains("nrfiles=32: all are on the one disk");
    assert!(file.notes.iter().any(told), "{:?}", file.notes);
    refused("[a]\nsize=1m\nfilename=a\nnrfiles=2\n", "nrfiles=2, and filename names 1");
    refused("[a]\nnrfiles=2\n", "nrfiles=2 needs a size= in bytes");
    refused("[a]\nnrfiles=65\n", "nrfiles=65: not a whole number in 1..=64");
}

#[test]
fn a_write_with_fua_is_durable_and_the_start_may_be_none_of_the_disk() {
    let Ask::Io(io) = stream(&file!("writefua").jobs[0]).ask(Nanos::ZERO) else { panic!("an I/O") };
    assert!(io.flags.has(Flags::FUA));
    let file = read("x.fio", "[a]\noffset=0%\nreadfua=1\nallow_file_create=0\n");
    assert_eq!((file.jobs[0].offset, file.jobs[0].must_exist), (Amount::Bytes(0), true));
    assert!(file.notes[0].contains("x.fio:3: readfua=1: not done"), "{:?}", file.notes);
    refused("[a]\nsize=0%\n", "size=0%");
}

#[test]
fn a_device_of_conventional_zones_is_read_as_one_without() {
    let jobs = file!("zonemode_zbd").jobs;
    let begun = Bench::of(&jobs[0]).run();
    assert_eq!(begun.iter().map(|io| io.1).collect::<Vec<_>>(), [64, 96, 128, 160]);
    let zones = "[a]\nzonemode=zbd\nrw=read\nbs=32k\nzonesize=64k\n";
    for (more, why) in [
        ("rw=randread\n", "takes sequential reads"),
        ("rw=write\n", "takes sequential reads"),
        ("bs=48k\n", "takes one bs"),
        ("offset=4k\n", "takes one bs"),
        ("zoneskip=64k\n", "takes zoneskip=0"),
        ("zonesize=0\n", "no target here has zones of its own"),
    ] {
        refused(&format!("{zones}{more}"), why);
    }
}

#[test]
fn what_is_said_of_all_jobs_can_be_taken_back_for_one() {
    let text = "[global]\nwritefua=1\n[a]\nsync=none\n[b]\nwritefua=0\n[c]\nsync=1\nwritefua=0\n";
    let durable: Vec<bool> = read("x.fio", text).jobs.iter().map(|job| job.durable).collect();
    assert_eq!(durable, [true, false, true]);
    // Of a job that only reads, what its blocks would be filled with says nothing.
    let reads = "[a]\nrw=read\nverify=crc32c\nbuffer_pattern=1\n";
    assert!(read("x.fio", reads).jobs[0].verify.is_some());
    // One file for each clone is what a job with several names has anyway.
    let named = "[a]\nrw=read\nsize=8k\nfilename=a:b\nnrfiles=1\n";
    assert_eq!(read("x.fio", named).jobs.len(), 1);
}

#[test]
fn a_job_that_has_done_holds_up_none_of_its_flow() {
    let text = "[a]\nsize=8k\nflow=1\n[b]\nsize=64k\nflow=1\n";
    let jobs = read("x.fio", text).jobs;
    let mut flows = Flows::of(jobs.iter());
    let mut streams: Vec<Stream> = jobs.iter().map(stream).collect();
    streams.iter_mut().zip(&jobs).for_each(|(stream, job)| stream.join(job, &mut flows));
    let (mut ios, mut done) = ([0; 2], [false; 2]);
    for turn in 0..200 {
        let now = Nanos(turn * 1_000_000);
        for (number, stream) in streams.iter_mut().enumerate() {
            match stream.ask(now) {
                Ask::Io(io) => {
                    ios[number] += 1;
                    stream.ended(io.token, true, now);
                }
                Ask::Done => done[number] = true,
                Ask::Wait(_) | Ask::Blocked | Ask::Flush { .. } => {}
            }
        }
    }
    assert_eq!((ios, done), ([2, 16], [true; 2]));
}

#[test]
fn a_part_of_the_reads_has_a_priority_of_its_own() {
    let job = &file!("cmdprio").jobs[0];
    assert_eq!(job.urgent.map(|part| part.percent), [20, 0]);
    let mut stream = stream(job);
    let mut seen = [[0; 2]; 2];
    while let Ask::Io(io) = stream.ask(Nanos::ZERO) {
        let own = io.ioprio == IoPrio::new(Class::RealTime, 2);
        assert!(own || io.ioprio == IoPrio::new(Class::Idle, 0), "{:?}", io.ioprio);
        seen[usize::from(io.op == Op::Write)][usize::from(own)] += 1;
        stream.ended(io.token, true, Nanos::ZERO);
    }
    let [[usual, own], [writes, none]] = seen;
    assert_eq!((usual + own + writes, none), (2048, 0), "seed {}", job.seed);
    let share = f64::from(own) / f64::from(usual + own);
    assert!((0.15..0.25).contains(&share), "{own} of {} with seed {}", usual + own, job.seed);
    let both = &read("x.fio", "[a]\ncmdprio_percentage=30\n").jobs[0];
    assert_eq!(both.urgent.map(|part| part.percent), [30, 30], "one value is for both");
    for (option, why) in [
        ("cmdprio_percentage=101", "not a whole number in 0..=100"),
        ("cmdprio_class=4", "not a whole number in 0..=3"),
        ("cmdprio=1,8", "not a whole number in 0..=7"),
    ] {
        refused(&format!("[a]\n{option}\n"), why);
    }
}

#[test]
fn a_trace_is_replayed_as_it_stands() {
    let folder = std::env::temp_dir().join(format!("weir-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let trace = folder.join("trace");
    let text = "fio version 2 iolog\n/a add\n/a open\n/a write 8192 4096\n/a datasync 0 0\n\
                /a wait 500 0\n/a read 0 8192\n/a close\n";
    std::fs::write(&trace, text).expect("a file");
    let text = include_str!("jobs/read_iolog.fio").replace("TRACE", &trace.display().to_string());
    let job = &read("read_iolog", &text).jobs[0];
    assert_eq!((job.size, job.loops), (Some(Amount::Bytes(12288)), 2));
    let mut stream = stream(job);
    for start in [0, 700_000] {
        let mut ask = |at: u64| stream.ask(Nanos(start + at));
        let Ask::Io(write) = ask(5) else { panic!("a write") };
        assert_eq!((write.op, write.sector, write.sectors), (Op::Write, 16, 8));
        let Ask::Flush { token, .. } = ask(5) else { panic!("a flush") };
        assert_eq!(ask(6), Ask::Wait(Nanos(start + 500_005)));
        let Ask::Io(last) = ask(500_005) else { panic!("a read") };
        assert_eq!((last.op, last.sector, last.sectors), (Op::Read, 0, 16));
        for token in [write.token, token, last.token] {
            stream.ended(token, true, Nanos(start + 600_000));
        }
    }
    assert_eq!(stream.ask(Nanos(2_000_000)), Ask::Done);
    // A time-based one begins again.
    let mut endless = self::stream(&Job { time_based: true, ..job.clone() });
    let mut ios = 0;
    for turn in 0..20_u64 {
        match endless.ask(Nanos(turn * 1_000_000)) {
            Ask::Io(io) => {
                ios += 1;
                endless.ended(io.token, true, Nanos(turn * 1_000_000));
            }
            Ask::Flush { token, .. } => endless.ended(token, true, Nanos(turn * 1_000_000)),
            other => assert!(matches!(other, Ask::Wait(_)), "{other:?}"),
        }
    }
    assert!(ios >= 6, "{ios}");
    let small = Ground { bytes: 8192, ..GROUND };
    let bounded = Job { size: None, ..job.clone() };
    let JobError(why) = Stream::new(&bounded, small, 0).expect_err("it is beyond");
    assert!(why.contains("4096 bytes at 8192 are beyond"), "{why}");
    refused(&format!("{text}verify=md5\n"), "with verify");
    refused(&format!("{text}rate_iops=5\n"), "with a rate");
    refused(&format!("{text}io_size=4k\n"), "with a rate or io_size");
    refused("[a]\nread_iolog=/no/such/trace\n", "read_iolog=/no/such/trace: ");
    std::fs::remove_dir_all(folder).expect("it goes");
}

#[test]
fn logs_are_what_was_asked_for() {
    let jobs = file!("logs").jobs;
    let [a, b] = [0, 1].map(|job: usize| jobs[job].logs.clone());
    assert_eq!((a.latency.as_deref(), a.window_ns, a.told), (Some(""), 500_000_000, Told::Both));
    assert_eq!((b.bandwidth.as_deref(), b.iops.as_deref()), (Some("x"), Some("y")));
    assert_eq!((b.offset, b.priority, b.shared, b.latency), (true, true, true, None));
    refused("[a]\nlog_issue_time=1\nlog_offset=1\n", "log_issue_time needs write_lat_log");
    refused("[a]\nlog_window_value=least\n", "takes avg, max or both");
}
