//! Recording a device's scheduler while it works: what it chose comes out of a replay of the
//! recording, on both paths, whatever the driver does; and what ends a recording.

use weir_bio::{Bio, Buf, Data, Flags, Limits, Nanos, Op, Prng};
use weir_laws::device::{Plan, Shape, Sim};
use weir_laws::{filled, seeds};
use weir_queue::driver::Affinity;
use weir_queue::{
    Bell, Config, Device, Lane, LiveRecording, NoWake, QueueMode, RecordingEnd, Submitter,
};
use weir_sched::recorder::Cut;
use weir_sched::replay::{Options, Recording, Writer, replay};

const SECTORS: u64 = 4096;

/// A device, its lanes, and more submitters than lanes, turned by hand.
struct Scene {
    device: Device,
    lanes: Vec<Lane>,
    submitters: Vec<Submitter>,
    prng: Prng,
    now: Nanos,
    cookie: u64,
}

impl Scene {
    fn new(scheduler: &str, lanes: u16, plan: Plan, seed: u64) -> Scene {
        let limits = Limits {
            capacity: SECTORS,
            max_hw_sectors: 64,
            max_hw_discard_sectors: 64,
            discard_granularity: 512,
            volatile_cache: true,
            rotational: seed.is_multiple_of(2),
            ..Limits::default()
        };
        let (home, announced) = (Affinity::Any, false);
        let shape = Shape { limits, depth: 8, shared_tags: false, home, announced, plan, seed };
        let legacy = ["noop", "deadline", "cfq"].contains(&scheduler);
        let config = Config {
            mode: if legacy { QueueMode::Sq } else { QueueMode::Mq },
            queues: lanes,
            scheduler: Some(scheduler.to_owned()),
            nr_requests: Some(if scheduler == "none" { 8 } else { 24 }),
            timeout_ns: 0,
            ..Config::default()
        };
        let device = Device::new(config, Sim::new(shape)).expect("a device");
        let bell = Bell::new(Box::new(NoWake), 64);
        let lanes: Vec<_> = (0..usize::from(lanes))
            .map(|lane| device.open_lane(lane, &bell).expect("a lane"))
            .collect();
        let submitters = (0..lanes.len() + 1)
            .map(|token| device.submitter(&bell, token, token % lanes.len()).expect("a submitter"));
        let submitters = submitters.collect();
        let (prng, now) = (Prng::new(seed), Nanos(5_000_000_321));
        Scene { device, lanes, submitters, prng, now, cookie: 0 }
    }

    fn bio(&mut self) -> Bio {
        self.cookie += 1;
        let (sector, sectors) = (self.prng.below(300) * 8, 8 * (1 + self.prng.below(3) as u32));
        let mut bio = match self.prng.below(12) {
            0 => Bio::flush(),
            1 => Bio::new(Op::Discard, sector, sectors, Data::default()),
            2..=6 => Bio::new(Op::Write, sector, sectors, filled(self.cookie, sector, &[sectors])),
            _ => Bio::read(sector, Buf::zeroed(sectors as usize * 512)),
        };
        if bio.op == Op::Write && bio.sectors > 0 && self.prng.below(8) == 0 {
            bio.flags |= Flags::FUA;
        }
        bio.cookie = self.cookie;
        bio
    }

    fn turn(&mut self) {
        self.now = self.now + self.prng.below(40_000);
        self.lanes.iter_mut().for_each(|lane| lane.run(self.now));
        self.submitters.iter_mut().for_each(|submitter| {
            submitter.complete(self.now, |_| {});
        });
    }

    fn work(&mut self, bios: usize) {
        for _ in 0..bios {
            let bio = self.bio();
            let at = self.prng.below(self.submitters.len() as u64) as usize;
            // One that finds no room is left out.
            let _ = self.submitters[at].submit(bio, self.now);
            if self.prng.below(3) == 0 {
                self.submitters.iter_mut().for_each(|submitter| submitter.flush_plug(self.now));
                self.turn();
            }
        }
        self.rest();
    }

    /// Until nothing is under way.
    fn rest(&mut self) {
        self.submitters.iter_mut().for_each(|submitter| submitter.flush_plug(self.now));
        for _ in 0..2000 {
            self.turn();
        }
    }

    fn record(&self) -> Result<LiveRecording, String> {
        let now = self.now;
        self.device.record(&|| now).map_err(|error| error.to_string())
    }
}

/// A recording as it comes to a reader.
struct Reader {
    live: LiveRecording,
    writer: Writer,
    text: String,
}

