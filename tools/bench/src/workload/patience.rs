//! How long schedulers let I/O wait: what a run does not see that is shorter than that.

use std::time::Duration;

use weir::Device;
use weir_sched::Unit;

/// The tunables that bound how long an I/O may be passed over, and of which direction it is; `None`
/// for either.
const DEADLINES: [(&str, Option<usize>); 7] = [
    ("read_expire", Some(0)),
    ("write_expire", Some(1)),
    ("fifo_expire_sync", None),
    ("fifo_expire_async", Some(1)),
    ("read_lat_nsec", Some(0)),
    ("write_lat_nsec", Some(1)),
    ("timeout_sync", None),
];

/// What a run of this length does not see of the scheduler of a device: its deadlines that are
/// longer. `does` says of reads and writes whether there are any.
pub(crate) fn unseen(
    name: &str,
    device: &Device,
    does: [bool; 2],
    window: Duration,
) -> Option<String> {
    let table = device.tunables();
    let longer = DEADLINES.iter().filter_map(|(tunable, direction)| {
        let unit = table.iter().find(|known| known.name == *tunable)?.unit;
        let value = device.tunable(tunable).ok()?.trim().parse::<u64>().ok()?;
        let time = time(value, unit)?;
        let concerns = direction.map_or(does[0] || does[1], |direction| does[direction]);
        (concerns && time > window).then_some((*tunable, time))
    });
    let (tunable, time) = longer.max_by_key(|(_, time)| *time)?;
    let (scheduler, what) = (device.scheduler(), waiting(tunable));
    Some(format!(
        "{name}: {scheduler} may let {what} wait for {time:?} ({tunable}), and {window:?} are \
         measured: --runtime says how long"
    ))
}

fn waiting(tunable: &str) -> &'static str {
    let direction = DEADLINES.iter().find(|(name, _)| *name == tunable).and_then(|(_, d)| *d);
    match direction {
        Some(0) => "a read",
        Some(_) => "a write",
        None => "an I/O",
    }
}

fn time(value: u64, unit: Unit) -> Option<Duration> {
    match unit {
        Unit::Milliseconds => Some(Duration::from_millis(value)),
        Unit::Microseconds => Some(Duration::from_micros(value)),
        Unit::Nanoseconds => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir::Target;

    fn told(options: &str, does: [bool; 2], ms: u64) -> Option<String> {
        let target = Target::parse(&format!("null:1MiB,{options}")).expect("a target");
        let device = weir::open("bench", &target, 1).expect("it opens").device;
        unseen("null", &device, does, Duration::from_millis(ms))
    }

    #[test]
    fn a_run_that_is_shorter_than_a_deadline_says_which() {
        let both = [true, true];
        for deadline in ["queue_mode=sq,scheduler=deadline", "scheduler=mq-deadline"] {
            let said = told(deadline, both, 2000).expect("writes wait for 5 s");
            assert!(said.contains("let a write wait for 5s (write_expire), and 2s are"), "{said}");
            assert_eq!(told(deadline, [true, false], 2000), None, "nothing is written");
            assert_eq!(told(deadline, both, 5000), None);
            let short = format!("{deadline},write_expire=1000,read_expire=3000");
            let said = told(&short, both, 2000).expect("reads wait for 3 s");
            assert!(said.contains("a read wait for 3s (read_expire)"), "{said}");
        }
        for (scheduler, tunable) in [
            ("queue_mode=sq,scheduler=cfq", "fifo_expire"),
            ("scheduler=bfq", "fifo_expire"),
            ("scheduler=kyber", "lat_nsec"),
        ] {
            let said = told(scheduler, both, 1).expect("no run is as short");
            assert!(said.contains(tunable), "{said}");
            assert_eq!(told(scheduler, both, 2000), None, "{scheduler}");
        }
        assert_eq!(told("scheduler=none", both, 1), None);
    }
}
