//! How a driver's crate declares what it opens: its kinds of target, with their syntax and options,
//! and what others ask about a target before a device is made of it.
//!
//! A new driver is a crate with one or more [`TargetKind`]s and a line in the list of kinds; no
//! other code names it. This file reads no text and opens nothing itself.

use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_bio::Nanos;

use crate::config::{Config, QueueMode};
use crate::device::Device;
use crate::driver::{Driver, DriverError};

/// A kind of target: `KIND:REST[,OPTION=VALUE]...`.
#[derive(Debug)]
pub struct TargetKind {
    /// The words that its targets begin with, without the colon. Messages use the first.
    pub names: &'static [&'static str],
    /// How its targets are written, as messages and documents show it.
    pub syntax: &'static [&'static str],
    /// A target that is whole, as documents show it: `DIR` stands for a folder. One that needs no
    /// server, and no other disk, has 8 MiB: tests open it.
    pub example: &'static str,
    /// A description of such a target, in a sentence.
    pub doc: &'static str,
    /// The options that only this kind has.
    pub options: &'static [TargetOption],
    /// Reads a target without its options.
    ///
    /// # Errors of the call
    /// A sentence that names the part that is wrong and what would be right.
    pub parse: fn(&Written<'_>) -> Result<Box<dyn Backing>, String>,
}

/// An option of one kind of target.
#[derive(Clone, Copy, Debug)]
pub struct TargetOption {
    /// Its name, as in `NAME=VALUE`.
    pub name: &'static str,
    /// The values it takes, as in `SIZE` or `on|off`.
    pub values: &'static str,
    /// The value if it is not stated.
    pub default: &'static str,
    /// Its meaning, in a sentence.
    pub doc: &'static str,
}

/// A target as it was written, without its options.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// Which of the kind's names it begins with.
    pub name: &'a str,
    /// The text behind the colon, up to the options.
    pub rest: &'a str,
    /// All of it, for messages.
    pub text: &'a str,
}

/// Where the bytes of a target really go: parsed, not opened.
///
/// Its [`Debug`] text shows all of it; two backings of equal text are the same.
pub trait Backing: fmt::Debug + Send + Sync {
    /// The kind it is of.
    fn kind(&self) -> &'static TargetKind;

    /// Takes an option that the kind declares.
    ///
    /// # Errors
    /// A sentence with name, value and bound.
    fn set(&mut self, option: &str, value: &str) -> Result<(), String>;

    /// Holds the target, all of whose options are set, against the queues in front of it; `text` is
    /// the whole target, and `queues_given` says that `config.queues` was stated.
    ///
    /// # Errors
    /// A sentence with name, value and bound.
    fn check(&self, config: &Config, queues_given: bool, text: &str) -> Result<(), String> {
        let _ = (config, queues_given, text);
        Ok(())
    }

    /// The mode of the queues in front of it, if the backing itself says that. Where the target
    /// states one as well, both have to be the same.
    fn queue_mode(&self) -> Option<QueueMode> {
        None
    }

    /// The names of the disks that it lies on, each once: what is opened before it. None but for a
    /// mapped disk.
    fn legs(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether it is a mapped disk, which may lie on no disk at all.
    fn is_mapped(&self) -> bool {
        !self.legs().is_empty()
    }

    /// The target of a leg that is no disk of another name but stands in this target, as it is
    /// written. `None` for a leg that is one.
    fn leg_target(&self, leg: &str) -> Option<&str> {
        let _ = leg;
        None
    }

    /// Whether its legs are paths to one device. Else each is another device.
    fn has_paths(&self) -> bool {
        false
    }

    /// The same without some of its legs, which cannot be opened. `None`: it needs them all.
    fn without(&self, missing: &dyn Fn(&str) -> bool) -> Option<Box<dyn Backing>> {
        let _ = missing;
        None
    }

    /// Opens a mapped disk over its legs, in the order of [`legs`](Backing::legs).
    ///
    /// # Errors
    /// The leg or the bound that does not suit.
    fn open_over(&self, config: &Config, legs: &[Device]) -> Result<OpenedBacking, DriverError> {
        let _ = legs;
        self.open(config)
    }

    /// Opens it for a device of this configuration. May block, as for a connection to a server.
    ///
    /// # Errors
    /// The step that failed, with the name of the file or server.
    fn open(&self, config: &Config) -> Result<OpenedBacking, DriverError>;

    /// Opens it although it cannot be reached now, as another path to the device that
    /// [`Driver::likeness`] tells of; it is refused later if it turns out to be none. Until it is
    /// reached all I/O ends with an error of the path. `None`: it cannot be opened so.
    fn open_unreached(
        &self,
        config: &Config,
        likeness: &(dyn Any + Send + Sync),
    ) -> Option<Result<OpenedBacking, DriverError>> {
        let _ = (config, likeness);
        None
    }

    /// Hard queues of a multi-queue device in front of `driver`, where none are stated, for so many
    /// threads that turn lanes.
    fn queues(&self, driver: &dyn Driver, homes: u16) -> u16;

    /// The identity that tells the backing from others before it is opened.
    fn identity(&self) -> Identity;

    /// All that is said of it but where it is and how large it is to be made: equal for two targets
    /// that may stand for one device.
    fn settings(&self) -> String;

    /// How long what is written is there.
    fn keeps(&self) -> Keeps;

    /// The file or block device of this machine that it is, if it is one.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// The size that is made if nothing is there yet, bytes; `None` for what is never made.
    fn size_to_make(&mut self) -> Option<&mut Option<u64>> {
        None
    }

    /// Goes through the page cache of this machine from now on; whether it can.
    fn use_page_cache(&mut self) -> bool {
        false
    }

    /// A copy.
    fn boxed(&self) -> Box<dyn Backing>;
}

impl Clone for Box<dyn Backing> {
    fn clone(&self) -> Box<dyn Backing> {
        self.boxed()
    }
}

impl PartialEq for dyn Backing {
    fn eq(&self, other: &dyn Backing) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

/// How long what is written to a backing is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// It is never read back.
    Nothing,
    /// Until the device is closed, or its program ends.
    WhileOpen,
    /// What was flushed stays.
    Flushed,
}

impl Keeps {
    /// Why nothing that is written is there after a crash, if that is so, as the end of a sentence
    /// about the target.
    #[must_use]
    pub const fn forgets(self) -> Option<&'static str> {
        match self {
            Keeps::Nothing => Some("drops what is written"),
            Keeps::WhileOpen => Some("is memory of this program"),
            Keeps::Flushed => None,
        }
    }
}

