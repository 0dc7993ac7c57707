//! What each option of a job file makes of the I/O: a file for each in `jobs`, turned on a disk
//! that takes 100 us for an I/O.

#![forbid(unsafe_code)]

use weir_bio::{Flags, Nanos, Op, Prng, SECTOR};
use weir_load::jobfile::{self, JobFile};
use weir_load::options::{OPTIONS, Section};
use weir_load::{Amount, Ask, Ground, Io, Job, JobError, Stream, Workload};

const GROUND: Ground = Ground { bytes: 1 << 30, block: 512, read_only: false };
const US: u64 = 1000;
const TAKES: u64 = 100 * US;

macro_rules! file {
    ($name:literal) => {
        read($name, include_str!(concat!("jobs/", $name, ".fio")))
    };
}

#[track_caller]
fn read(name: &str, text: &str) -> JobFile {
    jobfile::read(name, text).unwrap_or_else(|why| panic!("{why}"))
}

/// An I/O, when it was begun, and how many were under way before it.
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: u64,
    io: Io,
    in_flight: usize,
}

impl Begun {
    fn offset(&self) -> u64 {
        self.io.sector * SECTOR
    }

    fn bytes(&self) -> u64 {
        u64::from(self.io.sectors) * SECTOR
    }
}

/// All that a clone does; the I/Os end in the order in which they were begun.
#[track_caller]
fn all(job: &Job, clone: u16) -> Vec<Begun> {
    let mut stream = Stream::new(job, GROUND, clone).expect("a job");
    let (mut now, mut open, mut begun) = (0, std::collections::VecDeque::new(), Vec::new());
    for _ in 0..1_000_000 {
        let wait = match stream.ask(Nanos(now)) {
            Ask::Io(io) => {
                begun.push(Begun { at: now, io, in_flight: open.len() });
                open.push_back((now + TAKES, io.token));
                continue;
            }
            Ask::Flush { token, .. } => {
                open.push_back((now + TAKES, token));
                continue;
            }
            Ask::Wait(until) => Some(until.0),
            Ask::Blocked => None,
            Ask::Done if open.is_empty() => return begun,
            Ask::Done => None,
        };
        let next = open.front().map(|(at, _)| *at).into_iter().chain(wait).min();
        now = next.expect("something comes next");
        while let Some((at, token)) = open.front().copied().filter(|(at, _)| *at <= now) {
            open.pop_front();
            stream.ended(token, true, Nanos(at));
        }
    }
    panic!("it has no end")
}

fn offsets(begun: &[Begun]) -> Vec<u64> {
    begun.iter().map(|begun| begun.offset() / 1024).collect()
}

/// How often each 4 KiB of so many bytes was asked for.
fn counts(begun: &[Begun], bytes: u64) -> Vec<u32> {
    let mut counts = vec![0; (bytes / 4096) as usize];
    for one in begun {
        let first = one.offset() / 4096;
        (first..first + one.bytes() / 4096).for_each(|block| counts[block as usize] += 1);
    }
    counts
}

#[test]
fn random_io_comes_to_each_block_once_in_a_pass() {
    for file in [file!("random_map"), file!("lfsr")] {
        let begun = all(&file.jobs[0], 0);
        assert!(counts(&begun, 4_096_000).iter().all(|count| *count == 1));
        assert!(begun.windows(2).filter(|pair| pair[0].offset() < pair[1].offset()).count() < 600);
    }
    let sizes = all(&file!("random_map_sizes").jobs[0], 0);
    assert!(counts(&sizes, 1 << 20).iter().all(|count| *count == 1), "{sizes:?}");
    assert!(sizes.iter().any(|one| one.bytes() > 16384), "long ones are kept where they fit");
}

#[test]
fn without_a_map_a_third_of_the_blocks_is_left_out() {
    let counts = counts(&all(&file!("norandommap").jobs[0], 0), 4_096_000);
    let left = counts.iter().filter(|count| **count == 0).count();
    // 1000/e, and five standard deviations.
    assert!(left.abs_diff(368) < 50, "{left} of 1000");
}

