//! The configuration file: TOML, unknown keys refused with their line.

mod error;
mod group;
mod host;
mod metrics;
mod page;
mod section;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use weir_access::{Allow, Listen};
use weir_bio::{Class, IoPrio};
use weir_queue::Groups;

pub use error::ConfigError;
pub use group::Group;
pub use host::{ExportPolling, Host, POLL_SHARE, Poll};
use host::{mode_of_export, share_of_export};
pub use metrics::Metrics;
pub use page::page;
pub use value::{
    CLIENTS_MAX, MEMORY_MIN, memory_of, minimum_block, parse_memory, parse_minimum_block,
};
use value::{addresses, burst, level, place, rate, size};

/// The whole file but the sections of fronts, which their crates read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Boot parameters of a kernel, for every disk.
    pub kernel_cmdline: Option<String>,
    /// Disks, in order; the first export of the first is the default export.
    pub disk: Vec<Disk>,
    /// Exports of those disks; a disk without any has one of its own name.
    pub export: Vec<Export>,
    /// Groups that exports may be in.
    pub group: Vec<Group>,
    /// Pools that disks may be in.
    pub pool: Vec<Pool>,
    /// Where the figures are shown.
    pub metrics: Metrics,
    /// How its threads wait.
    pub host: Host,
    /// The text, in which fronts look for their sections.
    #[serde(skip)]
    source: Source,
    /// Disks on which others lie, each with one of those.
    #[serde(skip)]
    legs: BTreeMap<String, String>,
}

/// The file that a configuration was read from.
#[derive(Clone, Debug, Default, PartialEq)]
struct Source {
    path: Option<PathBuf>,
    text: String,
}

impl Source {
    /// A fault of the text, with its line and the name of the file.
    fn fault(&self, error: &toml::de::Error) -> ConfigError {
        let before = error.span().map(|span| &self.text[..span.start]);
        let line = before.map_or(0, |before| before.matches('\n').count() + 1);
        self.named(&format!("line {line}: {}", error.message()))
    }

    fn named(&self, what: &dyn fmt::Display) -> ConfigError {
        ConfigError(match &self.path {
            Some(path) => format!("{}: {what}", path.display()),
            None => what.to_string(),
        })
    }
}

/// The keys of the file that are no section of a front.
const KEYS: [&str; 7] = ["kernel_cmdline", "disk", "export", "group", "pool", "metrics", "host"];

/// `[[pool]]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Its name in the tree.
    pub name: String,
    /// Its scheduler; as any disk's by default.
    #[serde(default)]
    pub scheduler: Option<String>,
    /// Requests that the scheduler has to choose from.
    #[serde(default)]
    pub nr_requests: Option<u16>,
    /// Requests that its disks have together at a time, for each hard queue.
    #[serde(default)]
    pub depth: Option<u16>,
}

/// `[[disk]]`: what it says of clients is for its own export, there if no `[[export]]` names it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Its name; also the name of its export, if none names it.
    pub name: String,
    /// A target string; empty beside a table.
    #[serde(default)]
    pub target: String,
    /// In place of a target, a table in dm's words, with disks of this file as devices.
    #[serde(default)]
    pub table: Option<String>,
    /// The pool whose queue it shares.
    #[serde(default)]
    pub pool: Option<String>,
    /// The group its clients' I/O counts in; the root without one. With caps it is in a group of
    /// its name below that.
    #[serde(default)]
    pub group: Option<String>,
    /// Priority class of its clients' I/O.
    #[serde(default)]
    pub class: PrioClass,
    /// Level within the class, 0 (best) to 7.
    #[serde(default, deserialize_with = "level")]
    pub level: Option<i64>,
    /// Whether a thread that serves its clients and has nothing to do polls before it sleeps; as
    /// `[host]` says without it.
    #[serde(default, deserialize_with = "mode_of_export")]
    pub poll: Option<Poll>,
    /// The part of its time that such a thread may poll if that is `adaptive`, percent.
    #[serde(default, deserialize_with = "share_of_export")]
    pub poll_share: Option<u8>,
    /// Reads a second at most.
    #[serde(default)]
    pub riops: Option<NonZeroU64>,
    /// Writes a second at most.
    #[serde(default)]
    pub wiops: Option<NonZeroU64>,
    /// Bytes read a second at most: a number, or a size as in "50MiB".
    #[serde(default, deserialize_with = "rate")]
    pub rbps: Option<NonZeroU64>,
    /// Bytes written a second at most.
    #[serde(default, deserialize_with = "rate")]
    pub wbps: Option<NonZeroU64>,
    /// Seconds of unused allowance that may be spent at once, 0..=3600.
    #[serde(default, deserialize_with = "burst")]
    pub burst: Option<f64>,
}

