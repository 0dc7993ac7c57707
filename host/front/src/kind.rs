//! A kind of front, a plan of one, and one that was started.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_bio::GroupId;
use weir_control::config::{self, Config};
use weir_control::{Clients, ConfigError, Inherited, Tree};
use weir_live::Host;
use weir_queue::{Device, Groups};

/// A kind of front.
#[derive(Debug)]
pub struct FrontKind {
    /// Its name: of its section in the configuration file, and of its folder in the tree.
    pub name: &'static str,
    /// A description of such a front, in a sentence.
    pub doc: &'static str,
    /// The options of its section.
    pub options: &'static [FrontOption],
    /// The settings that a reload leaves as they are, for the line that says so.
    pub fixed: &'static str,
    /// The crate whose log lines its clients can cause: `module_path!()` of its root.
    pub room: &'static str,
    /// Reads its section; without one it has its defaults.
    ///
    /// # Errors of the call
    /// The line, and a sentence with name, value and bound.
    pub plan: fn(&Config) -> Result<Box<dyn Plan>, ConfigError>,
}

/// An option of the section of one kind of front.
#[derive(Clone, Copy, Debug)]
pub struct FrontOption {
    /// Its name.
    pub name: &'static str,
    /// The values it takes.
    pub values: &'static str,
    /// The value if it is not stated.
    pub default: &'static str,
    /// The flag of `weir serve` that stands above it.
    pub flag: Option<&'static str>,
    /// Its meaning, in a sentence.
    pub doc: &'static str,
}

/// A front as it was configured: parsed, not started.
///
/// Its [`Debug`] text shows all of it; two plans of equal text are the same.
pub trait Plan: fmt::Debug + Send + Sync {
    /// The kind it is of.
    fn kind(&self) -> &'static FrontKind;

    /// Puts the values of a flag in the place of what the file states for one of the kind's
    /// options.
    ///
    /// # Errors
    /// A sentence with name, value and bound.
    fn set(&mut self, option: &str, values: &[String]) -> Result<(), String>;

    /// Makes the front, without a way in yet; `None` if the plan asks for none.
    ///
    /// # Errors
    /// The step that failed, with the export or the folder.
    fn start(&self, grounds: &Grounds<'_>) -> Result<Option<Arc<dyn Front>>, String>;
}

impl PartialEq for dyn Plan + '_ {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

/// The parts of a daemon that a front stands on.
#[derive(Clone, Copy)]
pub struct Grounds<'a> {
    /// The reactors.
    pub host: &'a Arc<Host>,
    /// The tree; the front's clients are shown there by the daemon.
    pub tree: &'a Arc<Tree>,
    /// All disks, on the host.
    pub disks: &'a [Device],
    /// All exports, the default one first; at least one.
    pub exports: &'a [Export],
    /// The groups that clients may be in; the tree shows them.
    pub groups: &'a Arc<Groups>,
    /// Makes the folder for what was not told another place, or checks the one that is there.
    pub default_folder: fn() -> Result<&'static Path, String>,
}

/// A disk under a name that clients open.
#[derive(Clone)]
pub struct Export {
    /// Its name, access rules and classes, as the configuration states them.
    pub stated: config::Export,
    /// The disk.
    pub device: Device,
    /// The group that its clients' I/O counts in.
    pub group: GroupId,
}

/// The users of a disk at the moment its daemon stops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    /// Each of them, for people.
    pub listed: Vec<String>,
    /// No protocol tells them that the disk goes: their I/O fails next.
    pub unwarned: bool,
}

/// The configuration as a reload of it finds it.
#[derive(Clone, Copy)]
pub struct Restated<'a> {
    /// The plan of the front's kind.
    pub plan: &'a dyn Plan,
    /// All exports, as [`Grounds`] has them.
    pub exports: &'a [config::Export],
}

/// What came of a reload: in words, without who says them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Settings that were applied, each with its old and its new value.
    pub changed: Vec<String>,
    /// Settings that could not be applied, and why.
    pub failed: Vec<String>,
    /// Settings that differ from the start and wait for the next.
    pub restart: Vec<String>,
}

impl Reloaded {
    /// Of a front that changes nothing of its plan while it runs.
    #[must_use]
    pub fn of_fixed(started: &dyn Plan, now: &dyn Plan) -> Reloaded {
        let restart = (started != now).then(|| String::from(now.kind().fixed));
        Reloaded { restart: restart.into_iter().collect(), ..Reloaded::default() }
    }

    /// The same of one that changes nothing of its exports either, but for how threads wait.
    #[must_use]
    pub fn and_fixed_exports<'a>(
        mut self,
        started: impl Iterator<Item = &'a config::Export>,
        now: &'a [config::Export],
    ) -> Reloaded {
        let started: Vec<&config::Export> = started.collect();
        let now: Vec<&config::Export> = now.iter().collect();
        let differs = |export: &&&config::Export, own: &[_], others: &[&config::Export]| {
            !comes_with_disk(export, own)
                && !others.iter().any(|other| export.is_same_but_for_polling(other))
        };
        let new = now.iter().filter(|export| differs(export, &now, &started));
        let old = started.iter().filter(|export| differs(export, &started, &now));
        let names: BTreeSet<&str> = new.chain(old).map(|export| export.name.as_str()).collect();
        self.restart.extend(names.into_iter().map(|name| format!("export {name:?} has changed")));
        self
    }
}

