//! The room table: which crate lives in which folder, and which other rooms it may use.
//!
//! This is the table of the design, as data. All its rooms stand here, built or not, so that a new
//! folder is either expected or an error. Bans beyond dependencies (no clock, no thread) are held
//! by `core/clippy.toml` and by review.

use std::path::{Path, PathBuf};

use super::Finding;
use super::source::Source;
use crate::workspace::{Dependency, Kind, Package, Workspace};

/// One room of the house.
pub struct Room {
    /// Its folder, relative to the workspace root.
    pub folder: &'static str,
    /// The name of its crate.
    pub name: &'static str,
    /// The groups of weir's crates it may use.
    pub may: &'static [&'static [&'static str]],
    /// The crates of other people it may use, where the design names them; `None` is any.
    pub outside: Option<&'static [&'static str]>,
    /// The name of its binary, if it has one.
    pub binary: Option<&'static str>,
    /// Whether `unsafe` may stand in it.
    pub unsafe_code: bool,
}

impl Room {
    const fn new(
        folder: &'static str,
        name: &'static str,
        may: &'static [&'static [&'static str]],
    ) -> Room {
        Room { folder, name, may, outside: None, binary: None, unsafe_code: false }
    }

    const fn only(self, outside: &'static [&'static str]) -> Room {
        Room { outside: Some(outside), ..self }
    }

    const fn with_unsafe(self) -> Room {
        Room { unsafe_code: true, ..self }
    }

    const fn with_binary(self, name: &'static str) -> Room {
        Room { binary: Some(name), ..self }
    }

    fn may_use(&self, name: &str) -> bool {
        self.may.iter().any(|group| group.contains(&name))
    }

    /// Whether it may use the crates for which this row stands.
    fn may_use_any(&self, row: &Room) -> bool {
        let all = if row.folder == ANY_FRONT { FRONTS } else { DRIVERS };
        self.may.contains(&all)
    }

    fn is_tool(&self) -> bool {
        self.folder.starts_with("tools/")
    }
}

const BIO: &[&str] = &["weir-bio"];
const QUEUE: &[&str] = &["weir-bio", "weir-queue"];
const CORE: &[&str] =
    &["weir-ring", "weir-bio", "weir-sched", "weir-queue", "weir-map", "weir-load"];
/// What the laws hold together; `weir-local` has the disk in memory whose power can be cut.
const LAWS_USE: &[&[&str]] =
    &[&["weir-ring", "weir-bio", "weir-sched", "weir-queue", "weir-map", "weir-local"]];
const LAWS: &[&str] = &["weir-laws"];
const PROTO_NBD: &[&str] = &["weir-proto-nbd", "weir-tls"];
const PROTO_SCSI: &[&str] = &["weir-proto-scsi"];
const PROTO_ISCSI: &[&str] = &["weir-proto-iscsi"];
/// Every crate in `drivers/`.
const DRIVERS: &[&str] =
    &["weir-local", "weir-driver-scsi", "weir-driver-iscsi", "weir-driver-nbd", "weir-*"];
/// The folder of each driver that has no row of its own.
const ANY_DRIVER: &str = "drivers/*";
/// Every crate in `front/` but the library.
const FRONTS: &[&str] = &["weir-front-nbd", "weir-*"];
/// The folder of each front that has no row of its own.
const ANY_FRONT: &str = "front/*";
const ACCESS: &[&str] = &["weir-access"];
const FRONT: &[&str] = &["weir-front"];
const LIVE: &[&str] = &["weir-live"];
const CONTROL: &[&str] = &["weir-control"];
const TRACE: &[&str] = &["weir-trace"];
const LIBRARY: &[&str] = &["weir-block"];
const SIM: &[&str] = &["weir-sim"];
const SIM_TARGET: &[&str] = &["weir-sim-target"];
const SIM_DISK: &[&str] = &["weir-sim-disk"];
const INSTRUMENTS: &[&str] = &["weir-bench", "weir-report", "weir-advise"];

const PROTOS: &[&str] = &["weir-proto-nbd", "weir-tls", "weir-proto-scsi", "weir-proto-iscsi"];
const HOST: &[&str] = &["weir-access", "weir-live", "weir-control", "weir-trace", "weir-front"];
const UNDER_TOOLS: &[&[&str]] = &[CORE, PROTOS, DRIVERS, HOST, FRONTS, LIBRARY, SIM, SIM_TARGET];

