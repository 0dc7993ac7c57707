//! Shares by weight: loads that are equal but for their weight, over 30 s of virtual time.
//!
//! Devices F and HDD of docs/behaviour/bfq.md, section 17, that take one command and eight at
//! once. A sequential load is measured in bytes, a seeky one in time of the device; as the requests
//! of both loads are equal, that is the number of them. `WEIR_SHARES=all` takes all pairs of levels
//! and more pairs of groups, and prints the table of docs/fidelity.md; `WEIR_SHARES_SEED` draws
//! other groups.

#![forbid(unsafe_code)]

mod bed;

use bed::{Bed, Client, ClientId, Device, SECOND, Setting, asked};
use weir_bio::{Class, GroupId, Nanos, Prng};

/// Clients apart by this never meet, sectors.
const APART: u64 = 1 << 26;
const FROM: Nanos = Nanos(2 * SECOND);
const TO: Nanos = Nanos(32 * SECOND);
/// Queues made within 180 ms of each other may become one.
const STAGGER_NS: u64 = 700_000_000;
/// The most a slot is, of 30 s: 125 ms and what is still in the device. That much one may lag
/// behind its due.
const SLOT: f64 = 0.15 / 30.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    F,
    Hdd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Sequential,
    Seeky,
}

/// What all clients of a run do alike, and before which device.
#[derive(Clone, Copy, Debug)]
struct Scene {
    disk: Disk,
    /// Commands the device takes at once.
    commands: usize,
    load: Load,
    /// I/Os of a client under way at once.
    depth: usize,
}

impl Scene {
    fn bed(self, scheduler: &str) -> Bed {
        let device = if self.disk == Disk::F { Device::f() } else { Device::hdd() };
        let low_latency = ("low_latency", "0".to_owned());
        let is_kyber = scheduler == "kyber";
        let tunables = if is_kyber { Vec::new() } else { vec![low_latency] };
        // kyber shares requests. How many I/Os one has is the luck of their merges.
        let nomerges = if is_kyber { 2 } else { 0 };
        let setting = Setting { nr_requests: 1024, nomerges, tunables, ..Setting::default() };
        Bed::with(scheduler, device.with_depth(self.commands), setting)
    }

    /// 128 KiB at a time; on the HDD 4 KiB if they are apart.
    fn client(self, place: u64) -> Client {
        let client = match (self.load, self.disk) {
            (Load::Sequential, _) => Client::reader(place * APART, 256),
            (Load::Seeky, Disk::F) => Client::random_reader(place * APART, APART, 256, 17 + place),
            (Load::Seeky, Disk::Hdd) => Client::random_reader(place * APART, APART, 8, 17 + place),
        };
        client.think(100_000).depth(self.depth).start(place * STAGGER_NS)
    }
}

impl Scene {
    /// How far levels may be off, per cent. The lightest queue is never waited for, and
    /// a device without seeks that takes all that both have is filled by the other one meanwhile.
    fn level_tolerance(self) -> f64 {
        let Scene { disk, commands, load, depth } = self;
        let is_filled = (disk, commands, load, depth) == (Disk::F, 8, Load::Seeky, 4);
        if is_filled { 26.0 } else { 10.0 }
    }

    /// How far groups in groups may be off, per cent. One that thinks is filled up with requests of
    /// any other, near or far in the tree, and these count only with the next slot of that one.
    fn tree_tolerance(self) -> f64 {
        if self.load == Load::Seeky && self.depth == 1 { 12.0 } else { 10.0 }
    }
}

fn scenes() -> impl Iterator<Item = Scene> {
    let loads = [Load::Sequential, Load::Seeky];
    [Disk::F, Disk::Hdd].into_iter().flat_map(move |disk| {
        [1, 8].into_iter().flat_map(move |commands| {
            loads
                .into_iter()
                .flat_map(move |load| [1, 4, 16].map(|depth| Scene { disk, commands, load, depth }))
        })
    })
}

fn is_whole() -> bool {
    std::env::var("WEIR_SHARES").is_ok_and(|what| what == "all")
}

fn parts(bed: &mut Bed, clients: &[ClientId]) -> Vec<f64> {
    bed.run_until(TO);
    let got = clients.iter().map(|one| bed.record(*one).bytes_between(FROM, TO) as f64);
    got.collect()
}

