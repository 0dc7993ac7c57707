//! After a crash of whatever was in the way: is every commit there that `oltp` acknowledged?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use weir::{Disk, Session};
use weir_load::Range;
use weir_load::oltp::audit::{Audit, Found};
use weir_load::oltp::format::{BLOCK_BYTES, REDO_BYTES};

use crate::devices::Devices;

/// Bytes of redo read at once.
const PIECE: u64 = 1 << 20;

/// One instance as the file of commits has it.
struct Acknowledged {
    run: u64,
    data: Range,
    redo: Range,
    commits: BTreeSet<u64>,
}

/// What was found.
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

/// Looks for every commit of the last run in `commits` on its targets.
///
/// # Errors
/// What is lost, or could not be read.
pub fn check(target: &str, redo: Option<&str>, commits: &Path) -> Result<Checked, Lost> {
    let unreadable = |why: String| Lost::Unreadable(why);
    let name = commits.display();
    let text = std::fs::read_to_string(commits).map_err(|e| unreadable(format!("{name}: {e}")))?;
    let instances = read_commits(&text).map_err(|why| unreadable(format!("{name}: {why}")))?;
    let open = |target: &str| Disk::open(target).map_err(|e| unreadable(e.to_string()));
    let data_disk = open(target)?;
    let mut names = vec![String::from(target)];
    names.extend(redo.map(String::from));
    let devices = Devices::of(&names).map_err(unreadable)?;
    let apart = devices.devices.get(1).map(|(name, _)| name.as_str());
    let redo_disk = apart.map(open).transpose()?;
    let session = |disk: &Disk| disk.session().map_err(|e| unreadable(e.to_string()));
    let mut data = session(&data_disk)?;
    let mut redo = session(redo_disk.as_ref().unwrap_or(&data_disk))?;
    let mut sum = Checked { commits: 0, in_log: 0, checkpointed: 0, blocks: 0 };
    for (instance, acknowledged) in &instances {
        let (found, blocks) = check_one(*instance, acknowledged, &mut data, &mut redo)?;
        sum.commits += acknowledged.commits.len() as u64;
        sum.in_log += found.in_log;
        sum.checkpointed += found.checkpointed;
        sum.blocks += blocks;
    }
    Ok(sum)
}

fn check_one(
    instance: u16,
    acknowledged: &Acknowledged,
    data: &mut Session,
    redo: &mut Session,
) -> Result<(Found, u64), Lost> {
    let unreadable = |error: weir::IoError| Lost::Unreadable(error.to_string());
    let range = acknowledged.redo;
    let mut audit = Audit::new(acknowledged.run, instance, range.bytes / REDO_BYTES);
    let mut bytes = vec![0; PIECE as usize];
    let mut at = 0;
    while at < range.bytes {
        let piece = &mut bytes[..(range.bytes - at).min(PIECE) as usize];
        redo.read_at(range.offset + at, piece).map_err(unreadable)?;
        audit.take_redo(piece);
        at += piece.len() as u64;
    }
    let found = audit.verdict(&acknowledged.commits).map_err(Lost::Commits)?;
    let wanted = audit.wanted();
    let mut block = vec![0; BLOCK_BYTES as usize];
    for wanted in &wanted {
        let at = acknowledged.data.offset + wanted.block * BLOCK_BYTES;
        data.read_at(at, &mut block).map_err(unreadable)?;
        audit.take_data(*wanted, &block).map_err(Lost::Commits)?;
    }
    Ok((found, wanted.len() as u64))
}

/// The instances of the last run in the file, and what they acknowledged. A last line without its
/// end was being written when the power went: nobody has read it.
fn read_commits(text: &str) -> Result<BTreeMap<u16, Acknowledged>, String> {
    let mut instances: BTreeMap<u16, Acknowledged> = BTreeMap::new();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (line, text) in (1..).zip(whole.lines()) {
        let words: Vec<_> = text.split(' ').collect();
        let read = match words[..] {
            ["commit", instance, id] => read_commit(&mut instances, instance, id),
            ["run", run, "instance", instance, "data", data, "redo", redo] => {
                read_instance(&mut instances, run, instance, [data, redo])
            }
            _ => None,
        };
        read.ok_or_else(|| format!("line {line}: {text:?} is none of a run of oltp"))?;
    }
    if instances.is_empty() {
        return Err(String::from("there is no run of oltp in it"));
    }
    Ok(instances)
}

fn read_commit(
    instances: &mut BTreeMap<u16, Acknowledged>,
    instance: &str,
    id: &str,
) -> Option<()> {
    let known = instances.get_mut(&instance.parse().ok()?)?;
    known.commits.insert(id.parse().ok()?);
    Some(())
}

fn read_instance(
    instances: &mut BTreeMap<u16, Acknowledged>,
    run: &str,
    instance: &str,
    ranges: [&str; 2],
) -> Option<()> {
    let run = run.parse().ok()?;
    let range = |text: &str| {
        let (offset, bytes) = text.split_once('+')?;
        Some(Range { offset: offset.parse().ok()?, bytes: bytes.parse().ok()? })
    };
    let [data, redo] = [range(ranges[0])?, range(ranges[1])?];
    // Another run overwrites what those before it left.
    instances.retain(|_, known| known.run == run);
    let commits = BTreeSet::new();
    instances.insert(instance.parse().ok()?, Acknowledged { run, data, redo, commits });
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "run 7 instance 0 data 0+8192 redo 8192+4096\n";

    #[test]
    fn the_last_run_counts_and_a_line_without_its_end_does_not() {
        let text = format!("run 6 instance 0 data 0+1 redo 1+1\ncommit 0 9\n{HEAD}commit 0 1\nco");
        let instances = read_commits(&text).expect("a file of commits");
        assert_eq!(instances[&0].commits, BTreeSet::from([1]));
        assert_eq!((instances[&0].run, instances[&0].redo.offset), (7, 8192));
    }

    #[test]
    fn what_is_no_file_of_commits_is_refused_with_its_line() {
        for (text, part) in [
            ("", "no run"),
            ("commit 0 1\n", "line 1"),
            ("run 7 instance 0 data 0+8192 redo 8192+4096\ncommit 0 x\n", "line 2"),
        ] {
            assert!(read_commits(text).is_err_and(|why| why.contains(part)), "{text}");
        }
    }
}
