//! The rules of polling of disks as files: an open file counts as a client of each export of its
//! disk, on the reactor that submits its I/O and on the one that takes the calls.

use std::collections::BTreeSet;

use weir_control::config::{self, ExportPolling};
use weir_front::{Export, poll_rule, stated_rule};
use weir_live::{Handle, Host, PollRule, PollVote, Readiness, Service, Turn};

/// The rules of the exports there are.
#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<Stated>);

/// The rule of one export.
#[derive(Debug)]
struct Stated {
    export: String,
    disk: String,
    rule: PollRule,
}

impl Rules {
    pub(crate) fn of(exports: &[Export]) -> Rules {
        let mut rules = Rules::default();
        rules.add(exports);
        rules
    }

    pub(crate) fn add(&mut self, exports: &[Export]) {
        self.0.extend(exports.iter().map(|Export { stated, .. }| Stated {
            export: stated.name.clone(),
            disk: stated.disk.clone(),
            rule: poll_rule(stated.polling()),
        }));
    }

    /// Forgets the exports of a disk.
    pub(crate) fn remove(&mut self, disk: &str) {
        self.0.retain(|stated| stated.disk != disk);
    }

    /// Takes the rules on that are stated now, of exports that there are. The disks that have
    /// others than before.
    pub(crate) fn restate(&mut self, now: &[config::Export]) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        for stated in &mut self.0 {
            let is_it =
                |now: &&config::Export| now.name == stated.export && now.disk == stated.disk;
            let Some(now) = now.iter().find(is_it) else { continue };
            let rule = poll_rule(now.polling());
            if std::mem::replace(&mut stated.rule, rule) != rule {
                changed.insert(stated.disk.clone());
            }
        }
        changed
    }

    /// The rules that a file of this disk asks for; that of the host for a disk without exports.
    pub(crate) fn of_disk(&self, disk: &str) -> Vec<PollRule> {
        let of_disk = self.0.iter().filter(|stated| stated.disk == disk);
        let rules: BTreeSet<PollRule> = of_disk.map(|stated| stated.rule).collect();
        if rules.is_empty() { vec![PollRule::default()] } else { rules.into_iter().collect() }
    }
}

/// The strongest of these that states anything, for people.
pub(crate) fn shown(rules: &[PollRule]) -> ExportPolling {
    rules.iter().max().copied().map(stated_rule).unwrap_or_default()
}

/// The say of an open file on a reactor that takes the calls and does not submit its I/O.
pub(crate) struct Voter {
    _votes: Vec<PollVote>,
}

impl Voter {
    /// `None` on a host that has ended.
    pub(crate) fn install(
        host: &Host,
        reactor: usize,
        rules: Vec<PollRule>,
    ) -> Option<Handle<Voter>> {
        let vote = move |turn: &mut Turn<'_>| {
            let votes = rules.into_iter().map(|rule| turn.vote(rule));
            Voter { _votes: votes.collect() }
        };
        host.install(reactor, vote).ok()
    }
}

impl Service for Voter {
    fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}

    fn completed(&mut self, _: &mut Turn<'_>, _: u32) {}

    fn settle(&mut self, _: &mut Turn<'_>) {}
}

#[cfg(test)]
mod tests {
    use weir_control::config::Config;
    use weir_live::PollMode;

    use super::*;

    fn exports(text: &str) -> Vec<config::Export> {
        let text = format!("[[disk]]\nname = \"sda\"\ntarget = \"ram:1M\"\n{text}");
        Config::parse(&text, &[]).expect("a configuration").exports()
    }

    fn another(name: &str, keys: &str) -> String {
        format!("[[export]]\nname = {name:?}\ndisk = \"sda\"\n{keys}")
    }

    /// Those of a start.
    fn rules(text: &str) -> Rules {
        let stated = exports(text).into_iter();
        let rule = |export: config::Export| Stated {
            rule: poll_rule(export.polling()),
            export: export.name,
            disk: export.disk,
        };
        Rules(stated.map(rule).collect())
    }

    #[test]
    fn a_file_asks_for_the_rule_of_each_export_of_its_disk_as_it_is_stated_now() {
        let always = PollRule { mode: Some(PollMode::Always), share: Some(7) };
        let host = PollRule::default();
        let fast = "poll = \"always\"\npoll_share = 7\n";
        assert_eq!(rules(fast).of_disk("sda"), [always]);
        assert_eq!(rules(fast).of_disk("sdb"), [host]);
        let both = another("a", "") + &another("b", fast);
        let mut now = rules(&both);
        assert_eq!(now.of_disk("sda"), [host, always]);
        assert_eq!(shown(&now.of_disk("sda")), stated_rule(always));
        assert!(now.restate(&exports(&both)).is_empty());
        // One that is new waits for the next start.
        let other = another("a", "") + &another("b", "") + &another("c", fast);
        assert_eq!(Vec::from_iter(now.restate(&exports(&other))), ["sda"]);
        assert_eq!(now.of_disk("sda"), [host]);
        assert!(shown(&now.of_disk("sda")).is_default());
        now.remove("sda");
        assert!(now.0.is_empty());
    }
}