/// How far runs were from what was due.
#[derive(Default)]
struct Tally {
    runs: usize,
    within_5: usize,
    within_10: usize,
    /// Of the others, those in which what was more than 10 % off was no more than a slot.
    within_slot: usize,
    worst: (f64, String),
}

impl Tally {
    /// Notes the shares of one run.
    fn note(&mut self, got: &[f64], due: &[f64], what: String) {
        let (all, whole): (f64, f64) = (got.iter().sum(), due.iter().sum());
        let (mut off, mut beyond) = (0.0_f64, 0.0_f64);
        for (got, due) in got.iter().zip(due) {
            let (part, due) = (got / all, due / whole);
            off = off.max((part / due - 1.0).abs());
            if (part - due).abs() > SLOT {
                beyond = beyond.max((part / due - 1.0).abs());
            }
        }
        self.runs += 1;
        self.within_5 += usize::from(off <= 0.05);
        self.within_10 += usize::from(off <= 0.10);
        let is_slot = off > 0.10 && beyond <= 0.10;
        self.within_slot += usize::from(is_slot);
        if !is_slot && off > self.worst.0 {
            self.worst = (off, what);
        }
    }

    /// Prints a line of the table; fails if a run was farther off than `most`.
    #[track_caller]
    fn tell(&self, name: &str, most: f64) {
        let Tally { runs, within_5, within_10, within_slot, worst: (off, what) } = self;
        let off = off * 100.0;
        println!("| {name} | {runs} | {within_5} | {within_10} | {within_slot} | {off:.1} % |");
        assert!(off <= most, "{name}, {what}: {off:.1} % off");
    }
}

fn name(scene: Scene) -> String {
    let Scene { disk, commands, load, depth } = scene;
    let load = if load == Load::Sequential { "sequential" } else { "seeky" };
    let disk = if disk == Disk::F { "F" } else { "HDD" };
    format!("{disk}, {commands} at once, {load}, depth {depth}")
}

#[test]
fn any_two_levels_share_by_their_weights() {
    let pairs: Vec<(u8, u8)> = (0..8).flat_map(|a| (a..8).map(move |b| (a, b))).collect();
    for (n, scene) in scenes().enumerate() {
        let mut tally = Tally::default();
        let few = [(0, 7), pairs[(5 * n + 1) % pairs.len()]];
        let pairs = if is_whole() { &pairs[..] } else { &few };
        for (a, b) in pairs {
            let mut bed = scene.bed("bfq");
            let clients = [(0, *a), (1, *b)].map(|(place, level)| {
                bed.client(scene.client(place).prio(Class::BestEffort, level))
            });
            let due = [8.0 - f64::from(*a), 8.0 - f64::from(*b)];
            tally.note(&parts(&mut bed, &clients), &due, format!("levels {a} and {b}"));
        }
        tally.tell(&format!("levels; {}", name(scene)), scene.level_tolerance());
    }
}

fn weight(prng: &mut Prng) -> u16 {
    1 + prng.below(1000) as u16
}

#[test]
fn any_two_groups_share_by_their_weights() {
    let seed = asked("WEIR_SHARES_SEED", 1);
    println!("WEIR_SHARES_SEED={seed}");
    let mut prng = Prng::new(seed);
    let mut pairs = vec![(1, 1), (1000, 1000), (100, 1000), (1, 1000)];
    pairs.extend((0..32).map(|_| (weight(&mut prng), weight(&mut prng))));
    for (n, scene) in scenes().enumerate() {
        let mut tally = Tally::default();
        let few = [pairs[n % 4], pairs[4 + n % 32]];
        let pairs = if is_whole() { &pairs[..] } else { &few };
        for (a, b) in pairs {
            let mut bed = scene.bed("bfq");
            bed.weigh(1, *a);
            bed.weigh(2, *b);
            let clients = [1, 2].map(|n| bed.client(scene.client(u64::from(n) - 1).group(n)));
            let due = [f64::from(*a), f64::from(*b)];
            tally.note(&parts(&mut bed, &clients), &due, format!("{a} : {b}"));
        }
        tally.tell(&format!("groups; {}", name(scene)), 10.0);
    }
}

