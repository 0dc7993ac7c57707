//! Boot parameters applied to a disk.

use weir_queue::QueueMode;
use weir_sched::Family;

use crate::cmdline::{Cmdline, DM, ELEVATOR, SCSI};
use crate::target::Target;

impl Cmdline {
    /// Applies the line's parameters to the disk `name`, as far as its target leaves them open.
    /// Returns sentences for the log about parameters without effect.
    pub fn apply(&self, name: &str, target: &mut Target) -> Vec<String> {
        let mut notices: Vec<String> = self.others.iter().map(|word| unknown(name, word)).collect();
        let in_vain = |parameter: &str, why: &str| {
            format!("{name}: {parameter} does not apply to this device: {why}")
        };
        match self.scsi_mod_use_blk_mq {
            Some(_) if !name.starts_with("sd") => {
                notices.push(in_vain(SCSI, "it is for disks named sd*"));
            }
            Some(_) if target.mode_given => {
                notices.push(in_vain(SCSI, "its target states queue_mode"));
            }
            Some(true) => target.config.mode = QueueMode::Mq,
            Some(false) => target.config.mode = QueueMode::Sq,
            None => {}
        }
        let is_mapped = target.backing.is_mapped();
        match self.dm_mod_use_blk_mq {
            Some(_) if !is_mapped => notices.push(in_vain(DM, "it is for mapped disks")),
            Some(_) if target.mode_given => {
                notices.push(in_vain(DM, "its target states queue_mode"));
            }
            Some(true) => target.config.mode = QueueMode::Mq,
            Some(false) => target.config.mode = QueueMode::Sq,
            None => {}
        }
        let Some(elevator) = &self.elevator else { return notices };
        let parameter = format!("{ELEVATOR}={elevator}");
        if target.config.mode == QueueMode::Mq {
            notices.push(in_vain(&parameter, "it is for queue_mode=sq"));
        } else if target.config.scheduler.is_some() {
            notices.push(in_vain(&parameter, "its target states scheduler"));
        } else {
            match weir_sched::find(Family::Legacy, elevator) {
                Ok(entry) => target.config.scheduler = Some(String::from(entry.name)),
                Err(why) => notices.push(in_vain(&parameter, &why)),
            }
        }
        notices
    }
}

fn unknown(name: &str, word: &str) -> String {
    format!(
        "{name}: {word} in kernel_cmdline is passed over: known are {ELEVATOR}=, {SCSI}= and {DM}="
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk after the line was applied: mode, scheduler, and the notices about parameters without
    /// effect.
    fn applied(name: &str, target: &str, line: &str) -> (QueueMode, Option<String>, String) {
        let mut target = Target::parse(target).unwrap();
        let notices = Cmdline::parse(line).unwrap().apply(name, &mut target);
        (target.config.mode, target.config.scheduler, notices.join("\n"))
    }

    #[test]
    fn each_parameter_reaches_the_disks_it_is_for_and_says_so_of_others() {
        use QueueMode::{Mq, Sq};
        let off = "scsi_mod.use_blk_mq=0";
        let (off_cfq, cfq) = ("scsi_mod.use_blk_mq=n elevator=noop", Some("noop"));
        for (name, target, line, mode, scheduler, told) in [
            ("sda", "ram:1M", off, Sq, None, ""),
            ("sda", "ram:1M", "scsi_mod.use_blk_mq=1", Mq, None, ""),
            ("sda", "ram:1M", "", Mq, None, ""),
            ("sda", "ram:1M,queue_mode=mq", off, Mq, None, "target states queue_mode"),
            ("mmcblk0", "ram:1M", off, Mq, None, "for disks named sd*"),
            ("sda", "ram:1M", off_cfq, Sq, cfq, ""),
            ("sda", "ram:1M,queue_mode=sq", "elevator=noop", Sq, cfq, ""),
            ("sda", "ram:1M", "elevator=noop", Mq, None, "it is for queue_mode=sq"),
            (
                "sda",
                "ram:1M,scheduler=noop",
                "scsi_mod.use_blk_mq=0 elevator=deadline",
                Sq,
                cfq,
                "target states scheduler",
            ),
            ("sda", "ram:1M,queue_mode=sq", "elevator=kyber", Sq, None, "kyber belongs to"),
            ("sda", "ram:1M,queue_mode=sq", "elevator=frob", Sq, None, "\"frob\"; valid here"),
            ("sda", "ram:1M", "dm_mod.use_blk_mq=1", Mq, None, "it is for mapped disks"),
            ("md0", "linear:sda+sdb", "dm_mod.use_blk_mq=0", Sq, None, ""),
            ("md0", "linear:sda+sdb", "dm_mod.use_blk_mq=1", Mq, None, ""),
            (
                "md0",
                "linear:sda,queue_mode=mq",
                "dm_mod.use_blk_mq=0",
                Mq,
                None,
                "dm_mod.use_blk_mq does not apply to this device: its target states queue_mode",
            ),
            ("sda", "ram:1M", "root=/dev/sda1", Mq, None, "root=/dev/sda1 in kernel_cmdline"),
        ] {
            let (had_mode, had_scheduler, notices) = applied(name, target, line);
            let had = (had_mode, had_scheduler.as_deref());
            assert_eq!(had, (mode, scheduler), "{name}={target} with {line:?}");
            assert_eq!(notices.is_empty(), told.is_empty(), "{line}: {notices}");
            assert!(notices.contains(told), "{line}: {notices}");
        }
    }
}
