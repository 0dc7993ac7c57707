//! The order in which the disks of a daemon are opened: each after those that it lies on.

use std::collections::BTreeMap;

use weir::Target;
use weir_control::config::Config;

use crate::Failure;

/// The disks, by their places in the configuration, so that each comes after its legs.
///
/// # Errors
/// A leg that is no disk, and a disk that lies on itself, with its line.
pub(crate) fn of_opening(
    config: &Config,
    targets: &BTreeMap<String, Target>,
) -> Result<Vec<usize>, Failure> {
    let mut walk = Walk { config, targets, above: Vec::new(), order: Vec::new() };
    (0..config.disk.len()).try_for_each(|place| walk.visit(place))?;
    Ok(walk.order)
}

/// Each leg, with the first of the disks that lie on it.
pub(crate) fn legs(config: &Config, targets: &BTreeMap<String, Target>) -> Vec<(String, String)> {
    let of = |name: &String| targets[name].backing.legs().into_iter();
    let disks = config.disk.iter().rev().map(|disk| &disk.name);
    disks.flat_map(|name| of(name).map(|leg| (leg, name.clone()))).collect()
}

struct Walk<'a> {
    config: &'a Config,
    targets: &'a BTreeMap<String, Target>,
    /// The disks whose legs are being looked at.
    above: Vec<usize>,
    order: Vec<usize>,
}

impl Walk<'_> {
    fn visit(&mut self, place: usize) -> Result<(), Failure> {
        if self.order.contains(&place) {
            return Ok(());
        }
        if let Some(first) = self.above.iter().position(|known| *known == place) {
            let names: Vec<&str> = self.above[first..].iter().map(|at| self.name(*at)).collect();
            let what = format!("it lies on itself: {} on {}", names.join(" on "), self.name(place));
            return Err(self.fault(place, &what));
        }
        self.above.push(place);
        for leg in self.targets[self.name(place)].backing.legs() {
            let disks = &self.config.disk;
            let backing = &self.targets[self.name(place)].backing;
            if let Some(target) = backing.leg_target(&leg) {
                let what = format!(
                    "it lies on {target:?}, which has no name here: give it a [[disk]] of its own"
                );
                return Err(self.fault(place, &what));
            }
            let Some(below) = disks.iter().position(|disk| disk.name == leg) else {
                let known: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
                let what = format!("it lies on disk {leg:?}; disks: {}", known.join(", "));
                return Err(self.fault(place, &what));
            };
            if let Some(pool) = &disks[below].pool {
                let what = format!(
                    "it lies on disk {leg:?}, which is in pool {pool:?}: a disk in a pool has no \
                     other above it"
                );
                return Err(self.fault(place, &what));
            }
            self.visit(below)?;
        }
        self.above.pop();
        self.order.push(place);
        Ok(())
    }

    fn name(&self, place: usize) -> &str {
        &self.config.disk[place].name
    }

    fn fault(&self, place: usize, what: &str) -> Failure {
        Failure::Bad(self.config.fault_of_disk(self.name(place), what).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in the order of opening, or why there is none.
    fn order(disks: &[(&str, &str)]) -> Result<String, String> {
        let text: String = disks
            .iter()
            .map(|(name, target)| format!("[[disk]]\nname = \"{name}\"\ntarget = \"{target}\"\n\n"))
            .collect();
        let config = Config::parse(&text, &[]).unwrap();
        let target =
            |(name, text): &(&str, &str)| (String::from(*name), Target::parse(text).unwrap());
        match of_opening(&config, &disks.iter().map(target).collect()) {
            Ok(places) => {
                let names: Vec<&str> =
                    places.iter().map(|at| config.disk[*at].name.as_str()).collect();
                Ok(names.join(" "))
            }
            Err(Failure::Bad(why) | Failure::No(why)) => Err(why),
        }
    }

    #[test]
    fn a_disk_is_opened_after_those_that_it_lies_on_and_else_in_the_order_of_the_file() {
        let ram = "ram:1M";
        let disks = [("top", "linear:md1+md0"), ("md0", "linear:a+b"), ("a", ram), ("b", ram)];
        let all = [&disks[..], &[("md1", "striped:4K:b+c"), ("c", ram), ("alone", ram)]].concat();
        assert_eq!(order(&all).unwrap(), "b c md1 a md0 top alone");
    }

    #[test]
    fn a_circle_and_a_disk_that_is_not_there_are_refused_with_the_line() {
        let circle = [("a", "ram:1M"), ("x", "linear:a+y"), ("y", "linear:z"), ("z", "linear:x")];
        let why = order(&circle).unwrap_err();
        assert_eq!(why, "line 6: disk \"x\": it lies on itself: x on y on z on x");
        let why = order(&[("md0", "linear:md0")]).unwrap_err();
        assert_eq!(why, "line 2: disk \"md0\": it lies on itself: md0 on md0");
        let why = order(&[("a", "ram:1M"), ("md0", "linear:a+b")]).unwrap_err();
        assert_eq!(why, "line 6: disk \"md0\": it lies on disk \"b\"; disks: a, md0");
        let why = order(&[("a", "ram:1M"), ("md0", "linear:a+ram:2M")]).unwrap_err();
        let unnamed = "line 6: disk \"md0\": it lies on \"ram:2M\", which has no name here: ";
        assert!(why.starts_with(unnamed) && why.contains("[[disk]] of its own"), "{why}");
    }
}