#[test]
fn each_block_comes_once_whatever_the_size_the_depth_and_the_seed() {
    let seed = 0x11;
    let mut prng = Prng::new(seed);
    for _ in 0..40 {
        let (blocks, job_seed) = (1 + prng.below(3000), prng.next());
        let depth = 1 + prng.below(40) as u16;
        let job = Job {
            size: Some(Amount::Bytes(blocks * 4096 + 512 * prng.below(8))),
            seed: job_seed,
            depth,
            ..file!("random_map").jobs[0].clone()
        };
        let begun = all(&job, 0);
        assert_eq!(begun.len() as u64, blocks, "seed {seed}, job's seed {job_seed}");
        assert!(counts(&begun, blocks * 4096).iter().all(|c| *c == 1), "seed {job_seed}");
    }
}

#[test]
fn a_stonewall_and_a_wait_begin_a_stage() {
    let stages = file!("stonewall").stages();
    let names: Vec<Vec<&str>> =
        stages.iter().map(|s| s.jobs.iter().map(|job| job.name.as_str()).collect()).collect();
    assert_eq!(names, [vec!["one", "two"], vec!["three"], vec!["four"]]);
}

#[test]
fn the_length_of_the_file_bounds_what_is_worked_on_and_not_what_is_moved() {
    let jobs = file!("filesize").jobs;
    assert_eq!(offsets(&all(&jobs[0], 0)), [0, 4, 8, 12]);
    assert_eq!(offsets(&all(&jobs[1], 0)), [0, 4, 8, 12, 0, 4, 8, 12]);
    assert_eq!(offsets(&all(&jobs[2], 0)), [0, 4]);
}

#[test]
fn what_is_moved_may_be_more_or_less_than_the_range() {
    let jobs = file!("io_size").jobs;
    assert_eq!(offsets(&all(&jobs[0], 0)), [0, 4, 8, 12, 0, 4]);
    assert_eq!(offsets(&all(&jobs[1], 0)), [0, 4]);
}

#[test]
fn a_loop_begins_where_the_first_has_begun() {
    let jobs = file!("loops").jobs;
    assert_eq!(offsets(&all(&jobs[0], 0)), [0, 4, 8, 0, 4, 8, 0, 4, 8]);
    let begun = all(&jobs[1], 0);
    assert!(counts(&begun[..4], 16384).iter().all(|count| *count == 1));
    assert!(counts(&begun, 16384).iter().all(|count| *count == 2));
}

#[test]
fn each_clone_begins_later_on_the_disk_than_the_one_before() {
    let job = &file!("offset_increment").jobs[0];
    let of = |clone| offsets(&all(job, clone));
    assert_eq!([of(0), of(1), of(2)], [[4, 8], [20, 24], [36, 40]]);
    let small = Ground { bytes: 40 << 10, ..GROUND };
    let why = job.range(small).expect_err("the last is beyond it").0;
    assert!(why.contains("offset_increment=16384") && why.contains("45056"), "{why}");
}

#[test]
fn a_job_begins_when_its_delay_is_over() {
    let jobs = file!("startdelay").jobs;
    assert_eq!(all(&jobs[0], 0)[0].at, 5000 * US);
    let firsts: Vec<u64> = (0..8).map(|clone| all(&jobs[1], clone)[0].at / US).collect();
    assert!(firsts.iter().all(|at| (5000..=9000).contains(at)), "{firsts:?}");
    assert!(firsts.iter().any(|at| *at != firsts[0]), "each draws its own: {firsts:?}");
}

#[test]
fn pauses_are_where_they_are_asked_for() {
    let at = |file: JobFile| -> Vec<u64> {
        all(&file.jobs[0], 0).iter().map(|begun| begun.at / US).collect()
    };
    // Two at a time, four in all, and 1 ms after the last of them.
    assert_eq!(at(file!("thinktime_blocks")), [0, 0, 100, 100, 1200, 1200, 1300, 1300]);
    let of_time = at(file!("thinktime_iotime"));
    assert_eq!(of_time[..7], [0, 100, 200, 1300, 1400, 1500, 2600]);
    // Not after they have ended: one after the other all the same.
    assert_eq!(at(file!("thinktime_issue")), [0, 20, 40, 60]);
}

/// How many were under way when the clone began again after it had been full, and how many it began
/// then.
fn refills(job: &Job) -> Vec<(usize, usize)> {
    let begun = all(job, 0);
    let mut refills: Vec<(u64, usize, usize)> = Vec::new();
    for one in &begun[usize::from(job.depth)..] {
        match refills.last_mut().filter(|last| last.0 == one.at) {
            Some(last) => last.2 += 1,
            None => refills.push((one.at, one.in_flight, 1)),
        }
    }
    refills.into_iter().map(|(_, in_flight, count)| (in_flight, count)).collect()
}