/// The identity of a backing, known before it is opened. Equal ones are one device; different ones
/// may be one device all the same, as a partition and its disk are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Memory of this process, or nothing: another one each time it is opened.
    Own,
    /// A block device of this machine, by its number.
    Block(u64),
    /// A file: its file system, and its number there.
    File(u64, u64),
    /// A file that is not there yet, by its path as written.
    Missing(PathBuf),
    /// A disk of a server, by the address and the name there.
    Remote(String, String),
    /// A disk of a server behind a UNIX socket, by its path as written and the name there.
    Socket(PathBuf, String),
}

/// A backing that has been opened.
pub struct OpenedBacking {
    /// The driver.
    pub driver: Arc<dyn Driver>,
    /// Sentences for the log: which engine was chosen, what the backing lacks.
    pub notices: Vec<String>,
    /// Where further notices come from, if there can be any.
    pub speaker: Option<Box<dyn Speaker>>,
    /// What a mapped disk is asked and told while it runs.
    pub map: Option<Arc<dyn MapControl>>,
}

/// A mapped disk as `weir map` asks and tells it, in dm's words. By any thread, slowly.
pub trait MapControl: Send + Sync {
    /// Its table: a line for each target, `START LENGTH TYPE ARGUMENTS`, with the names of disks.
    fn table(&self) -> String;

    /// Its status, a line for each target: `START LENGTH TYPE STATUS`.
    fn status(&self) -> String;

    /// Takes a message, words separated by spaces.
    ///
    /// # Errors
    /// A message that it does not know, or a value outside its bound.
    fn message(&self, text: &str, now: Nanos) -> Result<(), String>;

    /// Its paths, if it has several to one disk.
    fn paths(&self) -> Vec<PathSeen> {
        Vec::new()
    }

    /// What a person reads of it, line by line: paths and their states.
    fn listing(&self) -> Vec<String> {
        self.status().lines().map(String::from).collect()
    }
}

/// A path of a mapped disk, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathSeen {
    /// The name of its disk.
    pub name: String,
    /// Whether it takes I/O.
    pub is_valid: bool,
    /// How often it has failed.
    pub fails: u64,
}

impl OpenedBacking {
    /// A driver that has nothing to tell.
    #[must_use]
    pub fn silent(driver: impl Driver + 'static) -> OpenedBacking {
        OpenedBacking::over(Arc::new(driver))
    }

    /// The same.
    #[must_use]
    pub fn over(driver: Arc<dyn Driver>) -> OpenedBacking {
        OpenedBacking { driver, notices: Vec::new(), speaker: None, map: None }
    }
}

impl fmt::Debug for OpenedBacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedBacking").field("notices", &self.notices).finish_non_exhaustive()
    }
}

/// Called with each notice.
pub type NoticeListener = Arc<dyn Fn(&str) + Send + Sync>;

/// A driver that has notices while it runs. It must not keep the driver alive if the driver holds a
/// lock of the system that has to go with the device.
pub trait Speaker: Send + Sync {
    /// Tells `listener` each further notice when it comes, on the thread that turns the lane
    /// concerned. A second listener takes the first one's place.
    fn on_notice(&self, listener: NoticeListener);
}
