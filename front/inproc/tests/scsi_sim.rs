//! Simulated SCSI targets as disks: which disks share a target, what is told of a file that is
//! none, and the contract of a port: a command that was handed back changes no block any more.

mod bed;

use std::sync::Arc;

use bed::Folder;
use weir::scsi_sim::{Patience, PortId, Route, SharedTarget, SimTransport, Spec, TargetTime};
use weir::{Buf, Data, Disk, Nanos};
use weir_driver_scsi::{
    Command, Delivered, Direction, Ends, Management, ManagementAnswer, Port, Refusal, Transport,
};
use weir_proto_scsi::Lun;
use weir_proto_scsi::decide::Delivery;
use weir_sim_target::{Action, PortHealth};

const SECOND: u64 = 1_000_000_000;

const TWO_PORTS: &str = r#"
    [[port]]
    id = 3
    [[port]]
    id = 4
    [[lun]]
    number = 1
    size = "1MiB"
    [[lun]]
    number = 9
    size = "2MiB"
"#;

/// A folder with a file that describes a target, and its target string.
fn file(text: &str) -> (Folder, String) {
    let folder = Folder::new();
    std::fs::write(folder.join("t.toml"), text).unwrap();
    let target = format!("scsi-sim:{}", folder.join("t.toml").display());
    (folder, target)
}

#[test]
fn disks_that_name_one_file_are_paths_and_units_of_one_target() {
    let (_folder, target) = file(TWO_PORTS);
    let open = |options: &str| Disk::open(&format!("{target}{options}")).unwrap();
    let (first, other) = (open(""), open(",port=4,lun=1,sessions=2"));
    let (unit, again) = (open(",lun=9"), open(",lun=9,port=4"));
    assert_eq!((first.size(), other.size()), (1 << 20, 1 << 20));
    assert_eq!((unit.size(), again.size()), (2 << 20, 2 << 20));
    let bytes = |disk: &Disk| {
        let mut bytes = [0; 4096];
        disk.session().unwrap().read_at(8192, &mut bytes).unwrap();
        bytes
    };
    first.session().unwrap().write_at(8192, &[7; 4096]).unwrap();
    assert_eq!(bytes(&other), [7; 4096]);
    assert_eq!(bytes(&unit), [0; 4096], "another unit has other blocks");
    unit.session().unwrap().write_at(8192, &[9; 4096]).unwrap();
    assert_eq!((bytes(&again), bytes(&first)), ([9; 4096], [7; 4096]));
    for disk in [first, other, unit, again] {
        disk.close().unwrap();
    }
    assert_eq!(bytes(&open("")), [0; 4096], "it was gone with its last disk");
}

#[test]
fn what_is_wrong_with_a_file_or_an_option_is_told_with_line_value_and_bound() {
    let error = |text: &str, options: &str| {
        let (_folder, target) = file(text);
        Disk::open(&format!("{target}{options}")).expect_err("an error").to_string()
    };
    for (text, options, parts) in [
        ("seed = 1\n[[lun]]\nqueue_depth = 0\n", "", &["line 3", "queue_depth=0", "1..=65536"][..]),
        ("[[lun]]\nnumbr = 1\n", "", &["line 2", "numbr"]),
        (TWO_PORTS, ",port=5", &["port=5", "3, 4"]),
        (TWO_PORTS, ",lun=0", &["lun=0", "1, 9"]),
        (TWO_PORTS, ",port=0", &["port=0", "1..=65535"]),
        (TWO_PORTS, ",sessions=65", &["sessions=65", "1..=64"]),
        (TWO_PORTS, ",sessions=2,queues=3", &["queues=3", "sessions=2"]),
    ] {
        let why = error(text, options);
        parts.iter().for_each(|part| assert!(why.contains(part), "{options}: {why}"));
    }
    let why = Disk::open("scsi-sim:/nowhere/t.toml").expect_err("an error").to_string();
    assert!(why.contains("/nowhere/t.toml"), "{why}");
}

#[test]
fn a_file_that_has_changed_is_not_taken_for_the_target_that_is_open() {
    let (folder, target) = file(TWO_PORTS);
    let disk = Disk::open(&target).unwrap();
    std::fs::write(folder.join("t.toml"), format!("{TWO_PORTS}\n")).unwrap();
    let why = Disk::open(&target).expect_err("an error").to_string();
    assert!(why.contains("has changed"), "{why}");
    disk.close().unwrap();
    drop(disk);
    Disk::open(&target).unwrap().close().unwrap();
}

/// A port of a target in virtual time, with one write that the target carries out after `late` and
/// does not answer.
struct Limbo {
    shared: Arc<SharedTarget>,
    port: Box<dyn Port>,
    ends: Vec<Delivered>,
    answers: Vec<(u32, ManagementAnswer)>,
}

impl Limbo {
    fn new(patience: Patience, late: u64) -> Limbo {
        let shared = Arc::new(SharedTarget::new(Spec::default(), TargetTime::Calls).unwrap());
        let name = String::from("target");
        let route = Route { name, port: PortId(1), sessions: 1, depth: 8, patience };
        let port = SimTransport::new(&shared, route).open(0).unwrap();
        let mut limbo = Limbo { shared, port, ends: Vec::new(), answers: Vec::new() };
        // The unit attention of a new nexus.
        limbo.send(0, 0, Nanos(0)).unwrap();
        limbo.turn(0);
        assert_eq!(std::mem::take(&mut limbo.ends).len(), 1);
        limbo.be(PortHealth::Dead { arrive: 100, after_ns: late * SECOND }, 0);
        limbo.send(0, 5, Nanos(1)).unwrap();
        limbo
    }