/// Every room of the design.
pub const ROOMS: &[Room] = &[
    // loom stands in for std's atomics when the ring is checked.
    Room::new("core/ring", "weir-ring", &[]).only(&["loom"]).with_unsafe(),
    // The system is asked for memory in huge pages.
    Room::new("core/bio", "weir-bio", &[]).only(&["rustix"]).with_unsafe(),
    Room::new("core/sched", "weir-sched", &[BIO]),
    Room::new("core/queue", "weir-queue", &[&["weir-ring", "weir-bio", "weir-sched"]]),
    Room::new("core/map", "weir-map", &[QUEUE]),
    Room::new("core/load", "weir-load", &[BIO]),
    // The laws are held against the whole core, and a power cut against a disk that can lose one.
    Room::new("core/laws", "weir-laws", LAWS_USE),
    // Three folders are called nbd and two each scsi and iscsi: these say which side they are.
    Room::new("proto/nbd", "weir-proto-nbd", &[BIO]),
    // All rooms that speak TLS speak it through this one.
    Room::new("proto/tls", "weir-tls", &[]).only(&["rustls", "rustls-webpki"]),
    Room::new("proto/scsi", "weir-proto-scsi", &[BIO]),
    Room::new("proto/iscsi", "weir-proto-iscsi", &[BIO]),
    Room::new("drivers/local", "weir-local", &[QUEUE, SIM_DISK]).with_unsafe(),
    Room::new("drivers/scsi", "weir-driver-scsi", &[QUEUE, PROTO_SCSI]),
    Room::new(
        "drivers/iscsi",
        "weir-driver-iscsi",
        &[QUEUE, PROTO_ISCSI, PROTO_SCSI, &["weir-driver-scsi"]],
    ),
    Room::new("drivers/nbd", "weir-driver-nbd", &[QUEUE, PROTO_NBD]),
    // Any other driver. One with a protocol of its own or with `unsafe` has a row beside this.
    Room::new(ANY_DRIVER, "weir-*", &[QUEUE]),
    Room::new("front/nbd", "weir-front-nbd", &[QUEUE, FRONT, LIVE, CONTROL, ACCESS, PROTO_NBD]),
    // Any other front. One with a protocol of its own has a row beside this.
    Room::new(ANY_FRONT, "weir-*", &[QUEUE, FRONT, LIVE, CONTROL, ACCESS]),
    // The library that users name: `weir` in code; another project's package has that name.
    Room::new("front/inproc", "weir-block", &[CORE, PROTOS, DRIVERS, HOST, FRONTS, SIM_TARGET]),
    // Pointers of programs in C become references here.
    Room::new("front/capi", "weir-capi", &[LIBRARY]).with_unsafe(),
    Room::new("host/live", "weir-live", &[CORE, CONTROL, TRACE]),
    // One system call, that the C library has no function for.
    Room::new("host/access", "weir-access", &[]).with_unsafe(),
    Room::new("host/control", "weir-control", &[CORE, TRACE, ACCESS]),
    Room::new("host/front", "weir-front", &[QUEUE, LIVE, CONTROL]),
    Room::new("host/trace", "weir-trace", &[CORE, CONTROL]),
    // Their folders lie in another room's, and the first row that fits a file counts. TOML is text
    // to them: a file is their caller's.
    Room::new("sim/target", "weir-sim-target", &[BIO, PROTO_SCSI]).only(&["serde", "toml"]),
    Room::new("sim/disk", "weir-sim-disk", &[BIO]).only(&["serde", "toml"]),
    Room::new("sim", "weir-sim", &[CORE, PROTO_SCSI, &["weir-driver-scsi"], SIM_TARGET, SIM_DISK]),
    // It counts heap allocations, which takes an allocator.
    Room::new("tools/bench", "weir-bench", UNDER_TOOLS).with_unsafe(),
    // libFuzzer calls its program by the name of a C function, which takes an attribute.
    Room::new("tools/fuzz", "weir-fuzz", UNDER_TOOLS).with_unsafe().with_binary("weir-fuzz"),
    Room::new("tools/report", "weir-report", UNDER_TOOLS),
    Room::new("tools/advise", "weir-advise", UNDER_TOOLS),
    Room::new(
        "tools/cli",
        "weir-cli",
        &[CORE, LAWS, PROTOS, DRIVERS, HOST, FRONTS, LIBRARY, SIM, INSTRUMENTS],
    )
    .with_binary("weir"),
    // Chores have to build when the rest does not, so they use no other room.
    Room::new("tools/xtask", "weir-xtask", &[]).with_binary("xtask"),
];