/// The same of I/Os that end one by one.
#[track_caller]
fn refills_one_by_one(job: &Job) -> Vec<(usize, usize)> {
    let mut stream = Stream::new(job, GROUND, 0).expect("a job");
    let (mut open, mut refills) = (Vec::new(), Vec::new());
    loop {
        let before = open.len();
        let done = loop {
            match stream.ask(Nanos::ZERO) {
                Ask::Io(io) => open.push(io.token),
                Ask::Blocked => break false,
                Ask::Done => break true,
                other => panic!("{other:?}"),
            }
        };
        if open.len() > before {
            refills.push((before, open.len() - before));
        }
        if done {
            return refills;
        }
        stream.ended(open.remove(0), true, Nanos::ZERO);
    }
}

#[test]
fn ios_are_begun_together_as_many_as_were_asked_for() {
    let all = [
        (file!("iodepth_batch"), vec![(0, 8), (4, 4), (4, 4)]),
        (file!("iodepth_low"), vec![(0, 8), (2, 6), (2, 6)]),
        (file!("iodepth_batch_complete"), vec![(0, 8), (5, 3), (5, 3)]),
    ];
    for (file, wanted) in all {
        let job = &file.jobs[0];
        let found = refills_one_by_one(job);
        assert_eq!(found[..3], wanted, "{}", job.name);
        assert!(!refills(job).is_empty());
        let alone = Job { batching: Default::default(), ..job.clone() };
        assert_eq!(refills_one_by_one(&alone)[..3], [(0, 8), (7, 1), (7, 1)]);
    }
}

#[test]
fn strides_are_gone_through_one_after_the_other() {
    // 8 KiB of each 32.
    let begun = all(&file!("zonemode_strided").jobs[0], 0);
    assert_eq!(offsets(&begun), [0, 4, 32, 36]);
    let random =
        Job { access: weir_load::Access::Random, ..file!("zonemode_strided").jobs[0].clone() };
    let places = offsets(&all(&random, 0));
    assert!(places[..2].iter().all(|at| *at < 16), "{places:?}");
    assert!(places[2..].iter().all(|at| (32..48).contains(at)), "{places:?}");
}

#[test]
fn sequential_io_goes_backwards_and_leaves_holes() {
    let jobs = file!("rw_step").jobs;
    assert_eq!(offsets(&all(&jobs[0], 0)), [12, 8, 4, 0]);
    assert_eq!(offsets(&all(&jobs[1], 0)), [0, 8, 16, 24]);
}

#[test]
fn what_was_trimmed_is_written_when_the_trim_has_ended() {
    let begun = all(&file!("trimwrite").jobs[0], 0);
    let of = |op: Op| begun.iter().filter(move |one| one.io.op == op);
    assert_eq!((of(Op::Discard).count(), of(Op::Write).count()), (16, 16));
    for write in of(Op::Write) {
        let trim = of(Op::Discard).find(|trim| trim.offset() == write.offset()).expect("a trim");
        assert!(write.at >= trim.at + TAKES && write.bytes() == trim.bytes(), "{write:?}");
    }
}

#[test]
fn random_places_are_multiples_of_what_is_asked_for() {
    let begun = all(&file!("blockalign").jobs[0], 0);
    assert!(begun.iter().all(|one| one.offset() % 4096 == 0), "{begun:?}");
    assert!(begun.iter().any(|one| one.bytes() == 512), "{begun:?}");
}

#[test]
fn an_engine_that_waits_for_each_io_has_one_under_way() {
    let file = file!("sync_engine");
    assert_eq!(file.jobs.iter().map(|job| job.depth).collect::<Vec<_>>(), [1, 32]);
    assert!(file.notes[0].contains("one I/O at a time"), "{:?}", file.notes);
}

#[test]
fn a_comment_ends_a_line_and_is_no_part_of_a_name() {
    let job = &file!("comments").jobs[0];
    assert_eq!((job.name.as_str(), job.rw()), ("job", "read"));
    assert_eq!((job.size, job.target.as_deref()), (Some(Amount::Bytes(8192)), Some("a#b;c")));
}

#[test]
fn a_job_has_the_name_it_is_given_and_its_files_their_directory() {
    let job = &file!("name").jobs[0];
    assert_eq!((job.name.as_str(), job.target.as_deref()), ("called", Some("/data/x:/data/y")));
}