/// `[[export]]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    /// The export's name.
    pub name: String,
    /// The disk behind it.
    pub disk: String,
    /// The group its clients' I/O counts in; the root without one.
    #[serde(default)]
    pub group: Option<String>,
    /// Refuse writes of its clients.
    #[serde(default)]
    pub readonly: bool,
    /// Writes of its clients are background writes, as write-back is.
    #[serde(default)]
    pub background: bool,
    /// Let clients write to a disk on which another one lies.
    #[serde(default)]
    pub shared: bool,
    /// Requests have to be multiples of so many bytes: a power of two up to 65536; as `[nbd]` says
    /// without it, and 1 if that says nothing.
    #[serde(default, deserialize_with = "minimum_block")]
    pub minimum_block: Option<u32>,
    /// Priority class of its clients' I/O.
    #[serde(default)]
    pub class: PrioClass,
    /// Level within the class, 0 (best) to 7.
    #[serde(default, deserialize_with = "level")]
    pub level: Option<i64>,
    /// Whether a thread that serves its clients and has nothing to do polls before it sleeps; as
    /// `[host]` says without it.
    #[serde(default, deserialize_with = "mode_of_export")]
    pub poll: Option<Poll>,
    /// The part of its time that such a thread may poll if that is `adaptive`, percent.
    #[serde(default, deserialize_with = "share_of_export")]
    pub poll_share: Option<u8>,
    /// The only addresses it is served at; without any it is served at those of `[nbd]`.
    #[serde(default, deserialize_with = "addresses")]
    pub listen: Vec<Listen>,
    /// The clients that may use it.
    #[serde(default)]
    pub allow: Allow,
    /// Where on the disk it begins, bytes.
    #[serde(default, deserialize_with = "place")]
    pub offset: u64,
    /// How long it is, bytes; without it it ends where the disk does.
    #[serde(default, deserialize_with = "size")]
    pub size: Option<NonZeroU64>,
}

/// A priority class by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrioClass {
    /// Not set; counts as best-effort level 4.
    #[default]
    None,
    /// Always first.
    RealTime,
    /// The ordinary class.
    BestEffort,
    /// Served only while no other class wants the disk.
    Idle,
}

impl Export {
    /// The export of a disk that no other names: writable, at all addresses, for all clients.
    fn implicit(disk: &str) -> Export {
        let (name, disk) = (String::from(disk), String::from(disk));
        let (group, readonly, shared, background) = (None, false, false, false);
        let (class, level, listen) = (PrioClass::None, None, Vec::new());
        let (poll, poll_share) = (None, None);
        let (allow, minimum_block, offset, size) = (Allow::default(), None, 0, None);
        Export {
            name,
            disk,
            group,
            readonly,
            background,
            shared,
            minimum_block,
            class,
            level,
            poll,
            poll_share,
            listen,
            allow,
            offset,
            size,
        }
    }

    /// That of this disk, with the class and the rule of polling that it states.
    fn of_disk(disk: &Disk) -> Export {
        let Disk { class, level, poll, poll_share, .. } = *disk;
        let group = disk.group();
        Export { group, class, level, poll, poll_share, ..Export::implicit(&disk.name) }
    }