/// The room of a crate's folder.
pub fn at(folder: &Path) -> Option<&'static Room> {
    let own = ROOMS.iter().find(|room| folder == Path::new(room.folder));
    let all = |room: &&Room| Some(Path::new(room.folder).with_file_name("")) == parent(folder);
    own.or_else(|| ROOMS.iter().filter(|room| is_any(room)).find(all))
}

/// Whether it is the row of all crates in a folder that have none of their own.
fn is_any(room: &Room) -> bool {
    room.folder.ends_with("/*")
}

fn parent(folder: &Path) -> Option<PathBuf> {
    Some(folder.parent()?.join(""))
}

/// The room a file stands in.
pub fn of(path: &str) -> Option<&'static Room> {
    let own = ROOMS.iter().find(|room| Path::new(path).starts_with(room.folder));
    own.or_else(|| at(&Path::new(path).components().take(2).collect::<PathBuf>()))
}

/// The rooms that may use `unsafe`, as text for an error.
pub fn unsafe_rooms() -> String {
    let listed = ROOMS.iter().filter(|room| room.unsafe_code).map(|room| room.folder);
    listed.collect::<Vec<_>>().join(", ")
}

/// Holds every member of the workspace against the table.
pub fn check(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace.members() {
        let manifest = format!("{}/Cargo.toml", package.folder.display());
        let source = sources.iter().find(|source| source.path == manifest);
        let mut find = |needle: &str, what: String| {
            let line = source.map_or(1, |source| source.line_with(needle));
            findings.push(Finding { file: manifest.clone(), line, what });
        };
        let Some(room) = at(&package.folder) else {
            let folder = package.folder.display();
            find("name", format!("room `{folder}` is not in the table of tidy/rooms.rs"));
            continue;
        };
        let last = package.folder.file_name().unwrap_or_default().to_string_lossy();
        let must = room.name.replace('*', &last);
        if package.name != must {
            let is = &package.name;
            find("name =", format!("crate is named `{is}`, the room table says `{must}`"));
        }
        for name in package.targets_of("bin") {
            if room.binary != Some(name) {
                let must = room.binary.unwrap_or("no binary");
                find("[[bin]]", format!("binary `{name}`, the room table says {must}"));
            }
        }
        for dependency in &package.dependencies {
            if let Some(what) = refuse(room, dependency, package, workspace) {
                find(&dependency.name, what);
            }
        }
    }
    findings
}

/// The document that says of each room what always holds there.
const TOLD_IN: &str = "ARCHITECTURE.md";
/// Its part about them.
const TOLD_UNDER: &str = "## Crates: what always holds";

/// Asks that document for every member with a row of its own.
pub fn check_told(workspace: &Workspace, sources: &[Source]) -> Vec<Finding> {
    let Some(document) = sources.iter().find(|source| source.path == TOLD_IN) else {
        return Vec::new();
    };
    let part = document.text.split_once(TOLD_UNDER).map_or("", |(_, rest)| rest);
    let part = part.split("\n## ").next().unwrap_or_default();
    // The heads of the list: between two pairs of asterisks, separated by commas.
    let heads = part.lines().filter_map(|line| line.strip_prefix("- **")?.split("**").next());
    let told: Vec<&str> = heads.flat_map(|head| head.split(", ")).collect();
    let rooms = workspace.members().filter_map(|package| at(&package.folder));
    let untold = rooms.filter(|room| !is_any(room) && !told.contains(&room.folder));
    let line = document.line_with(TOLD_UNDER);
    let what = |room: &Room| format!("`{TOLD_UNDER}` has no entry for room `{}`", room.folder);
    untold.map(|room| Finding { file: TOLD_IN.to_owned(), line, what: what(room) }).collect()
}

