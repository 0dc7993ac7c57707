//! The variants of a comparison, and the kernel's scheduler where that is what varies.

use std::collections::BTreeSet;

use weir::{QueueMode, Spread, Target};
use weir_bench::compare::{Switch, Variant};
use weir_bench::workload::devices;
use weir_sched::{Family, find};

use super::Compare;
use super::flags::{JobFlags, own_job};
use super::leaving::before_a_panic;
use crate::{Failure, log};

impl Compare {
    /// The variants, checked as far as text can be.
    pub(super) fn variants(&self) -> Result<Vec<Variant>, Failure> {
        let given = self.variants.given();
        if !self.kernel_scheduler.is_empty() {
            if let Some((name, _)) = given.first() {
                let why = format!("--{name} and --kernel-scheduler both say what the variants are");
                return Err(Failure::Bad(why));
            }
            return self.kernel_variants();
        }
        let defaults = [("a", "queue_mode=sq"), ("b", "queue_mode=mq")];
        let given = if given.is_empty() { defaults.to_vec() } else { given };
        if let [(name, _)] = given[..] {
            return Err(Failure::Bad(format!("--{name} alone has nothing to be compared with")));
        }
        let of = |(name, options): &(&str, &str)| {
            let (options, job) =
                own_job(options).map_err(|why| format!("variant {name}: {why}"))?;
            Ok(Variant::new(name, &self.targets(), &options)?.with_job(job))
        };
        let made: Result<Vec<Variant>, String> = given.iter().map(of).collect();
        let made = made?;
        if !self.same {
            all_differ(&made)?;
        }
        Ok(made)
    }

    /// Gives each variant that has flags of the job of its own the job that it comes to.
    ///
    /// # Errors
    /// No such flag or no such value of it; one that is swept over; jobs of which one ends by
    /// itself and another does not.
    pub(super) fn give_jobs(
        &self,
        variants: &mut [Variant],
        job: &JobFlags,
        seed: u64,
    ) -> Result<(), Failure> {
        let usual = self.spec(job, &variants[0], seed)?;
        for variant in variants.iter_mut().filter(|variant| !variant.job.is_empty()) {
            let name = &variant.name;
            let of_variant = |why: String| Failure::Bad(format!("variant {name}: job.{why}"));
            let mut own = job.clone();
            for (flag, value) in &variant.job {
                let swept = self.sweep.as_ref().map(|sweep| sweep.name.replace('-', "_"));
                if swept.as_ref() == Some(flag) {
                    let why = format!("{flag}={value} is said, and --sweep varies it");
                    return Err(of_variant(why));
                }
                let with = own.with(flag, value);
                let none = || of_variant(format!("{flag}: the job has no such flag"));
                own = with.ok_or_else(none)?.map_err(of_variant)?;
            }
            let spec = self.spec(&own, variant, seed)?;
            if spec.ends_by_itself() != usual.ends_by_itself() {
                let why = "of the jobs of two variants one ends by itself and the other does not";
                return Err(Failure::Bad(format!("variant {name}: {why}")));
            }
            variant.workload = Some(spec.workload);
        }
        Ok(())
    }

