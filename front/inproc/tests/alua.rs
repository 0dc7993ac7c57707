//! Multipath over port groups of a simulated target: which group carries I/O while the groups
//! change their states, how a group is activated, and when I/O goes back. The mid-layer and the
//! target are whole; all time is virtual, and lanes are turned for a reason only.

use std::sync::Arc;

use weir::scsi_sim::{Patience, PortId, Route, SharedTarget, SimTransport, Spec, TargetTime};
use weir_bio::{Bio, Buf, Nanos, Status};
use weir_driver_scsi::{Host, HostOptions, Unit, UnitOptions};
use weir_map::multipath::Multipath;
use weir_map::multipath::settings::Settings;
use weir_map::multipath::table::Table;
use weir_proto_scsi::Lun;
use weir_proto_scsi::alua::AccessState;
use weir_queue::{
    Bell, Config, Device, Driver, Home, MapControl, NoWake, Settings as Parts, Submitter,
};
use weir_sim_target::{Action, GroupSpec, LunSpec, PortHealth, PortSpec, Speed};

const SECOND: u64 = 1_000_000_000;
/// Room for each write of a scene.
const SECTORS: u64 = 32_768;

/// A target with a port in each of two groups.
struct Target {
    states: [AccessState; 2],
    preferred: [bool; 2],
    explicit: bool,
    transition_ns: u64,
    handler: bool,
    /// I/O waits while no path is left.
    queues: bool,
    options: &'static [(&'static str, &'static str)],
}

impl Target {
    fn of(first: AccessState, second: AccessState) -> Target {
        Target {
            states: [first, second],
            preferred: [false; 2],
            explicit: true,
            transition_ns: 0,
            handler: true,
            queues: true,
            options: &[],
        }
    }
}

struct Rig {
    target: Arc<SharedTarget>,
    units: Vec<Arc<Unit>>,
    legs: Vec<Device>,
    above: Device,
    map: Arc<dyn MapControl>,
    driver: Arc<Multipath>,
    home: Home,
    client: Submitter,
    now: Nanos,
    written: u64,
    ended: Vec<(u64, Status, Nanos)>,
}

