//! A variant: options of the target, a target of its own, or the kernel's scheduler.

use serde_json::{Map, Value};
use weir::target::split_at_commas;
use weir::{Identity, Target};
use weir_trace::labels::JOB;

use crate::workload::devices::{Devices, leaves};
use crate::workload::groups::Groups;
use crate::workload::spec::{Prepare, RunSpec, Workload};

/// One of the things compared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its options, as documents show them.
    pub options: Value,
    /// Its targets: one, or a group of disks.
    pub targets: Vec<String>,
    /// Those of the redo of `oltp`, where it has been given some.
    pub redo: Vec<String>,
    /// Flags of the job that it has otherwise than the others, each with its value.
    pub job: Vec<(String, String)>,
    /// What it runs, where that is not what the others run.
    pub workload: Option<Workload>,
    /// The kernel's own scheduler for the target's device, where that is what is compared.
    pub kernel_scheduler: Option<String>,
}

impl Variant {
    /// A variant of `targets` with `options`: `NAME=VALUE,...` for each of them, or a whole target
    /// in the place of all.
    ///
    /// # Errors
    /// Which option is wrong, and what would be right.
    pub fn new(name: &str, targets: &[String], options: &str) -> Result<Variant, String> {
        let (targets, shown) = if is_target(options) {
            let shown = [(String::from("target"), Value::from(options))];
            (vec![String::from(options)], shown.into_iter().collect())
        } else {
            let varied = targets.iter().map(|target| with(target, options)).collect();
            (varied, named(options))
        };
        let options = Value::Object(shown);
        let name = String::from(name);
        Variant { name, options, targets, ..Variant::default() }.checked()
    }

    /// The kernel's scheduler, beside a command that has a target of its own.
    #[must_use]
    pub fn of_kernel(name: &str, scheduler: &str) -> Variant {
        Variant {
            name: String::from(name),
            options: serde_json::json!({"kernel_scheduler": scheduler}),
            kernel_scheduler: Some(String::from(scheduler)),
            ..Variant::default()
        }
    }

    /// The same with flags of the job of its own, which documents show as `job.FLAG`.
    #[must_use]
    pub fn with_job(mut self, job: Vec<(String, String)>) -> Variant {
        if let Value::Object(options) = &mut self.options {
            options.extend(
                job.iter().map(|(name, value)| (format!("{JOB}{name}"), Value::from(&value[..]))),
            );
        }
        self.job = job;
        self
    }

    /// The run that it comes to, of what is run where nothing else is said.
    #[must_use]
    pub fn spec(&self, usual: &RunSpec) -> RunSpec {
        let workload = self.workload.as_ref().unwrap_or(&usual.workload).clone();
        RunSpec { workload, ..usual.clone() }
    }

    fn checked(self) -> Result<Variant, String> {
        for target in &self.targets {
            Target::parse(target).map_err(|error| format!("variant {}: {error}", self.name))?;
        }
        Ok(self)
    }

    /// The same variant with one more option, as a sweep gives it.
    ///
    /// # Errors
    /// An option that the variant states itself, because a sweep would override what sets it apart;
    /// which option is wrong, and what would be right.
    pub fn with(&self, name: &str, value: &str) -> Result<Variant, String> {
        if let Some(own) = self.own(name) {
            return Err(format!("variant {} says {name}={own} itself", self.name));
        }
        let option = format!("{name}={value}");
        let targets = self.targets.iter().map(|target| with(target, &option)).collect();
        let mut varied = Variant { targets, ..self.clone() }.checked()?;
        if let Value::Object(options) = &mut varied.options {
            options.insert(String::from(name), Value::from(value));
        }
        Ok(varied)
    }