impl Reader {
    fn of(live: LiveRecording) -> Reader {
        let writer = Writer::new(live.heading().clone());
        Reader { live, writer, text: String::new() }
    }

    fn take(&mut self) -> Option<RecordingEnd> {
        let Reader { live, writer, text } = self;
        live.take(|noted| writer.event(noted, text))
    }

    /// Dispatches, all of which a replay chooses as they were.
    fn check(&self, whence: &str) -> u64 {
        let recording = Recording::read(self.text.as_bytes());
        let recording = recording.unwrap_or_else(|error| panic!("{whence}: {error}"));
        let options = Options { follow: true, ..Options::default() };
        let outcome = replay(&recording, &options).unwrap_or_else(|e| panic!("{whence}: {e}"));
        assert_eq!(outcome.differences, Some(0), "{whence}: {:?}", outcome.lines.first());
        outcome.dispatches
    }
}

const SCHEDULERS: [(&str, u16); 9] = [
    ("mq-deadline", 1),
    ("mq-deadline", 2),
    ("bfq", 1),
    ("bfq", 2),
    ("kyber", 1),
    ("kyber", 2),
    ("noop", 1),
    ("deadline", 1),
    ("cfq", 1),
];

#[test]
fn what_a_scheduler_chose_comes_out_of_the_replay_whatever_the_driver_does() {
    for (scheduler, lanes) in SCHEDULERS {
        for seed in seeds("RECORDING", 4) {
            let plan = Plan {
                refused: 10,
                refusals_max: 100,
                slow_ns: 300_000,
                reordered: true,
                requeued: 5,
                requeues_max: 40,
                ..Plan::default()
            };
            let mut scene = Scene::new(scheduler, lanes, plan, seed);
            // It begins anew: what it has learned before the recording makes no difference.
            scene.work(200);
            let mut reader = Reader::of(scene.record().expect("a recording"));
            for _ in 0..6 {
                scene.work(60);
                assert_eq!(reader.take(), None);
            }
            // In the middle of I/O.
            let bio = Bio::read(0, Buf::zeroed(4096));
            scene.submitters[0].submit(bio, scene.now).expect("room");
            scene.submitters[0].flush_plug(scene.now);
            scene.lanes.iter_mut().for_each(|lane| lane.run(scene.now));
            reader.live.stop();
            scene.work(100);
            let whence = format!("{scheduler} on {lanes}, seed {seed}");
            assert_eq!(reader.take(), Some(RecordingEnd::Stopped), "{whence}");
            assert!(reader.check(&whence) > 100, "{whence}");
        }
    }
}

#[test]
fn the_tunables_of_a_scheduler_are_those_it_had_and_stand_in_the_header() {
    let mut scene = Scene::new("bfq", 1, Plan::default(), 1);
    for (name, text) in [("slice_idle_us", "1500"), ("low_latency", "0")] {
        scene.device.set_tunable(name, text).expect("a tunable");
    }
    let mut reader = Reader::of(scene.record().expect("a recording"));
    assert_eq!(scene.device.scheduler(), "bfq");
    assert_eq!(scene.device.tunable("slice_idle_us").as_deref(), Ok("1500"));
    assert_eq!(scene.device.tunable("low_latency").as_deref(), Ok("0"));
    scene.work(50);
    reader.live.stop();
    assert_eq!(reader.take(), Some(RecordingEnd::Stopped));
    let head = reader.text.split("clock_us").next().expect("a header").to_owned();
    assert!(head.contains("\nset slice_idle_us 1500\n"), "{head}");
    assert!(head.contains("\nset low_latency 0\n") && !head.contains("set back_seek"), "{head}");
    assert!(head.contains("\nqueue nr_requests 24\n"), "{head}");
    reader.check("bfq");
    assert_eq!(scene.device.tunable("slice_idle_us").as_deref(), Ok("1500"));
}

#[test]
fn without_a_scheduler_or_beside_another_recording_there_is_none() {
    let scene = Scene::new("none", 1, Plan::default(), 1);
    let why = scene.record().err().expect("no recording");
    assert_eq!(why, "disk disk: scheduler none decides nothing that could be recorded");
    let scene = Scene::new("mq-deadline", 1, Plan::default(), 1);
    let first = scene.record().expect("a recording");
    let why = scene.record().err().expect("no recording");
    assert_eq!(why, "disk disk is being recorded already");
    drop(first);
    let mut second = scene.record().expect("a recording");
    second.stop();
    assert_eq!(second.take(|_| {}), Some(RecordingEnd::Stopped));
    assert!(scene.record().is_ok(), "one that was stopped is in no other's way");
}

