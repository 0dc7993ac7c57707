//! Laws over random lives of a target: thousands of seeds, a plain model beside it.
//!
//! The model has of each block the values it may have after a power cut: those since it was last
//! known to be on the medium; the last of them is what is read. `WEIR_SEEDS` asks for other than
//! 10,000 seeds, and a failing seed is printed.

mod bed;

use std::collections::BTreeMap;

use weir_bio::{Nanos, Prng};
use weir_proto_scsi::command::{CompareAndWrite, SynchronizeCache, Transfer, WriteSame};
use weir_proto_scsi::unmap::{UnmapRange, put_unmap_list};
use weir_proto_scsi::{AdditionalSense, CdbSize, Lun, ScsiCommand, ScsiStatus, Sense, SenseKey};
use weir_sim_target::{
    Action, Command, DataPlace, Deed, Effect, End, Fault, InitiatorId, LunSpec, Managed,
    Management, NexusId, PortHealth, PortId, PortSpec, Spec, Speed, Target, TaskTag,
};

const BLOCKS: u64 = 40;

fn seeds() -> u64 {
    std::env::var("WEIR_SEEDS").map_or(10_000, |text| text.parse().expect("a number of seeds"))
}

/// What a command asks of the model.
#[derive(Clone, Debug)]
enum Ask {
    Read(u64, u64),
    /// First block, a value for each, and whether it is on the medium afterwards.
    Write(u64, Vec<u8>, bool),
    Compare(u64, u8, u8),
    Flush(u64, u64),
    Test,
}

struct Life {
    dice: Prng,
    target: Target,
    now: Nanos,
    nexuses: [NexusId; 2],
    block: [usize; 2],
    cache: [bool; 2],
    thin: [bool; 2],
    /// By logical unit and block.
    model: [Vec<Vec<u8>>; 2],
    asked: BTreeMap<TaskTag, (usize, Ask)>,
    tag: u32,
    value: u8,
    trace: u64,
    reverted: u64,
    kept: u64,
}

