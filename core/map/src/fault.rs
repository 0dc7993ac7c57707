//! Fault: a disk of the same daemon that misbehaves as far as the contract of drivers allows
//! (docs/behaviour/mapped.md, section 4.3). The faults are those of [`Faulty`]; here is how they
//! are stated, as options of a target or as words of a table line.

use std::fmt::{self, Write};
use std::sync::Arc;

use weir_bio::{Limits, Nanos, Status};
use weir_queue::{
    Backing, Config, Device, DriverError, MapControl, OpenedBacking, TargetKind, TargetOption,
};

use crate::faulty::{FaultCounts, FaultPlan, Faulty};
use crate::layout::{Area, Layout, Place, Shape};
use crate::mapped::Mapped;
use crate::names::{names_of, target_of};
use crate::over::{alike_over_disks, failed, not_open, of_multipath};
use crate::table::{Row, check_areas, number, usable};

/// A disk with faults in front of it.
pub const FAULT: TargetKind = TargetKind {
    names: &["fault"],
    syntax: &["fault:DISK"],
    example: "fault:sda,failed=1,seed=7",
    doc: "A disk of the same daemon with faults in front of it, for trials: its I/O is refused, \
          fails, is late, comes in another order or is lost, as a seed decides.",
    options: OPTIONS,
    parse: |written| match &names_of(written, written.rest)?[..] {
        [name] => {
            let (name, place) = (name.clone(), None);
            Ok(Box::new(FaultTarget { kind: &FAULT, name, place, faults: Faults::default() }))
        }
        names => Err(format!("target {:?} names {} disks, not one", written.text, names.len())),
    },
};

const OPTIONS: &[TargetOption] = &[
    percent("refused", "Requests that are refused and offered again."),
    percent("failed", "Requests that fail; half of them are carried out first."),
    TargetOption {
        name: "errors",
        values: "NAME+NAME...",
        default: "EIO",
        doc: "How they fail, each as often: EIO, ENODATA (medium), ENOSPC, ENOLINK (transport), \
              EREMOTEIO (target), EBADE (reservation), EILSEQ (protection), ENODEV, EOPNOTSUPP or \
              ETIMEDOUT.",
    },
    percent("delayed", "Requests whose answer is some reaps late."),
    TargetOption {
        name: "reaps_max",
        values: "1 to 1000000",
        default: "4",
        doc: "Most reaps by which an answer is late.",
    },
    TargetOption {
        name: "reordered",
        values: "on|off",
        default: "off",
        doc: "Whether answers that are there together come in random order.",
    },
    percent("lost", "Requests that are never answered: `io_timeout` ends them."),
    percent("cancel_done", "Of requests whose time is up, those that the driver forgets at once."),
    percent("late", "Of the others, those that are answered after all."),
    TargetOption {
        name: "seed",
        values: "NUMBER",
        default: "1",
        doc: "The seed: the same calls meet the same faults.",
    },
];

const fn percent(name: &'static str, doc: &'static str) -> TargetOption {
    TargetOption { name, values: "0 to 100 %", default: "0", doc }
}

/// The errors by their names.
const ERRORS: [(&str, Status); 10] = [
    ("EIO", Status::IoErr),
    ("ENODATA", Status::Medium),
    ("ENOSPC", Status::NoSpc),
    ("ENOLINK", Status::Transport),
    ("EREMOTEIO", Status::Target),
    ("EBADE", Status::ResvConflict),
    ("EILSEQ", Status::Protection),
    ("ENODEV", Status::Offline),
    ("EOPNOTSUPP", Status::NotSupp),
    ("ETIMEDOUT", Status::Timeout),
];

/// The faults as they are stated.
#[derive(Clone, Debug)]
struct Faults {
    plan: FaultPlan,
    seed: u64,
}

impl Default for Faults {
    fn default() -> Faults {
        let errors = vec![Status::IoErr];
        Faults { plan: FaultPlan { errors, reaps_max: 4, ..FaultPlan::default() }, seed: 1 }
    }
}

impl Faults {
    fn percent(&mut self, name: &str) -> Option<&mut u32> {
        let plan = &mut self.plan;
        Some(match name {
            "refused" => &mut plan.refused,
            "failed" => &mut plan.failed,
            "delayed" => &mut plan.delayed,
            "lost" => &mut plan.lost,
            "cancel_done" => &mut plan.cancel_done,
            "late" => &mut plan.late,
            _ => return None,
        })
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        if let Some(percent) = self.percent(name) {
            *percent = number(name, Some(value), 0, 100)? as u32;
            return Ok(());
        }
        match name {
            "errors" => self.plan.errors = errors_of(value)?,
            "reaps_max" => {
                self.plan.reaps_max = number(name, Some(value), 1, 1_000_000)? as u32;
            }
            "reordered" => {
                self.plan.reordered = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(format!("reordered={value} is neither on nor off")),
                };
            }
            "seed" => self.seed = number(name, Some(value), 0, u64::MAX)?,
            _ => {
                let known: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
                return Err(format!("unknown fault {name:?}; known are {}", known.join(", ")));
            }
        }
        Ok(())
    }

    /// The value of an option.
    fn value(&self, name: &str) -> String {
        let mut all = self.clone();
        if let Some(percent) = all.percent(name) {
            return percent.to_string();
        }
        match name {
            "errors" => self.plan.errors.iter().map(|status| name_of(*status)).collect::<Vec<_>>(),
            "reaps_max" => return self.plan.reaps_max.to_string(),
            "reordered" => vec![if self.plan.reordered { "on" } else { "off" }],
            _ => return self.seed.to_string(),
        }
        .join("+")
    }

    /// The words of a table line: how many follow, and name and value of what has not its default.
    fn words(&self) -> String {
        let stated = OPTIONS.iter().filter(|option| self.value(option.name) != option.default);
        let (mut words, mut count) = (String::new(), 0);
        for option in stated {
            let _ = write!(words, " {} {}", option.name, self.value(option.name));
            count += 2;
        }
        format!("{count}{words}")
    }
}