#[test]
fn a_job_that_names_no_file_has_one_of_its_own_and_its_clones_a_part_each() {
    let text = "[a]\nsize=8k\nnumjobs=2\n[b]\nioengine=null\nsize=1m\n[c]\nioengine=rbd\nsize=1m\n";
    let mut file = read("own", text);
    file.use_own();
    let targets: Vec<_> = file.jobs.iter().map(|job| job.target.as_deref()).collect();
    assert_eq!(targets, [Some("a.0.0"), Some("null:1048576"), None]);
    let job = &file.jobs[0];
    assert_eq!((job.size, job.parted), (Some(Amount::Bytes(16384)), true));
    assert_eq!([0, 1].map(|clone| offsets(&all(job, clone))), [[0, 4], [8, 12]]);
    assert!(file.notes.iter().any(|note| note.contains("numjobs=2")), "{:?}", file.notes);
}

#[test]
fn a_seed_is_another_in_each_run_where_that_is_asked_for() {
    let mut file = read("seeds", "[a]\nrandrepeat=0\n[b]\nrandseed=5\n");
    file.use_seed(77);
    assert_eq!(file.jobs.iter().map(|job| job.seed).collect::<Vec<_>>(), [77, 5]);
    assert!(file.notes.iter().any(|note| note.contains("randseed=77")), "{:?}", file.notes);
}

#[test]
fn a_durable_write_says_so() {
    let begun = all(&file!("sync").jobs[0], 0);
    assert!(begun[0].io.flags.has(Flags::FUA));
}

#[test]
fn what_cannot_matter_here_is_told_with_its_line() {
    let file = read("x.fio", "[a]\nthread\ngtod_reduce=1\npool=rbd\n");
    let lines: Vec<_> = file.notes.iter().map(|note| &note[..8]).collect();
    assert_eq!(lines, ["x.fio:2:", "x.fio:3:", "x.fio:4:"]);
}

#[test]
fn an_engine_that_drops_its_io_opens_no_file() {
    let text = "[global]\nioengine=null\nrw=write\nfilename=/dev/sdb\n[a]\nsize=1m\n\
                [b]\nsize=6k\ndirectory=/data\nnumjobs=2\noffset_increment=6k\n\
                [c]\nfilename=null:2MiB\n";
    let targets: Vec<_> = read("null", text).jobs.into_iter().map(|job| job.target).collect();
    let wanted = ["null:1048576", "null:12288", "null:2MiB"];
    assert_eq!(targets, wanted.map(|target| Some(String::from(target))));
    for text in ["size=10%\n", "", "size=1m\noffset=10%\n"] {
        let text = format!("[a]\nioengine=null\nfilename=/dev/sdb\n{text}");
        let why = jobfile::read("x.fio", &text).expect_err("its size is not known").0;
        assert!(why.starts_with("x.fio:1: ") && why.contains("/dev/sdb needs a size="), "{why}");
    }
}

#[track_caller]
fn job(text: &str) -> Job {
    read("x.fio", &format!("[a]\n{text}\n")).jobs.remove(0)
}

fn refusal(text: &str) -> String {
    match Stream::new(&job(text), GROUND, 0) {
        Ok(_) => panic!("{text:?} is accepted"),
        Err(JobError(why)) => why,
    }
}

/// Blocks that are read back of what a job has written to a disk, one I/O at a time.
#[track_caller]
fn verified(text: &str) -> u64 {
    let mut stream = Stream::new(&job(text), GROUND, 0).unwrap_or_else(|why| panic!("{why}"));
    let (mut disk, mut known) = (vec![0; 1 << 20], 0);
    for phase in 0..2 {
        loop {
            let io = match stream.ask(Nanos::ZERO) {
                Ask::Io(io) => io,
                Ask::Done => break,
                other => panic!("{text:?}: {other:?}"),
            };
            let from = (io.sector * SECTOR) as usize;
            let bytes = &mut disk[from..from + io.sectors as usize * SECTOR as usize];
            match io.op {
                Op::Write => stream.fill(&io, bytes),
                _ => {
                    let checked = stream.check(io.token, bytes);
                    known += checked.unwrap_or_else(|fault| panic!("{text:?}: {fault:?}"));
                }
            }
            stream.ended(io.token, true, Nanos::ZERO);
        }
        assert!(phase == 1 || stream.read_back(), "{text:?} has written nothing");
    }
    known
}

