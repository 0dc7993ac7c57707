//! Targets made piece by piece: what stands in a piece is never read as an option, and a path needs
//! no text.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use weir_queue::{
    Backing, Config, Driver, DriverError, Identity, Keeps, OpenedBacking, Schedulers, TargetKind,
    Written,
};

use super::{Target, kind_error};
use crate::drivers::{file, kind_of};
use crate::open::Error;

impl Target {
    /// A file or a block device; see `file:` in docs/targets.md. The path may have any bytes.
    ///
    /// ```
    /// use weir::{Disk, Target};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = std::env::temp_dir().join(format!("weir-target-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// let target = Target::file(folder.join("a,size=1M")).with("size", "8MiB")?;
    /// let disk = Disk::builder(target.with("scheduler", "mq-deadline")?).open()?;
    /// assert_eq!(disk.size(), 8 << 20);
    /// # disk.close()?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn file(path: impl Into<PathBuf>) -> Target {
        Target::over(file(path.into()))
    }

    /// A driver of the program's own.
    #[must_use]
    pub fn driver(driver: Arc<dyn Driver>) -> Target {
        Target::over(Box::new(OwnDriver(driver)))
    }

    /// The target of a kind, as in `Target::of("nbd+unix", "/run/a,b.sock?disk")`: the text behind
    /// the colon, in which commas and backslashes are what they are.
    ///
    /// # Errors
    /// A kind that there is not, or the part of the text that is wrong.
    pub fn of(kind: &str, rest: &str) -> Result<Target, Error> {
        let text = format!("{kind}:{rest}");
        let known = kind_of(kind).ok_or_else(|| Error::new(kind_error(&super::shown(&text))))?;
        let shown = super::shown(&text);
        let written = Written { name: kind, rest, text: &shown };
        Ok(Target::over((known.parse)(&written).map_err(Error::new)?))
    }

    /// The same with an option more, as `,NAME=VALUE` in a target string; the value is taken as it
    /// is. Options of every target, a [driver](Target::driver) of the program's own too:
    ///
    /// | option | value | default |
    /// |---|---|---|
    /// | `queue_mode` | `sq`, `mq` | `mq` |
    /// | `queues` | hard queues, 1 to 64 | one for each reactor |
    /// | `spread` | `submitter`, `round-robin` | `submitter` |
    /// | `scheduler` | a name, as `none`, `mq-deadline`, `kyber`, `bfq` | as Linux picks |
    /// | `compat` | the release whose behaviour the scheduler has | `6.18` |
    /// | `nr_requests` | requests that the queue holds, 4 to 2048 | as the scheduler says |
    /// | `nomerges` | 0 merges, 1 only what is cheap to find, 2 never | 0 |
    /// | `wbt_lat_usec` | latency of reads that throttles writes, us; 0: none | 2000, or 75000 |
    /// | `max_sectors_kb` | largest request, KiB | the driver's, at most 4096 |
    /// | `io_timeout` | time of a request for its answer, ms | 30000 |
    /// | `rotational` | 0, 1 | the driver's |
    /// | `logical_block_size` | smallest unit, bytes, 512 to 4096 | the driver's |
    /// | `physical_block_size` | unit written without reading first, bytes | the driver's |
    /// | `barriers` | `off` gives durability up | `on` |
    /// | `readonly` | `on`, `off` | `off` |
    /// | `kernel_cmdline` | boot parameters for this disk | none |
    ///
    /// # Errors
    /// An option that such a target does not have, or a value outside its bound.
    pub fn with(mut self, option: &str, value: impl fmt::Display) -> Result<Target, Error> {
        if option.contains('=') {
            let what = format!("option {option:?}: a name has no `=`, the value stands beside it");
            return Err(Error::new(what));
        }
        self.apply(&format!("{option}={value}")).map_err(Error::new)?;
        Ok(self)
    }

    /// The same for a disk that may have these schedulers of the program's own:
    /// `with("scheduler", NAME)` chooses one.
    #[must_use]
    pub fn schedulers(mut self, own: Schedulers) -> Target {
        self.config.schedulers = own;
        self
    }

    /// The target, held against itself as a parsed one is.
    pub(crate) fn checked(self) -> Result<Target, Error> {
        let kind = self.backing.kind().names[0];
        self.check(kind).map_err(Error::new)?;
        Ok(self)
    }
}