fn spec(seed: u64, dice: &mut Prng) -> Spec {
    let luns = [(0, 512), (1, 4096)].map(|(number, block)| LunSpec {
        number,
        block,
        size: BLOCKS * u64::from(block),
        write_cache: dice.percent(70),
        thin: if dice.percent(50) { 4096 * (1 + dice.below(50)) } else { 0 },
        speed: Speed { latency_ns: 10, spread_ns: 200, bandwidth: 0 },
        ..LunSpec::default()
    });
    let ports = [1, 2].map(|id| PortSpec { id, ..PortSpec::default() });
    Spec { seed, luns: luns.to_vec(), ports: ports.to_vec(), journal: 1000, ..Spec::default() }
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut dice = Prng::new(seed);
        let spec = spec(seed, &mut dice);
        let (cache, thin) =
            ([0, 1].map(|at| spec.luns[at].write_cache), [0, 1].map(|at| spec.luns[at].thin != 0));
        let mut target = Target::new(spec).unwrap();
        let nexuses = connect(&mut target, Nanos::ZERO);
        Self {
            dice,
            target,
            now: Nanos::ZERO,
            nexuses,
            block: [512, 4096],
            cache,
            thin,
            model: [(); 2].map(|()| vec![vec![0]; BLOCKS as usize]),
            asked: BTreeMap::new(),
            tag: 0,
            value: 0,
            trace: 0,
            reverted: 0,
            kept: 0,
        }
    }

    fn range(&mut self) -> (u64, u64) {
        let lba = self.dice.below(BLOCKS);
        (lba, 1 + self.dice.below((BLOCKS - lba).min(12)))
    }

    fn values(&mut self, count: u64, one: bool) -> Vec<u8> {
        let mut next = || {
            self.value = self.value.wrapping_add(1);
            self.value
        };
        let first = next();
        (0..count).map(|at| if one || at == 0 { first } else { next() }).collect()
    }

    /// A random command with its data, and what it asks.
    fn make(&mut self, lun: usize) -> (ScsiCommand, Vec<u8>, Ask) {
        let (lba, count) = self.range();
        let (blocks, size) = (count as u32, CdbSize::Sixteen);
        let (dpo, fua) = (self.dice.percent(10), self.dice.percent(20));
        let block = self.block[lun];
        let fill = |values: &[u8]| values.iter().flat_map(|v| vec![*v; block]).collect::<Vec<u8>>();
        match self.dice.below(10) {
            0..=2 => {
                let transfer = Transfer { size: CdbSize::Ten, lba, blocks, dpo, fua };
                (ScsiCommand::Read(transfer), vec![], Ask::Read(lba, count))
            }
            3..=5 => {
                let values = self.values(count, false);
                let data = fill(&values);
                let transfer = Transfer { size, lba, blocks, dpo, fua };
                (ScsiCommand::Write(transfer), data, Ask::Write(lba, values, fua))
            }
            6 => {
                let ndob = self.dice.percent(50);
                let unmap = self.thin[lun] && self.dice.percent(50);
                let values = if ndob { vec![0; count as usize] } else { self.values(count, true) };
                let data = if ndob { vec![] } else { vec![values[0]; block] };
                let same = WriteSame { size, lba, blocks, unmap, anchor: false, ndob };
                (ScsiCommand::WriteSame(same), data, Ask::Write(lba, values, false))
            }
            7 if self.thin[lun] => {
                let mut list = Vec::new();
                put_unmap_list(&mut list, &[UnmapRange { lba, blocks }]).unwrap();
                let unmap = ScsiCommand::Unmap { anchor: false, length: list.len() as u16 };
                (unmap, list, Ask::Write(lba, vec![0; count as usize], false))
            }
            7 => {
                let expected = *self.model[lun][lba as usize].last().unwrap();
                let new = self.values(1, true)[0];
                let compare = CompareAndWrite { lba, blocks: 1, dpo, fua: false };
                let ask = Ask::Compare(lba, expected, new);
                (ScsiCommand::CompareAndWrite(compare), fill(&[expected, new]), ask)
            }
            8 => {
                let all = self.dice.percent(50);
                let (lba, count) = if all { (0, BLOCKS) } else { (lba, count) };
                let blocks = if all { 0 } else { blocks };
                let cache = SynchronizeCache { size, lba, blocks, immediate: false };
                (ScsiCommand::SynchronizeCache(cache), vec![], Ask::Flush(lba, count))
            }
            _ => (ScsiCommand::TestUnitReady, vec![], Ask::Test),
        }
    }

    fn send(&mut self) {
        let lun = self.dice.below(2) as usize;
        let (command, data_out, ask) = self.make(lun);
        self.tag += 1;
        let tag = TaskTag(self.tag);
        let cdb = command.encode().unwrap();
        let expected_in = match ask {
            Ask::Read(_, count) => count as u32 * self.block[lun] as u32,
            _ => 0,
        };
        let nexus = self.nexuses[self.dice.below(2) as usize];
        let lun_address = Lun::new(lun as u32).unwrap();
        let command =
            Command { tag, lun: lun_address, cdb: cdb.bytes(), data_out: &data_out, expected_in };
        self.target.command(nexus, command, self.now).unwrap();
        self.asked.insert(tag, (lun, ask));
    }

    /// Takes the ends until a time, and judges each.
    fn until(&mut self, time: Nanos) {
        while let Some(at) = self.target.wake_at().filter(|at| *at <= time) {
            self.now = self.now.max(at);
            loop {
                let mut data = Vec::new();
                let mut take = |_: DataPlace, bytes: &[u8]| data.extend_from_slice(bytes);
                let Some(end) = self.target.next_end(self.now, &mut take) else { break };
                let (lun, ask) = self.asked.remove(&end.tag).expect("one end for a command");
                self.trace = self.trace.wrapping_mul(31).wrapping_add(u64::from(end.tag.0));
                self.judge(lun, &ask, &end, &data);
            }
        }
        self.now = time;
    }

    fn judge(&mut self, lun: usize, ask: &Ask, end: &End, data: &[u8]) {
        let last = |model: &[Vec<u8>], lba: u64| *model[lba as usize].last().unwrap();
        if end.status != ScsiStatus::GOOD {
            let sense = Sense::decode(&end.sense).unwrap();
            let full = sense.code == AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT;
            let attention = sense.key == SenseKey::UnitAttention;
            let differs = match ask {
                Ask::Compare(lba, expected, _) => last(&self.model[lun], *lba) != *expected,
                _ => false,
            };
            let miscompare = sense.key == SenseKey::Miscompare && differs;
            assert!((full && self.thin[lun]) || attention || miscompare, "{ask:?}: {sense}");
            return;
        }
        match ask {
            Ask::Read(lba, count) => {
                assert_eq!(data.len(), *count as usize * self.block[lun]);
                for (lba, is) in (*lba..).zip(data.chunks(self.block[lun])) {
                    let must = last(&self.model[lun], lba);
                    assert!(is.iter().all(|byte| *byte == must), "block {lba}, {must}");
                }
            }
            Ask::Write(lba, values, fua) => {
                for (lba, value) in (*lba..).zip(values) {
                    self.put(lun, lba, *value, *fua);
                }
            }
            Ask::Compare(lba, expected, new) => {
                assert_eq!(last(&self.model[lun], *lba), *expected);
                self.put(lun, *lba, *new, false);
            }
            Ask::Flush(lba, count) => {
                for block in &mut self.model[lun][*lba as usize..][..*count as usize] {
                    block.drain(..block.len() - 1);
                }
            }
            Ask::Test => {}
        }
    }

    fn put(&mut self, lun: usize, lba: u64, value: u8, fua: bool) {
        let block = &mut self.model[lun][lba as usize];
        if fua || !self.cache[lun] {
            block.clear();
        }
        block.push(value);
    }

    /// After a power cut each block has one of its values, whole, and is on the medium.
    fn cut_power(&mut self) {
        self.target.apply(Action::PowerCut, self.now).unwrap();
        self.asked.clear();
        for lun in 0..2 {
            for lba in 0..BLOCKS {
                let mut is = vec![0; self.block[lun]];
                self.target.peek(lun as u32, lba, &mut is);
                let block = &mut self.model[lun][lba as usize];
                assert!(is.iter().all(|byte| *byte == is[0]), "block {lba} is torn");
                assert!(block.contains(&is[0]), "block {lba} of {lun}: {} of {block:?}", is[0]);
                let dirty = block.len() > 1;
                self.kept += u64::from(dirty && block.last() == Some(&is[0]));
                self.reverted += u64::from(dirty && block.last() != Some(&is[0]));
                *block = vec![is[0]];
            }
        }
        self.nexuses = connect(&mut self.target, self.now);
    }

    fn live(mut self, steps: u32) -> Self {
        for _ in 0..steps {
            if self.dice.percent(2) {
                self.cut_power();
            }
            self.send();
            if self.dice.percent(40) {
                let time = self.now + self.dice.below(300);
                self.until(time);
            }
        }
        self.until(self.now + 10_000);
        assert!(self.asked.is_empty(), "each command has ended: {:?}", self.asked);
        self.cut_power();
        self
    }
}