#[test]
fn what_is_verified_begins_on_a_block() {
    let write = "verify=crc32c\nsize=64k\nbs=4k\n";
    let random = "rw=randwrite\nnorandommap\n";
    for (options, why) in [
        ("rw=write:2k", "rw step=2048 is not a multiple of bs=4096"),
        ("rw=write:-6k", "rw step=6144"),
        ("rw=write\nzonemode=strided\nzonesize=4k\nzonerange=6k", "zonerange + zoneskip=6144"),
        ("rw=write\nzonemode=strided\nzonesize=8k\nzoneskip=512", "zonerange + zoneskip=8704"),
        (&format!("{random}blockalign=512"), "blockalign=512"),
        (&format!("{random}bssplit=4k/50:6k/25:8k/25"), "multiples of the smallest, 4096: bs=6144"),
        ("rw=write\noffset=2k", "offset=2048"),
    ] {
        let text = format!("{write}{options}");
        let told = refusal(&text);
        assert!(told.contains(why), "{text:?}: {told}");
    }
    for (options, blocks) in [
        ("rw=write", 16),
        ("rw=write:4k", 8),
        ("rw=write:-8k\nio_size=16k", 4),
        ("rw=write\nzonemode=strided\nzonesize=4k\nzonerange=6k\nzoneskip=2k", 8),
        // What a range of sizes does not come to does no harm.
        ("rw=randwrite\nbsrange=4k-10k", 16),
        // Nor does an alignment that nothing is placed by.
        ("rw=write\nblockalign=512", 16),
        (&format!("{random}blockalign=8k\nio_size=256k"), 8),
    ] {
        assert_eq!(verified(&format!("{write}{options}")), blocks, "{options}");
    }
}

#[test]
fn trims_that_are_written_again_are_placed_by_the_size_of_the_trim() {
    // Nothing is read, and writes have the size of their trim.
    let begun = all(&job("rw=randtrimwrite\nsize=1m\nbs=1m,512,4k"), 0);
    assert!(begun.iter().all(|one| one.bytes() == 4096), "{begun:?}");
    assert!(counts(&begun, 1 << 20).iter().all(|count| *count == 2));
}

#[test]
fn zones_that_nothing_would_be_made_of_are_refused() {
    for (text, why) in [
        ("zonesize=8k", "x.fio:1: zonesize needs zonemode=strided"),
        ("zoneskip=8k", "zoneskip needs zonemode=strided"),
        ("zonerange=8k", "zonerange needs zonemode=strided"),
    ] {
        let told = jobfile::read("x.fio", &format!("[a]\n{text}\n")).expect_err(text).0;
        assert!(told.contains(why), "{told}");
    }
    assert_eq!(job("zonesize=8k\nzonemode=none").strides, None);
    let zipf = "rw=randread\nrandom_distribution=zipf:1.2\nzonemode=strided\nzonesize=8k";
    let told = refusal(zipf);
    assert!(told.contains("random_distribution=zipf:1.2 with zonemode=strided"), "{told}");
    assert!(job(&zipf.replace("randread", "read")).range(GROUND).is_ok(), "none is drawn");
}

#[test]
fn zones_of_a_job_are_changed_one_by_one() {
    let with = |text: &str, flags: &[(&str, &str)]| {
        let mut section = Section::of(job(text));
        for (name, value) in flags {
            let option = OPTIONS.iter().find(|option| option.name == *name).expect(name);
            option.read(&mut section, value).expect(value);
        }
        section.whole().map(|job| job.strides.map(|s| [s.bytes, s.range, s.skip]))
    };
    let plain = "zonemode=strided\nzonesize=4k\nzoneskip=1k";
    let ranged = "zonemode=strided\nzonesize=4k\nzonerange=16k";
    assert_eq!(with(plain, &[]), Ok(Some([4096, 4096, 1024])));
    assert_eq!(with(plain, &[("zonesize", "8k")]), Ok(Some([8192, 8192, 1024])));
    assert_eq!(with(ranged, &[("zonesize", "8k")]), Ok(Some([8192, 16384, 0])));
    assert_eq!(with(ranged, &[("zoneskip", "2k")]), Ok(Some([4096, 16384, 2048])));
    assert_eq!(with(ranged, &[("zonerange", "4k")]), Ok(Some([4096, 4096, 0])));
    assert_eq!(with(ranged, &[("zonemode", "none")]), Ok(None));
    assert!(with("rw=read", &[("zonesize", "8k")]).is_err());
}