#[test]
fn a_change_that_cannot_be_stated_ends_a_recording_in_front_of_it() {
    type Change = fn(&Device, Nanos);
    let changes: [(Change, RecordingEnd); 6] = [
        (
            |device, _| device.set_tunable("fifo_batch", "3").expect("a tunable"),
            RecordingEnd::Cut(Cut::Tunable),
        ),
        (
            |device, _| device.reconfigure(|settings| settings.nr_requests = 12).expect("12"),
            RecordingEnd::Cut(Cut::Depth),
        ),
        (
            |device, _| device.reconfigure(|settings| settings.nomerges = 2).expect("2"),
            RecordingEnd::Cut(Cut::Limits),
        ),
        (
            |device, now| {
                device.set_scheduler("bfq", &|| now).expect("bfq");
            },
            RecordingEnd::Replaced,
        ),
        (
            |device, now| {
                device.set_scheduler("none", &|| now).expect("none");
            },
            RecordingEnd::Replaced,
        ),
        (
            |device, now| {
                // A change that is told to the scheduler and makes no difference to it, and one
                // that is refused.
                device.reconfigure(|settings| settings.timeout_ns = 1 << 40).expect("a time");
                device.set_tunable("fifo_batch", "x").expect_err("no number");
                device.set_scheduler("mq-deadline", &|| now).expect("it is there");
            },
            RecordingEnd::Stopped,
        ),
    ];
    for (at, (change, expected)) in changes.into_iter().enumerate() {
        let mut scene = Scene::new("mq-deadline", 1, Plan::default(), at as u64);
        let mut reader = Reader::of(scene.record().expect("a recording"));
        scene.work(100);
        change(&scene.device, scene.now);
        scene.work(100);
        reader.live.stop();
        assert_eq!(reader.take(), Some(expected), "change {at}");
        assert!(reader.check(&format!("change {at}")) > 20);
        assert_eq!(reader.live.take(|_| panic!("more")), Some(expected), "change {at}");
        drop(reader);
        // The scheduler that is there now is not taken for the one that was recorded.
        scene.work(20);
        assert!(scene.record().is_ok() || scene.device.scheduler() == "none");
    }
}

#[test]
fn the_end_of_one_recording_does_not_end_the_next() {
    let mut scene = Scene::new("mq-deadline", 1, Plan::default(), 3);
    let first = scene.record().expect("a recording");
    let now = scene.now;
    scene.device.set_scheduler("bfq", &|| now).expect("bfq");
    let mut second = Reader::of(scene.record().expect("a recording"));
    drop(first);
    scene.work(50);
    assert_eq!(second.take(), None);
    assert!(second.check("bfq") > 10);
}

#[test]
fn a_reader_that_is_too_slow_loses_whole_events_at_the_end_and_is_told_how_many() {
    let mut scene = Scene::new("noop", 1, Plan::default(), 4);
    let mut reader = Reader::of(scene.record().expect("a recording"));
    let (mut submitted, mut told) = (0_u64, 0);
    // More than the tape holds.
    while submitted < 40_000 {
        scene.submitters[0].submit(Bio::read(0, Buf::zeroed(512)), scene.now).expect("room");
        scene.submitters[0].flush_plug(scene.now);
        while scene.submitters[0].complete(scene.now, |_| told += 1) == 0 {
            scene.now = scene.now + 1000;
            scene.lanes[0].run(scene.now);
        }
        submitted += 1;
    }
    assert_eq!(told, submitted, "no I/O waits for a reader");
    // Not all at once, for a reader has to look up.
    assert_eq!(reader.take(), None);
    let at_once = reader.text.lines().count();
    assert!((10_000..40_000).contains(&at_once), "{at_once} lines");
    let end = std::iter::repeat_with(|| reader.take()).take(20).find_map(|end| end);
    let Some(RecordingEnd::Lost(lost)) = end else { panic!("{end:?}: nothing was lost") };
    let kept = reader.text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let kept = kept.count() as u64;
    // Its calls have from one to five words; it holds 2^18.
    assert!(((1 << 18) / 5..=1 << 18).contains(&kept), "{kept} kept");
    assert!(lost >= 3 * submitted - kept, "{kept} kept and {lost} lost of {submitted} I/Os");
    assert!(reader.check("noop") > 5_000);
    assert!(scene.record().is_ok(), "it is worn no longer");
}