    /// That there are several of the kernel's schedulers, each once.
    pub(super) fn check_kernel_names(&self) -> Result<(), Failure> {
        let names = &self.kernel_scheduler;
        if names.len() < 2 {
            let only = names.join("");
            let why =
                format!("--kernel-scheduler {only}: one scheduler has nothing to be compared with");
            return Err(Failure::Bad(why));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name))
            && !self.same
        {
            return Err(Failure::Bad(format!("--kernel-scheduler names {twice} twice")));
        }
        Ok(())
    }

    /// The kernel's schedulers, each with the name of its variant: runs are told apart by that.
    pub(super) fn kernel_names(&self) -> impl Iterator<Item = (String, &String)> {
        let names = &self.kernel_scheduler;
        names.iter().enumerate().map(|(position, scheduler)| {
            let before = names[..position].iter().filter(|before| *before == scheduler).count();
            let name = match before {
                0 => scheduler.clone(),
                before => format!("{scheduler}-{}", before + 1),
            };
            (name, scheduler)
        })
    }

    /// One variant for each of the kernel's schedulers, with none of weir's in front.
    fn kernel_variants(&self) -> Result<Vec<Variant>, Failure> {
        self.check_kernel_names()?;
        let targets = self.targets();
        let target = Target::parse(&targets[0])?;
        if let Some(own) = target.config.scheduler.filter(|own| own != "none") {
            let why = format!(
                "scheduler={own} of the target stands before the kernel's: only none shows the \
                 kernel's own"
            );
            return Err(Failure::Bad(why));
        }
        let variant = |(name, scheduler): (String, &String)| {
            let variant = Variant::new(&name, &targets, "scheduler=none")?;
            let options = serde_json::json!({"kernel_scheduler": scheduler});
            Ok(Variant { options, kernel_scheduler: Some(scheduler.clone()), ..variant })
        };
        let made: Result<Vec<Variant>, String> = self.kernel_names().map(variant).collect();
        Ok(made?)
    }

    /// The kernel's scheduler in our hands, if that is what is compared.
    pub(super) fn switch(&self, variants: &[Variant]) -> Result<Option<Switch>, Failure> {
        let Some(first) = variants.first().filter(|v| v.kernel_scheduler.is_some()) else {
            return Ok(None);
        };
        let target = &first.targets[0];
        let target = Target::parse(target)?;
        let Some(path) = target.backing.path() else {
            let why = format!(
                "--kernel-scheduler: target {:?} is no block device of the kernel: file:/dev/...",
                self.targets()[0]
            );
            return Err(Failure::Bad(why));
        };
        Ok(Some(self.kept(Switch::take(path, &self.kernel_scheduler)?)))
    }

    /// Sees that a switched device is put back also in a panic.
    pub(super) fn kept(&self, switch: Switch) -> Switch {
        if switch.recovered && !self.quiet {
            log::say("weir: put back first what a killed comparison had left switched");
        }
        let kept = switch.kept();
        before_a_panic(move || {
            if let Err(error) = kept.put_back() {
                log::say(&format!("weir: {error}"));
            }
        });
        switch
    }
}

/// Like with like: a variant of the other queue mode than the first one's gets the counterpart of
/// the first one's scheduler, unless it says which it has. The modes' own defaults on a disk are
/// none of each other: cfq and mq-deadline on one that turns.
///
/// The first one's own is what it says, or what it has when it is opened.
pub(super) fn like_with_like(variants: Vec<Variant>) -> Vec<Variant> {
    let in_effect = |target: &str| {
        let mut wanted = Target::parse(target).ok()?;
        devices::read_held(&mut wanted);
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        // What cannot be opened is refused with its reason before the first round.
        devices::open(target, &wanted, cpus).ok().map(|opened| opened.device.scheduler())
    };
    paired(variants, in_effect)
}

fn paired(
    variants: Vec<Variant>,
    in_effect: impl Fn(&str) -> Option<&'static str>,
) -> Vec<Variant> {
    let Some((first, mode)) =
        variants.first().and_then(|v| Some((v.targets.first()?, mode_of(v)?)))
    else {
        return variants;
    };
    let needs_one = |variant: &Variant| {
        variant.kernel_scheduler.is_none()
            && mode_of(variant).is_some_and(|own| own != mode)
            && variant.targets.iter().all(|target| says_no_scheduler(target))
    };
    if !variants.iter().any(needs_one) {
        return variants;
    }
    let said = Target::parse(first).ok().and_then(|target| target.config.scheduler);
    let family = if mode == QueueMode::Sq { Family::Legacy } else { Family::Multi };
    let name = said.or_else(|| in_effect(first).map(String::from));
    let Some(entry) = name.and_then(|name| find(family, &name).ok()) else { return variants };
    let other = if mode == QueueMode::Sq { Family::Multi } else { Family::Legacy };
    // Two may share a counterpart, as kyber and mq-deadline do: then the first one has none.
    let is_mutual = |name| find(other, name).is_ok_and(|found| found.counterpart == entry.name);
    if !is_mutual(entry.counterpart) {
        return variants;
    }
    let pair = |variant: Variant| match needs_one(&variant) {
        true => variant.with("scheduler", entry.counterpart).unwrap_or(variant),
        false => variant,
    };
    variants.into_iter().map(pair).collect()
}