fn connect(target: &mut Target, now: Nanos) -> [NexusId; 2] {
    [1, 2].map(|port| target.connect(PortId(port), InitiatorId(1), now).unwrap())
}

#[test]
fn ten_thousand_lives_read_what_the_model_reads_and_lose_only_what_was_not_flushed() {
    let (mut reverted, mut kept) = (0, 0);
    for seed in 0..seeds() {
        let life = std::panic::catch_unwind(|| Life::new(seed).live(50));
        let life = life.unwrap_or_else(|_| panic!("seed {seed}"));
        (reverted, kept) = (reverted + life.reverted, kept + life.kept);
    }
    // Of the blocks that could have either value neither is the rule.
    let share = reverted * 100 / (reverted + kept);
    assert!((30..70).contains(&share), "{reverted} former values, {kept} last ones");
}

#[test]
fn the_same_seed_lives_the_same_life() {
    let traces = |from| (from..from + 50).map(|seed| Life::new(seed).live(50).trace).collect();
    let (first, again, others): (Vec<_>, Vec<_>, Vec<_>) = (traces(0), traces(0), traces(50));
    assert_eq!(first, again);
    assert_ne!(first, others);
}

/// Faults of each kind that loses or delays commands.
fn random_fault(dice: &mut Prng) -> Fault {
    let after_ns = dice.below(5_000);
    let effect = match dice.below(4) {
        0 => Effect::Stuck,
        1 => Effect::Dropped,
        2 => Effect::Unanswered { after_ns },
        _ => Effect::Delayed { by_ns: after_ns },
    };
    Fault { effect, chance: 20, skip: dice.below(5), ..Fault::default() }
}