/// Why a room may not have this dependency, or `None` if it may.
fn refuse(
    room: &Room,
    dependency: &Dependency,
    package: &Package,
    workspace: &Workspace,
) -> Option<String> {
    let (name, folder) = (dependency.name.as_str(), room.folder);
    let any = workspace.member(name).and_then(|member| at(&member.folder));
    let any = any.filter(|room| is_any(room));
    let ours = workspace.member(name).is_some() || ROOMS.iter().any(|room| room.name == name);
    match (ours, dependency.kind) {
        // A room's tests may use whatever helps to judge it, but not what is built on top of it.
        (true, Kind::Dev) => {
            let tool = ROOMS.iter().find(|room| room.name == name)?.is_tool();
            (tool && name != package.name)
                .then(|| format!("tests of `{folder}` use `{name}`, tools are used by tools only"))
        }
        (true, Kind::Normal | Kind::Build) => {
            let may = room.may_use(name) || any.is_some_and(|any| room.may_use_any(any));
            (!may).then(|| {
                let may = room.may.concat().join(", ");
                format!("room `{folder}` uses `{name}`, it may use: [{may}]")
            })
        }
        (false, Kind::Dev) => None,
        (false, Kind::Normal | Kind::Build) => {
            let only = room.outside.filter(|only| !only.contains(&name))?;
            let only = only.join(", ");
            Some(format!("room `{folder}` uses `{name}`, beside std it may use: [{only}]"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Target;

    fn package(name: &str, folder: &str, dependencies: &[(&str, Kind)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|&(name, kind)| Dependency { name: name.to_owned(), kind })
            .collect();
        Package {
            name: name.to_owned(),
            folder: folder.into(),
            member: true,
            dependencies,
            ..Package::default()
        }
    }

    fn whats(package: Package) -> Vec<String> {
        let workspace = Workspace { root: "/w".into(), packages: vec![package] };
        check(&workspace, &[]).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn the_table_names_each_room_once_and_uses_only_rooms_it_has() {
        for room in ROOMS {
            let named = ROOMS.iter().filter(|r| r.name == room.name && !is_any(r)).count();
            assert_eq!(named, usize::from(!is_any(room)), "{}", room.name);
            let same = ROOMS.iter().filter(|r| r.folder == room.folder).count();
            assert_eq!(same, 1, "{}", room.folder);
            for name in room.may.concat() {
                assert!(ROOMS.iter().any(|r| r.name == name), "{} uses {name}", room.name);
                assert_ne!(name, room.name);
            }
        }
    }

    #[test]
    fn a_crate_is_named_after_its_folder_but_for_the_named_exceptions() {
        let exceptions = [
            ("proto/nbd", "weir-proto-nbd"),
            ("proto/scsi", "weir-proto-scsi"),
            ("proto/iscsi", "weir-proto-iscsi"),
            ("drivers/scsi", "weir-driver-scsi"),
            ("drivers/iscsi", "weir-driver-iscsi"),
            ("drivers/nbd", "weir-driver-nbd"),
            ("front/nbd", "weir-front-nbd"),
            ("front/inproc", "weir-block"),
            ("sim/target", "weir-sim-target"),
            ("sim/disk", "weir-sim-disk"),
        ];
        for room in ROOMS {
            let last = room.folder.rsplit('/').next().unwrap();
            let excepted = exceptions.contains(&(room.folder, room.name));
            assert!(excepted || room.name == format!("weir-{last}"), "{}", room.folder);
        }
    }

    #[test]
    fn a_forbidden_room_is_found_and_an_allowed_one_is_not() {
        let normal = |name| [(name, Kind::Normal)];
        assert!(whats(package("weir-sched", "core/sched", &normal("weir-bio"))).is_empty());
        let found = whats(package("weir-sched", "core/sched", &normal("weir-queue")));
        assert_eq!(
            found,
            ["core/sched/Cargo.toml:1: room `core/sched` uses `weir-queue`, \
              it may use: [weir-bio]"]
        );
        let build = [("weir-queue", Kind::Build)];
        assert_eq!(whats(package("weir-sched", "core/sched", &build)).len(), 1);
    }

    #[test]
    fn a_front_has_no_row_of_its_own_and_is_used_by_tools_and_by_no_other_front() {
        let uses = |name: &str, folder: &str, used: &str| {
            let front = package("weir-pipe", "front/pipe", &[("weir-live", Kind::Normal)]);
            let user = package(name, folder, &[(used, Kind::Normal)]);
            let workspace = Workspace { root: "/w".into(), packages: vec![front, user] };
            check(&workspace, &[]).len()
        };
        assert_eq!(uses("weir-cli", "tools/cli", "weir-pipe"), 0);
        assert_eq!(uses("weir-tape", "front/tape", "weir-front"), 0);
        assert_eq!(uses("weir-tape", "front/tape", "weir-pipe"), 1, "each other");
        assert_eq!(uses("weir-tape", "front/tape", "weir-local"), 1, "a driver");
        assert_eq!(uses("weir-live", "host/live", "weir-pipe"), 1, "from below");
        assert_eq!(uses("weir-band", "front/tape", "weir-front"), 1, "another name");
    }

    #[test]
    fn a_driver_has_no_row_of_its_own_and_is_used_from_above_and_by_no_other_driver() {
        let uses = |name: &str, folder: &str, used: &str| {
            let driver = package("weir-tape", "drivers/tape", &[("weir-queue", Kind::Normal)]);
            let user = package(name, folder, &[(used, Kind::Normal)]);
            let workspace = Workspace { root: "/w".into(), packages: vec![driver, user] };
            check(&workspace, &[]).len()
        };
        assert_eq!(uses("weir-block", "front/inproc", "weir-tape"), 0);
        assert_eq!(uses("weir-reel", "drivers/reel", "weir-queue"), 0);
        assert_eq!(uses("weir-reel", "drivers/reel", "weir-tape"), 1, "each other");
        assert_eq!(uses("weir-reel", "drivers/reel", "weir-live"), 1, "from above");
        assert_eq!(uses("weir-front-nbd", "front/nbd", "weir-tape"), 1, "a front");
        assert_eq!(uses("weir-queue", "core/queue", "weir-tape"), 1, "the core");
    }

    #[test]
    fn tests_may_use_any_room_but_a_tool() {
        let dev = |name| [(name, Kind::Dev)];
        assert!(whats(package("weir-sched", "core/sched", &dev("weir-sim"))).is_empty());
        assert_eq!(whats(package("weir-sched", "core/sched", &dev("weir-bench"))).len(), 1);
    }

    #[test]
    fn the_ring_may_use_loom_and_nothing_else_from_outside() {
        let normal = |name| [(name, Kind::Normal)];
        assert!(whats(package("weir-ring", "core/ring", &normal("loom"))).is_empty());
        assert_eq!(whats(package("weir-ring", "core/ring", &normal("libc"))).len(), 1);
        assert!(whats(package("weir-ring", "core/ring", &[("proptest", Kind::Dev)])).is_empty());
        assert!(whats(package("weir-local", "drivers/local", &normal("libc"))).is_empty());
    }

    #[test]
    fn an_unknown_room_a_wrong_name_and_a_wrong_binary_are_found() {
        let found = whats(package("weir-attic", "core/attic", &[]));
        assert!(found[0].contains("room `core/attic` is not in the table"), "{found:?}");
        let found = whats(package("weir-rings", "core/ring", &[]));
        assert!(found[0].contains("named `weir-rings`, the room table says `weir-ring`"));
        let mut cli = package("weir-cli", "tools/cli", &[]);
        let root = "tools/cli/src/main.rs".into();
        cli.targets = vec![Target { name: "weird".into(), kind: "bin".into(), root }];
        assert!(whats(cli)[0].contains("binary `weird`, the room table says weir"));
    }

    #[test]
    fn a_room_that_no_document_tells_of_is_found() {
        let told = |text: &str| {
            let packages = ["core/ring", "core/bio", "drivers/tape"];
            let packages = packages.map(|folder| package("", folder, &[])).into();
            let workspace = Workspace { root: "/w".into(), packages };
            let sources = [Source::new(TOLD_IN, format!("# A\n\n{text}"))];
            check_told(&workspace, &sources).iter().map(Finding::to_string).collect::<Vec<_>>()
        };
        let whole = format!("{TOLD_UNDER}\n\n- **core/ring, core/bio**: all of it.\n");
        assert_eq!(told(&whole), [""; 0]);
        let found = told(&whole.replace(", core/bio", "s"));
        assert_eq!(found.len(), 2, "{found:?}");
        let found = told(&format!("{TOLD_UNDER}\n- **core/ring**\n\n## B\n- **core/bio**\n"));
        let place = "ARCHITECTURE.md:3: `## Crates: what always holds` has no entry for";
        assert_eq!(found, [format!("{place} room `core/bio`")]);
    }

    #[test]
    fn a_file_belongs_to_the_room_whose_folder_holds_it() {
        assert_eq!(of("core/ring/src/tags.rs").unwrap().name, "weir-ring");
        assert!(of("core/ringer/src/lib.rs").is_none());
    }
}