impl Rig {
    fn new(scene: &Target) -> Rig {
        let group = |at: usize| GroupSpec {
            id: at as u16 + 1,
            state: scene.states[at],
            preferred: scene.preferred[at],
        };
        let port = |id| PortSpec { id, group: id, ..PortSpec::default() };
        let speed = Speed { latency_ns: 100_000, ..Speed::default() };
        let lun = LunSpec { size: SECTORS * 512, speed, ..LunSpec::default() };
        let target = Spec {
            explicit_alua: scene.explicit,
            transition_ns: scene.transition_ns,
            groups: vec![group(0), group(1)],
            ports: vec![port(1), port(2)],
            luns: vec![lun],
            ..Spec::default()
        };
        let target = Arc::new(SharedTarget::new(target, TargetTime::Calls).expect("a spec"));
        let (mut units, mut legs) = (Vec::new(), Vec::new());
        for port in [1, 2] {
            let route = Route {
                name: format!("port {port}"),
                port: PortId(port),
                sessions: 1,
                depth: 16,
                patience: Patience::new(10 * SECOND),
            };
            let transport = Arc::new(SimTransport::new(&target, route));
            let host = Host::new(transport, HostOptions::default());
            let unit = Unit::open(&host, Lun::ZERO, UnitOptions::default()).expect("a disk");
            let unit = Arc::new(unit);
            // The time of a request goes on while it waits for the end of a transition.
            let (name, timeout_ns) = (format!("p{port}"), 200 * SECOND);
            let config = Config { name, timeout_ns, ..Config::default() };
            legs.push(Device::new(config, Arc::clone(&unit) as Arc<dyn Driver>).expect("a leg"));
            units.push(unit);
        }
        let mut settings = Settings::default();
        let options =
            [("failback", "immediate"), ("polling_interval", "1"), ("max_polling_interval", "1")];
        for (name, value) in options.iter().chain(scene.options) {
            assert!(settings.set(name, value).expect("a value"), "{name} is an option");
        }
        let handler = if scene.handler { "1 alua" } else { "0" };
        let features = if scene.queues { "1 queue_if_no_path" } else { "0" };
        let table = format!("{features} {handler} 2 1 round-robin 0 1 0 p1 round-robin 0 1 0 p2");
        let table = Table::parse(&table).expect("a table");
        let driver = Arc::new(Multipath::new(table, legs.clone(), settings).expect("paths"));
        // What a target string does: all paths have one size.
        for leg in legs.iter().filter(|leg| leg.limits().capacity == 0) {
            let size = driver.limits().size();
            leg.reconfigure(|parts: &mut Parts| parts.limits.grow_to(size)).expect("a size");
        }
        let map = driver.control();
        let config = Config { timeout_ns: 0, ..Config::default() };
        let above = Device::new(config, Arc::clone(&driver) as Arc<dyn Driver>);
        let above = above.expect("a device");
        let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 8));
        for device in legs.iter().chain([&above]) {
            home.open(device, 0).expect("a lane");
        }
        let client = above.submitter(home.bell(), 0, 0).expect("a submitter");
        let (now, written, ended) = (Nanos(SECOND), 0, Vec::new());
        Rig { target, units, legs, above, map, driver, home, client, now, written, ended }
    }

    fn run(&mut self) {
        for _ in 0..1_000 {
            self.home.bell().ready().take(|_| {});
            let wants = self.home.wants_turn(self.now);
            if wants {
                self.home.turn(self.now);
            }
            let (ended, now) = (&mut self.ended, self.now);
            let taken = self.client.complete(now, |end| ended.push((end.cookie, end.status, now)));
            if !wants && taken == 0 {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    fn pass(&mut self, ns: u64) {
        let until = self.now + ns;
        self.run();
        while let Some(next) = self.home.wake_at().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.run();
        }
        self.now = until;
        self.run();
    }

    fn write(&mut self) {
        self.written += 1;
        let value = self.written as u8;
        let bio = Bio::write(self.written * 8, Buf::filled(4096, |bytes| bytes.fill(value)));
        self.client.submit(bio.cookie(self.written), self.now).expect("room");
        self.client.flush_plug(self.now);
    }

    /// Writes ten times a second, so many seconds long, one behind the other.
    fn write_for(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.write();
            self.pass(SECOND / 10);
        }
    }

    fn act(&self, action: Action) {
        self.target.with(self.now, |target, now| target.apply(action, now)).expect("an act");
    }

    fn group(&self, id: u16, state: AccessState) {
        self.act(Action::Group { id, state });
    }

    /// Writes that went by each path so far.
    fn by_path(&self) -> [u64; 2] {
        let ends = |leg: &Device| leg.stats().directions[1].ios;
        [ends(&self.legs[0]), ends(&self.legs[1])]
    }

    /// Every write has ended well, and is there.
    fn assert_written(&mut self) {
        // A check under way ends.
        self.pass(SECOND / 20);
        let well = |at: u64| (at, Status::Ok);
        let ended: Vec<_> =
            self.ended.iter().map(|(cookie, status, _)| (*cookie, *status)).collect();
        let mut sorted = ended.clone();
        sorted.sort_unstable_by_key(|end| end.0);
        assert_eq!(sorted, (1..=self.written).map(well).collect::<Vec<_>>());
        for at in 1..=self.written {
            let mut bytes = [0; 4096];
            self.target.with(self.now, |target, _| target.peek(0, at * 8, &mut bytes));
            assert_eq!(bytes, [at as u8; 4096], "write {at}");
        }
    }

    fn listing(&self) -> String {
        self.map.listing().join("\n")
    }

    fn has_told(&self, what: &str) -> bool {
        self.driver.notices().iter().any(|notice| notice.contains(what))
    }
}

use AccessState::{ActiveNonOptimized, ActiveOptimized, Standby, Unavailable};

#[test]
fn io_moves_with_the_optimized_group_and_nothing_is_lost() {
    for (handler, transition_s) in [(false, 0), (true, 0), (false, 3), (true, 3)] {
        let transition_ns = transition_s * SECOND;
        // Optimized or not is the target's to say.
        let explicit = false;
        let scene = Target::of(ActiveOptimized, ActiveNonOptimized);
        let mut rig = Rig::new(&Target { handler, transition_ns, explicit, ..scene });
        rig.write_for(3);
        assert_eq!(rig.by_path(), [30, 0]);
        rig.group(1, ActiveNonOptimized);
        rig.group(2, ActiveOptimized);
        rig.write_for(10);
        let [first, _] = rig.by_path();
        assert!(first <= 50 + transition_s * 10, "{first}");
        let before = rig.by_path();
        rig.write_for(2);
        assert_eq!(rig.by_path(), [before[0], before[1] + 20], "{}", rig.listing());
        assert!(rig.has_told("failback to priority group 2"));
        // And back.
        rig.group(1, ActiveOptimized);
        rig.group(2, ActiveNonOptimized);
        rig.write_for(10);
        let before = rig.by_path();
        rig.write_for(2);
        assert_eq!(rig.by_path(), [before[0] + 20, before[1]], "{}", rig.listing());
        rig.assert_written();
    }
}

