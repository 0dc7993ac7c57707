//! `weir udev test`: which rules match a disk of a running daemon, and what they would set.

use std::cell::RefCell;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use weir_control::rules::{Event, Plan, Planned, Subject};
use weir_control::{ClientError, ControlClient, Node, Rules};

use crate::Failure;
use crate::control::Control;
use crate::log;
use crate::output::{print, print_line};
use crate::reload::Reload;

/// Rules in the form of udev's.
#[derive(Debug, Args)]
pub(crate) struct Udev {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Test(Test),
}

/// Says which rules match a disk of a running daemon and what they would set; sets nothing.
///
/// The daemon is asked how it would answer each write. The exit status is 1 if it would refuse one.
///
/// Example: weir udev test --rules ./rules.d sda
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct Test {
    /// A folder of rule files; ./weir-data/rules.d if none is given. May be repeated.
    #[arg(long, value_name = "DIR")]
    rules: Vec<PathBuf>,
    /// What happened to the disk.
    #[arg(long, value_enum, default_value = "add")]
    action: Action,
    /// The disk's name.
    disk: String,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    control: Control,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Action {
    Add,
    Change,
}

impl Udev {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let Command::Test(test) = &self.command;
        test.run()
    }
}

/// A disk behind a control socket.
struct Remote<'a> {
    name: &'a str,
    client: RefCell<ControlClient>,
}

impl Remote<'_> {
    fn path(&self, file: &str) -> String {
        format!("block/{}/{file}", self.name)
    }

    /// Of each write of a plan, in turn, why the daemon would refuse it, if it would.
    fn refused(&self, plan: &Plan) -> Result<Vec<Option<String>>, Failure> {
        let mut client = self.client.borrow_mut();
        let tried = plan.writes.iter().map(|write| {
            match client.attempt(&self.path(&write.name), write.value.as_bytes()) {
                Ok(()) => Ok(None),
                Err(ClientError::Refused(failure)) => Ok(Some(failure.to_string())),
                Err(lost) => Err(lost.into()),
            }
        });
        tried.collect()
    }
}

impl Subject for Remote<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn read(&self, file: &str) -> Option<String> {
        self.client.borrow_mut().read(&self.path(file)).ok()
    }

    fn mode(&self, file: &str) -> Option<u16> {
        self.mode_elsewhere(&self.path(file))
    }

    fn mode_elsewhere(&self, path: &str) -> Option<u16> {
        let path = path.trim_end_matches('/');
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let names = self.client.borrow_mut().list(folder).ok()?;
        let found = names.into_iter().find(|(known, _)| known == name);
        found.map(|(_, node): (String, Node)| node.mode())
    }
}

impl Test {
    fn run(&self) -> Result<(), Failure> {
        let rules = Reload::read_rules(&self.rules)?;
        if rules.is_empty() && rules.errors().is_empty() {
            let what = "no rules: give --rules DIR with files named *.rules";
            return Err(Failure::Bad(String::from(what)));
        }
        let mut client = self.control.connect()?;
        client.list(&format!("block/{}", self.disk))?;
        let event = match self.action {
            Action::Add => Event::Add,
            Action::Change => Event::Change,
        };
        let remote = Remote { name: &self.disk, client: RefCell::new(client) };
        let plan = rules.plan(&remote, event);
        // A daemon that went meanwhile has no files, and the plan would be about another disk.
        remote.client.borrow_mut().list(&format!("block/{}", self.disk))?;
        let refused = remote.refused(&plan)?;
        match self.json {
            true => print_line(&self.as_json(&rules, &plan, &refused))?,
            false => print(&self.as_text(&rules, &plan, &refused))?,
        }
        match (rules.errors().len(), refused.iter().flatten().count()) {
            (0, 0) => Ok(()),
            (0, 1) => Err(Failure::No(format!("{}: 1 write would be refused", self.disk))),
            (0, no) => Err(Failure::No(format!("{}: {no} writes would be refused", self.disk))),
            (bad, _) => {
                Err(Failure::Bad(format!("{bad} lines or files of the rules are left out")))
            }
        }
    }

    /// The plan as text. Errors and warnings go to standard error.
    fn as_text(&self, rules: &Rules, plan: &Plan, refused: &[Option<String>]) -> String {
        rules.errors().iter().for_each(|error| log::say(&error.to_string()));
        let warnings = rules.warnings().iter().chain(&plan.warnings);
        warnings.for_each(|warning| log::say(&warning.to_string()));
        let mut lines = Vec::new();
        if plan.matched.is_empty() {
            lines.push(format!("no rule matches {}\n", self.disk));
        }
        lines.extend(plan.matched.iter().map(|(place, text)| format!("{place}: {text}\n")));
        for (Planned { name, value, rule, .. }, refused) in plan.writes.iter().zip(refused) {
            let disk = &self.disk;
            lines.push(format!("would write {value:?} to block/{disk}/{name} ({rule})\n"));
            lines.extend(refused.iter().map(|why| format!("  would be refused: {why}\n")));
        }
        for planned in &plan.others {
            let Planned { name, value, rule, .. } = planned;
            let what = match planned.is_for_rules() {
                true => "for the rules behind",
                false => "without effect here",
            };
            lines.push(format!("{what}: {name}={value:?} ({rule})\n"));
        }
        lines.concat()
    }

    fn as_json(&self, rules: &Rules, plan: &Plan, refused: &[Option<String>]) -> String {
        let write = |(planned, refused): (&Planned, &Option<String>)| {
            let Planned { name, value, rule, .. } = planned;
            json!({ "name": name, "value": value, "rule": rule, "refused": refused })
        };
        let other = |planned: &Planned| {
            let Planned { name, value, rule, .. } = planned;
            let seen = planned.is_for_rules();
            json!({ "name": name, "value": value, "rule": rule, "for_rules": seen })
        };
        let matched = plan.matched.iter().map(|(rule, text)| json!({ "rule": rule, "text": text }));
        let told = |list: &[weir_control::rules::RuleError]| {
            list.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let warnings = [told(rules.warnings()), told(&plan.warnings)].concat();
        let document = json!({
            "disk": self.disk,
            "matched": matched.collect::<Vec<_>>(),
            "writes": plan.writes.iter().zip(refused).map(write).collect::<Vec<_>>(),
            "others": plan.others.iter().map(other).collect::<Vec<_>>(),
            "errors": told(rules.errors()),
            "warnings": warnings,
        });
        document.to_string()
    }
}
