//! The variants of a comparison, and the kernel's scheduler where that is what varies.

use std::collections::BTreeSet;

use weir::Target;
use weir_bench::compare::{Switch, Variant};

use super::Compare;
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
        let made: Result<Vec<Variant>, String> = given
            .iter()
            .map(|(name, options)| Variant::new(name, &self.targets(), options))
            .collect();
        let made = made?;
        if !self.same {
            all_differ(&made)?;
        }
        Ok(made)
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