#[test]
fn a_share_that_is_moved_is_one_of_the_range() {
    let bytes = |text: &str| all(&job(text), 0).iter().map(Begun::bytes).sum::<u64>();
    assert_eq!(bytes("rw=read\nsize=64k\nio_size=50%"), 32 << 10);
    assert_eq!(bytes("rw=randread\nsize=64k\nio_size=25%\nthinktime=1"), 16 << 10);
    assert_eq!(bytes("rw=read\nsize=4k\nio_size=1%"), 4 << 10);
}

#[test]
fn clones_that_verify_and_begin_at_one_place_are_refused() {
    let small = Ground { bytes: 256 << 10, ..GROUND };
    let text = "rw=write\nverify=crc32c\nnumjobs=2\nsize=64k\noffset_increment=";
    for (increment, ground, told) in [
        // A hundredth of 256 KiB is no block.
        ("1%", small, "offset_increment=0 is below size=65536"),
        ("32k", GROUND, "offset_increment=32768 is below size=65536"),
        ("100", GROUND, "offset_increment=100 is"),
    ] {
        let why = job(&format!("{text}{increment}")).range(ground).expect_err(increment).0;
        assert!(why.contains(told), "{why}");
    }
    assert!(job(&format!("{text}64k")).range(GROUND).is_ok());
    let parts = Job { parted: true, ..job("rw=read\nsize=64k\noffset_increment=64k") };
    let why = parts.range(GROUND).expect_err("either").0;
    assert!(why.contains("offset_increment of clones with a part each"), "{why}");
}

#[test]
fn places_that_a_device_cannot_do_are_refused_by_name_and_value() {
    let zones = "rw=read\nzonemode=strided\nzonesize=";
    for (text, why) in [
        ("rw=randread\nbssplit=4k/50:6k/50", "multiples of the smallest, 4096: bs=6144 (noran"),
        ("rw=read:100", "rw step=100 is not a multiple of 512"),
        ("rw=randread\nnorandommap\nblockalign=1000", "blockalign=1000 is not a multiple of 512"),
        ("rw=randread\nblockalign=8k", "blockalign=8192 with a random map"),
        (&format!("{zones}8k\nzonerange=9000"), "zonerange=9000"),
        (&format!("{zones}8k\nzoneskip=100"), "zoneskip=100"),
        (&format!("{zones}0\nzonerange=8k"), "zonesize=0 and zonerange=8192 are below"),
        (&format!("{zones}8k\nzonerange=2k"), "zonerange=2048 are below an I/O of bs=4096"),
    ] {
        let told = refusal(text);
        assert!(told.contains(why), "{text:?}: {told}");
    }
    let large = Ground { bytes: (1 << 41) + 512, ..GROUND };
    let sizes = job("rw=randread\nbsrange=512-4k");
    let JobError(why) = Stream::new(&sizes, large, 0).expect_err("too many cells");
    assert!(why.contains("keeps track of 4294967296 blocks at most"), "{why}");
}

#[test]
fn a_step_beyond_all_numbers_begins_again() {
    let begun = all(&job("rw=read:9223372036854775296\nsize=16k"), 0);
    assert_eq!(offsets(&begun), [0; 4]);
    let begun = all(&job("rw=read:-9223372036854775296\nsize=16k"), 0);
    assert_eq!(offsets(&begun), [12; 4]);
}

#[test]
fn a_pause_comes_after_so_many_ios_or_so_long_whatever_is_first() {
    let at = |text: &str| -> Vec<u64> {
        let text = format!("rw=read\nsize=20k\nthinktime=1ms\n{text}");
        all(&job(&text), 0).iter().map(|begun| begun.at / US).collect()
    };
    let (few, short) = ([0, 100, 1200, 1300, 2400], [0, 100, 200, 1300, 1400]);
    assert_eq!(at("thinktime_blocks=2\nthinktime_iotime=250us"), few);
    assert_eq!(at("thinktime_blocks=4\nthinktime_iotime=250us"), short);
}

#[test]
fn a_notice_says_of_what_is_not_carried_out_that_it_is_not() {
    let text = "[a]\ncpus_allowed=0\nnuma_mem_policy=local\ninvalidate=1\nverify_fatal=0\n\
                filename_format=x\n";
    let notes = read("x.fio", text).notes;
    let words = ["not done", "not done", "does not empty it", "does not go on", "not done"];
    for (note, word) in notes.iter().zip(words) {
        assert!(note.contains(word), "{note}");
    }
    assert_eq!(notes.len(), words.len());
}