/// Whether an export of these is there because its disk is: it comes and goes with the disk, which
/// is told itself. Beside another export of the disk it is there because it is stated.
fn comes_with_disk(export: &config::Export, all: &[&config::Export]) -> bool {
    export.is_implicit() && all.iter().filter(|one| one.disk == export.disk).count() == 1
}

/// A front that was started: asked and told by threads that may wait.
pub trait Front: Send + Sync {
    /// The kind it is of.
    fn kind(&self) -> &'static FrontKind;

    /// Its clients: listed, classed and ended through this.
    fn clients(&self) -> Arc<dyn Clients>;

    /// Lets clients in; `passed` are sockets of a supervisor, which stand for those of its plan.
    ///
    /// # Errors
    /// The address or folder that cannot be had, and why.
    fn open(&self, passed: Vec<OwnedFd>) -> Result<(), String>;

    /// The sockets it listens on, for a daemon that takes the place of this one: each as a
    /// duplicate. None but for a front with addresses.
    ///
    /// # Errors
    /// The system's: no descriptor is left.
    fn sockets(&self) -> io::Result<Vec<Inherited>> {
        Ok(Vec::new())
    }

    /// Takes over sockets of the daemon in whose place this one comes, before
    /// [`open`](Front::open), which uses them for the addresses that they stand at.
    fn inherit(&self, sockets: Vec<Inherited>) {
        drop(sockets);
    }

    /// Has [`stop`](Front::stop) leave the files of its sockets, which go on in another process.
    fn keep_sockets(&self) {}

    /// Applies what the configuration states now, as far as that may change while it runs; what is
    /// stated no longer goes back to its default. A second reload of the same changes nothing.
    fn reload(&self, now: &Restated<'_>) -> Reloaded;

    /// Lets clients in to a disk that is new on the host, by these exports of it.
    ///
    /// # Errors
    /// The export that cannot be served, and why; then none of them is.
    fn add_disk(&self, disk: &Device, exports: &[Export]) -> Result<(), String>;

    /// Ends the clients of a disk, and lets none in to it any more. Returns how many that were.
    fn remove_disk(&self, disk: &Device) -> usize;

    /// Serves one connection that is there already, called `name`. The answer waits for its end.
    ///
    /// # Errors
    /// A front without connections, or the setting that keeps it out.
    fn adopt(&self, socket: OwnedFd, name: &str) -> Result<Box<dyn FnOnce() + Send>, String>;

    /// Where it is, in lines for people.
    fn introduce(&self) -> String;

    /// Where clients find it now: addresses, or the folder of a mount.
    fn places(&self) -> Vec<String> {
        Vec::new()
    }

    /// Lines to paste for a first look at a disk, if there are any.
    fn example(&self, disk: &Device) -> Option<String>;

    /// The users that it knows of a disk.
    fn users(&self, disk: &str) -> Users;

    /// Stops within `limit`: lets no client in, finishes what was received, and cuts off the
    /// clients that have not read their answers by then. Returns what did not stop in order, a
    /// sentence each.
    fn stop(&self, limit: Duration) -> Vec<String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exports of a configuration with two disks.
    fn stated(text: &str) -> Vec<config::Export> {
        let disk = |name: &str| format!("[[disk]]\nname = {name:?}\ntarget = \"ram:1M\"\n");
        let text = format!("{}{}{text}", disk("sda"), disk("sdb"));
        Config::parse(&text, &[]).expect("a configuration").exports()
    }

    #[test]
    fn an_export_that_is_new_gone_or_changed_needs_a_restart_and_one_of_a_disk_alone_does_not() {
        let a = "[[export]]\nname = \"a\"\ndisk = \"sda\"\n";
        let closed = "[[export]]\nname = \"sda\"\ndisk = \"sda\"\nreadonly = true\n";
        let open = "[[export]]\nname = \"sda\"\ndisk = \"sda\"\n";
        let both = &format!("{a}{open}");
        for (before, now, expected) in [
            ("", "", &[][..]),
            (a, a, &[]),
            ("", a, &["export \"a\" has changed"]),
            (a, "", &["export \"a\" has changed"]),
            (a, &format!("{a}readonly = true\n"), &["export \"a\" has changed"]),
            (a, &format!("{a}poll = \"always\"\n"), &[]),
            ("", closed, &["export \"sda\" has changed"]),
            (closed, "", &["export \"sda\" has changed"]),
            // What is served is the same.
            ("", open, &[]),
            (a, closed, &["export \"a\" has changed", "export \"sda\" has changed"]),
            (a, both, &["export \"sda\" has changed"]),
            (both, a, &["export \"sda\" has changed"]),
            (both, open, &["export \"a\" has changed"]),
            (both, &format!("{both}poll = \"always\"\n"), &[]),
        ] {
            let (before, now) = (stated(before), stated(now));
            let reloaded = Reloaded::default().and_fixed_exports(before.iter(), &now);
            assert_eq!(reloaded.restart, expected, "{before:?} -> {now:?}");
            assert!(reloaded.changed.is_empty() && reloaded.failed.is_empty());
        }
    }
}