    fn be(&mut self, health: PortHealth, second: u64) {
        let action = Action::Port { id: 1, health };
        self.shared.with(Nanos(second * SECOND), |target, now| target.apply(action, now).unwrap());
    }

    /// Writes the first block, full of `value`.
    fn send(&mut self, slot: u16, value: u8, now: Nanos) -> Result<(), Refusal> {
        let cdb = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        let mut memory = vec![Data::One(Buf::filled(512, |bytes| bytes.fill(value)))];
        let direction = Direction::Out(512);
        let command = Command { slot, lun: Lun::ZERO, cdb: &cdb, direction };
        self.port.send(&command, &mut memory, now)?;
        self.port.commit(now);
        Ok(())
    }

    /// Turns the port as often as it asks for it, up to a time.
    fn turn(&mut self, second: u64) {
        let until = Nanos(second * SECOND);
        for _ in 0..10_000 {
            let next = self.port.wake_at().unwrap_or(until).min(until);
            let mut ends = Ends::default();
            self.port.reap(next, &mut ends);
            assert_eq!(
                ends.commands.len(),
                ends.memory.len(),
                "memory comes back with its command"
            );
            self.ends.append(&mut ends.commands);
            self.answers.append(&mut ends.managements);
            if next == until && self.port.wake_at().is_none_or(|at| at > until) {
                return;
            }
        }
        panic!("the port never rests");
    }

    fn deliveries(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.ends).iter().map(|end| end.delivery).collect()
    }

    fn block(&self, second: u64) -> u8 {
        let mut bytes = [0; 512];
        self.shared.with(Nanos(second * SECOND), |target, _| target.peek(0, 0, &mut bytes));
        bytes[0]
    }
}

#[test]
fn a_write_in_limbo_is_handed_back_when_the_session_is_reinstated_and_lands_no_more() {
    let mut limbo = Limbo::new(Patience::new(120 * SECOND), 60);
    limbo.turn(20);
    assert_eq!(limbo.deliveries(), [], "it may still land");
    assert_eq!(limbo.send(1, 6, Nanos(20 * SECOND)), Err(Refusal::Down));
    assert!(limbo.port.outage_until().is_some());
    limbo.be(PortHealth::Up, 25);
    limbo.turn(30);
    assert_eq!(limbo.deliveries(), [Delivery::Disrupted]);
    assert_eq!(limbo.port.outage_until(), None);
    limbo.turn(100);
    assert_eq!(limbo.block(100), 0, "it landed although it was handed back");
    let mut told = 0;
    limbo.port.notices(&mut |_| told += 1);
    assert_eq!(told, 2, "lost and back");
}

#[test]
fn a_write_in_limbo_is_kept_until_the_bound_and_lands_no_more_behind_it() {
    let mut limbo = Limbo::new(Patience::new(30 * SECOND), 100);
    // Two keep-alives of 5 s, then 60 s.
    limbo.turn(69);
    assert_eq!(limbo.deliveries(), []);
    assert_eq!(limbo.send(1, 6, Nanos(69 * SECOND)), Err(Refusal::Lost));
    limbo.turn(72);
    assert_eq!(limbo.deliveries(), [Delivery::FailFast]);
    limbo.turn(200);
    assert_eq!(limbo.block(200), 0, "it landed although it was handed back");
}

#[test]
fn a_transport_that_does_not_wait_for_the_bound_has_its_writes_land_late() {
    let unfenced = Patience { bound_ns: 30 * SECOND, ..Patience::new(300 * SECOND) };
    let mut limbo = Limbo::new(unfenced, 100);
    limbo.turn(50);
    assert_eq!(limbo.deliveries(), [Delivery::FailFast]);
    assert_eq!(limbo.block(50), 0);
    assert_eq!(limbo.block(120), 5);
}

#[test]
fn an_abort_hands_back_a_write_whose_answer_was_lost_and_a_dead_port_answers_none() {
    let mut limbo = Limbo::new(Patience { keep_alive_ns: None, ..Patience::new(SECOND) }, 60);
    let now = Nanos(SECOND);
    limbo.port.manage(Management::Abort { slot: 0 }, 1, Nanos(5 * SECOND), now).unwrap();
    limbo.turn(4);
    assert_eq!((limbo.answers.len(), limbo.ends.len()), (0, 0));
    limbo.turn(5);
    assert_eq!(limbo.answers, [(1, ManagementAnswer::Late)]);
    limbo.be(PortHealth::Up, 6);
    let now = Nanos(7 * SECOND);
    limbo.port.manage(Management::Abort { slot: 0 }, 2, Nanos(9 * SECOND), now).unwrap();
    limbo.turn(7);
    assert_eq!(limbo.answers.pop(), Some((2, ManagementAnswer::Complete)));
    assert_eq!(limbo.deliveries(), [Delivery::Aborted]);
    assert_eq!(limbo.block(100), 0);
}

#[test]
fn a_power_cut_ends_the_session_which_is_made_anew() {
    let mut limbo = Limbo::new(Patience::new(SECOND), 60);
    limbo.be(PortHealth::Up, 1);
    limbo.shared.with(Nanos(SECOND), |target, now| target.apply(Action::PowerCut, now).unwrap());
    limbo.turn(60);
    assert_eq!(limbo.deliveries(), [Delivery::Disrupted]);
    limbo.send(0, 6, Nanos(60 * SECOND)).unwrap();
    limbo.turn(61);
    assert_eq!(limbo.deliveries(), [Delivery::Delivered]);
    assert_eq!(limbo.shared.outstanding(), 0);
}