    /// Whether it is what a disk has that no export names and that states no class for its clients.
    #[must_use]
    pub fn is_implicit(&self) -> bool {
        self.name == self.disk && self.is_same_but_for_polling(&Export::implicit(&self.disk))
    }

    /// The priority its clients' I/O carries.
    #[must_use]
    pub fn ioprio(&self) -> IoPrio {
        // A checked configuration has no other level.
        let level = self.level.and_then(|level| u8::try_from(level).ok()).unwrap_or(4);
        match self.class {
            PrioClass::None => IoPrio::NONE,
            PrioClass::RealTime => IoPrio::new(Class::RealTime, level),
            PrioClass::BestEffort => IoPrio::new(Class::BestEffort, level),
            PrioClass::Idle => IoPrio::new(Class::Idle, level),
        }
    }
}

impl Disk {
    /// A disk with a target.
    #[must_use]
    pub fn new(name: &str, target: &str) -> Disk {
        Disk { name: String::from(name), target: String::from(target), ..Disk::default() }
    }

    /// Whether it states caps.
    fn is_capped(&self) -> bool {
        self.riops.or(self.wiops).or(self.rbps).or(self.wbps).is_some() || self.burst.is_some()
    }

    /// The group of its clients: with caps one of its own, below the one that is stated.
    fn group(&self) -> Option<String> {
        match (&self.group, self.is_capped()) {
            (group, false) => group.clone(),
            (None, true) => Some(self.name.clone()),
            (Some(above), true) => Some(format!("{above}/{}", self.name)),
        }
    }

    /// The group that its caps make.
    fn own_group(&self) -> Option<Group> {
        let path = self.group().filter(|_| self.is_capped())?;
        let Disk { riops, wiops, rbps, wbps, burst, .. } = *self;
        Some(Group { path, weight: None, riops, wiops, rbps, wbps, burst })
    }

    /// The first key that it states of its clients.
    fn stated_of_clients(&self) -> Option<&'static str> {
        let keys = [
            ("group", self.group.is_some()),
            ("class", self.class != PrioClass::None),
            ("level", self.level.is_some()),
            ("poll", self.poll.is_some()),
            ("poll_share", self.poll_share.is_some()),
            ("riops", self.riops.is_some()),
            ("wiops", self.wiops.is_some()),
            ("rbps", self.rbps.is_some()),
            ("wbps", self.wbps.is_some()),
            ("burst", self.burst.is_some()),
        ];
        keys.into_iter().find(|(_, is_stated)| *is_stated).map(|(key, _)| key)
    }

    /// Its target, which a table is made into.
    #[must_use]
    pub fn target(&self) -> String {
        match &self.table {
            None => self.target.clone(),
            Some(table) => format!("table:{}", table.replace('\\', r"\\").replace(',', r"\,")),
        }
    }

    fn check(&self) -> Result<(), String> {
        match (self.target.is_empty(), &self.table) {
            (false, None) | (true, Some(_)) => Ok(()),
            (true, None) => Err(format!("disk {:?} has neither target nor table", self.name)),
            (false, Some(_)) => Err(format!("disk {:?} has both target and table", self.name)),
        }
    }
}

impl Config {
    /// Reads a file, in which these fronts may have sections.
    ///
    /// # Errors
    /// The file's name, and the line and reason.
    pub fn read(path: &Path, fronts: &[&str]) -> Result<Config, ConfigError> {
        let mut source = Source { path: Some(path.into()), text: String::new() };
        source.text = std::fs::read_to_string(path).map_err(|error| source.named(&error))?;
        Config::of(source, fronts)
    }

    /// Parses and checks what a file had in it when it was [read](Config::read).
    ///
    /// # Errors
    /// The file's name, and the line and reason.
    pub fn of_text(path: &Path, text: String, fronts: &[&str]) -> Result<Config, ConfigError> {
        Config::of(Source { path: Some(path.into()), text }, fronts)
    }