    /// The same variant with its redo on these. One that is a disk of `targets`, which the variant
    /// was made of, is that disk still with its options; and where data and redo share all of
    /// their disks, they do so on another target as well, and none is named for the redo. Memory
    /// is another disk each time it is named.
    ///
    /// # Errors
    /// A text that is no target; data and redo that cannot lie so.
    pub fn with_redo(&self, targets: &[String], redo: &[String]) -> Result<Variant, String> {
        let of_variant = |why: String| format!("variant {}: {why}", self.name);
        let Devices { of, .. } =
            Devices::of_groups(&[targets, redo].concat()).map_err(of_variant)?;
        let (of_data, of_redo) = of.split_at(targets.len());
        let is_elsewhere = self.options.get("target").is_some();
        let redo = if is_elsewhere && of_redo == of_data {
            Vec::new()
        } else {
            let own = |(name, disk): (&String, &usize)| {
                let known = of_data.iter().position(|data| data == disk && !is_elsewhere);
                known.map_or(name, |known| &self.targets[known]).clone()
            };
            redo.iter().zip(of_redo).map(own).collect()
        };
        let Devices { of, .. } =
            Devices::of_groups(&[&self.targets[..], &redo].concat()).map_err(of_variant)?;
        Groups::of(&self.targets, &redo, &of).map_err(of_variant)?;
        Ok(Variant { redo, ..self.clone() })
    }

    /// The value that this variant, and not the target of all, gives an option.
    fn own(&self, option: &str) -> Option<String> {
        if option == "scheduler" && self.kernel_scheduler.is_some() {
            return Some(String::from("none"));
        }
        let said = |options: &Map<String, Value>| {
            options.get(option).and_then(Value::as_str).map(String::from)
        };
        let options = self.options.as_object()?;
        let target = options.get("target").and_then(Value::as_str);
        let behind = target.and_then(|target| Some(target.split_once(',')?.1));
        said(options).or_else(|| said(&named(behind?)))
    }

    /// Whether any of its disks is a server's, which keeps what it has read from run to run.
    #[must_use]
    pub fn is_served(&self) -> bool {
        let is_server =
            |identity: &Identity| matches!(identity, Identity::Remote(..) | Identity::Socket(..));
        self.places().iter().any(|(_, identity)| is_server(identity))
    }

    /// Where its bytes are: each place with the name of its target.
    fn places(&self) -> Vec<(String, Identity)> {
        let of = |target: &String| match Target::parse(target) {
            Ok(parsed) => leaves(&weir::target::shown(target), &parsed),
            Err(_) => Vec::new(),
        };
        let leaves = self.targets.iter().chain(&self.redo).flat_map(of);
        leaves.map(|(name, leaf)| (name, leaf.backing.identity())).collect()
    }

    /// Whether another variant comes to the same.
    #[must_use]
    pub fn is_like(&self, other: &Variant) -> bool {
        let target = |target: &String| Target::parse(target).map(|t| format!("{t:?}"));
        let meant = |variant: &Variant| variant.targets.iter().map(target).collect::<Vec<_>>();
        self.kernel_scheduler == other.kernel_scheduler
            && self.job == other.job
            && meant(self) == meant(other)
    }
}

/// What is done so that no run of a round finds in a cache what the one before it has read, a
/// sentence for each kind of disk that there is.
pub(super) fn between_runs(variants: &[Variant], prepare: Prepare) -> Vec<&'static str> {
    let mut said = Vec::new();
    for (_, identity) in variants.iter().flat_map(Variant::places) {
        let sentence = match identity {
            Identity::Own => "memory: each run has its own",
            Identity::Block(_) | Identity::File(..) | Identity::Missing(_) => match prepare {
                Prepare::No => "files and block devices: the page cache stays as it is",
                _ => "files and block devices: the page cache is dropped before each run",
            },
            Identity::Remote(..) | Identity::Socket(..) => {
                "disks of servers: each run of a round has a seed of its own"
            }
        };
        if !said.contains(&sentence) {
            said.push(sentence);
        }
    }
    said
}

/// Whose CPU time is in no run's: a run counts its own process alone.
pub(super) fn cpu_not_counted(variants: &[Variant]) -> Vec<&'static str> {
    let places = || variants.iter().flat_map(Variant::places);
    let is_served = variants.iter().any(Variant::is_served);
    let is_local = places().any(|(_, identity)| {
        matches!(identity, Identity::Block(_) | Identity::File(..) | Identity::Missing(_))
    });
    let server = "CPU per I/O is without what servers on the other side take";
    let kernel = "CPU per I/O is without what threads of the kernel and interrupts take";
    let told = [(is_served, server), (is_local || is_served, kernel)];
    told.into_iter().filter(|(is_so, _)| *is_so).map(|(_, sentence)| sentence).collect()
}

