//! Specs as text: what is read, and how a bad one is told.

use weir_proto_scsi::alua::AccessState;
use weir_sim_target::{Action, CommandClass, Effect, LunChange, PortHealth, Spec, Target};

const WHOLE: &str = r#"
seed = 42
vendor = "ACME"
product = "Array"
queue_depth = 512
explicit_alua = false
transition = "2s"
journal = 100

[[group]]
id = 1
preferred = true

[[group]]
id = 2
state = "active/non-optimized"

[[port]]
id = 1
group = 1
speed = { latency = "50us", spread = "10us", bandwidth = "1GiB" }

[[port]]
id = 2
group = 2

[[lun]]
number = 7
size = "10GiB"
block = 4096
queue_depth = 32
write_cache = false
readonly = true
thin = "1GiB"
rotation = 0
transfer_blocks_max = 256
write_same_blocks_max = 1024

[[fault]]
port = 2
initiator = 3
lun = 7
class = "write"
opcode = 0x8a
first_block = 10
last_block = 20
from = "1s"
until = "2s"
skip = 3
times = 4
chance = 50
effect = { sense = { key = 3, code = 0x1100 } }

[[fault]]
effect = { unanswered = { after = "5s" } }

[[fault]]
effect = "garbled"

[[event]]
at = "3s"
action = { group = { id = 2, state = "standby" } }

[[event]]
at = "4s"
action = { port = { id = 2, health = { dead = { arrive = 50, after = "1s" } } } }

[[event]]
at = "5s"
action = { lun = { number = 7, change = { resize = "20GiB" } } }

[[event]]
at = "6s"
action = "power-cut"
"#;

#[test]
fn every_field_of_a_text_is_read() {
    let spec = Spec::parse(WHOLE).unwrap();
    assert_eq!((spec.seed, spec.queue_depth, spec.transition_ns), (42, 512, 2_000_000_000));
    assert_eq!((&*spec.vendor, &*spec.product, spec.journal), ("ACME", "Array", 100));
    assert!(!spec.explicit_alua && spec.groups[0].preferred);
    assert_eq!(spec.groups[1].state, AccessState::ActiveNonOptimized);
    let speed = spec.ports[0].speed;
    assert_eq!((speed.latency_ns, speed.spread_ns, speed.bandwidth), (50_000, 10_000, 1 << 30));
    assert_eq!((spec.ports[1].id, spec.ports[1].group), (2, 2));
    let lun = &spec.luns[0];
    assert_eq!((lun.number, lun.size, lun.block, lun.queue_depth), (7, 10 << 30, 4096, 32));
    assert!(!lun.write_cache && lun.readonly);
    assert_eq!((lun.thin, lun.rotation), (1 << 30, 0));
    assert_eq!((lun.transfer_blocks_max, lun.write_same_blocks_max), (256, 1024));
    let fault = &spec.faults[0];
    assert_eq!((fault.port, fault.initiator, fault.lun), (Some(2), Some(3), Some(7)));
    assert_eq!((fault.class, fault.opcode), (Some(CommandClass::Write), Some(0x8a)));
    assert_eq!((fault.first_block, fault.last_block), (Some(10), Some(20)));
    assert_eq!((fault.from_ns, fault.until_ns), (1_000_000_000, Some(2_000_000_000)));
    assert_eq!((fault.skip, fault.times, fault.chance), (3, Some(4), 50));
    assert_eq!(fault.effect, Effect::Sense { key: 3, code: 0x1100, done: false });
    assert_eq!(spec.faults[1].effect, Effect::Unanswered { after_ns: 5_000_000_000 });
    assert_eq!((spec.faults[2].effect, spec.faults[2].chance), (Effect::Garbled, 100));
    let health = PortHealth::Dead { arrive: 50, after_ns: 1_000_000_000 };
    let actions: Vec<_> = spec.events.iter().map(|event| event.action.clone()).collect();
    assert_eq!(
        actions,
        [
            Action::Group { id: 2, state: AccessState::Standby },
            Action::Port { id: 2, health },
            Action::Lun { number: 7, change: LunChange::Resize(20 << 30) },
            Action::PowerCut,
        ]
    );
    Target::new(spec).unwrap();
}