/// The kind of [`Target::driver`], which no text can name.
static OWN_DRIVER: TargetKind = TargetKind {
    names: &["driver"],
    syntax: &["a driver of the program's own"],
    example: "",
    doc: "A driver of the program that opens the disk.",
    options: &[],
    parse: |written| Err(format!("target {:?}: a driver of a program has no text", written.text)),
};

#[derive(Clone)]
struct OwnDriver(Arc<dyn Driver>);

impl fmt::Debug for OwnDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnDriver({:p})", Arc::as_ptr(&self.0))
    }
}

impl Backing for OwnDriver {
    fn kind(&self) -> &'static TargetKind {
        &OWN_DRIVER
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        Err(format!("{option}={value}: a driver of the program's own has no options"))
    }

    fn open(&self, _config: &Config) -> Result<OpenedBacking, DriverError> {
        Ok(OpenedBacking::over(Arc::clone(&self.0)))
    }

    fn queues(&self, driver: &dyn Driver, homes: u16) -> u16 {
        // Heads move for one request at a time.
        if driver.limits().rotational { 1 } else { homes.clamp(1, driver.queues().max.max(1)) }
    }

    fn identity(&self) -> Identity {
        Identity::Own
    }

    fn settings(&self) -> String {
        format!("{self:?}")
    }

    fn keeps(&self) -> Keeps {
        Keeps::Flushed
    }

    fn boxed(&self) -> Box<dyn Backing> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;

    fn error(made: Result<Target, Error>) -> String {
        made.unwrap_err().to_string()
    }

    #[test]
    fn what_stands_in_a_piece_is_no_option_and_a_path_may_have_any_bytes() {
        let path = Path::new(OsStr::from_bytes(b"/a,readonly,size=1\xff\\"));
        let target = Target::file(path).with("size", "1MiB").unwrap();
        assert_eq!(target.backing.path(), Some(path));
        assert!(!target.config.read_only);
        let socket = Target::of("nbd+unix", "/a,readonly?b,c").unwrap();
        assert!(format!("{:?}", socket.backing).contains("/a,readonly"), "{:?}", socket.backing);
        assert!(!socket.config.read_only);
        let line = target.with("kernel_cmdline", "a=\"b,c\" elevator=noop").unwrap();
        assert_eq!(line.cmdline.elevator.as_deref(), Some("noop"));
    }

    #[test]
    fn a_target_that_is_made_is_the_one_that_is_parsed() {
        let parsed = Target::parse("ram:8MiB,queues=2,scheduler=bfq,slice_idle=0").unwrap();
        let made = Target::of("ram", "8MiB").unwrap().with("queues", 2).unwrap();
        let made = made.with("scheduler", "bfq").unwrap().with("slice_idle", 0).unwrap();
        assert_eq!(format!("{made:?}"), format!("{parsed:?}"));
        let parsed = Target::parse("file:/a").unwrap();
        assert_eq!(format!("{:?}", Target::file("/a")), format!("{parsed:?}"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_bound() {
        let ram = || Target::of("ram", "8MiB").unwrap();
        assert!(error(Target::of("rom", "8MiB")).contains("\"rom:8MiB\" does not start with"));
        assert!(error(Target::of("ram", "8,readonly")).contains("8,readonly"));
        assert!(error(ram().with("queues", 65)).contains("queues=65 is not a number in 1..=64"));
        assert!(
            error(ram().with("size", "1M")).contains("unknown option \"size\" of a ram target")
        );
        assert!(error(ram().with("queues=2,x", 1)).contains("a name has no `=`"));
        let both = ram().with("queues", 2).unwrap().with("queue_mode", "sq").unwrap();
        assert!(error(both.checked()).contains("queues=2 in \"ram\": queue_mode=sq has 1"));
    }
}