#[test]
fn a_command_that_was_managed_away_or_whose_nexus_ended_never_lands() {
    for seed in 0..seeds() / 5 {
        let mut life = Life::new(seed);
        for _ in 0..3 {
            let fault = random_fault(&mut life.dice);
            life.target.add_fault(fault).unwrap();
        }
        // Commands up to this number may not land any more, by port.
        let mut fenced = Vec::new();
        for _ in 0..60 {
            life.send();
            let time = life.now + life.dice.below(100);
            life.until_any(time);
            let nexus = life.dice.below(2) as usize;
            let gone = match life.dice.below(12) {
                0 => {
                    let tag = TaskTag(life.tag);
                    let abort = Management::AbortTask(tag);
                    let answer = life.target.manage(life.nexuses[nexus], abort, life.now);
                    assert!(matches!(answer, Managed::Complete | Managed::NoTask), "seed {seed}");
                    (answer == Managed::Complete).then_some((Some(tag), None))
                }
                1 => {
                    life.target.disconnect(life.nexuses[nexus], life.now);
                    let port = PortId(nexus as u16 + 1);
                    let old = life.nexuses[nexus];
                    life.nexuses[nexus] =
                        life.target.connect(port, InitiatorId(1), life.now).unwrap();
                    Some((None, Some(old)))
                }
                2 => {
                    let health = match life.dice.below(2) {
                        0 => PortHealth::Up,
                        _ => PortHealth::Slow { by_ns: 300 },
                    };
                    life.target.apply(Action::Port { id: 1, health }, life.now).unwrap();
                    None
                }
                _ => None,
            };
            if let Some(gone) = gone {
                fenced.push((gone, life.target.journal().count()));
            }
        }
        life.until_any(life.now + 100_000);
        let entries: Vec<_> = life.target.journal().copied().collect();
        assert!(entries.len() < 1000, "the journal has all, seed {seed}");
        for ((tag, nexus), from) in fenced {
            let lands = entries[from..].iter().find(|entry| {
                matches!(entry.deed, Deed::Landed(_))
                    && (Some(entry.tag) == tag || Some(entry.nexus) == nexus)
            });
            assert_eq!(lands, None, "seed {seed}");
        }
    }
}

impl Life {
    /// Takes the ends until a time, and does not judge them.
    fn until_any(&mut self, time: Nanos) {
        while let Some(at) = self.target.wake_at().filter(|at| *at <= time) {
            self.now = self.now.max(at);
            while self.target.next_end(self.now, &mut |_: DataPlace, _: &[u8]| {}).is_some() {}
        }
        self.now = time;
    }
}

#[test]
fn any_bytes_are_answered_once_and_never_panic() {
    for seed in 0..seeds() {
        let mut dice = Prng::new(seed);
        let spec = spec(seed, &mut dice);
        let mut target = Target::new(spec).unwrap();
        let nexus = connect(&mut target, Nanos::ZERO)[0];
        let mut now = Nanos::ZERO;
        for tag in 0..20 {
            let opcodes = weir_proto_scsi::Opcode::NAMED;
            let mut cdb = [0; 16];
            cdb[0] = opcodes[dice.below(opcodes.len() as u64) as usize].0;
            for byte in &mut cdb[1..] {
                if dice.percent(20) {
                    *byte = dice.next() as u8;
                }
            }
            let mut data = vec![0; dice.below(3000) as usize];
            if dice.percent(30) {
                dice.fill(&mut data);
            }
            let len = dice.below(17) as usize;
            let cdb = if dice.percent(10) { &cdb[..len] } else { &cdb[..] };
            let lun = Lun::new(dice.below(3) as u32).unwrap();
            let expected_in = dice.below(9000) as u32;
            let command = Command { tag: TaskTag(tag), lun, cdb, data_out: &data, expected_in };
            target.command(nexus, command, now).unwrap();
            now = target.wake_at().expect("an end to come");
            let mut moved = 0;
            let mut take = |_: DataPlace, bytes: &[u8]| moved += bytes.len() as u32;
            let end = target.next_end(now, &mut take).expect("an end");
            assert_eq!((end.tag, end.moved_in), (TaskTag(tag), moved), "seed {seed}");
            assert!(moved <= expected_in && end.moved_out as usize <= data.len(), "seed {seed}");
            assert_eq!(target.tasks(), 0);
        }
    }
}