    /// The text it was read from; empty if there was none.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.source.text
    }

    /// Parses and checks the text of a file, in which these fronts may have sections.
    ///
    /// # Errors
    /// The line and reason.
    pub fn parse(text: &str, fronts: &[&str]) -> Result<Config, ConfigError> {
        Config::of(Source { path: None, text: String::from(text) }, fronts)
    }

    fn of(source: Source, fronts: &[&str]) -> Result<Config, ConfigError> {
        let known: Vec<&str> = KEYS.iter().chain(fronts).copied().collect();
        section::check(&source.text, &known).map_err(|error| source.fault(&error))?;
        let config = toml::from_str(&source.text).map_err(|error| source.fault(&error))?;
        let mut config = Config { source, ..config };
        config.add_groups_of_disks()?;
        config.check().map_err(|error| config.source.named(&error))?;
        Ok(config)
    }

    /// Adds the groups that caps of disks make.
    fn add_groups_of_disks(&mut self) -> Result<(), ConfigError> {
        for disk in &self.disk {
            let exports = self.export.iter().find(|export| export.disk == disk.name);
            if let (Some(key), Some(export)) = (disk.stated_of_clients(), exports) {
                let group = match key {
                    "poll" | "poll_share" => "",
                    _ => ", or for a group that is stated there",
                };
                let what = format!(
                    "{key} is for the clients of its own export, and it has none beside export \
                     {:?}: state it there{group}",
                    export.name
                );
                return Err(self.fault_of_disk(&disk.name, &what));
            }
            let stated = |path: &String| self.group.iter().any(|group| group.path == *path);
            if let Some(above) = disk.group.as_ref().filter(|above| !stated(above)) {
                let known: Vec<_> = self.group.iter().map(|group| group.path.as_str()).collect();
                let what = format!("group={above:?} is no group; groups: {}", known.join(", "));
                return Err(self.fault_of_disk(&disk.name, &what));
            }
            if let Some(own) = disk.own_group().filter(|own| stated(&own.path)) {
                let what = format!(
                    "its caps make the group {:?}, which is stated: state them there",
                    own.path
                );
                return Err(self.fault_of_disk(&disk.name, &what));
            }
        }
        self.group.extend(self.disk.iter().filter_map(Disk::own_group));
        Ok(())
    }

    /// The section of a front, which has its defaults where the file has none.
    ///
    /// # Errors
    /// The file's name, and the line and reason.
    pub fn section<T: Default + DeserializeOwned>(&self, name: &str) -> Result<T, ConfigError> {
        let read = section::read(&self.source.text, name);
        Ok(read.map_err(|error| self.source.fault(&error))?.unwrap_or_default())
    }

    /// Says which disks lie on which: each pair is a leg and the disk above. A leg has no export
    /// that nothing asks for, and is written to beside the disk above only if that is asked for.
    ///
    /// # Errors
    /// An export that lets clients write to a leg.
    pub fn lie(&mut self, pairs: Vec<(String, String)>) -> Result<(), ConfigError> {
        self.legs = pairs.into_iter().collect();
        for export in self.export.iter().filter(|export| !export.readonly && !export.shared) {
            if let Some(above) = self.legs.get(&export.disk) {
                let (name, disk) = (&export.name, &export.disk);
                return Err(self.source.named(&format!(
                    "export {name:?} would write to disk {disk:?}, on which disk {above:?} lies: \
                     state readonly = true, or shared = true"
                )));
            }
        }
        Ok(())
    }

    /// A fault of a disk, with its line if it stands in the file.
    #[must_use]
    pub fn fault_of_disk(&self, name: &str, what: &str) -> ConfigError {
        let what = format!("disk {name:?}: {what}");
        match section::line_of("disk", &self.source.text, name) {
            Some(line) => self.source.named(&format!("line {line}: {what}")),
            None => ConfigError(what),
        }
    }

    /// Holds names and references against each other.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut disks = BTreeSet::new();
        for disk in &self.disk {
            check_name("disk", &disk.name)?;
            if !disks.insert(disk.name.as_str()) {
                return Err(ConfigError(format!("disk {:?} is given twice", disk.name)));
            }
            disk.check().map_err(ConfigError)?;
        }
        self.check_pools()?;
        for export in &self.export {
            check_export_name(&export.name)?;
            if !disks.contains(export.disk.as_str()) {
                let known: Vec<_> = disks.iter().copied().collect();
                return Err(ConfigError(format!(
                    "export {:?} names disk {:?}; disks: {}",
                    export.name,
                    export.disk,
                    known.join(", ")
                )));
            }
            if let Some(path) = &export.group
                && !self.group.iter().any(|group| group.path == *path)
            {
                let known: Vec<_> = self.group.iter().map(|group| group.path.as_str()).collect();
                return Err(ConfigError(format!(
                    "export {:?} names group {path:?}; groups: {}",
                    export.name,
                    known.join(", ")
                )));
            }
            if let Some(level) = export.level.filter(|level| !(0..=7).contains(level)) {
                let name = &export.name;
                return Err(ConfigError(format!(
                    "level={level} of export {name:?} is outside 0..=7"
                )));
            }
        }
        let mut names = BTreeSet::new();
        let all = self.exports();
        if let Some(export) = all.iter().find(|export| !names.insert(&export.name)) {
            let why = "the name of a disk without an export is that of its own";
            return Err(ConfigError(format!("export {:?} is given twice; {why}", export.name)));
        }
        let mut paths = BTreeSet::new();
        if let Some(group) = self.group.iter().find(|group| !paths.insert(&group.path)) {
            return Err(ConfigError(format!("group {:?} is given twice", group.path)));
        }
        self.groups().map(drop)
    }

    /// Holds pools and the disks that name them against each other.
    fn check_pools(&self) -> Result<(), ConfigError> {
        let mut names = BTreeSet::new();
        for pool in &self.pool {
            check_name("pool", &pool.name)?;
            let name = &pool.name;
            if !names.insert(name.as_str()) {
                return Err(ConfigError(format!("pool {name:?} is given twice")));
            }
            if self.disk.iter().any(|disk| disk.name == *name) {
                return Err(ConfigError(format!("{name:?} is the name of a pool and of a disk")));
            }
            if !self.disk.iter().any(|disk| disk.pool.as_ref() == Some(name)) {
                return Err(ConfigError(format!(
                    "pool {name:?} has no disk: a [[disk]] is in it by pool = {name:?}"
                )));
            }
        }
        for disk in &self.disk {
            let Some(pool) = disk.pool.as_deref().filter(|pool| !names.contains(pool)) else {
                continue;
            };
            let known: Vec<&str> = names.iter().copied().collect();
            let what = format!("pool={pool:?} is no pool; pools: {}", known.join(", "));
            return Err(self.fault_of_disk(&disk.name, &what));
        }
        Ok(())
    }

    /// A fault of a pool, with its line if it stands in the file.
    #[must_use]
    pub fn fault_of_pool(&self, name: &str, what: &str) -> ConfigError {
        let what = format!("pool {name:?}: {what}");
        match section::line_of("pool", &self.source.text, name) {
            Some(line) => self.source.named(&format!("line {line}: {what}")),
            None => ConfigError(what),
        }
    }

    /// Everything that is exported, by disk: what names the disk, or the disk itself if nothing
    /// does and no other lies on it. A disk that was exported read-only or to a few has no other
    /// way in beside.
    #[must_use]
    pub fn exports(&self) -> Vec<Export> {
        let mut stated: BTreeMap<&str, Vec<Export>> = BTreeMap::new();
        for export in &self.export {
            stated.entry(&export.disk).or_default().push(export.clone());
        }
        let of_disk = |disk: &Disk| {
            let named = stated.remove(disk.name.as_str()).unwrap_or_default();
            if named.is_empty() && self.legs.contains_key(&disk.name) {
                return named;
            }
            if named.is_empty() { vec![Export::of_disk(disk)] } else { named }
        };
        self.disk.iter().flat_map(of_disk).collect()
    }

    /// The groups, with their weights and caps.
    ///
    /// # Errors
    /// A path that is none, or a value outside its bound, with the group's path.
    pub fn groups(&self) -> Result<Arc<Groups>, ConfigError> {
        let groups = Groups::default();
        for group in &self.group {
            group
                .add_to(&groups)
                .map_err(|why| ConfigError(format!("group {:?}: {why}", group.path)))?;
        }
        Ok(Arc::new(groups))
    }
}

