//! Schedulers that a program brings itself, beside those of `weir-sched`'s list: they belong to the
//! configurations that name them, and to no other disk.

use std::fmt;
use std::sync::Arc;

use weir_sched::{Family, SCHEDULERS, Scheduler, Setup};

use crate::error::{Error, invalid};

/// Makes a scheduler for the device described, each time one is needed.
pub(crate) type Maker = Arc<dyn Fn(&Setup) -> Box<dyn Scheduler> + Send + Sync>;

/// Schedulers that a program brings itself. [`Config::scheduler`](crate::Config::scheduler) may
/// name one, and a device may be [switched](crate::Device::set_scheduler) to it.
///
/// A scheduler is called by the thread that holds its disk's right, with other lanes waiting for
/// it: it must not block, and one that panics takes the thread of its disk with it. The law suite
/// of `weir-sched` says what else is expected ([`Scheduler`] has the contract).
#[derive(Clone, Default)]
pub struct Schedulers(Vec<Own>);

#[derive(Clone)]
struct Own {
    name: &'static str,
    family: Family,
    make: Maker,
}

impl Schedulers {
    /// None.
    #[must_use]
    pub fn new() -> Schedulers {
        Schedulers::default()
    }

    /// These and one more, for a path. `make` is called for each device that has it, and again when
    /// its queues change; what it makes [calls itself](Scheduler::name) so.
    ///
    /// # Errors
    /// A name that is empty or taken, or that a list of names cannot show.
    pub fn with<F>(
        mut self,
        name: &'static str,
        family: Family,
        make: F,
    ) -> Result<Schedulers, Error>
    where
        F: Fn(&Setup) -> Box<dyn Scheduler> + Send + Sync + 'static,
    {
        let shown = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || !name.chars().all(shown) {
            return invalid(format!(
                "scheduler {name:?}: a name is letters, digits, dots, dashes and underscores"
            ));
        }
        // On either path whatever begins with `none` is no scheduler, as in Linux.
        let listed = SCHEDULERS.iter().any(|entry| entry.name == name);
        if listed || name.starts_with("none") || self.0.iter().any(|own| own.name == name) {
            return invalid(format!("scheduler {name}: the name is taken"));
        }
        self.0.push(Own { name, family, make: Arc::new(make) });
        Ok(self)
    }

    /// The names of a path's, in the order in which they came.
    pub fn names(&self, family: Family) -> impl Iterator<Item = &'static str> {
        self.0.iter().filter(move |own| own.family == family).map(|own| own.name)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// It is for the other path.
    pub(crate) fn find(
        &self,
        family: Family,
        name: &str,
    ) -> Result<Option<(&'static str, Maker)>, Error> {
        match self.0.iter().find(|own| own.name == name) {
            None => Ok(None),
            Some(own) if own.family == family => Ok(Some((own.name, Arc::clone(&own.make)))),
            Some(own) => {
                let path = match own.family {
                    Family::Legacy => "sq",
                    Family::Multi => "mq",
                };
                invalid(format!("scheduler {name} belongs to queue_mode={path}"))
            }
        }
    }
}

impl fmt::Debug for Schedulers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|own| own.name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn never(_: &Setup) -> Box<dyn Scheduler> {
        unreachable!("nothing is made here")
    }

    #[test]
    fn a_name_is_taken_once_and_of_the_list_never() {
        let mut own = Schedulers::new();
        for name in ["fifo", "a-b_c.1"] {
            own = own.with(name, Family::Multi, never).unwrap();
        }
        for (name, told) in [
            ("fifo", "scheduler fifo: the name is taken"),
            ("bfq", "scheduler bfq: the name is taken"),
            ("none", "scheduler none: the name is taken"),
            ("nonesuch", "scheduler nonesuch: the name is taken"),
            ("", "scheduler \"\": a name is letters"),
            ("a b", "scheduler \"a b\": a name is letters"),
            ("[x]", "scheduler \"[x]\": a name is letters"),
        ] {
            let error = own.clone().with(name, Family::Legacy, never).unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
        }
        assert_eq!(own.names(Family::Multi).collect::<Vec<_>>(), ["fifo", "a-b_c.1"]);
        assert_eq!(own.names(Family::Legacy).count(), 0);
        let error = own.find(Family::Legacy, "fifo").map(|_| ()).unwrap_err().to_string();
        assert_eq!(error, "scheduler fifo belongs to queue_mode=mq");
        assert!(own.find(Family::Legacy, "bfq").unwrap().is_none());
    }
}