#[test]
fn a_group_in_standby_is_activated_when_the_active_one_dies_and_left_when_it_is_back() {
    let mut rig = Rig::new(&Target::of(ActiveOptimized, Standby));
    assert!(rig.units[1].facts().is_partial(), "a port in standby tells no size");
    rig.write_for(2);
    assert_eq!(rig.by_path(), [20, 0]);
    assert!(rig.listing().contains("p2 active prio=1 port=S"), "{}", rig.listing());
    rig.act(Action::Port { id: 1, health: PortHealth::Dead { arrive: 0, after_ns: 0 } });
    rig.write_for(60);
    let [_, second] = rig.by_path();
    assert!(second > 0, "{}", rig.listing());
    assert!(rig.listing().contains("p2 active prio=50 port=A"), "{}", rig.listing());
    assert!(!rig.units[1].facts().is_partial());
    rig.act(Action::Port { id: 1, health: PortHealth::Up });
    // The target stands by with the first group meanwhile, as those do that have one active.
    rig.group(2, Standby);
    rig.write_for(60);
    let before = rig.by_path();
    rig.write_for(2);
    assert_eq!(rig.by_path(), [before[0] + 20, before[1]], "{}", rig.listing());
    rig.assert_written();
}

#[test]
fn a_group_that_cannot_be_activated_carries_nothing() {
    // Unavailable, and the target changes states by itself only.
    for state in [Standby, Unavailable] {
        let scene = Target::of(ActiveOptimized, state);
        let scene = Target { explicit: false, queues: false, ..scene };
        let mut rig = Rig::new(&scene);
        rig.write_for(1);
        rig.act(Action::Port { id: 1, health: PortHealth::Dead { arrive: 0, after_ns: 0 } });
        rig.write_for(2);
        rig.pass(120 * SECOND);
        assert!(rig.ended.iter().skip(10).all(|(_, status, _)| *status != Status::Ok));
        assert_eq!(rig.ended.len(), 30, "{}", rig.listing());
        assert_eq!(rig.above.stats().in_flight, 0);
    }
}

#[test]
fn the_preferred_group_is_the_best_and_manual_failback_leaves_io_where_it_is() {
    let scene = Target::of(ActiveNonOptimized, ActiveNonOptimized);
    let scene = Target { preferred: [false, true], handler: false, ..scene };
    let mut rig = Rig::new(&Target { options: &[("failback", "manual")], ..scene });
    rig.write_for(1);
    assert_eq!(rig.by_path(), [10, 0], "the table begins with the first group");
    assert!(rig.listing().contains("p2 active prio=90 port=N"), "{}", rig.listing());
    rig.map.message("switch_group 2", rig.now).expect("a message");
    rig.write_for(1);
    assert_eq!(rig.by_path(), [10, 10]);
    rig.group(1, ActiveOptimized);
    rig.group(2, Standby);
    // What the port refuses moves all the same.
    rig.write_for(2);
    assert_eq!(rig.by_path()[0], 30, "{}", rig.listing());
    rig.assert_written();
}

#[test]
fn io_goes_back_so_many_seconds_after_the_better_group_is_back() {
    let scene = Target::of(ActiveNonOptimized, ActiveNonOptimized);
    let scene = Target { handler: false, options: &[("failback", "7")], ..scene };
    let mut rig = Rig::new(&scene);
    rig.write_for(1);
    rig.group(2, ActiveOptimized);
    rig.write_for(7);
    assert_eq!(rig.by_path()[1], 0, "{}", rig.listing());
    rig.write_for(2);
    let [first, second] = rig.by_path();
    assert!(second >= 9 && first + second == 100, "{first} {second}");
    rig.assert_written();
}