/// Whether this begins with the kind of a target, and not with the name of an option.
#[must_use]
pub fn is_target(options: &str) -> bool {
    let kind = options.split_once(':').map(|(kind, _)| kind);
    kind.is_some_and(|kind| !kind.is_empty() && !kind.contains(['=', ',', '"']))
}

fn with(target: &str, options: &str) -> String {
    if options.is_empty() { String::from(target) } else { format!("{target},{options}") }
}

fn named(options: &str) -> Map<String, Value> {
    // As the options of some target, for quotes open only behind one.
    let parts = split_at_commas(&format!(",{options}"));
    let parts = parts.iter().skip(1).filter(|part| !part.is_empty());
    let pair = |part: &String| {
        let (name, value) = part.split_once('=').unwrap_or((part, "on"));
        (String::from(name), Value::from(value))
    };
    parts.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, target: &str, options: &str) -> Result<Variant, String> {
        Variant::new(name, &[String::from(target)], options)
    }

    #[test]
    fn options_are_put_behind_the_target_and_a_target_takes_its_place() {
        let sq = of("a", "ram:1M", "queue_mode=sq,scheduler=noop").expect("a variant");
        assert_eq!(sq.targets, ["ram:1M,queue_mode=sq,scheduler=noop"]);
        assert_eq!(sq.options, serde_json::json!({"queue_mode": "sq", "scheduler": "noop"}));
        let other = of("b", "ram:1M", "null:2M,latency_us=5").expect("a variant");
        assert_eq!(other.targets, ["null:2M,latency_us=5"]);
        assert_eq!(other.options, serde_json::json!({"target": "null:2M,latency_us=5"}));
        let plain = of("c", "ram:1M", "").expect("a variant");
        assert_eq!((plain.targets[0].as_str(), &plain.options), ("ram:1M", &serde_json::json!({})));
        let quoted = r#"kernel_cmdline="elevator=noop a:b,c",readonly"#;
        let quoted = of("d", "ram:1M", quoted).expect("a variant");
        assert_eq!(quoted.options["kernel_cmdline"], r#""elevator=noop a:b,c""#);
        assert_eq!(quoted.options["readonly"], "on");
    }

    #[test]
    fn every_disk_of_a_group_gets_the_options_and_a_target_takes_the_place_of_all() {
        let group = ["ram:1M", "null:2M"].map(String::from);
        let sq = Variant::new("a", &group, "queue_mode=sq").expect("a variant");
        assert_eq!(sq.targets, ["ram:1M,queue_mode=sq", "null:2M,queue_mode=sq"]);
        assert_eq!(sq.options, serde_json::json!({"queue_mode": "sq"}));
        let swept = sq.with("nr_requests", "8").expect("it fits");
        let behind = ",queue_mode=sq,nr_requests=8";
        assert_eq!(swept.targets, [format!("ram:1M{behind}"), format!("null:2M{behind}")]);
        let one = Variant::new("b", &group, "ram:4M").expect("a variant");
        assert_eq!(one.targets, ["ram:4M"]);
        let first = Variant::new("c", &group[..1], "queue_mode=sq").expect("a variant");
        assert!(!first.is_like(&sq), "of one disk and of two");
        let why = Variant::new("d", &group, "latency_us=5").expect_err("ram has none");
        assert!(why.starts_with("variant d: ") && why.contains("latency_us"), "{why}");
    }

    #[test]
    fn redo_on_a_disk_of_the_data_has_the_options_of_that_disk() {
        let targets = |names: &[&str]| names.iter().map(|n| String::from(*n)).collect::<Vec<_>>();
        let data = targets(&["file:src/lib.rs", "file:./Cargo.toml"]);
        let sq = Variant::new("a", &data, "queue_mode=sq").expect("a variant");
        let redo = |variant: &Variant, redo: &[&str]| {
            variant.with_redo(&data, &targets(redo)).map(|variant| variant.redo)
        };
        assert_eq!(redo(&sq, &[]), Ok(targets(&[])));
        assert_eq!(redo(&sq, &["ram:2M"]), Ok(targets(&["ram:2M"])));
        let same = ["file:src/lib.rs", "file:Cargo.toml"];
        assert_eq!(redo(&sq, &same), Ok(sq.targets.clone()));
        let swept = sq.with("nr_requests", "8").expect("it fits");
        assert_eq!(redo(&swept, &same), Ok(swept.targets.clone()));
        let elsewhere = Variant::new("b", &data, "null:4M").expect("a variant");
        assert_eq!(redo(&elsewhere, &same), Ok(targets(&[])), "at the end of the data");
        assert_eq!(redo(&elsewhere, &["ram:2M"]), Ok(targets(&["ram:2M"])));
        // Its own options of the disk are not passed over.
        let why = redo(&sq, &[same[0], "file:Cargo.toml,queues=2"]).expect_err("two options");
        assert!(why.starts_with("variant a: ") && why.contains("the same options"), "{why}");
        let why = redo(&sq, &["file:Cargo.toml"]).expect_err("one of two");
        assert!(why.starts_with("variant a: --redo file:./Cargo.toml,queue_mode=sq is"), "{why}");
        // Memory is no disk that was named before, and what it says holds.
        let memory = targets(&["ram:1M"]);
        let sq = Variant::new("c", &memory, "queue_mode=sq").expect("a variant");
        assert_eq!(sq.with_redo(&memory, &memory).map(|variant| variant.redo), Ok(memory));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_variant() {
        let error = of("b", "ram:1M", "frob=1").expect_err("no such option");
        assert!(error.starts_with("variant b: unknown option \"frob\""), "{error}");
        let error = of("a", "ram:1M", "disk:1M").expect_err("no such kind");
        assert!(error.contains("variant a: target \"disk:1M\" does not start with"), "{error}");
        let plain = of("a", "ram:1M", "").expect("a variant");
        assert!(plain.with("nr_requests", "3").is_err_and(|e| e.contains("4..=2048")));
        let eight = plain.with("nr_requests", "8").expect("it fits");
        assert_eq!(eight.targets, ["ram:1M,nr_requests=8"]);
        assert_eq!(eight.options, serde_json::json!({"nr_requests": "8"}));
    }

    #[test]
    fn a_sweep_does_not_override_what_sets_a_variant_apart() {
        for options in ["scheduler=bfq,nomerges=1", "null:1M,nomerges=1,scheduler=bfq"] {
            let variant = of("b", "ram:1M", options).expect("a variant");
            let error = variant.with("scheduler", "none").expect_err("it is bfq");
            assert_eq!(error, "variant b says scheduler=bfq itself");
            assert!(variant.with("nr_requests", "8").is_ok(), "{options}");
        }
        // Options of the common target set no variant apart.
        let plain = of("a", "ram:1M,nr_requests=4", "").expect("a variant");
        assert!(plain.with("nr_requests", "8").is_ok());
        let bfq = Variant { kernel_scheduler: Some(String::from("bfq")), ..plain };
        assert!(bfq.with("scheduler", "kyber").is_err_and(|e| e.contains("scheduler=none")));
    }

    #[test]
    fn what_is_done_between_runs_is_told_for_each_kind_of_disk() {
        let all = ["ram:1M", "file:Cargo.toml", "nbd+unix:/x?sda", "file:missing,size=1M"];
        let all = all.map(|target| of("x", target, "").expect("a variant"));
        assert_eq!(all.each_ref().map(Variant::is_served), [false, false, true, false]);
        let said = between_runs(&all, Prepare::Auto);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[1].contains("is dropped") && said[2].contains("seed"), "{said:?}");
        assert!(between_runs(&all, Prepare::No)[1].contains("stays as it is"));
        let uncounted = all.each_ref().map(|one| cpu_not_counted(std::slice::from_ref(one)).len());
        assert_eq!(uncounted, [0, 1, 2, 1]);
        // Of stacked disks those below count.
        let stacked = of("x", r"striped:64KiB:ram\:1M+nbd\:h\:1", "").expect("a variant");
        assert!(stacked.is_served());
    }

    #[test]
    fn variants_are_alike_when_they_come_to_the_same() {
        let variant = |options| of("x", "ram:1MiB", options).expect("a variant");
        assert!(variant("nr_requests=8").is_like(&variant("nr_requests=08")));
        assert!(variant("").is_like(&variant("ram:1024KiB")));
        assert!(!variant("nr_requests=8").is_like(&variant("nr_requests=9")));
        let bfq = Variant { kernel_scheduler: Some(String::from("bfq")), ..variant("") };
        assert!(!bfq.is_like(&variant("")));
    }
}