#[test]
fn an_empty_text_is_a_target_with_one_port_and_one_disk() {
    let spec = Spec::parse("").unwrap();
    assert_eq!(spec, Spec::default());
    Target::new(spec).unwrap();
}

#[test]
fn a_bad_text_is_told_with_line_value_and_bound() {
    let cases = [
        ("seed = 1\ncolour = 2", "line 2: unknown field `colour`"),
        ("[[lun]]\nblock = 513", "line 2: block=513 is not 512 or 4096"),
        ("[[lun]]\nsize = \"1000\"", "line 2: size=1000 is no multiple of the block, 512, above 0"),
        ("[[lun]]\nsize = \"0\"", "line 2: size=0 is no multiple of the block, 512, above 0"),
        ("[[lun]]\nsize = \"many\"", "line 2: "),
        ("[[lun]]\n[[lun]]\n\nnumber = 0", "line 4: number=0 is taken by another LUN"),
        ("[[lun]]\nnumber = 16384", "line 2: number=16384 is outside 0..=16383"),
        ("[[lun]]\nqueue_depth = 0", "line 2: queue_depth=0 is outside 1..=65536"),
        ("[[lun]]\nwrite_same_blocks_max = 0", "line 2: write_same_blocks_max=0 is below 1"),
        ("queue_depth = 65537", "line 1: queue_depth=65537 is outside 1..=65536"),
        ("\nvendor = \"nine chars\"", "line 2: vendor=\"nine chars\" is not 8 printable"),
        ("product = \"\\u00e9\"", "line 1: product=\"é\" is not 16 printable"),
        ("[[group]]\nid = 0", "line 2: id=0 is outside 1..=65535"),
        ("[[group]]\n[[group]]", "line 2: id=1 is taken by another group"),
        (
            "[[group]]\nstate = \"resting\"",
            "line 2: state=\"resting\" is none of: active/optimized",
        ),
        ("[[group]]\nstate = \"transitioning\"", "line 2: state=\"transitioning\" is no state"),
        ("[[port]]\nid = 1\n[[port]]\nid = 1", "line 4: id=1 is taken by another port"),
        ("[[port]]\nid = 0", "line 2: id=0 is outside 1..=65535"),
        ("[[port]]\nid = 1\ngroup = 7", "line 3: group=7 is none of the groups"),
        ("port = []", "line 1: port=[] has no port, at least 1 is needed"),
        ("[[fault]]\nport = 9", "line 2: port=9 is none of the ports"),
        ("[[fault]]\nlun = 9", "line 2: lun=9 is none of the LUNs"),
        ("[[fault]]\nchance = 101", "line 2: 101 percent is outside 0..=100"),
        ("[[fault]]\neffect = \"medium\"", "line 2: effect=\"medium\" takes first_block"),
        (
            "[[fault]]\neffect = { sense = { key = 16, code = 0 } }",
            "line 2: key=16 is outside 0..=15",
        ),
        ("[[fault]]\nfrom = \"soon\"", "line 2: "),
        (
            "[[event]]\nat = \"1s\"\naction = { port = { id = 3, health = \"up\" } }",
            "line 3: port id=3",
        ),
        (
            "[[event]]\nat = \"1s\"\naction = { group = { id = 3, state = \"standby\" } }",
            "line 3: group id=3",
        ),
        (
            "[[event]]\nat = \"1s\"\naction = { lun = { number = 3, change = \"add\" } }",
            "line 3: LUN number=3 is none",
        ),
        (
            "[[event]]\nat = \"1s\"\n\
             action = { lun = { number = 0, change = { resize = \"100\" } } }",
            "line 3: resize=100 is no multiple of the block, 512, above 0",
        ),
        (
            "[[event]]\nat = \"1s\"\naction = { group = { id = 1, state = \"transitioning\" } }",
            "line 3: state=\"transitioning\" is no state to go to",
        ),
    ];
    for (text, must) in cases {
        let told = Spec::parse(text).expect_err(text).to_string();
        assert!(told.starts_with(must), "{text:?}: {told:?} does not begin with {must:?}");
    }
}

#[test]
fn a_spec_made_by_hand_is_checked_too() {
    let spec = Spec { ports: Vec::new(), ..Spec::default() };
    let error = Target::new(spec).unwrap_err();
    assert_eq!(error.to_string(), "port=[] has no port, at least 1 is needed");
}