/// A disk's name becomes a directory of the tree and an export.
///
/// # Errors
/// The name and what it must be.
pub fn check_name(what: &str, name: &str) -> Result<(), ConfigError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 32 || name.starts_with('.') || !name.chars().all(plain) {
        return Err(ConfigError(format!(
            "{what} name {name:?} is not 1 to 32 letters, digits, '-', '_' or '.'"
        )));
    }
    Ok(())
}

fn check_export_name(name: &str) -> Result<(), ConfigError> {
    if name.is_empty() || name.len() > 4096 || name.contains('\0') {
        return Err(ConfigError(format!(
            "export name {name:?} is not 1 to 4096 bytes without NUL"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weir_queue::Caps;

    use super::*;

    const FRONTS: [&str; 2] = ["fuse", "nbd"];

    const GOOD: &str = r#"kernel_cmdline = "elevator=deadline"
[nbd]
listen = ["unix:/run/weir/nbd.sock"]
[[disk]]
name = "sda"
target = "ram:1G"
[[export]]
name = "a"
disk = "sda"
class = "best-effort"
level = 2
readonly = true
group = "tenants/a"
[[group]]
path = "tenants/a"
weight = 300
riops = 500
burst = 0.5
"#;

    fn error(text: &str) -> String {
        Config::parse(text, &FRONTS).unwrap_err().to_string()
    }

    #[test]
    fn a_full_file_is_understood() {
        let config = Config::parse(GOOD, &FRONTS).unwrap();
        assert_eq!(config.kernel_cmdline.as_deref(), Some("elevator=deadline"));
        assert_eq!(config.disk[0].target, "ram:1G");
        assert_eq!(config.export[0].ioprio(), IoPrio::new(Class::BestEffort, 2));
        assert!(config.export[0].readonly);
        let groups = config.groups().unwrap().all();
        assert_eq!(groups[2].path, "tenants/a");
        assert_eq!((groups[2].weight, groups[2].caps.burst_ns), (300, 500_000_000));
        assert_eq!((groups[1].weight, groups[1].caps), (100, Caps::default()), "made on the way");
    }

    #[test]
    fn a_minimum_block_is_a_power_of_two_that_the_protocol_knows() {
        let with = |value: &str| GOOD.replace("level = 2", &format!("minimum_block = {value}"));
        for (text, bytes) in [("1", 1), ("512", 512), ("65536", 65536)] {
            let config = Config::parse(&with(text), &FRONTS).unwrap();
            assert_eq!(config.export[0].minimum_block, Some(bytes));
            assert_eq!(parse_minimum_block(text), Ok(bytes));
        }
        for text in ["0", "3", "-1", "131072", "4294967296"] {
            let told = format!("minimum_block={text} is no power of two in 1..=65536");
            assert_eq!(error(&with(text)), format!("line 11: {told}"));
            assert_eq!(parse_minimum_block(text), Err(told));
        }
    }

    #[test]
    fn groups_are_held_to_their_bounds() {
        for (from, to, told) in [
            ("weight = 300", "weight = 1001", "line 16: weight=1001 is outside 1..=1000"),
            ("weight = 300", "weight = 70000", "line 16: weight=70000"),
            ("weight = 300", "weight = \"heavy\"", "line 16: invalid type: string \"heavy\""),
            ("burst = 0.5", "burst = -1.0", "line 18: burst=-1 is outside 0..=3600"),
            ("riops = 500", "riops = 0", "line 17: invalid value: integer `0`"),
            ("path = \"tenants/a\"", "path = \"tenants/b\"", "names group \"tenants/a\""),
            ("path = \"tenants/a\"", "path = \"a//b\"", "groups: a//b"),
        ] {
            let error = error(&GOOD.replace(from, to));
            assert!(error.contains(told), "{to}: {error}");
        }
    }

    #[test]
    fn bytes_a_second_are_a_number_or_a_size() {
        let of = |value: &str| GOOD.replace("riops = 500", &format!("wbps = {value}"));
        for (value, bytes) in [("1000", 1000), ("\"50MiB\"", 50 << 20), ("\"7\"", 7)] {
            let config = Config::parse(&of(value), &FRONTS).expect("a rate");
            assert_eq!(config.group[0].wbps.map(NonZeroU64::get), Some(bytes), "{value}");
        }
        for (value, told) in [
            ("0", "line 17: invalid value: integer `0`, expected bytes a second from 1 on, or a"),
            ("-5", "line 17: invalid value: integer `-5`"),
            ("\"0k\"", "line 17: invalid value: string \"0k\""),
            ("\"fast\"", "line 17: \"fast\" is not a size: digits with k, M, G or T"),
            ("\"9000000000G\"", "line 17: size \"9000000000G\" is above"),
            ("1.5", "line 17: invalid type: floating point `1.5`"),
        ] {
            let error = error(&of(value));
            assert!(error.starts_with(told), "{value}: {error}");
        }
    }

    #[test]
    fn the_class_of_a_disk_is_that_of_its_own_export() {
        let disk = |keys: &str| {
            format!(
                "[[disk]]\nname = \"vm1\"\ntarget = \"ram:1M\"\n{keys}\n[[group]]\npath = \"vms\"\n"
            )
        };
        let parse = |keys: &str| Config::parse(&disk(keys), &FRONTS).expect("a file");
        let of = |keys: &str| parse(keys).exports().remove(0);
        let plain = of("");
        assert!(plain.is_implicit() && plain.group.is_none());
        let classed = of("group = \"vms\"\nclass = \"real-time\"\nlevel = 1");
        assert_eq!(classed.ioprio(), IoPrio::new(Class::RealTime, 1));
        assert_eq!((classed.group.as_deref(), classed.is_implicit()), (Some("vms"), false));
        let groups = parse("wbps = \"1MiB\"\nburst = 2.0").groups().expect("groups").all();
        let own = groups.iter().find(|group| group.path == "vm1").expect("a group of its own");
        assert_eq!(own.caps.wbps.map(NonZeroU64::get), Some(1 << 20));
        assert_eq!(own.caps.burst_ns, 2_000_000_000);
        assert_eq!(of("riops = 5").group.as_deref(), Some("vm1"));
        assert_eq!(of("riops = 5\ngroup = \"vms\"").group.as_deref(), Some("vms/vm1"));
        let with = |export: &str, keys: &str| error(&format!("{}{export}", disk(keys)));
        let export = "[[export]]\nname = \"a\"\ndisk = \"vm1\"\n";
        for (said, told) in [
            (with(export, "level = 1"), "line 2: disk \"vm1\": level is for the clients of its"),
            (
                with("", "group = \"x\""),
                "line 2: disk \"vm1\": group=\"x\" is no group; groups: vms",
            ),
            (
                with("[[group]]\npath = \"vm1\"\n", "riops = 5"),
                "line 2: disk \"vm1\": its caps make the group \"vm1\", which is stated",
            ),
            (with("", "level = 8"), "line 4: level=8 is outside 0..=7"),
            (with("", "burst = 4000.0"), "line 4: burst=4000 is outside 0..=3600"),
        ] {
            assert!(said.starts_with(told), "{said}");
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let text = GOOD.replace("readonly = true", "read_only = true");
        assert!(error(&text).starts_with("line 12: unknown field `read_only`"), "{}", error(&text));
        let text = format!("{GOOD}\n[frob]\n");
        assert_eq!(
            error(&text),
            "line 20: unknown field `frob`, expected one of `kernel_cmdline`, `disk`, `export`, \
             `group`, `pool`, `metrics`, `host`, `fuse`, `nbd`"
        );
    }

    #[test]
    fn a_front_finds_its_section_with_the_lines_of_the_file() {
        #[derive(Debug, Default, PartialEq, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        struct Nbd {
            listen: Vec<String>,
        }
        let config = Config::parse(GOOD, &FRONTS).unwrap();
        let nbd: Nbd = config.section("nbd").unwrap();
        assert_eq!(nbd.listen, ["unix:/run/weir/nbd.sock"]);
        assert_eq!(config.section::<Nbd>("fuse").unwrap(), Nbd::default(), "there is none");
        let text = GOOD.replace("listen =", "frob =");
        let config = Config::parse(&text, &FRONTS).expect("not its own section");
        let told = config.section::<Nbd>("nbd").unwrap_err().to_string();
        assert_eq!(told, "line 3: unknown field `frob`, expected `listen`");
    }

    #[test]
    fn a_disk_with_exports_of_its_own_has_no_other() {
        let names = |text: &str| {
            let exports = Config::parse(text, &FRONTS).expect("a file").exports();
            exports.into_iter().map(|export| (export.name, export.readonly)).collect::<Vec<_>>()
        };
        let of = |name: &str, readonly| (String::from(name), readonly);
        assert_eq!(names(GOOD), [of("a", true)]);
        let second = "[[disk]]\nname = \"sdb\"\ntarget = \"ram:1G\"\n";
        // In the order of the disks: the default is the first disk's.
        let more = "[[export]]\nname = \"sda\"\ndisk = \"sda\"\n";
        let all = names(&format!("{GOOD}{second}{more}"));
        assert_eq!(all, [of("a", true), of("sda", false), of("sdb", false)]);
        let other = more.replace("disk = \"sda\"", "disk = \"sdb\"");
        assert_eq!(names(&format!("{GOOD}{second}{other}")), [of("a", true), of("sda", false)]);
        let twice = format!("{GOOD}{second}{}", other.replace("\"sda\"", "\"a\""));
        assert!(error(&twice).contains("export \"a\" is given twice"), "{}", error(&twice));
        let beside = format!("{GOOD}{second}{}", more.replace("name = \"sda\"", "name = \"sdb\""));
        assert!(error(&beside).contains("export \"sdb\" is given twice"), "{}", error(&beside));
    }

    #[test]
    fn addresses_and_lists_of_clients_are_refused_with_their_line() {
        for (from, to, told) in [
            ("level = 2", "allow = []", "line 11: allow=[] lets nobody in"),
            ("level = 2", "allow = [\"10.0.0.1/8\"]", "line 11: allow=10.0.0.1/8"),
            ("level = 2", "listen = []", "line 11: listen=[] serves the export nowhere"),
            ("level = 2", "listen = [\"unix:\"]", "line 11: address \"unix:\" has no path"),
        ] {
            let error = error(&GOOD.replace(from, to));
            assert!(error.starts_with(told), "{to}: {error}");
        }
    }

    #[test]
    fn names_and_references_are_held_against_each_other() {
        let twice = format!("{GOOD}\n[[disk]]\nname = \"sda\"\ntarget = \"ram:1G\"\n");
        assert!(error(&twice).contains("\"sda\" is given twice"));
        let unknown = GOOD.replace("disk = \"sda\"", "disk = \"sdb\"");
        assert!(error(&unknown).contains("names disk \"sdb\"; disks: sda"));
        let bad = GOOD.replace("name = \"sda\"", "name = \"../x\"");
        assert!(error(&bad).contains("\"../x\""));
        let level = GOOD.replace("level = 2", "level = 9");
        assert_eq!(error(&level), "line 11: level=9 is outside 0..=7");
    }
}