#[test]
fn groups_in_groups_share_by_their_weights() {
    let seed = asked("WEIR_SHARES_SEED", 1);
    println!("WEIR_SHARES_SEED={seed}");
    let mut prng = Prng::new(seed);
    let trees: Vec<[u16; 4]> = (0..12).map(|_| [0; 4].map(|_| weight(&mut prng))).collect();
    for (n, scene) in scenes().enumerate() {
        let mut tally = Tally::default();
        let few = [trees[n % 12]];
        for tree in if is_whole() { &trees[..] } else { &few } {
            let [a, b, first, second] = *tree;
            let mut bed = scene.bed("bfq");
            for (group, weight) in [(1, a), (2, b), (11, first), (12, second)] {
                bed.weigh(group, weight);
            }
            for child in [11, 12] {
                bed.scheduler_mut().group_parent(GroupId(child), GroupId(1));
            }
            let clients = [(0, 11), (1, 12), (2, 2)]
                .map(|(place, group)| bed.client(scene.client(place).group(group)));
            let [a, b, first, second] = tree.map(f64::from);
            let above = a / (a + b);
            let due = [above * first, above * second, (1.0 - above) * (first + second)];
            tally.note(&parts(&mut bed, &clients), &due, format!("{tree:?}"));
        }
        tally.tell(&format!("trees; {}", name(scene)), scene.tree_tolerance());
    }
}

/// Real time never pauses and is 16 deep, best effort and the idle class have a request each.
#[test]
fn classes_are_strict_but_for_three_to_five_requests_a_second_of_the_idle_one() {
    for scene in scenes().filter(|scene| scene.depth == 16) {
        let mut bed = scene.bed("bfq");
        let one = Scene { depth: 1, ..scene };
        let rt = bed.client(scene.client(0).prio(Class::RealTime, 7));
        let be = bed.client(one.client(1).prio(Class::BestEffort, 0));
        let idle = bed.client(one.client(2).prio(Class::Idle, 0));
        bed.run_until(TO);
        let ios = |client| bed.record(client).ios_between(FROM, TO);
        println!("{}: {}, {}, {}", name(scene), ios(rt), ios(be), ios(idle));
        assert!(ios(rt) > 2000 && ios(be) == 0, "{}: {} and {}", name(scene), ios(rt), ios(be));
        assert!((90..=150).contains(&ios(idle)), "{}: {} in 30 s", name(scene), ios(idle));
    }
}

/// A slice of cfq is time, by level 180 ms to 40 ms. A seeky queue of depth 1 has no slice, as its
/// idle window is off (docs/behaviour/cfq.md, section 5).
#[test]
fn any_two_levels_of_cfq_share_by_their_slices() {
    let pairs: Vec<(u8, u8)> = (0..8).flat_map(|a| (a..8).map(move |b| (a, b))).collect();
    let readers = |scene: &Scene| scene.depth == 1 && scene.load == Load::Sequential;
    for (n, scene) in scenes().filter(readers).enumerate() {
        let mut tally = Tally::default();
        let few = [(0, 7), pairs[(5 * n + 1) % pairs.len()]];
        for (a, b) in if is_whole() { &pairs[..] } else { &few } {
            let mut bed = scene.bed("cfq");
            let clients = [(0, *a), (1, *b)].map(|(place, level)| {
                bed.client(scene.client(place).prio(Class::BestEffort, level))
            });
            let due = [180.0 - 20.0 * f64::from(*a), 180.0 - 20.0 * f64::from(*b)];
            tally.note(&parts(&mut bed, &clients), &due, format!("levels {a} and {b}"));
        }
        tally.tell(&format!("cfq; {}", name(scene)), 10.0);
    }
}

#[test]
fn equal_writers_have_equal_parts_under_kyber() {
    for scene in scenes() {
        let mut bed = scene.bed("kyber");
        let writers = [0, 1, 2, 3].map(|place| {
            let writer = match scene.load {
                Load::Sequential => Client::writer(place * APART, 256),
                Load::Seeky => Client::random_writer(place * APART, APART, 8, place),
            };
            bed.client(writer.think(100_000).depth(scene.depth).start(place * STAGGER_NS / 2))
        });
        let mut tally = Tally::default();
        tally.note(&parts(&mut bed, &writers), &[1.0; 4], String::from("four writers"));
        tally.tell(&format!("kyber; {}", name(scene)), 10.0);
    }
}