/// The queue mode of a variant, where its target says all of it: boot parameters may say another.
fn mode_of(variant: &Variant) -> Option<QueueMode> {
    let target = Target::parse(variant.targets.first()?).ok()?;
    let is_plain = target.cmdline == weir::Cmdline::default();
    let has_schedulers = target.config.spread == Spread::Submitter;
    (is_plain && has_schedulers).then_some(target.config.mode)
}

fn says_no_scheduler(target: &str) -> bool {
    Target::parse(target).is_ok_and(|target| target.config.scheduler.is_none())
}

/// That no two variants come to the same.
pub(super) fn all_differ(variants: &[Variant]) -> Result<(), String> {
    for (position, a) in variants.iter().enumerate() {
        if let Some(b) = variants[position + 1..].iter().find(|b| a.is_like(b)) {
            return Err(format!(
                "variants {} and {} are the same, {}; --same compares them all the same",
                a.name,
                b.name,
                a.targets.join(" ")
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedulers(first: &str, options: &[&str]) -> Vec<String> {
        let target = [String::from("null:1MiB")];
        let variant = |options: &&str| Variant::new("x", &target, options).expect("a variant");
        let first = find(Family::Legacy, first).or(find(Family::Multi, first)).expect("one");
        let made = paired(options.iter().map(variant).collect(), |_| Some(first.name));
        let own = |variant: &Variant| {
            let target = Target::parse(&variant.targets[0]).expect("a target");
            assert_eq!(
                variant.options.get("scheduler").is_some(),
                target.config.scheduler.is_some()
            );
            target.config.scheduler.unwrap_or_default()
        };
        made.iter().map(own).collect()
    }

    #[test]
    fn a_variant_of_the_other_mode_has_the_counterpart_of_the_first_one_s_scheduler() {
        let modes = ["queue_mode=sq", "queue_mode=mq"];
        for (legacy, multi) in [("noop", "none"), ("deadline", "mq-deadline"), ("cfq", "bfq")] {
            assert_eq!(schedulers(legacy, &modes), ["", multi]);
            assert_eq!(schedulers(multi, &[modes[1], modes[0]]), ["", legacy]);
            let said = format!("queue_mode=sq,scheduler={legacy}");
            assert_eq!(schedulers("noop", &[&said, modes[1], modes[0]]), [legacy, multi, ""]);
        }
        // On the multi-queue path deadline is another name of mq-deadline.
        let said = ["scheduler=deadline", "queue_mode=sq"];
        assert_eq!(schedulers("none", &said), ["deadline", "deadline"]);
    }

    #[test]
    fn what_says_its_scheduler_or_has_the_same_mode_or_no_counterpart_is_left_alone() {
        let said = ["queue_mode=sq", "scheduler=kyber", "nomerges=2"];
        assert_eq!(schedulers("cfq", &said), ["", "kyber", "bfq"]);
        assert_eq!(schedulers("cfq", &["queue_mode=sq", "queue_mode=sq,nomerges=2"]), ["", ""]);
        assert_eq!(schedulers("none", &["scheduler=kyber", "queue_mode=sq"]), ["kyber", ""]);
        let boot = "queue_mode=sq,kernel_cmdline=\"elevator=noop\"";
        assert_eq!(schedulers("none", &["", boot]), ["", ""]);
        assert_eq!(schedulers("cfq", &["queue_mode=sq", "spread=round-robin"]), ["", ""]);
    }
}
