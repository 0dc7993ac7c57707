//! What a file states and would be ignored, or cannot be had, in the words of the file.

use weir_bio::SECTOR;
use weir_bio::units::parse_size;

use super::Custom;
use super::build::Build;

impl Custom {
    fn values(&self, path: &str) -> &[String] {
        let stated = self.stated.iter().find(|(known, _)| known == path);
        stated.map_or(&[], |(_, values)| values.as_slice())
    }

    /// That each thing that is stated means something in some case.
    pub(super) fn check_stated(&self) -> Result<(), String> {
        for kind in &self.kinds {
            let of = |field: &str| self.values(&format!("process.{kind}.{field}"));
            let has_class = of("class").iter().any(|class| class != "none");
            if let Some(level) = of("level").first().filter(|_| !has_class) {
                return Err(format!(
                    "process.{kind}.level={level} without process.{kind}.class: a level is of a \
                     class, real-time, best-effort or idle"
                ));
            }
        }
        self.stated.iter().try_for_each(|(path, _)| match path.strip_prefix("weights.") {
            Some(group) if !self.is_used(group) => Err(format!(
                "{path}: no processes are in the group {group:?} or one below it \
                 (process.NAME.group)"
            )),
            _ => Ok(()),
        })
    }

    /// Whether processes are in this group in some case, or in one below it.
    fn is_used(&self, group: &str) -> bool {
        let groups =
            self.kinds.iter().flat_map(|kind| self.values(&format!("process.{kind}.group")));
        groups.into_iter().any(|of| {
            of.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}

impl Build<'_> {
    /// That the fault of paths, where there is one, begins while something is simulated.
    pub(super) fn check_fault(&self) -> Result<(), String> {
        let whole = self.word("run.until") == "end";
        let warm_up = if whole { 0 } else { self.time("run.warm_up") };
        let ends = warm_up + self.time("run.time");
        if self.word("path.fault") == "none" || self.time("path.fault_from") < ends {
            return Ok(());
        }
        let of = |path: &str| format!("{path}={}", self.word(path));
        let [from, time, warm_up] = ["path.fault_from", "run.time", "run.warm_up"].map(of);
        let before = if whole { String::new() } else { format!(" after {warm_up}") };
        Err(format!("{from} is not before the end of {time}{before}: nothing would come of it"))
    }

    /// That processes of this kind have places on a disk of so many bytes.
    pub(super) fn check_places(&self, kind: &str, disk: u64) -> Result<(), String> {
        let path = |field: &str| format!("process.{kind}.{field}");
        let stated = |field: &str| format!("{}={}", path(field), self.word(&path(field)));
        let bytes = |field: &str| parse_size(self.word(&path(field))).ok();
        let size = bytes("size").expect("it has a default, and was checked");
        if !size.is_multiple_of(SECTOR) {
            return Err(format!("{} is not a multiple of {SECTOR}", stated("size")));
        }
        let all = self.number(&path("count")).saturating_mul(self.number("host.count"));
        let sequential = self.word(&path("access")) == "sequential";
        match bytes("bytes") {
            Some(each) if each < size || !each.is_multiple_of(size) => {
                return Err(format!("{} is no multiple of {}", stated("bytes"), stated("size")));
            }
            Some(each) if each.saturating_mul(all) > disk => {
                return Err(format!(
                    "{} for each of {all} processes is more than the disk's {disk} bytes",
                    stated("bytes")
                ));
            }
            None if size > if sequential { disk / all } else { disk } => {
                let each =
                    if sequential { format!(" for each of {all} processes") } else { "".into() };
                return Err(format!(
                    "{} is more than the disk has{each}: it has {disk} bytes",
                    stated("size")
                ));
            }
            _ => {}
        }
        let disks = self.number("disk.count");
        match self.number(&path("flush_every")) {
            1.. if disks > 1 => Err(format!(
                "{} with disk.count={disks}: a flush is for one disk",
                stated("flush_every")
            )),
            _ => Ok(()),
        }
    }
}
