//! Targets are written before the first round, and not by the runs: each would find another disk.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir_bench::compare::Variant;
use weir_bench::workload::devices;
use weir_bench::workload::prepare::{Asked, persistent};
use weir_bench::workload::spec::{Prepare, RunSpec};

use crate::{Failure, log};

/// Prepares what the variants of each of these runs lie on, once each, and leaves memory to the
/// runs, which have some of their own. What was done is among the notes of every run.
pub(super) fn before_all<'a>(
    specs: &mut [RunSpec],
    variants: impl Iterator<Item = &'a [Variant]>,
    stop: &OwnedFd,
) -> Result<(), Failure> {
    let (interrupted, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let done = std::thread::scope(|scope| {
        scope.spawn(|| watch(stop, &interrupted, &over));
        let mut seen = BTreeSet::new();
        let mut done = Vec::new();
        let prepare = || -> Result<(), String> {
            for (spec, variants) in specs.iter().zip(variants) {
                for variant in variants {
                    let spec = variant.spec(spec).on(&variant.targets, &variant.redo, spec.seed);
                    if seen.insert(places(&spec)) {
                        let tell = |text: &str| log::say(&format!("weir: {text}"));
                        let asked = Asked { spec: &spec, interrupted: &interrupted, tell: &tell };
                        done.extend(persistent(&asked)?);
                    }
                }
            }
            Ok(())
        };
        let ended = prepare();
        over.store(true, Ordering::Release);
        ended.map(|()| done)
    })?;
    for spec in specs.iter_mut() {
        spec.notes.extend(done.iter().cloned());
        if spec.prepare != Prepare::No {
            spec.prepare = Prepare::Memory;
        }
    }
    Ok(())
}

/// What tells the places that a run touches from those of another: options of a target do not.
fn places(spec: &RunSpec) -> String {
    let place = |name: &String| match weir::Target::parse(name) {
        Ok(target) => {
            let leaves = devices::leaves(name, &target).into_iter();
            format!("{:?}", leaves.map(|(_, leaf)| leaf.backing.identity()).collect::<Vec<_>>())
        }
        Err(why) => format!("{name}: {why}"),
    };
    let mut spec = spec.clone();
    let shown = |targets: &[String]| targets.iter().map(place).collect::<Vec<_>>();
    if let weir_bench::workload::spec::Workload::Oltp(oltp) = &mut spec.workload {
        (oltp.data, oltp.redo) = (shown(&oltp.data), shown(&oltp.redo));
    }
    spec.target = spec.target.as_ref().map(place);
    format!("{:?} {:?}", spec.workload, spec.target)
}

/// Passes on the wish that it ends.
fn watch(stop: &OwnedFd, interrupted: &AtomicBool, over: &AtomicBool) {
    let pause = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while !over.load(Ordering::Acquire) {
        let mut fds = [PollFd::new(stop, PollFlags::IN)];
        if poll(&mut fds, Some(&pause)).is_ok_and(|ready| ready > 0) {
            return interrupted.store(true, Ordering::Release);
        }
    }
}
