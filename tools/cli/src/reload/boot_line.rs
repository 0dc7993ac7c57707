//! The boot parameters of a configuration, and the words among them that mean nothing here: a line
//! that was copied from a machine has many of them, and each is told once.

use std::collections::BTreeMap;

use weir::{Cmdline, Target};
use weir_control::config::Config;

use crate::Failure;

/// The boot parameters of a configuration that are for all disks.
pub(crate) fn cmdline(config: &Config) -> Result<Cmdline, Failure> {
    let line = config.kernel_cmdline.as_deref().unwrap_or_default();
    let mut cmdline = Cmdline::parse(line).map_err(|e| format!("kernel_cmdline: {e}"))?;
    cmdline.others.clear();
    Ok(cmdline)
}

/// Logs each word that is no parameter of disks, with the disks whose targets state it.
pub(crate) fn tell_passed_over(config: &Config) {
    for line in passed_over(config) {
        tracing::info!("{line}");
    }
}

/// The sentences for them, in the order of the words.
fn passed_over(config: &Config) -> Vec<String> {
    // Of the file the disks are none.
    let mut words: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let line = config.kernel_cmdline.as_deref().unwrap_or_default();
    let of_all = Cmdline::parse(line).map(|line| line.others).unwrap_or_default();
    for disk in &config.disk {
        let target = Target::parse(&disk.target()).ok();
        for word in target.map(|target| target.cmdline.others).unwrap_or_default() {
            let disks = words.entry(word).or_default();
            if disks.last() != Some(&disk.name.as_str()) {
                disks.push(&disk.name);
            }
        }
    }
    words.extend(of_all.into_iter().map(|word| (word, Vec::new())));
    let told = words.into_iter().map(|(word, disks)| {
        let of = if disks.is_empty() { "" } else { " of " };
        let disks = disks.join(", ");
        format!("kernel_cmdline{of}{disks}: {word} is no parameter of disks and is passed over")
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_parameter_is_told_once_with_all_its_disks() {
        let told =
            |text: &str| passed_over(&Config::parse(text, &["nbd"]).expect("a configuration"));
        let disk = |name: &str, line: &str| {
            format!("[[disk]]\nname = \"{name}\"\ntarget = 'ram:1M,kernel_cmdline=\"{line}\"'\n")
        };
        let own = disk("a", "quiet splash") + &disk("b", "quiet elevator=noop quiet");
        assert_eq!(
            told(&own),
            [
                "kernel_cmdline of a, b: quiet is no parameter of disks and is passed over",
                "kernel_cmdline of a: splash is no parameter of disks and is passed over",
            ]
        );
        let all = format!("kernel_cmdline = \"quiet dm_mod.use_blk_mq=1\"\n{own}");
        let all = told(&all);
        let first = "kernel_cmdline: quiet is no parameter of disks and is passed over";
        assert!(all.len() == 2 && all[0] == first, "{all:?}");
        assert!(told(&disk("a", "elevator=noop")).is_empty());
    }
}
