//! After a crash of whatever was in the way: is every commit there that `oltp` acknowledged?

use std::path::Path;

use weir::{Disk, Session};
use weir_load::oltp::audit::{Audit, Found};
use weir_load::oltp::format::{BLOCK_BYTES, REDO_BYTES};

use crate::engine::commits::{self, Acknowledged, Run};
use crate::workload::devices::{self, Devices};
use crate::workload::groups::{self, Groups};

/// Bytes of redo read at once.
const PIECE: u64 = 1 << 20;

/// The findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Commits that were acknowledged.
    pub commits: u64,
    /// Of them, in the log.
    pub in_log: u64,
    /// Of them, below its checkpoint.
    pub checkpointed: u64,
    /// Data blocks that were looked at.
    pub blocks: u64,
}

/// Why there is no such answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Something that was acknowledged is not there.
    Commits(String),
    /// It could not be looked at.
    Unreadable(String),
}

/// Looks for every commit of the last run in `commits` on its targets: `data`, and `redo`, which
/// the file knows where it is not given.
///
/// # Errors
/// A lost commit, or a disk that could not be read.
pub fn check(data: &[String], redo: &[String], commits: &Path) -> Result<Checked, Lost> {
    let unreadable = |why: String| Lost::Unreadable(why);
    let name = commits.display();
    let text = std::fs::read_to_string(commits).map_err(|e| unreadable(format!("{name}: {e}")))?;
    let run = commits::read(&text).map_err(|why| unreadable(format!("{name}: {why}")))?;
    let redo = if redo.is_empty() { &run.redo } else { redo };
    let names = [data, redo].concat();
    let Devices { devices, of } = Devices::of_groups(&names).map_err(unreadable)?;
    let groups = Groups::of(data, redo, &of).map_err(unreadable)?;
    as_in_run(&run, &groups, [data, redo]).map_err(|why| unreadable(format!("{name}: {why}")))?;
    let numbered = devices.iter().enumerate();
    let open =
        |(number, (name, target)): (usize, &(String, _))| devices::open_known(number, name, target);
    let disks: Result<Vec<Disk>, String> = numbered.map(open).collect();
    let disks = disks.map_err(unreadable)?;
    let group = |members: &[usize]| {
        let group = groups::open_disk(members.iter().map(|disk| disks[*disk].clone()).collect());
        let session = group.and_then(|group| group.session().map_err(|e| e.to_string()));
        session.map_err(|why| {
            let names = members.iter().map(|disk| devices[*disk].0.as_str());
            unreadable(devices::of_group(&names.collect::<Vec<_>>(), members, &why))
        })
    };
    let mut data = group(&groups.data)?;
    let mut redo = match groups.is_shared() {
        // The disks of a group lie under one group only.
        true => None,
        false => Some(group(&groups.redo)?),
    };
    let mut sum = Checked { commits: 0, in_log: 0, checkpointed: 0, blocks: 0 };
    for (instance, acknowledged) in &run.instances {
        let audit = Audit::new(run.number, *instance, acknowledged.part.redo.bytes / REDO_BYTES);
        let (found, blocks) = check_one(audit, acknowledged, &mut data, redo.as_mut())?;
        sum.commits += acknowledged.commits.len() as u64;
        sum.in_log += found.in_log;
        sum.checkpointed += found.checkpointed;
        sum.blocks += blocks;
    }
    Ok(sum)
}

/// That these are the disks of the run, as far as that is known: what was a server's may be looked
/// at as a file, but as many in the same order.
fn as_in_run(run: &Run, groups: &Groups, given: [&[String]; 2]) -> Result<(), String> {
    if groups.is_shared() != run.redo.is_empty() {
        let (where_it_was, flag) = match run.redo.is_empty() {
            true => ("at the end of the data", "and --redo names another place"),
            false => ("on disks of its own", "and is not to be looked for there"),
        };
        return Err(format!("the redo of the run was {where_it_was}, {flag}"));
    }
    let own_redo = if run.redo.is_empty() { &[] } else { given[1] };
    for (what, flag, was, is) in
        [("data", "--target", &run.data, given[0]), ("redo", "--redo", &run.redo, own_redo)]
    {
        let names = was.join(" ");
        if was.len() != is.len() {
            let (was, is) = (was.len(), is.len());
            return Err(format!(
                "the {what} of the run was on {was} disks, {names}, and {flag} names {is}"
            ));
        }
        // Their names may differ, and so may their options.
        let (was, is) = (devices::places(was), devices::places(is));
        let elsewhere = |at: usize| was.iter().position(|known| *known == is[at]);
        if (0..is.len()).any(|at| elsewhere(at).is_some_and(|known| known != at)) {
            let why = "the disks of a group are told apart by their order";
            return Err(format!("the {what} of the run was on {names}, in this order: {why}"));
        }
    }
    of_own_group(run, [given[0], own_redo])
}