fn errors_of(value: &str) -> Result<Vec<Status>, String> {
    let error = |name: &str| {
        let found = ERRORS.iter().find(|(known, _)| *known == name);
        let known = || ERRORS.map(|(known, _)| known).join(", ");
        found.map(|(_, status)| *status).ok_or_else(|| {
            format!("unknown error {name:?} in errors={value}; known are {}", known())
        })
    };
    value.split('+').map(error).collect()
}

fn name_of(status: Status) -> &'static str {
    let found = ERRORS.iter().find(|(_, known)| *known == status);
    found.expect("an error that was read").0
}

/// Reads a line of type `fault`: `DISK OFFSET #WORDS [NAME VALUE]...`.
///
/// # Errors
/// The value that is wrong, and its bound.
pub(crate) fn parse(row: &Row, kind: &'static TargetKind) -> Result<Box<dyn Backing>, String> {
    let mut words = row.arguments.split_whitespace();
    let name = String::from(words.next().ok_or("a device is missing")?);
    let offset = number("offset", words.next(), 0, u64::MAX)?;
    let count = number("#words", words.next(), 0, 2 * OPTIONS.len() as u64)?;
    let rest: Vec<&str> = words.collect();
    if rest.len() as u64 != count || count % 2 == 1 {
        return Err(format!("#words={count}, names and values, and {} follow", rest.len()));
    }
    let mut faults = Faults::default();
    for (index, pair) in rest.chunks(2).enumerate() {
        if rest.chunks(2).take(index).any(|before| before[0] == pair[0]) {
            return Err(format!("{} is stated twice", pair[0]));
        }
        faults.set(pair[0], pair[1])?;
    }
    let place = Some((offset, row.sectors));
    Ok(Box::new(FaultTarget { kind, name, place, faults }))
}

#[derive(Clone)]
struct FaultTarget {
    kind: &'static TargetKind,
    name: String,
    /// First sector on the disk and length, as a table says; else all whole blocks.
    place: Option<(u64, u64)>,
    faults: Faults,
}

impl fmt::Debug for FaultTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultTarget { name, place, faults, .. } = self;
        write!(f, "fault {name} {place:?} {}", faults.words())
    }
}

impl Backing for FaultTarget {
    fn kind(&self) -> &'static TargetKind {
        self.kind
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        match self.place {
            None => self.faults.set(option, value),
            Some(_) => Err(of_multipath(option, value)),
        }
    }

    fn legs(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn leg_target(&self, leg: &str) -> Option<&str> {
        // Only a table has a place on its disk, and names of disks alone.
        let names = std::slice::from_ref(&self.name);
        target_of(names, leg).filter(|_| self.place.is_none())
    }

    fn open(&self, _config: &Config) -> Result<OpenedBacking, DriverError> {
        Err(not_open(std::slice::from_ref(&self.name)))
    }

    fn open_over(&self, config: &Config, legs: &[Device]) -> Result<OpenedBacking, DriverError> {
        let (name, limits) = (legs[0].config().name.clone(), legs[0].limits());
        let mut notices = Vec::new();
        let (offset, sectors) = self.place.unwrap_or_else(|| (0, usable(&[limits])[0]));
        let mapped = over_one(&legs[0], offset, sectors).map_err(failed)?;
        if self.faults.plan.lost > 0 && config.timeout_ns == 0 {
            notices.push(String::from("requests are lost, and no io_timeout ends them"));
        }
        let speaker = Some(mapped.speaker());
        let Faults { plan, seed } = self.faults.clone();
        let faulty = Faulty::new(Arc::new(mapped), plan, seed);
        let counts = Arc::clone(faulty.counts());
        let map = FaultControl { name, offset, sectors, faults: self.faults.clone(), counts };
        let (driver, map): (_, Arc<dyn MapControl>) = (Arc::new(faulty), Arc::new(map));
        Ok(OpenedBacking { driver, notices, speaker, map: Some(map) })
    }

    alike_over_disks!();
}

/// The driver of so many sectors of one leg.
///
/// # Errors
/// The bound that the range does not keep to.
pub(crate) fn over_one(leg: &Device, offset: u64, sectors: u64) -> Result<Mapped, String> {
    let limits: Limits = leg.limits();
    if sectors == 0 {
        return Err(format!("{} has no whole block", leg.config().name));
    }
    let shape = Shape::Linear(Place { leg: 0, offset });
    let areas = vec![Area { start: 0, sectors, shape }];
    check_areas(&areas, &[limits], &[leg.config().name.as_str()])?;
    Ok(Mapped::new(Layout::new(areas), vec![leg.clone()]))
}

struct FaultControl {
    name: String,
    offset: u64,
    sectors: u64,
    faults: Faults,
    counts: Arc<FaultCounts>,
}

impl MapControl for FaultControl {
    fn table(&self) -> String {
        let FaultControl { name, offset, sectors, faults, .. } = self;
        format!("0 {sectors} fault {name} {offset} {}\n", faults.words())
    }

    fn status(&self) -> String {
        format!("0 {} fault {}\n", self.sectors, self.counts)
    }

    fn message(&self, text: &str, _now: Nanos) -> Result<(), String> {
        Err(format!("message {text:?}: a fault line takes no messages"))
    }
}
