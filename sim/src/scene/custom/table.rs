//! What can be stated of a host.

use crate::profile::PROFILES;
use crate::scene::settings::{Bounds, Setting};

/// Times at most, ns: a thousand seconds.
const TIME_MAX: u64 = 1_000_000_000_000;

const fn setting(
    name: &'static str,
    bounds: Bounds,
    [default, meaning]: [&'static str; 2],
) -> Setting {
    Setting { name, bounds, default, meaning }
}

const fn whole(name: &'static str, most: u64, told: [&'static str; 2]) -> Setting {
    setting(name, Bounds::Wholes(1, most), told)
}

const fn time(name: &'static str, told: [&'static str; 2]) -> Setting {
    setting(name, Bounds::Times(0, TIME_MAX), told)
}

fn profiles() -> Vec<&'static str> {
    PROFILES.iter().map(|(name, _)| *name).collect()
}

fn presets() -> Vec<&'static str> {
    weir_sim_disk::PRESETS.iter().map(|preset| preset.name).collect()
}

const MODES: Bounds = Bounds::Words(&["mq", "sq"]);

const SCHEDULERS: Bounds =
    Bounds::Words(&["none", "mq-deadline", "kyber", "bfq", "noop", "deadline", "cfq"]);

/// All that can be stated, in a file and by `--set`. Each may have several values: there is a case
/// for each.
pub const SETTINGS: &[Setting] = &[
    setting(
        "host.profile",
        Bounds::Known(profiles),
        ["cascade-1sock-6.3", "what work costs on it"],
    ),
    whole("host.sockets", 256, ["", "sockets; as the profile has it if not stated"]),
    whole("host.cores", 256, ["", "processors of each; as the profile has it if not stated"]),
    whole(
        "host.count",
        256,
        ["1", "hosts like that before the same disks; each has the processes"],
    ),
    setting(
        "disk.preset",
        Bounds::Known(presets),
        ["nvme-980pro", "the kind of disk; or [disk.model]"],
    ),
    whole("disk.count", 1024, ["1", "disks, which each process uses in turn"]),
    whole("disk.depth", 10_240, ["", "commands at once; as the disk has it if not stated"]),
    setting("queue.mode", MODES, ["mq", "multi-queue, or the single queue"]),
    setting("queue.scheduler", SCHEDULERS, ["", "by default as the core chooses"]),
    whole(
        "queue.queues",
        256,
        ["", "hard queues; one for each processor if not stated, 1 with sq"],
    ),
    setting("queue.nr_requests", Bounds::Wholes(4, 2048), ["", "by default as the core chooses"]),
    setting(
        "queue.spread",
        Bounds::Words(&["submitter", "round-robin"]),
        ["submitter", "each process has its queue, or requests are dealt out, as illumos does"],
    ),
    setting("queue.nomerges", Bounds::Wholes(0, 2), ["0", "1: cheap merges only, 2: none"]),
    whole("queue.max_sectors_kb", 65_536, ["", "KiB of one command at most"]),
    whole(
        "path.count",
        64,
        [
            "",
            "paths to a disk, by multipath; if not stated 1 for several hosts, none for one; \
             prices for them has host.profile=broadwell-2sock-4.1",
        ],
    ),
    whole("path.adapters", 64, ["", "adapters of a host; 4 if not stated, or one for each path"]),
    setting(
        "path.link",
        Bounds::Sizes(0, 1 << 40),
        ["1600000000", "bytes a second over an adapter each way; 0: no bound"],
    ),
    setting("path.mode", MODES, ["", "as queue.mode if not stated"]),
    setting("path.scheduler", SCHEDULERS, ["", "none with mq and noop with sq if not stated"]),
    whole("path.queues", 256, ["", "hard queues of a path; 1 if not stated"]),
    whole(
        "path.depth",
        10_240,
        ["", "commands of a path at once; as the disk has it if not stated"],
    ),
    whole(
        "path.can_queue",
        10_000,
        [
            "",
            "commands of all disks at one port at once, on each hard queue; 512 at most if not \
             stated",
        ],
    ),
    whole(
        "path.task_set",
        65_536,
        ["", "commands of a path that the target takes; to one more it says TASK SET FULL"],
    ),
    time("path.timeout", ["0", "a command that takes longer is aborted; 0: none is"]),
    setting(
        "path.fault",
        Bounds::Words(&["none", "lost", "silent", "busy", "attention"]),
        ["none", "what is the matter with the first paths of each disk"],
    ),
    whole("path.fault_paths", 64, ["1", "how many paths of each disk have that fault: the first"]),
    time("path.fault_from", ["0", "when that fault begins; warm-up is counted"]),
    setting("path.fault_lasts", Bounds::Times(1, TIME_MAX), ["1000s", "how long that fault lasts"]),
    setting(
        "path.selector",
        Bounds::Words(&["service-time", "queue-length", "round-robin"]),
        ["service-time", "chooses the path of a request"],
    ),
    setting("queue.tunables.NAME", Bounds::Text, ["", "the scheduler's tunables"]),
    whole("process.NAME.count", 4096, ["1", "processes of this kind"]),
    setting(
        "process.NAME.access",
        Bounds::Words(&["random", "sequential"]),
        ["random", "where; sequential ones have a part of the disk each"],
    ),
    setting("process.NAME.direction", Bounds::Words(&["read", "write", "mixed"]), ["read", "what"]),
    setting("process.NAME.read_percent", Bounds::Wholes(0, 100), ["50", "reads in 100, if mixed"]),
    setting("process.NAME.size", Bounds::Sizes(512, 16 << 20), ["4KiB", "bytes of an I/O"]),
    whole("process.NAME.depth", 4096, ["1", "I/Os under way"]),
    whole("process.NAME.batch", 4096, ["1", "I/Os handed in together at most"]),
    time("process.NAME.think", ["0", "computes for so long before each I/O"]),
    time("process.NAME.think_spread", ["0", "and up to so much longer"]),
    time("process.NAME.pause", ["0", "begins nothing for so long after an end"]),
    time("process.NAME.pause_spread", ["0", "and up to so much longer"]),
    setting(
        "process.NAME.class",
        Bounds::Words(&["none", "real-time", "best-effort", "idle"]),
        ["none", "class of its priority"],
    ),
    setting("process.NAME.level", Bounds::Wholes(0, 7), ["4", "level in that class"]),
    setting("process.NAME.group", Bounds::Text, ["", "path of its group"]),
    setting(
        "process.NAME.flush_every",
        Bounds::Wholes(0, 1_000_000),
        ["0", "a flush after so many writes"],
    ),
    setting(
        "process.NAME.background",
        Bounds::Words(&["true", "false"]),
        ["false", "writes are those of write-back"],
    ),
    time("process.NAME.start", ["0", "when the first begins"]),
    time("process.NAME.stagger", ["0", "how much later each other one does"]),
    setting(
        "process.NAME.bytes",
        Bounds::Sizes(512, 1 << 50),
        ["", "each has finished when it has moved so much, on a part of the disk of that size"],
    ),
    whole("process.NAME.ios", 1_000_000_000, ["", "each has finished with so many I/Os"]),
    whole("weights.PATH", 1000, ["100", "the weight of a group"]),
    time("run.warm_up", ["10ms", "what is not measured"]),
    setting("run.time", Bounds::Times(1_000_000, TIME_MAX), ["100ms", "what is measured"]),
    setting(
        "run.until",
        Bounds::Words(&["time", "end"]),
        [
            "time",
            "end: all is measured, until those that finish have, which takes run.time at most",
        ],
    ),
];