/// That no disk of the run's data is given as one of its redo, nor the other way round.
fn of_own_group(run: &Run, given: [&[String]; 2]) -> Result<(), String> {
    let was = [&run.data, &run.redo].map(|names| devices::places(names));
    let is = given.map(devices::places);
    for (own, other, flag, what) in [(0, 1, "--target", "redo"), (1, 0, "--redo", "data")] {
        let taken = |place| was[other].contains(place) && !was[own].contains(place);
        if let Some(at) = is[own].iter().position(taken) {
            return Err(format!("{flag} {}: the {what} of the run was there", given[own][at]));
        }
    }
    Ok(())
}

fn read_at(session: &mut Session, at: u64, bytes: &mut [u8]) -> Result<(), Lost> {
    session.read_at(at, bytes).map_err(|error| Lost::Unreadable(error.to_string()))
}

/// Of one instance; `redo` is where the redo has disks of its own.
fn check_one(
    mut audit: Audit,
    acknowledged: &Acknowledged,
    data: &mut Session,
    mut redo: Option<&mut Session>,
) -> Result<(Found, u64), Lost> {
    let range = acknowledged.part.redo;
    let mut bytes = vec![0; PIECE as usize];
    let (mut at, end) = (range.offset, range.offset + range.bytes);
    while at < end {
        let length = (end - at).min(PIECE);
        let piece = &mut bytes[..length as usize];
        read_at(redo.as_deref_mut().unwrap_or(data), at, piece)?;
        audit.take_redo((at - range.offset) / REDO_BYTES, piece);
        at += length;
    }
    let found = audit.verdict(&acknowledged.commits).map_err(Lost::Commits)?;
    let wanted = audit.wanted(&acknowledged.commits);
    let mut block = vec![0; BLOCK_BYTES as usize];
    for wanted in &wanted {
        let at = acknowledged.part.data.offset + wanted.block * BLOCK_BYTES;
        read_at(data, at, &mut block)?;
        audit.take_data(*wanted, &block).map_err(Lost::Commits)?;
    }
    Ok((found, wanted.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(data: &[&str], redo: &[&str]) -> Run {
        let [data, redo] = [data, redo].map(names);
        Run { number: 7, data, redo, ..Run::default() }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| String::from(*name)).collect()
    }

    fn refused(run: &Run, data: &[&str], redo: &[&str]) -> String {
        let [data, redo] = [data, redo].map(names);
        let of: Vec<usize> = (0..data.len() + redo.len()).collect();
        let groups = Groups::of(&data, &redo, &of).expect("groups");
        as_in_run(run, &groups, [&data, &redo]).err().unwrap_or_default()
    }

    #[test]
    fn disks_are_told_apart_by_where_they_are_and_not_by_what_they_are_called() {
        let was = ["file:Cargo.toml,size=1MiB", "file:src/lib.rs", "nbd+unix:/x?sda"];
        let was = run(&was, &[]);
        let same =
            ["file:src/../Cargo.toml", "file:./src/lib.rs,queues=2", "nbd+unix:///sda?socket=/x"];
        assert_eq!(refused(&was, &same, &[]), "");
        for turned in [[same[1], same[0], same[2]], [same[2], same[0], same[1]]] {
            let why = refused(&was, &turned, &[]);
            assert!(why.contains("in this order"), "{turned:?}: {why}");
        }
        // One that is a copy, and one that is not where it was.
        assert!(refused(&was, &["file:copy", same[0], same[2]], &[]).contains("in this order"));
    }

    #[test]
    fn other_disks_than_those_of_the_run_are_refused_before_anything_is_lost() {
        let apart = run(&["a", "b"], &["c", "d"]);
        assert_eq!(refused(&apart, &["a", "b"], &["c", "d"]), "");
        // The disks of a server, as its files.
        assert_eq!(refused(&apart, &["e", "f"], &["g", "h"]), "");
        let why = refused(&apart, &["a"], &["c", "d"]);
        assert_eq!(why, "the data of the run was on 2 disks, a b, and --target names 1");
        let why = refused(&apart, &["a", "b"], &["d", "c"]);
        assert!(why.starts_with("the redo of the run was on c d, in this order"), "{why}");
        let why = refused(&apart, &["c", "b"], &["a", "d"]);
        assert_eq!(why, "--target c: the redo of the run was there");
        assert!(refused(&apart, &["a", "b"], &[]).contains("was on disks of its own"));
        let shared = run(&["a", "b"], &[]);
        assert_eq!(refused(&shared, &["a", "b"], &[]), "");
        assert!(refused(&shared, &["a", "b"], &["c"]).contains("at the end of the data"));
    }
}
